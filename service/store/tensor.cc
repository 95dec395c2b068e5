#include "service/store/tensor.h"

#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/shortened.h"

namespace hir::service {

void ReleasedShards::Add(std::vector<int64_t> ids) {
  {
    const std::scoped_lock lock(mutex_);
    if (ended_) return;
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }
  notify_();
}

std::vector<int64_t> ReleasedShards::Take() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(ids_, {});
}

void ReleasedShards::End() {
  const std::scoped_lock lock(mutex_);
  ended_ = true;
}

ShardSet::~ShardSet() {
  if (recycle_ && host_.use_count() == 1 && !is_seen_by_others) {
    recycle_(shards_, std::move(host_));
    return;
  }
  std::vector<int64_t> ids;
  for (const Shard& shard : shards_) ids.push_back(shard.id);
  released_->Add(std::move(ids));
}

std::vector<std::byte*> HostShards::Addresses() const {
  std::vector<std::byte*> addresses;
  for (const SharedMemory& shard : memory) addresses.push_back(shard.data());
  return addresses;
}

std::shared_ptr<HostShards> ShardSet::host() const {
  const std::scoped_lock lock(mutex_);
  return host_;
}

void ShardSet::DropHost() {
  std::shared_ptr<HostShards> dropped;  // Goes when the lock is released.
  const std::scoped_lock lock(mutex_);
  dropped.swap(host_);
}

Readiness::Condition Readiness::condition() const {
  const std::scoped_lock lock(mutex_);
  return {state_, error_};
}

void Readiness::Settle(const Status& outcome) {
  std::map<int64_t, std::function<void()>> waiting;  // In the order of WhenSettled.
  {
    const std::scoped_lock lock(mutex_);
    HIR_CHECK(state_ == TensorState::kPending);
    state_ = outcome.ok() ? TensorState::kReady : TensorState::kPoisoned;
    error_ = base::Shortened(outcome);
    waiting.swap(waiting_);
  }
  for (const auto& [number, then] : waiting) then();
}

void Readiness::Lose(const Status& cause) {
  const std::scoped_lock lock(mutex_);
  if (state_ != TensorState::kReady) return;
  state_ = TensorState::kLost;
  error_ = base::Shortened(cause);
}

int64_t Readiness::WhenSettled(std::function<void()> then) {
  {
    const std::scoped_lock lock(mutex_);
    if (state_ == TensorState::kPending) {
      waiting_.emplace(++last_number_, std::move(then));
      return last_number_;
    }
  }
  then();
  return 0;
}

void Readiness::Forget(int64_t number) {
  std::map<int64_t, std::function<void()>>::node_type forgotten;  // Goes when the lock is released.
  const std::scoped_lock lock(mutex_);
  forgotten = waiting_.extract(number);
}

void Subscriptions::WhenSettled(const std::shared_ptr<Readiness>& readiness, std::function<void()> then) {
  const int64_t number = readiness->WhenSettled(std::move(then));
  if (number == 0) return;
  {
    const std::scoped_lock lock(mutex_);
    if (!ended_) {
      waiting_.emplace_back(readiness, number);
      return;
    }
  }
  readiness->Forget(number);
}

void Subscriptions::End() {
  std::vector<std::pair<std::shared_ptr<Readiness>, int64_t>> waiting;
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
    waiting.swap(waiting_);
  }
  for (const auto& [readiness, number] : waiting) readiness->Forget(number);
}

}  // namespace hir::service
