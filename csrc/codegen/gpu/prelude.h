// The CUDA C++ that every kernel starts with. Private to csrc/codegen/gpu.
#pragma once

#include <string_view>

namespace hir::codegen::gpu {

// What the hardware does: lanes, barriers, memory, conversions. Tests have another one, for CPUs.
extern const std::string_view kIntrinsics;
// What is written in C++ on top of them.
extern const std::string_view kPrelude;

}  // namespace hir::codegen::gpu
