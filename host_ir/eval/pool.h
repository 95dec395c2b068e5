// Pool: the one piece of device memory that all host programs of a device take their `alloc`s from, and for each team
// the one that its members write into. Runs are ordered by stream 0, so one after the other may use the same bytes.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "csrc/device/device.h"
#include "multidevice/comm/communicator.h"

namespace hir::host {

// One thread at a time.
class Pool {
 public:
  explicit Pool(device::Device& device) : device_(device) {}

  // At least `bytes`: the memory there is, or larger memory in its place. Runs that are queued go
  // on in the old one, which is kept for them; who will queue more in what it got keeps the
  // pointer. Errors: those of Device::Allocate.
  Result<std::shared_ptr<const device::Allocation>> Reserve(int64_t bytes);
  // The window of a team that has at least `bytes`, or null where it has none. Collective over the team's members, who
  // all ask for the same, in the same order; whoever queues work in it keeps the pointer. Stays until the pool goes.
  // Errors: kDeadlineExceeded: a member did not come.
  Result<std::shared_ptr<const comm::Window>> ReserveWindow(comm::Communicator& communicator, comm::TeamId team,
                                                            int64_t bytes);
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
  struct TeamWindow {
    std::shared_ptr<const comm::Window> window;
    int64_t refused_bytes = -1;  // So many, and more, the team cannot have; -1: it was never refused.
  };
  std::map<std::pair<const comm::Communicator*, comm::TeamId>, TeamWindow> windows_;
};

}  // namespace hir::host
