// Memory that calls on a device use while they run, one piece a stream.
//
// A call may be queued on several streams at once (a stream loop does that), and calls of several programs on one; so
// the memory belongs to the stream, whose work is in order, and not to a call or to a plan's pool, where each of many
// calls that never overlap would hold its own 32 MiB.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/device/device.h"

namespace hir::codegen::library {

// What the library demands of a workspace's address, and a device does not promise.
inline constexpr int64_t kWorkspaceAlignment = 256;

// Every piece begins at a multiple of kWorkspaceAlignment.
// Thread-safe.
class Workspaces {
 public:
  explicit Workspaces(device::Device& device) : device_(device) {}

  // Makes sure that a stream which needs `bytes` and has fewer gets them without asking the device.
  Status Reserve(int64_t bytes) {
    const std::scoped_lock lock(mutex_);
    bytes += kSlack;
    if (spare_ != nullptr && spare_->buffer().bytes >= bytes) return {};
    for (const auto& [stream, owned] : of_stream_) {
      if (owned.back()->buffer().bytes >= bytes) return {};  // Programs stay on their streams.
    }
    HIR_ASSIGN(spare_, device_.Allocate(bytes));
    return {};
  }

  // One of at least `bytes`. Work queued before keeps what it was given.
  Result<device::Buffer> For(device::Stream& stream, int64_t bytes) {
    const std::scoped_lock lock(mutex_);
    bytes += kSlack;
    std::vector<std::unique_ptr<device::Allocation>>& owned = of_stream_[&stream];
    if (!owned.empty() && owned.back()->buffer().bytes >= bytes) return Aligned(owned.back()->buffer());
    if (spare_ == nullptr || spare_->buffer().bytes < bytes) {
      Result<std::unique_ptr<device::Allocation>> made = device_.Allocate(bytes);
      if (!made.ok()) {
        if (owned.empty()) of_stream_.erase(&stream);
        return made.status();
      }
      spare_ = std::move(*made);
    }
    owned.push_back(std::move(spare_));
    return Aligned(owned.back()->buffer());
  }

 private:
  static constexpr int64_t kSlack = kWorkspaceAlignment - device::kAlignmentBytes;

  static device::Buffer Aligned(device::Buffer buffer) {
    const auto begin = static_cast<int64_t>(reinterpret_cast<uintptr_t>(buffer.data));
    const int64_t skipped = (kWorkspaceAlignment - begin % kWorkspaceAlignment) % kWorkspaceAlignment;
    return buffer.Slice(skipped, buffer.bytes - kSlack);
  }

  device::Device& device_;
  std::mutex mutex_;
  std::unique_ptr<device::Allocation> spare_;
  std::map<const device::Stream*, std::vector<std::unique_ptr<device::Allocation>>> of_stream_;
};

}  // namespace hir::codegen::library
