// Sums of rows by index in one form, all by strides: for each place along the outer axes, each row and each column of
// the output the sum of the updates there whose index is the row. For whoever makes calls of them.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/codegen/library/library.h"

namespace hir::codegen::library {

struct IndexSum {
  // An axis along which both tensors go, and the sums do not.
  struct Axis {
    int64_t extent = 1;
    int64_t from = 0, to = 0;  // Strides in the updates and the output.
  };
  DType dtype = DType::kFloat32;
  DType index = DType::kInt64;
  std::vector<Axis> outer;  // All axes beside the summed one and `columns`, outermost first.
  Axis columns;             // The innermost one; axes that continue each other are one.
  int64_t count = 0;        // Of updates; then where the next one is, and its index.
  int64_t from_next = 0, index_next = 0;
  int64_t size = 0;  // Rows of the output; then where the next one is.
  int64_t to_next = 0;
};

// Errors: as MakeIndexSum's.
Result<IndexSum> Normalize(const IndexSumDesc& desc);

}  // namespace hir::codegen::library
