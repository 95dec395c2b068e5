// Goal: threads that look before they sleep, of workers and of the daemon, lose nothing: runs of many clients at once
// end each with its own result, also when runs queue behind others, and when a worker dies while the rest look.
// Method: a real daemon with --busy-wait on, auto and off; every way a run goes to the workers: posted at once, queued,
// and in two phases where tensors live on devices.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/service/support/daemon.h"
#include "tests/service/support/programs.h"

namespace hir::service {
namespace {

class BusyWait : public testing::TestWithParam<std::vector<std::string>> {
 protected:
  static std::string Put(Client& client, float value) {
    const Client::Put put = client.Upload(Header(pb::DTYPE_FLOAT32, {2, 1}, {2}, {0}), Bytes({value, value + 1}));
    EXPECT_EQ(Text(put.status), "OK");
    return put.tensor.handle();
  }
  // Each run's input is the output of the one before: "" or what is wrong.
  static std::string SumAgainAndAgain(Client& client, float value, int times) {
    const Client::Compiled sums = client.Compile(kColumnSums);
    if (!sums.status.ok()) return Text(sums.status);
    const std::string x = Put(client, value);
    for (int i = 0; i < times; ++i) {
      const Client::Ran ran = client.Run(sums.reply.program_id(), {x});
      if (!ran.status.ok()) return Text(ran.status);
      const std::string y = ran.reply.outputs(0).handle();
      if (i % 10 == 0 && Floats(client.Download(y).bytes) != std::vector<float>{2 * value + 1}) return "a wrong sum";
      if (const grpc::Status freed = client.Free({y}); !freed.ok()) return Text(freed);
    }
    return "";
  }

  Daemon daemon{GetParam()};
  Client client{daemon};
};

TEST_P(BusyWait, RunsOfManyClients) {
  constexpr int kClients = 4;
  std::vector<std::string> faults(kClients);
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([this, i, &fault = faults[static_cast<size_t>(i)]] {
      Client own(daemon);
      fault = SumAgainAndAgain(own, static_cast<float>(i), 50);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(faults, std::vector<std::string>(kClients));
}

TEST_P(BusyWait, RunsThatNobodyWaitsFor) {
  const Client::Compiled sums = client.Compile(kColumnSums);
  ASSERT_EQ(Text(sums.status), "OK");
  const std::string x = Put(client, 3);
  std::vector<std::string> outputs;
  for (int i = 0; i < 20; ++i) {
    const Client::Ran ran = client.Run(sums.reply.program_id(), {x}, /*wait=*/i % 3 == 0);
    ASSERT_EQ(Text(ran.status), "OK");
    outputs.push_back(ran.reply.outputs(0).handle());
  }
  for (const std::string& output : outputs) EXPECT_EQ(Floats(client.Download(output).bytes), std::vector<float>{7});
}

TEST_P(BusyWait, AfterAWorkerDied) {
  EXPECT_EQ(SumAgainAndAgain(client, 1, 2), "");
  kill(static_cast<pid_t>(client.Status().devices(1).pid()), SIGKILL);
  EXPECT_TRUE(
      client.WaitUntil([](const pb::StatusReply& status) { return status.serving() && status.generation() == 2; }));
  EXPECT_EQ(SumAgainAndAgain(client, 1, 2), "");
}

using Flags = std::vector<std::string>;
INSTANTIATE_TEST_SUITE_P(On, BusyWait,
                         testing::Values(Flags{"--devices=cpu:2", "--busy-wait=on"},
                                         Flags{"--devices=cpu:2", "--busy-wait=on", "--own-memory"}));
INSTANTIATE_TEST_SUITE_P(Auto, BusyWait, testing::Values(Flags{"--devices=cpu:2", "--busy-wait=auto"}));
INSTANTIATE_TEST_SUITE_P(Off, BusyWait,
                         testing::Values(Flags{"--devices=cpu:2", "--busy-wait=off"},
                                         Flags{"--devices=cpu:2", "--busy-wait=off", "--own-memory"}));

}  // namespace
}  // namespace hir::service
