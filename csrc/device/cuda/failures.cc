#include "csrc/device/cuda/failures.h"

#include <utility>

namespace hir::device::cuda {

StreamHistory::~StreamHistory() {
  if (failed_at_ == kNever) return;
  --log_.unsettled_;
  --log_.failed_;
}

void StreamHistory::End(int64_t index, const Status& status) {
  if (!status.ok()) Fail(index, status);
  --log_.unsettled_;
}

void StreamHistory::Fail(int64_t index, const Status& status) {
  std::lock_guard lock(log_.mutex_);
  FailLocked(index, status);
}

void StreamHistory::FailLocked(int64_t index, const Status& status) {
  if (failed_at_ <= index) return;
  if (failed_at_ == kNever) {
    ++log_.unsettled_;
    ++log_.failed_;
  }
  failed_at_ = index;
  failure_ = status;
}

void StreamHistory::AddWait(const std::shared_ptr<StreamHistory>& other, int64_t position) {
  if (other.get() == this || log_.settled()) return;
  const int64_t at = Next();
  std::lock_guard lock(log_.mutex_);
  sources_.push_back({.at = at, .from = other, .position = position});
}

Status StreamHistory::FailureBefore(int64_t position) const {
  if (log_.failed_.load() == 0) return {};
  std::lock_guard lock(log_.mutex_);
  Visited visited;
  return Find(position, visited).second;
}

// Ends: what a wait refers to was queued before it.
std::pair<int64_t, Status> StreamHistory::Find(int64_t position, Visited& visited) const {
  for (const auto& [history, before] : visited) {
    if (history == this && before >= position) return {kNever, {}};
  }
  visited.emplace_back(this, position);
  std::pair<int64_t, Status> first = {kNever, {}};
  if (failed_at_ < position) first = {failed_at_, failure_};
  for (const Source& source : sources_) {
    if (source.at >= position || source.at >= first.first) continue;
    const Status failure = source.from->Find(source.position, visited).second;
    if (!failure.ok()) first = {source.at, failure};
  }
  return first;
}

void StreamHistory::Clear() {
  std::lock_guard lock(log_.mutex_);
  if (failed_at_ != kNever) {
    --log_.unsettled_;
    --log_.failed_;
  }
  failed_at_ = kNever;
  failure_ = {};
  sources_.clear();
}

void StreamHistory::Settle(int64_t position) {
  std::lock_guard lock(log_.mutex_);
  if (sources_.empty()) return;
  if (log_.failed_.load() != 0) {
    Visited visited;
    const auto [index, failure] = Find(position, visited);
    if (!failure.ok()) FailLocked(index, failure);
  }
  std::erase_if(sources_, [position](const Source& source) { return source.at < position; });
}

}  // namespace hir::device::cuda
