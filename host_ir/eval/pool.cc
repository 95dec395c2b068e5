#include "host_ir/eval/pool.h"

namespace hir::host {

Result<std::shared_ptr<const device::Allocation>> Pool::Reserve(int64_t bytes) {
  if (memory_ == nullptr || memory_->buffer().bytes < bytes) {
    HIR_ASSIGN(std::unique_ptr<device::Allocation> larger, device_.Allocate(bytes));
    if (memory_ != nullptr) replaced_.push_back(std::move(memory_));
    memory_ = std::move(larger);
  }
  return memory_;
}

Result<std::shared_ptr<const comm::Window>> Pool::ReserveWindow(comm::Communicator& communicator, comm::TeamId team,
                                                                int64_t bytes) {
  TeamWindow& known = windows_[{&communicator, team}];
  const bool large_enough = known.window != nullptr && known.window->own().bytes >= bytes;
  const bool refused = known.refused_bytes >= 0 && bytes >= known.refused_bytes;
  if (large_enough) return known.window;
  if (refused) return std::shared_ptr<const comm::Window>();
  auto made = communicator.MakeWindow(team, bytes);
  if (made.ok()) return known.window = *std::move(made);
  if (made.status().code() != hir::Code::kUnavailable && made.status().code() != hir::Code::kUnimplemented)
    return made.status();
  known.refused_bytes = bytes;
  return std::shared_ptr<const comm::Window>();
}

}  // namespace hir::host
