// Goal: at a limit a request is served, beyond it refused by the limit's name, and the next is served.
// Method: daemons with small limits; workers and planner are stopped, so that queues fill.
// Elsewhere: limits of tensors (transfer_test), sessions (session_test), programs (run_test), timeouts (fault_test).
#include <gtest/gtest.h>
#include <signal.h>

#include <future>
#include <string>
#include <vector>

#include "tests/service/support/daemon.h"
#include "tests/service/support/programs.h"

namespace hir::service {
namespace {

std::string Negate(const std::string& name) {
  return "fusion @" + name + "(%x: f32[2]) {\n  %y = neg(%x)\n  return %y\n}\n";
}

TEST(Limits, QueuedRuns) {
  Daemon daemon({"--devices=cpu:1", "--queued-runs-max=2"});
  Client client(daemon);
  const Client::Compiled program = client.Compile(Negate("p"));
  ASSERT_EQ(Text(program.status), "OK");
  const std::string x =
      client.Upload(Header(pb::DTYPE_FLOAT32, {2}), Bytes({1, 2})).tensor.handle();
  const pid_t worker = static_cast<pid_t>(client.Status().devices(0).pid());
  kill(worker, SIGSTOP);
  const auto run = [&] {
    return Text(client.Run(program.reply.program_id(), {x}, /*wait=*/false).status);
  };
  EXPECT_EQ(run(), "OK");
  EXPECT_TRUE(
      client.WaitUntil([](const pb::StatusReply& status) { return status.queued_runs() == 0; }));
  EXPECT_EQ(run(), "OK");
  EXPECT_EQ(run(), "OK");
  const int64_t tensors = client.Status().tensors();
  EXPECT_EQ(
      run(),
      "RESOURCE_EXHAUSTED: queued_runs_max = 2: as many runs wait for their turn; wait for some");
  EXPECT_EQ(client.Status().tensors(), tensors) << "nothing is left of a run that is refused";
  kill(worker, SIGCONT);
  EXPECT_TRUE(
      client.WaitUntil([](const pb::StatusReply& status) { return status.queued_runs() == 0; }));
  EXPECT_EQ(run(), "OK");
}

TEST(Limits, QueuedPlans) {
  Daemon daemon({"--devices=cpu:1", "--queued-plans-max=2"});
  Client client(daemon);
  const pid_t planner = static_cast<pid_t>(client.Status().planner_pid());
  kill(planner, SIGSTOP);
  std::vector<std::future<std::string>> compiling;
  for (int i = 0; i < 2; ++i) {
    compiling.push_back(std::async(std::launch::async, [&client, i] {
      return Text(client.Compile(Negate("p" + std::to_string(i))).status);
    }));
    EXPECT_TRUE(client.WaitUntil(
        [&](const pb::StatusReply& status) { return status.queued_plans() == i + 1; }));
  }
  EXPECT_EQ(Text(client.Compile(Negate("p2")).status),
            "RESOURCE_EXHAUSTED: queued_plans_max = 2: as many programs wait for the planner; try "
            "again later");
  kill(planner, SIGCONT);
  for (auto& answer : compiling) EXPECT_EQ(answer.get(), "OK");
  EXPECT_EQ(Text(client.Compile(Negate("p2")).status), "OK");
}

TEST(Limits, ProgramsThatAreKept) {
  Daemon daemon({"--devices=cpu:1", "--programs-max=2"});
  Client client(daemon);
  const std::string first = client.Compile(Negate("p0")).reply.program_id();
  const std::string second = client.Compile(Negate("p1")).reply.program_id();
  const std::string x =
      client.Upload(Header(pb::DTYPE_FLOAT32, {2}), Bytes({1, 2})).tensor.handle();
  EXPECT_EQ(Text(client.Run(first, {x}).status), "OK");  // Now the second was not used for longest.
  EXPECT_EQ(Text(client.Compile(Negate("p2")).status), "OK");
  EXPECT_EQ(Text(client.Run(first, {x}).status), "OK");
  EXPECT_EQ(Text(client.Run(second, {x}).status),
            "NOT_FOUND: no program \"" + second + "\" here, or no longer: compile it again");
  EXPECT_EQ(Text(client.Run(client.Compile(Negate("p1")).reply.program_id(), {x}).status), "OK");
}

TEST(Limits, BytesOfAMessage) {
  Daemon daemon({"--devices=cpu:1", "--message-bytes-max=20000"});
  Client client(daemon);
  const grpc::Status status = client.Compile(std::string(20000, '/')).status;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << Text(status);
  EXPECT_EQ(Text(client.Compile(Negate("p") + std::string(19000, '\n')).status), "OK");
}

TEST(Limits, StatusShowsThem) {
  Daemon daemon({"--devices=cpu:1", "--queued-runs-max=77"});
  Client client(daemon);
  int64_t value = 0;
  const pb::StatusReply status = client.Status();
  for (const pb::Limit& limit : status.limits()) {
    if (limit.name() == "queued_runs_max") value = limit.value();
  }
  EXPECT_EQ(value, 77);
}

}  // namespace
}  // namespace hir::service
