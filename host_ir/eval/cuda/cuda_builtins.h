// The built-in kernels (host_ir/eval/builtins.h) on a GPU.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "csrc/device/device.h"

namespace hir::host {

// Makes a cubin of CUDA C++ for an architecture (90).
using CompileCuda = std::function<Result<std::string>(std::string_view text, int architecture)>;

// For a device of csrc/device/cuda, which outlives the source. Errors: those of `compile` and LoadCubin.
Result<std::unique_ptr<device::KernelSource>> MakeCudaBuiltins(device::Device& device, const CompileCuda& compile);

}  // namespace hir::host
