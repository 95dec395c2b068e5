#include "service/rpc/unary_call.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <utility>

#include "csrc/base/text.h"
#include "service/convert/status.h"

namespace hir::service {

std::shared_ptr<UnaryCall> UnaryCall::Make(CallRecord record, InFlight& in_flight, CallLog& log,
                                           std::unique_ptr<google::protobuf::Message> reply, grpc::ByteBuffer* answer) {
  const std::shared_ptr<UnaryCall> call(new UnaryCall(std::move(record), in_flight, log, std::move(reply), answer));
  call->self_ = call;
  return call;
}

UnaryCall::UnaryCall(CallRecord record, InFlight& in_flight, CallLog& log,
                     std::unique_ptr<google::protobuf::Message> reply, grpc::ByteBuffer* answer)
    : in_flight_(in_flight),
      log_(log),
      entry_(in_flight.Enter()),
      trace_(record.trace),
      record_(std::move(record)),
      reply_(std::move(reply)),
      answer_(answer) {
  record_.id = entry_.id;
}

bool UnaryCall::Claim() {
  const std::scoped_lock lock(mutex_);
  return !std::exchange(claimed_, true);
}

void UnaryCall::End(const Status& status) { Conclude(status, reply_.get()); }

void UnaryCall::EndWith(const Status& status, const grpc::ByteBuffer& written) {
  *answer_ = written;
  Conclude(status, nullptr);
}

// The log hears of it before the client does, which may look.
void UnaryCall::Conclude(const Status& status, const google::protobuf::Message* reply) {
  const grpc::Status written = status.ok() && reply != nullptr ? Write(*reply, *answer_) : grpc::Status::OK;
  if (answer_ != nullptr && status.ok()) record_.bytes_out = static_cast<int64_t>(answer_->Length());
  if (!written.ok()) {
    log_.Over(record_, Internal("the reply cannot be written"));
    return Finish(written);
  }
  log_.Over(record_, status);
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

}  // namespace hir::service
