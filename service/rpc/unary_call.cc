#include "service/rpc/unary_call.h"

#include <grpcpp/impl/codegen/proto_utils.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "service/convert/status.h"

namespace hir::service {

std::shared_ptr<UnaryCall> UnaryCall::Make(std::string_view method, InFlight& in_flight,
                                           std::unique_ptr<google::protobuf::Message> reply, grpc::ByteBuffer* answer) {
  const std::shared_ptr<UnaryCall> call(new UnaryCall(method, in_flight, std::move(reply), answer));
  call->self_ = call;
  return call;
}

UnaryCall::UnaryCall(std::string_view method, InFlight& in_flight, std::unique_ptr<google::protobuf::Message> reply,
                     grpc::ByteBuffer* answer)
    : method_(method),
      in_flight_(in_flight),
      entry_(in_flight.Enter()),
      start_(base::Clock::Steady().Now()),
      reply_(std::move(reply)),
      answer_(answer) {}

bool UnaryCall::Claim() {
  const std::scoped_lock lock(mutex_);
  return !std::exchange(claimed_, true);
}

void UnaryCall::End(const Status& status) { Conclude(status, reply_.get()); }

void UnaryCall::EndWith(const Status& status, const grpc::ByteBuffer& written) {
  *answer_ = written;
  Conclude(status, nullptr);
}

void UnaryCall::Conclude(const Status& status, const google::protobuf::Message* reply) {
  LogCall(method_, id(), status, base::Clock::Steady().Now() - start_);
  if (status.ok() && reply != nullptr) {
    const grpc::Status written = Write(*reply, *answer_);
    if (!written.ok()) return Finish(written);
  }
  Finish(ToGrpc(status));
}

void UnaryCall::OnCancel() {
  {
    const std::scoped_lock lock(mutex_);
    cancelled_ = true;
    if (std::exchange(claimed_, true)) return;
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

grpc::Status Write(const google::protobuf::Message& reply, grpc::ByteBuffer& answer) {
  bool owned = false;
  return grpc::SerializationTraits<google::protobuf::Message>::Serialize(reply, &answer, &owned);
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
