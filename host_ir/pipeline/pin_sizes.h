// A program for one set of sizes.
#pragma once

#include <cstdint>
#include <memory>

#include "csrc/base/status.h"
#include "csrc/codegen/codegen.h"
#include "csrc/ir/graph.h"

namespace hir::host {

// By symbol of an input's shape the least of its sizes, above 0, that share a plan; smaller ones are constants of
// plans of their own. That is 2: by a batch of one axes lie side by side in memory that others keep apart. It is
// kNarrow + 1 for the innermost axis of an input or output of floats: how many elements such a row has says what a
// vector is, and which threads read it.
constexpr int64_t kNarrow = 16;
codegen::Sizes LeastShared(const ir::Graph& program);

// `program`, built again with the symbols of `sizes` as constants: what is known changes types, as of axes of no
// element. Layouts stay. Errors: kInvalidArgument for sizes that an op refuses, or that a guard does.
Result<std::unique_ptr<ir::Graph>> PinSizes(const ir::Graph& program, const codegen::Sizes& sizes);

}  // namespace hir::host
