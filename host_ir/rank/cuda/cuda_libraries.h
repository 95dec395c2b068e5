// Library calls of a GPU, as an evaluator wants them.
#pragma once

#include <memory>

#include "csrc/device/device.h"
#include "host_ir/eval/library.h"

namespace hir::rank {

// cuBLASLt is loaded at the first call that is made: a program without matmuls needs none. `device` is one of
// csrc/device/cuda and outlives the source, and the source its calls.
std::unique_ptr<host::LibrarySource> MakeCudaLibraries(device::Device& device);

}  // namespace hir::rank
