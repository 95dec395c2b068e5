// Calls of the service without a network: gRPC's side of a call, as its headers let it be stood in for. Whatever gRPC
// would do on its threads is done by the thread that runs the wire, in the order in which it was caused.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_callback.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "hostir/v1/service.pb.h"
#include "tests/fuzz/target.h"

namespace hir::fuzz {

// Threads: Post from any; RunUntil and what it runs on one.
class Wire {
 public:
  void Post(std::function<void()> reaction) {
    {
      const std::scoped_lock lock(mutex_);
      reactions_.push_back(std::move(reaction));
    }
    some_.notify_one();
  }
  // Runs what was posted until `done`; false after `timeout`.
  template <typename Done>
  bool RunUntil(Done done, base::Nanos timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!done()) {
      std::function<void()> next;
      {
        std::unique_lock lock(mutex_);
        if (!some_.wait_until(lock, deadline, [this] { return !reactions_.empty(); })) return false;
        next = std::move(reactions_.front());
        reactions_.pop_front();
      }
      next();
    }
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable some_;
  std::deque<std::function<void()>> reactions_;
};

// The outcome of a call. It is over when gRPC has told the service so; then the service has nothing of it any more.
struct Outcome {
  grpc::Status status;
  int answers = 0;
  bool over = false;
};

// The part that all calls have in common: the answer, once. Reactor is the service's side of the call.
template <typename Base, typename Reactor>
class WireCall : public Base {
 public:
  WireCall(Wire& wire, std::string what) : wire_(wire), what_(std::move(what)) {}

  void Begin(Reactor* reactor) {
    reactor_ = reactor;
    this->BindReactor(reactor);
  }
  // The client goes: as gRPC says it, unless the call is over.
  void Leave() {
    left_ = true;
    if (!outcome_.over) reactor_->OnCancel();
  }
  const Outcome& outcome() const { return outcome_; }
  bool over() const { return outcome_.over; }
  const std::string& what() const { return what_; }

  void Finish(grpc::Status status) override {
    wire_.Post([this, status = std::move(status)] {
      if (++outcome_.answers > 1) Found(what_ + " is answered twice");
      outcome_.status = status;
      reactor_->OnDone();
      outcome_.over = true;
    });
  }
  void SendInitialMetadata() override {}

 protected:
  Wire& wire_;
  const std::string what_;
  Reactor* reactor_ = nullptr;
  bool left_ = false;
  Outcome outcome_;

 private:
  grpc::internal::ServerReactor* reactor() override { return reactor_; }
  void CallOnDone() override {}
};

class WireUnary final : public WireCall<grpc::ServerCallbackUnary, grpc::ServerUnaryReactor> {
 public:
  using WireCall::WireCall;
  grpc::CallbackServerContext context;
  grpc::ByteBuffer request, answer;
};

class WireUpload final
    : public WireCall<grpc::ServerCallbackReader<grpc::ByteBuffer>, grpc::ServerReadReactor<grpc::ByteBuffer>> {
 public:
  using WireCall::WireCall;
  void Read(grpc::ByteBuffer* into) override {
    wire_.Post([this, into] {
      const bool more = !left_ && next_ < requests.size();
      if (more) *into = requests[next_++];
      reactor_->OnReadDone(more);
    });
  }
  grpc::CallbackServerContext context;
  std::vector<grpc::ByteBuffer> requests;
  grpc::ByteBuffer answer;

 private:
  size_t next_ = 0;
};

template <typename Reply>
class WireStream final : public WireCall<grpc::ServerCallbackWriter<Reply>, grpc::ServerWriteReactor<Reply>> {
 public:
  using WireCall<grpc::ServerCallbackWriter<Reply>, grpc::ServerWriteReactor<Reply>>::WireCall;
  void Write(const Reply* reply, grpc::WriteOptions) override {
    this->wire_.Post([this, reply] {
      if (!this->left_) heard(*reply);
      this->reactor_->OnWriteDone(!this->left_);
    });
  }
  void WriteAndFinish(const Reply* reply, grpc::WriteOptions options, grpc::Status status) override {
    Write(reply, options);
    this->Finish(std::move(status));
  }
  grpc::CallbackServerContext context;
  std::function<void(const Reply&)> heard = [](const Reply&) {};
};

}  // namespace hir::fuzz
