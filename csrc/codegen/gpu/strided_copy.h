// A kernel that copies elements between tensors of any strides, for operands of library calls: sizes are arguments, so
// that one kernel serves all of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/codegen/gpu/gpu.h"

namespace hir::codegen::gpu {

inline constexpr const char* kStridedCopyKernel = "copy";

// The kernel for elements of `bytes` bytes: 1, 2, 4 or 8.
Source EmitStridedCopy(int64_t bytes);

struct StridedCopyLaunch {
  std::vector<int64_t> args = {};
  int64_t grid = 0;  // 0: there is nothing to copy.
};
// Addresses, strides in elements. REQUIRES: at most ir::kAxesMax + 2 axes, as many strides of each.
StridedCopyLaunch LaunchOf(int64_t to, std::span<const int64_t> to_strides, int64_t from,
                           std::span<const int64_t> from_strides, std::span<const int64_t> shape);

}  // namespace hir::codegen::gpu
