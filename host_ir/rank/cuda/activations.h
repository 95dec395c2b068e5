// Activations by kernels of our own, for products whose library has none for their sizes.
#pragma once

#include <functional>

#include "csrc/base/dtype.h"
#include "csrc/base/status.h"
#include "csrc/codegen/library/abilities.h"
#include "csrc/device/device.h"

namespace hir::rank {

// Queues the activation of all elements of a buffer, in place.
using Activation = std::function<Status(device::Buffer, device::Stream&)>;

// Generates, compiles and loads its kernel for `device`, of csrc/device/cuda, which outlives the result.
// Errors: those of codegen::gpu::Compiler and Load.
Result<Activation> MakeActivation(codegen::library::Epilogue epilogue, DType dtype, device::Device& device);

}  // namespace hir::rank
