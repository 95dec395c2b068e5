#include "service/cluster/grants.h"

#include <utility>

#include "service/supervise/child_error.h"

namespace hir::service {

namespace pb = ::hostir::v1;

class Grants::Held final : public Grant {
 public:
  Held(std::shared_ptr<Grants> grants, int64_t number) : grants_(std::move(grants)), number_(number) {}
  ~Held() override { grants_->Revoke(number_); }
  Status failure() const override { return grants_->FailureOf(number_); }

 private:
  const std::shared_ptr<Grants> grants_;
  const int64_t number_;
};

void Grants::Ask(Tickets tickets, Ranks::Granted granted) {
  Status over;
  {
    const std::scoped_lock lock(mutex_);
    over = over_;
    if (over.ok()) {
      asked_.push_back(++last_);
      grants_[last_] = {.tickets = std::move(tickets), .granted = std::move(granted)};
    }
  }
  if (!over.ok()) return granted(over);
  wake_();
}

bool Grants::has_revoked() const {
  const std::scoped_lock lock(mutex_);
  return !revoked_.empty();
}

void Grants::Carry(const std::function<Status(int64_t)>& why_not,
                   const std::function<void(int64_t, pb::ToNode)>& send) {
  std::unique_lock lock(mutex_);
  const std::vector<int64_t> asked = std::exchange(asked_, {});
  const auto revoked = std::exchange(revoked_, {});
  std::vector<std::pair<int64_t, pb::ToNode>> said;
  for (const int64_t number : asked) {
    One& one = grants_[number];
    for (const auto& [node, grant] : one.tickets) {
      if (one.failure.ok()) one.failure = why_not(node);
    }
    if (!one.failure.ok()) continue;
    for (auto& [node, grant] : one.tickets) {
      pb::ToNode message;
      message.mutable_grant()->Swap(&grant);
      message.mutable_grant()->set_number(number);
      said.emplace_back(node, std::move(message));
      one.nodes.insert(node);
    }
    one.unanswered = one.nodes;
    one.tickets.clear();
  }
  lock.unlock();
  for (const auto& [node, number] : revoked) {
    pb::ToNode message;
    message.mutable_revoke()->set_number(number);
    send(node, std::move(message));
  }
  for (auto& [node, message] : said) send(node, std::move(message));
  for (const int64_t number : asked) Answer(std::unique_lock(mutex_), number);
}

void Grants::Hear(int64_t node, const pb::Granted& said) {
  std::unique_lock lock(mutex_);
  const auto found = grants_.find(said.number());
  if (found == grants_.end() || found->second.unanswered.erase(node) == 0) return;
  if (found->second.failure.ok()) found->second.failure = FromError(said.error());
  Answer(std::move(lock), said.number());
}

void Grants::Lose(int64_t node, const Status& why) {
  std::vector<int64_t> lost;
  {
    const std::scoped_lock lock(mutex_);
    // It is still to hear of their end: its link may have been lost and up again before they were said.
    for (auto& [number, one] : grants_) {
      if (!one.nodes.contains(node)) continue;
      one.unanswered.erase(node);
      if (one.failure.ok()) one.failure = why;
      lost.push_back(number);
    }
  }
  for (const int64_t number : lost) Answer(std::unique_lock(mutex_), number);
}

void Grants::End(const Status& why) {
  std::vector<int64_t> all;
  {
    const std::scoped_lock lock(mutex_);
    over_ = why;
    asked_.clear();
    for (auto& [number, one] : grants_) {
      if (one.failure.ok()) one.failure = why;
      all.push_back(number);
    }
  }
  for (const int64_t number : all) Answer(std::unique_lock(mutex_), number);
}

void Grants::Answer(std::unique_lock<std::mutex> lock, int64_t number) {
  const auto found = grants_.find(number);
  if (found == grants_.end()) return;
  One& one = found->second;
  if (!one.granted || (one.failure.ok() && !one.unanswered.empty())) return;
  const Ranks::Granted granted = std::exchange(one.granted, {});
  const Status failure = one.failure;
  lock.unlock();
  auto held = std::make_unique<Held>(shared_from_this(), number);  // Revokes, where it has failed.
  if (failure.ok()) return granted(std::move(held));
  held = nullptr;
  granted(failure);
}

void Grants::Revoke(int64_t number) {
  {
    const std::scoped_lock lock(mutex_);
    const auto found = grants_.find(number);
    if (found == grants_.end()) return;
    for (const int64_t node : found->second.nodes) revoked_.emplace_back(node, number);
    grants_.erase(found);
    if (revoked_.empty() || !over_.ok()) return;
  }
  wake_();
}

Status Grants::FailureOf(int64_t number) const {
  const std::scoped_lock lock(mutex_);
  const auto found = grants_.find(number);
  return found == grants_.end() ? over_ : found->second.failure;
}

}  // namespace hir::service
