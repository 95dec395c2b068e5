// Pool: the one piece of device memory that all host programs of a device take their `alloc`s from.
// Runs are ordered by stream 0, so one after the other may use the same bytes.
#pragma once

#include <memory>
#include <vector>

#include "csrc/device/device.h"

namespace hir::host {

// One thread at a time.
class Pool {
 public:
  explicit Pool(device::Device& device) : device_(device) {}

  // At least `bytes`: the memory there is, or larger memory in its place. Runs that are queued go
  // on in the old one, which is kept for them; who will queue more in what it got keeps the
  // pointer. Errors: those of Device::Allocate.
  Result<std::shared_ptr<const device::Allocation>> Reserve(int64_t bytes);
  // Lets go of what Reserve replaced. REQUIRES: all queued runs are over.
  void ReleaseReplaced() { replaced_.clear(); }
  // Lets go of all memory. REQUIRES: as ReleaseReplaced. Who still has a pointer keeps what it points to.
  void Release() {
    memory_ = nullptr;
    ReleaseReplaced();
  }
  int64_t bytes() const { return memory_ == nullptr ? 0 : memory_->buffer().bytes; }

 private:
  device::Device& device_;
  std::shared_ptr<const device::Allocation> memory_;
  std::vector<std::shared_ptr<const device::Allocation>> replaced_;
};

}  // namespace hir::host
