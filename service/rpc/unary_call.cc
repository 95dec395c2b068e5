#include "service/rpc/unary_call.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "service/convert/status.h"

namespace hir::service {

std::shared_ptr<UnaryCall> UnaryCall::Make(std::string_view method, InFlight& in_flight) {
  const std::shared_ptr<UnaryCall> call(new UnaryCall(method, in_flight));
  call->self_ = call;
  return call;
}

UnaryCall::UnaryCall(std::string_view method, InFlight& in_flight)
    : method_(method), in_flight_(in_flight), entry_(in_flight.Enter()), start_(base::Clock::Steady().Now()) {}

bool UnaryCall::Claim() {
  const std::scoped_lock lock(mutex_);
  return !std::exchange(claimed_, true);
}

void UnaryCall::End(const Status& status) {
  LogCall(method_, id(), status, base::Clock::Steady().Now() - start_);
  Finish(ToGrpc(status));
}

void UnaryCall::DoneWithRequest() {
  {
    const std::scoped_lock lock(mutex_);
    request_read_ = true;
    if (!cancelled_ || std::exchange(claimed_, true)) return;
  }
  End(Status(Code::kCancelled, "the client left"));
}

void UnaryCall::OnCancel() {
  {
    const std::scoped_lock lock(mutex_);
    cancelled_ = true;
    if (!request_read_ || std::exchange(claimed_, true)) return;
  }
  End(Status(Code::kCancelled, "the client left"));
}

void UnaryCall::OnDone() {
  const bool unheard = [this] {  // Said by OnCancel, which is over.
    const std::scoped_lock lock(mutex_);
    return cancelled_;
  }();
  if (unheard && undo_) undo_();
  subscriptions_.End();  // They hold the call.
  in_flight_.Leave();
  const std::shared_ptr<UnaryCall> self = std::move(self_);
}

InFlight::Entry InFlight::Enter() {
  Entry entry;
  int64_t under_way = 0;
  {
    const std::scoped_lock lock(mutex_);
    under_way = ++count_;
    entry.id = ++last_id_;
  }
  if (under_way > most_) {
    entry.admission =
        ResourceExhausted(base::Cat("requests_max = ", most_, ": as many are under way; try again later"));
  }
  return entry;
}

void InFlight::Leave() {
  const std::scoped_lock lock(mutex_);
  if (--count_ == 0) none_.notify_all();
}

int64_t InFlight::total() const {
  const std::scoped_lock lock(mutex_);
  return last_id_;
}

int64_t InFlight::under_way() const {
  const std::scoped_lock lock(mutex_);
  return count_;
}

bool InFlight::Drain(base::Nanos timeout) {
  std::unique_lock lock(mutex_);
  return none_.wait_for(lock, timeout, [this] { return count_ == 0; });
}

void LogCall(std::string_view method, int64_t id, const Status& status, base::Nanos took) {
  const int64_t us = took.count() / 1000;
  if (status.ok()) {
    spdlog::debug("request={} method={} us={}", id, method, us);
  } else {
    spdlog::warn("request={} method={} us={} error={}", id, method, us, base::Quoted(status.ToString()));
  }
}

}  // namespace hir::service
