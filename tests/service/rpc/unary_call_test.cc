// Goal: what an answer names is undone exactly when the client left before it heard of it. Method: a server in this
// process that answers when the test says so.
#include "service/rpc/unary_call.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <thread>

#include "hostir/v1/service.grpc.pb.h"
#include "tests/service/support/daemon.h"

namespace hir::service {
namespace {

// Hands every call of Status to the test.
class Handing final : public pb::Runtime::CallbackService {
 public:
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context, const pb::StatusRequest*,
                                   pb::StatusReply*) override {
    auto call = GrpcCall::Make({.method = "Status"}, in_flight, log);
    GrpcCall* const reactor = call.get();
    given.set_value({std::move(call), context});
    return reactor;
  }

  struct Given {
    std::shared_ptr<GrpcCall> call;
    grpc::CallbackServerContext* context = nullptr;
  };
  std::promise<Given> given;
  InFlight in_flight{1};
  Metrics metrics;
  CallLog log{metrics, nullptr};
};

class Unheard : public testing::Test {
 protected:
  Unheard() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
    stub = pb::Runtime::NewStub(server->InProcessChannel({}));
    asked = std::async(std::launch::async, [this] {
      pb::StatusReply reply;
      return stub->Status(&context, {}, &reply).error_code();
    });
    given = service.given.get_future().get();
    EXPECT_TRUE(given.call->Claim());
    given.call->IfUnheard([this] { undone = true; });
  }
  // Returns when gRPC is done with the call.
  void Answer() {
    given.call->End({});
    EXPECT_TRUE(service.in_flight.Drain(std::chrono::seconds(30)));
  }

  bool undone = false;
  Handing service;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<pb::Runtime::Stub> stub;
  grpc::ClientContext context;
  std::future<grpc::StatusCode> asked;
  Handing::Given given;
};

TEST_F(Unheard, AnAnswerThatIsHeardStands) {
  Answer();
  EXPECT_EQ(asked.get(), grpc::StatusCode::OK);
  EXPECT_FALSE(undone);
}

TEST_F(Unheard, AnAnswerToOneWhoLeftIsUndone) {
  context.TryCancel();
  EXPECT_EQ(asked.get(), grpc::StatusCode::CANCELLED);
  while (!given.context->IsCancelled()) std::this_thread::yield();
  Answer();
  EXPECT_TRUE(undone);
}

}  // namespace
}  // namespace hir::service
