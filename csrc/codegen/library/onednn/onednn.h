// Matrix products by oneDNN where it has them, else by loops, attention and products of groups by its products of
// blocks; without oneDNN always by loops.
#pragma once

#include <memory>

#include "csrc/codegen/library/library.h"

namespace hir::codegen::library {

struct Options {
  int num_threads = 1;  // OpenMP threads of one call. Ranks that share a machine share its cores.
};

// Making a call takes 0.2 to 2 ms, the first one 7: make calls when sizes are known, not in a run. Errors: as
// MakeLoops.
Result<std::unique_ptr<Call>> Make(const ProductDesc& desc, const Options& options);

// Products of blocks are oneDNN's, of f64 loops. Runs on the caller's thread and the idle ones of `pool`, which
// outlives the call; threads change no bit of the result. Errors: kInvalidArgument for shapes that do not fit each
// other, kUnimplemented for other element types.
Result<std::unique_ptr<Call>> MakeAttention(const AttentionDesc& desc, base::WorkPool& pool);

// As MakeAttention; of integers, too, by loops.
Result<std::unique_ptr<Call>> MakeGroupedProduct(const GroupedProductDesc& desc, base::WorkPool& pool);

}  // namespace hir::codegen::library
