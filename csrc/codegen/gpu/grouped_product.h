// Kernels of products of groups of rows, written by hand: where a group begins is data.
//
// A CTA makes a tile of the output. It goes through the ends of all groups; of grouped_matmul, a tile of rows is made
// by as many passes as there are groups in it. Each element is made by one thread, in one order.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "csrc/codegen/gpu/gpu.h"
#include "csrc/codegen/library/grouped_product.h"

namespace hir::codegen::gpu {

inline constexpr std::array<const char*, 2> kGroupedProductKernels = {"grouped_matmul", "grouped_outer"};

Source EmitGroupedProduct(DType dtype, DType index);

struct GroupedProductLaunch {
  int kernel = 0;  // Of kGroupedProductKernels.
  std::vector<int64_t> args = {};
  int64_t grid = 0;  // 0: there is nothing to do.
};
// Arguments are addresses.
GroupedProductLaunch LaunchOf(const library::GroupedProduct& product, int64_t a, int64_t b, int64_t ends,
                              int64_t output);

}  // namespace hir::codegen::gpu
