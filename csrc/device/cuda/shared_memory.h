// Device memory that other processes map: physical memory of its own, apart from the slab, so that it stays as long
// as anybody has it mapped, and what a process that failed still writes reaches nothing else.
#pragma once

#include <memory>

#include "csrc/device/cuda/context.h"
#include "csrc/device/cuda/slab.h"

namespace hir::device::cuda {

// See cuda_device.h. The memory counts in the slab's bytes.
Result<SharedMemory> AllocateShared(Context& context, Slab& slab, int64_t bytes);
Result<std::unique_ptr<Allocation>> MapShared(Context& context, int fd, int64_t bytes);

// Lets the context's device read and write what is mapped at `address`.
Status SetAccess(const Context& context, CUdeviceptr address, int64_t bytes);

}  // namespace hir::device::cuda
