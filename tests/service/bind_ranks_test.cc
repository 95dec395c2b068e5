// Goal: each of several CPU ranks runs, with all of its threads, on its share of the cores alone, and Status says so;
// where that would help nobody none is bound.
// Method: real daemons; what the system says of the threads of each worker.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "csrc/base/text.h"
#include "service/os/affinity.h"
#include "service/topology/topology.h"
#include "tests/service/support/daemon.h"
#include "tests/service/support/programs.h"

namespace hir::service {
namespace {

// What all threads of `pid` may run on, as the system writes it: "0-3,8".
std::set<std::string> AllowedOf(int64_t pid) {
  std::set<std::string> allowed;
  for (const auto& thread : std::filesystem::directory_iterator(base::Cat("/proc/", pid, "/task"))) {
    std::ifstream file(thread.path() / "status");
    const std::string key = "Cpus_allowed_list:\t";
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(key)) allowed.insert(line.substr(key.size()));
    }
  }
  return allowed;
}

std::string WrittenAsTheSystemDoes(const Cores& cores) {
  std::string text = CoresText(cores);
  std::erase(text, ' ');
  return text;
}

// After a run, so that all threads are there.
void RunOnce(Client& client) {
  const Client::Compiled sums = client.Compile(kColumnSums);
  ASSERT_EQ(Text(sums.status), "OK");
  const Client::Put put = client.Upload(Header(pb::DTYPE_FLOAT32, {2, 1}, {2}, {0}), Bytes({1, 2}));
  ASSERT_EQ(Text(client.Run(sums.reply.program_id(), {put.tensor.handle()}).status), "OK");
}

void ExpectBound(const pb::StatusReply& status) {
  const std::vector<Cores> shares = ShareCores(*CoresInOrder(), status.devices_size());
  for (int rank = 0; rank < status.devices_size(); ++rank) {
    const pb::Device& device = status.devices(rank);
    const Cores& share = shares[static_cast<size_t>(rank)];
    EXPECT_EQ(Cores(device.cores().begin(), device.cores().end()), share);
    EXPECT_EQ(AllowedOf(device.pid()), std::set<std::string>{WrittenAsTheSystemDoes(share)});
  }
}

void ExpectFree(const pb::StatusReply& status) {
  const std::set<std::string> ours = {WrittenAsTheSystemDoes(*CoresOfThread())};
  for (const pb::Device& device : status.devices()) {
    EXPECT_TRUE(device.cores().empty());
    EXPECT_EQ(AllowedOf(device.pid()), ours);
  }
}

TEST(BindRanks, EachToItsShareAndAgainAfterADeath) {
  Daemon daemon({"--devices=cpu:2"});
  Client client(daemon);
  RunOnce(client);
  ExpectBound(client.Status());
  kill(static_cast<pid_t>(client.Status().devices(1).pid()), SIGKILL);
  ASSERT_TRUE(
      client.WaitUntil([](const pb::StatusReply& status) { return status.serving() && status.generation() == 2; }));
  RunOnce(client);
  ExpectBound(client.Status());
}

TEST(BindRanks, MoreRanksThanCores) {
  const auto ranks = static_cast<int>(2 * CoresOfThread()->size());
  if (ranks > 16) GTEST_SKIP() << "needs a machine of 8 cores or fewer: twice as many ranks start";
  Daemon daemon({base::Cat("--devices=cpu:", ranks)});
  Client client(daemon);
  ExpectBound(client.Status());
}

// As where the system forbids it, or cores have gone: it runs where it can, and Status says where that is.
TEST(BindRanks, ToCoresThatThereAreNot) {
  setenv("HWLOC_SYNTHETIC", "pu:2(indexes=60000,60001)", 1);  // Where hostird finds its cores.
  const Result<Cores> made_up = CoresInOrder();
  Daemon daemon({"--devices=cpu:2"});
  unsetenv("HWLOC_SYNTHETIC");
  if (made_up.ok() && *made_up == *CoresOfThread()) GTEST_SKIP() << "this build has no hwloc";
  ASSERT_EQ(*made_up, (Cores{60000, 60001}));
  Client client(daemon);
  RunOnce(client);
  EXPECT_NE(daemon.Log().find("not bound: cannot run on cores 60000"), std::string::npos);
  const pb::StatusReply status = client.Status();
  for (const pb::Device& device : status.devices())
    EXPECT_EQ(Cores(device.cores().begin(), device.cores().end()), *CoresOfThread());
}

TEST(BindRanks, NotWhenOff) {
  Daemon daemon({"--devices=cpu:2", "--bind-ranks=off"});
  Client client(daemon);
  RunOnce(client);
  ExpectFree(client.Status());
}

TEST(BindRanks, NotOne) {
  Daemon daemon({"--devices=cpu:1"});
  Client client(daemon);
  ExpectFree(client.Status());
}

TEST(BindRanks, NotToFewerCoresThanThreads) {
  const auto cores = static_cast<int64_t>(CoresOfThread()->size());
  Daemon daemon({"--devices=cpu:2", base::Cat("--threads-per-rank=", cores + 1)});
  Client client(daemon);
  RunOnce(client);
  ExpectFree(client.Status());
}

}  // namespace
}  // namespace hir::service
