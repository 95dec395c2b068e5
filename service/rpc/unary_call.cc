#include "service/rpc/unary_call.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <utility>

#include "csrc/base/text.h"
#include "service/convert/status.h"

namespace hir::service {

UnaryCall::UnaryCall(CallRecord record, InFlight& in_flight, CallLog& log,
                     std::unique_ptr<google::protobuf::Message> reply)
    : in_flight_(in_flight),
      log_(log),
      entry_(in_flight.Enter()),
      trace_(record.trace),
      record_(std::move(record)),
      reply_(std::move(reply)) {
  record_.id = entry_.id;
}

bool UnaryCall::Claim() {
  const std::scoped_lock lock(mutex_);
  return !std::exchange(claimed_, true);
}

void UnaryCall::End(const Status& status) {
  grpc::ByteBuffer answer;
  const bool is_written = !status.ok() || reply_ == nullptr || Write(*reply_, answer).ok();
  Conclude(is_written ? status : Internal("the reply cannot be written"), std::move(answer));
}

void UnaryCall::EndWith(const Status& status, const grpc::ByteBuffer& written) { Conclude(status, written); }

// The log hears of it before the client does, which may look.
void UnaryCall::Conclude(Status status, grpc::ByteBuffer answer) {
  if (status.ok()) record_.bytes_out = answer.Valid() ? static_cast<int64_t>(answer.Length()) : 0;
  log_.Over(record_, status);
  Send(status, std::move(answer));
}

void UnaryCall::Left() {
  {
    const std::scoped_lock lock(mutex_);
    left_ = true;
    if (std::exchange(claimed_, true)) return;
  }
  End(Status(Code::kCancelled, "the client left"));
}

void UnaryCall::Over() {
  const bool is_unheard = [this] {  // Said by Left, which is over.
    const std::scoped_lock lock(mutex_);
    return left_;
  }();
  if (is_unheard && undo_) undo_();
  subscriptions_.End();  // They hold the call.
  in_flight_.Leave();
}

GrpcCall::GrpcCall(CallRecord record, InFlight& in_flight, CallLog& log,
                   std::unique_ptr<google::protobuf::Message> reply, grpc::ByteBuffer* answer)
    : UnaryCall(std::move(record), in_flight, log, std::move(reply)), answer_(answer) {}

std::shared_ptr<GrpcCall> GrpcCall::Make(CallRecord record, InFlight& in_flight, CallLog& log,
                                         std::unique_ptr<google::protobuf::Message> reply, grpc::ByteBuffer* answer) {
  const std::shared_ptr<GrpcCall> call(new GrpcCall(std::move(record), in_flight, log, std::move(reply), answer));
  call->self_ = call;
  return call;
}

void GrpcCall::Send(const Status& status, grpc::ByteBuffer answer) {
  if (answer_ != nullptr && answer.Valid()) answer_->Swap(&answer);
  Finish(ToGrpc(status));
}

void GrpcCall::OnDone() {
  Over();
  const std::shared_ptr<GrpcCall> self = std::move(self_);
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
