// Products of groups of rows in one form, all by strides, and calls of them by a given product of blocks. For this
// folder and those below it, and whoever makes calls on other devices.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "csrc/codegen/library/attention.h"
#include "csrc/codegen/library/library.h"

namespace hir::codegen::library {

struct GroupedProduct {
  // Strides; 0 along axes that are stored once. `group` is 0 of what has rows instead.
  struct Matrix {
    int64_t group = 0, row = 0, column = 0;
  };
  DType dtype = DType::kFloat32;
  DType index = DType::kInt64;  // Of the ends.
  bool outer = false;
  int64_t rows = 0, k = 0, n = 0, groups = 0;
  int64_t first = 0;  // The number of row 0, as ends count.
  int64_t next_end = 0;
  Matrix a;       // [rows, k]
  Matrix b;       // [groups, k, n], or of outer products [rows, n].
  Matrix output;  // [rows, n], or [groups, k, n].
};

// Errors: as MakeGroupedProduct's.
Result<GroupedProduct> Normalize(const GroupedProductDesc& desc);

// A call on the caller's thread and the idle ones of `pool`, which outlives it; threads change no bit of it. f64 and
// integers go by loops. Errors: kInvalidArgument for shapes that do not fit each other, kUnimplemented for other
// element types.
Result<std::unique_ptr<Call>> MakeGroupedProduct(const GroupedProductDesc& desc, base::WorkPool& pool,
                                                 BlockProduct<float> product, const std::string& product_name);

}  // namespace hir::codegen::library
