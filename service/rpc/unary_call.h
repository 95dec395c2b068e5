// UnaryCall: a call that is answered once, by its completion or by the client's leaving, whichever comes first.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "service/rpc/call.h"
#include "service/rpc/call_record.h"
#include "service/store/tensor.h"

namespace hir::service {

// How many calls are under way, and the numbers they are known by in the log. Thread-safe.
class InFlight {
 public:
  // `most` is requests_max.
  explicit InFlight(int64_t most) : most_(most) {}

  struct Entry {
    int64_t id = 0;    // The number of a new call.
    Status admission;  // kResourceExhausted when more than `most` are under way.
  };
  // Whatever the admission, Leave follows.
  Entry Enter();
  void Leave();
  int64_t total() const;      // Calls since the start.
  int64_t under_way() const;  // Of them.
  // Waits until there is none; false after `timeout`.
  bool Drain(base::Nanos timeout);

 private:
  const int64_t most_;
  mutable std::mutex mutex_;
  std::condition_variable none_;
  int64_t count_ = 0;  // Guarded by mutex_.
  int64_t last_id_ = 0;
};

// Whatever brings the request and takes the answer along is a subclass's. Alive until that is done with it and nobody
// else refers to it. Thread-safe.
class UnaryCall : public Call {
 public:
  bool Claim() override;
  void End(const Status& status) override;
  // `undo` runs on a thread of the transport's, when the client has left before it heard of the answer.
  void IfUnheard(std::function<void()> undo) override { undo_ = std::move(undo); }
  int64_t id() const override { return entry_.id; }
  Subscriptions& subscriptions() override { return subscriptions_; }

  const std::string& trace() const override { return trace_; }
  void LearnRun(int64_t run) override {
    Learn([run](CallRecord& known) { known.run = run; });
  }
  // Notes something about the call, unless that is over: `note(record)`, under a lock.
  template <typename Note>
  void Learn(const Note& note) {
    const std::scoped_lock lock(mutex_);
    if (!claimed_) note(record_);
  }
  // Kept as long as the call is there. From who has its request, once.
  void Hold(std::shared_ptr<void> held) { held_ = std::move(held); }
  // Ends with an answer that is written already, in place of the reply. REQUIRES: as of End.
  void EndWith(const Status& status, const grpc::ByteBuffer& written);
  // Not OK: the call is to end with it.
  const Status& admission() const { return entry_.admission; }

 protected:
  // `record` gets the call's number. `in_flight` counts it until it is over; `log` hears of its end. `reply`, as it is
  // in an End that says OK, is the answer; null: there is none.
  UnaryCall(CallRecord record, InFlight& in_flight, CallLog& log, std::unique_ptr<google::protobuf::Message> reply);

  // Takes the answer to the client, or drops it where that has left; `answer` is of an OK alone. Once. Over follows, on
  // any thread.
  virtual void Send(const Status& status, grpc::ByteBuffer answer) = 0;
  // The client has left, and it is not over.
  void Left();
  // The answer has gone where it goes. Once, the last that is called.
  void Over();

 private:
  void Conclude(Status status, grpc::ByteBuffer answer);

  InFlight& in_flight_;
  CallLog& log_;
  const InFlight::Entry entry_;
  const std::string trace_;
  CallRecord record_;  // Of who claims the call, then; before, guarded by mutex_.
  const std::unique_ptr<google::protobuf::Message> reply_;
  std::function<void()> undo_;  // Of who claims the call, then of Over.
  std::shared_ptr<void> held_;
  Subscriptions subscriptions_;
  std::mutex mutex_;
  bool claimed_ = false;  // Guarded by mutex_: the one below too.
  bool left_ = false;
};

// One that gRPC brings. Thread-safe.
class GrpcCall final : public grpc::ServerUnaryReactor, public UnaryCall {
 public:
  // As of UnaryCall's constructor; an answer goes into `answer`, which is gRPC's.
  static std::shared_ptr<GrpcCall> Make(CallRecord record, InFlight& in_flight, CallLog& log,
                                        std::unique_ptr<google::protobuf::Message> reply = {},
                                        grpc::ByteBuffer* answer = nullptr);

 private:
  GrpcCall(CallRecord record, InFlight& in_flight, CallLog& log, std::unique_ptr<google::protobuf::Message> reply,
           grpc::ByteBuffer* answer);
  void Send(const Status& status, grpc::ByteBuffer answer) override;
  void OnCancel() override { Left(); }
  void OnDone() override;

  grpc::ByteBuffer* const answer_;
  std::shared_ptr<GrpcCall> self_;  // Until OnDone.
};

// `reply` as the bytes that are sent.
grpc::Status Write(const google::protobuf::Message& reply, grpc::ByteBuffer& answer);

}  // namespace hir::service
