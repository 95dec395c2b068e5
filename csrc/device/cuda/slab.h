// Slab: a device's memory as one range of addresses, which gets physical memory when it is needed.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "csrc/base/free_ranges.h"
#include "csrc/device/cuda/context.h"

namespace hir::device::cuda {

// Thread-safe.
class Slab {
 public:
  // bytes_max: as CudaDeviceOptions::memory_bytes_max.
  static Result<std::unique_ptr<Slab>> Create(Context& context, int64_t bytes_max);
  ~Slab();

  Result<std::unique_ptr<Allocation>> Allocate(int64_t bytes);
  int64_t in_use() const { return in_use_.load(); }
  int64_t bytes_max() const { return bytes_max_; }

  // Counts `bytes` that were allocated elsewhere on the device in in_use(), and no longer.
  Status Charge(int64_t bytes);
  void Discharge(int64_t bytes);

 private:
  friend class SlabAllocation;
  struct Part {
    int64_t offset;
    int64_t bytes;
    CUmemGenericAllocationHandle handle;
  };
  explicit Slab(Context& context) : context_(context) {}
  Status GrowFor(int64_t bytes);
  Result<Part> MapPart(int64_t bytes);
  void Free(int64_t offset, int64_t rounded, int64_t bytes);
  Status DoesNotFit(int64_t bytes, std::string_view why) const;

  Context& context_;
  CUmemAllocationProp properties_ = {};
  int64_t granularity_ = 0;
  int64_t bytes_max_ = 0;
  CUdeviceptr base_ = 0;
  int64_t reserved_ = 0;
  std::atomic<int64_t> in_use_ = 0;  // As asked for; written under mutex_.
  std::mutex mutex_;
  std::vector<Part> parts_;  // Guarded by mutex_, one behind the other; so are the next two.
  int64_t mapped_ = 0;
  base::FreeRanges free_;
};

}  // namespace hir::device::cuda
