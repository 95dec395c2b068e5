// Copies between tensors of any strides on a GPU, by a kernel of our own (csrc/codegen/gpu/strided_copy.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "csrc/base/status.h"
#include "csrc/device/buffer.h"
#include "csrc/device/device.h"
#include "csrc/device/kernel.h"
#include "csrc/device/stream.h"

namespace hir::rank {

// `device`, of csrc/device/cuda, outlives it; it outlives the work queued with it. Thread-safe.
class StridedCopies {
 public:
  explicit StridedCopies(device::Device& device) : device_(device) {}
  // Queues a copy of all elements, of `bytes` bytes each (1, 2, 4 or 8); strides in elements. The kernel of a size is
  // compiled and loaded with its first copy. Errors: those of codegen::gpu::Compiler and Load.
  Status Queue(device::Buffer to, std::span<const int64_t> to_strides, device::Buffer from,
               std::span<const int64_t> from_strides, std::span<const int64_t> shape, int64_t bytes,
               device::Stream& stream);

 private:
  Result<const device::Kernel*> KernelFor(int64_t bytes);

  device::Device& device_;
  std::mutex mutex_;
  std::map<int64_t, std::unique_ptr<device::KernelSource>> kernels_;  // Guarded by mutex_.
};

}  // namespace hir::rank
