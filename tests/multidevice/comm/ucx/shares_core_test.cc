// What a rank that waits finds out about the cores of those it waits for. Both ranks are posted for by one thread.
#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "csrc/base/background_work.h"
#include "csrc/base/clock.h"
#include "csrc/device/host/host_device.h"
#include "multidevice/comm/ucx/ucx.h"
#include "multidevice/rendezvous/memory.h"

namespace hir::comm {
namespace {

using std::chrono::seconds;

struct Rank {
  std::unique_ptr<device::Device> device;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<device::Stream> stream;
  TeamId team = {};
  std::array<int64_t, 1> value = {};

  void Post() {
    const device::Buffer buffer = {reinterpret_cast<std::byte*>(value.data()), sizeof value};
    const Status posted = communicator->Post(
        {.type = CommType::kAllreduce, .team = team, .dtype = DType::kInt64, .count = 1, .src = buffer, .dst = buffer},
        *stream);
    EXPECT_TRUE(posted.ok()) << posted.ToString();
  }
  void Await() {
    const Status status = stream->Synchronize(seconds(20));
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
};

cpu_set_t Only(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  return set;
}

bool Look() { return base::HelpBackgroundWork() == base::Found::kNeedsCore; }
// Of this thread. The engines' threads look, too: then this one finds nothing.
bool NeedsCore() {
  const base::Nanos deadline = base::Clock::Steady().Now() + seconds(20);
  while (!Look() && base::Clock::Steady().Now() < deadline) std::this_thread::yield();
  return base::Clock::Steady().Now() < deadline;
}
bool NeverNeedsCore() {
  for (int i = 0; i < 10000; ++i) {
    if (Look()) return false;
  }
  return true;
}

class SharesCore : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasUcx()) GTEST_SKIP() << "this build has no UCX";
    ASSERT_EQ(sched_getaffinity(0, sizeof allowed_, &allowed_), 0);
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &allowed_)) cores_.push_back(core);
    }
    MoveTo(cores_[0]);  // As will be every thread that is made from here on.
    std::vector<std::jthread> threads;
    for (int64_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([this, rank] { Make(rank); });
    }
  }
  void TearDown() override { sched_setaffinity(0, sizeof allowed_, &allowed_); }

  void Make(int64_t rank) {
    Rank& made = ranks_[static_cast<size_t>(rank)];
    made.device = *device::CreateHostDevice({});
    made.stream = *made.device->CreateStream();
    auto communicator = CreateUcx({.rank = rank, .size = 2}, rendezvous_);
    ASSERT_TRUE(communicator.ok()) << communicator.status().ToString();
    made.communicator = *std::move(communicator);
    made.team = *made.communicator->Team(std::array<int64_t, 2>{0, 1}, 0);
  }
  static void MoveTo(int core) {
    const cpu_set_t set = Only(core);
    ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
  }
  void ExpectSum(int64_t sum) {
    for (Rank& rank : ranks_) {
      rank.Await();
      EXPECT_EQ(rank.value[0], sum);
    }
  }

  cpu_set_t allowed_;
  std::vector<int> cores_;
  MemoryRendezvous rendezvous_;
  std::array<Rank, 2> ranks_;
};

TEST_F(SharesCore, WhoeverIsMissingAndWasLastHereNeedsIt) {
  ranks_[0].value = {1};
  ranks_[1].value = {2};
  ranks_[0].Post();
  EXPECT_TRUE(NeverNeedsCore()) << "nobody knows yet where the other is";
  ranks_[1].Post();
  ExpectSum(3);
  ranks_[0].Post();
  EXPECT_TRUE(NeedsCore());
  ranks_[1].Post();
  ExpectSum(6);
  EXPECT_TRUE(NeverNeedsCore()) << "nothing is missing";
}

TEST_F(SharesCore, ThoseOnOtherCoresDoNot) {
  if (cores_.size() < 2) GTEST_SKIP() << "one core";
  ranks_[0].Post();
  ranks_[1].Post();
  ExpectSum(0);
  MoveTo(cores_[1]);
  ranks_[0].Post();
  EXPECT_TRUE(NeverNeedsCore());
  MoveTo(cores_[0]);
  EXPECT_TRUE(NeedsCore());
  ranks_[1].Post();
  ExpectSum(0);
}

// A rank that may not begin waits for whoever has yet to finish what came 8 before.
TEST_F(SharesCore, SoDoesWhoKeepsASlot) {
  ranks_[0].value = {1};
  ranks_[1].value = {2};
  ranks_[0].Post();
  ranks_[1].Post();
  ExpectSum(3);
  device::Stream& stream = *ranks_[0].stream;
  const CommDesc broadcast = {.type = CommType::kBroadcast,
                              .team = ranks_[0].team,
                              .root = 0,
                              .dtype = DType::kInt64,
                              .count = 1,
                              .src = {reinterpret_cast<std::byte*>(&ranks_[0].value), 8},
                              .dst = {reinterpret_cast<std::byte*>(&ranks_[0].value), 8}};
  // The root of a broadcast waits for nobody, as long as there are slots.
  constexpr int kAhead = 9;
  for (int i = 0; i < kAhead; ++i) ASSERT_TRUE(ranks_[0].communicator->Post(broadcast, stream).ok());
  EXPECT_TRUE(NeedsCore());
  CommDesc received = broadcast;
  received.team = ranks_[1].team;
  received.src = received.dst = {reinterpret_cast<std::byte*>(&ranks_[1].value), 8};
  ranks_[1].value = {0};
  for (int i = 0; i < kAhead; ++i) {
    ASSERT_TRUE(ranks_[1].communicator->Post(received, *ranks_[1].stream).ok());
  }
  ExpectSum(3);
}

}  // namespace
}  // namespace hir::comm
