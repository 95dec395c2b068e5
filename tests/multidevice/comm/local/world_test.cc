// The simulated world: equal seeds give equal traces; delays, losses and deaths happen as scripted
// and are named; an order that a program forgot to demand is broken by some seed.
#include "multidevice/comm/local/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "csrc/device/host/host_device.h"

namespace hir::comm {
namespace {

using namespace std::chrono_literals;  // NOLINT: durations in tests.
using testing::Contains;
using testing::ElementsAre;

constexpr base::Nanos kLong = 60s;  // Simulated.
constexpr int64_t kCount = 8;

std::vector<int64_t> All(int64_t size) {
  std::vector<int64_t> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

struct RankResult {
  Status status;
  std::vector<int64_t> data = std::vector<int64_t>(kCount);
};

// Every rank: two rounds of "fill on one stream, all-reduce on another", then Synchronize. `wait`:
// with the wait that makes the all-reduce follow the fill.
std::vector<RankResult> RunRounds(World& world, int64_t size, bool wait = true) {
  std::vector<RankResult> results(static_cast<size_t>(size));
  world.Run([&](int64_t rank) {
    RankResult& result = results[static_cast<size_t>(rank)];
    const auto device = *device::CreateHostDevice({}, world.executor(rank));
    const auto comm = world.Join(rank);
    const auto compute = *device->CreateStream();
    const auto wire = *device->CreateStream();
    const auto event = *device->CreateEvent();
    const TeamId team = *comm->Team(All(size), 0);
    const device::Buffer buffer = {reinterpret_cast<std::byte*>(result.data.data()), kCount * 8};
    for (int64_t round = 0; round < 2; ++round) {
      compute->Fill(buffer, static_cast<uint64_t>(rank + 10 * round), 8);
      compute->Record(*event);
      if (wait) wire->Wait(*event);
      result.status = comm->Post({.type = CommType::kAllreduce,
                                  .team = team,
                                  .dtype = DType::kInt64,
                                  .count = kCount,
                                  .src = buffer,
                                  .dst = buffer,
                                  .seq = round},
                                 *wire);
      wire->Record(*event);
      compute->Wait(*event);
    }
    const Status done = compute->Synchronize(kLong);
    if (result.status.ok()) result.status = done;
  });
  return results;
}

std::vector<std::string> TraceOf(uint64_t seed) {
  const auto world = World::Create({.size = 3, .seed = seed, .random_delay_max = 1ms});
  for (const RankResult& result : RunRounds(*world, 3)) EXPECT_EQ(result.data, std::vector<int64_t>(kCount, 33));
  return world->trace();
}

TEST(World, TheSameSeedGivesTheSameTrace) {
  std::set<std::vector<std::string>> traces;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<std::string> trace = TraceOf(seed);
    EXPECT_EQ(trace, TraceOf(seed)) << "seed " << seed;
    traces.insert(trace);
  }
  EXPECT_EQ(traces.size(), 20u);  // Other seeds, other orders.
}

TEST(World, TheTraceTellsWhatHappened) {
  const auto world = World::Create({.size = 1});
  RunRounds(*world, 1);
  EXPECT_THAT(world->trace(), Contains("rank 0 enters allreduce #0"));
  EXPECT_THAT(world->trace(), Contains("rank 0 leaves allreduce #1"));
  const auto pair = World::Create({.size = 2});
  RunRounds(*pair, 2);
  EXPECT_THAT(pair->trace(), Contains("message 1 -> 0 of allreduce #1"));
}

TEST(World, AMissingWaitIsFound) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto world = World::Create({.size = 2, .seed = seed});
    for (const RankResult& result : RunRounds(*world, 2, /*wait=*/false)) {
      if (result.data != std::vector<int64_t>(kCount, 21)) ++wrong;
    }
  }
  EXPECT_GT(wrong, 0);
}

TEST(World, ADelayTakesSimulatedTime) {
  const auto world = World::Create({.size = 2, .delays = {{.from = 1, .to = 0, .seq = 1, .time = 2s}}});
  for (const RankResult& result : RunRounds(*world, 2)) EXPECT_EQ(result.data, std::vector<int64_t>(kCount, 21));
  EXPECT_EQ(world->clock().Now(), 2s);
}

TEST(World, ALostMessageMissesTheDeadline) {
  const auto world = World::Create({.size = 3, .losses = {{.from = 1, .to = 2, .seq = 1}}});
  const std::vector<RankResult> results = RunRounds(*world, 3);
  EXPECT_TRUE(results[0].status.ok());  // It has all it needs, and has given all it has.
  for (size_t rank = 1; rank < 3; ++rank) {
    EXPECT_EQ(results[rank].status.ToString(),
              "DEADLINE_EXCEEDED: allreduce #1: the message from rank 1 to rank 2 has not arrived "
              "after 5.0 s");
  }
  EXPECT_THAT(world->trace(), Contains("message 1 -> 2 of allreduce #1 is lost"));
}

TEST(World, ADeadRankIsNamedAtTheDeadline) {
  const auto world = World::Create({.size = 4, .deaths = {{.rank = 3, .seq = 1}}});
  const std::vector<RankResult> results = RunRounds(*world, 4);
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(results[rank].status.ToString(),
              "DEADLINE_EXCEEDED: rank 3 has not entered allreduce #1; 3 peers waiting 5.0 s");
  }
  EXPECT_EQ(results[3].status.ToString(), "UNAVAILABLE: rank 3 died");
}

TEST(World, ADeathThatIsNoticedAbortsTheOthers) {
  const auto world = World::Create({.size = 3, .deaths = {{.rank = 1, .seq = 0, .noticed_after = 500ms}}});
  for (const RankResult& result : RunRounds(*world, 3)) EXPECT_EQ(result.status.ToString(), "UNAVAILABLE: rank 1 died");
  EXPECT_EQ(world->clock().Now(), 500ms);
}

TEST(World, RanksThatDoNotMatchAreTold) {
  const auto world = World::Create({.size = 2});
  world->Run([&](int64_t rank) {
    const auto device = *device::CreateHostDevice({}, world->executor(rank));
    const auto comm = world->Join(rank);
    const auto stream = *device->CreateStream();
    std::vector<float> data(4);
    const device::Buffer buffer = {reinterpret_cast<std::byte*>(data.data()), 16};
    ASSERT_TRUE(comm->Post({.type = CommType::kAllreduce,
                            .team = *comm->Team(All(2), 0),
                            .count = 4 - rank,
                            .src = buffer,
                            .dst = buffer,
                            .seq = rank},
                           *stream)
                    .ok());
    const std::string message = std::string(stream->Synchronize(kLong).message());
    EXPECT_EQ(message.find("posted allreduce #"), 7u) << message;
    EXPECT_NE(message.find("(3 f32, sum)"), std::string::npos) << message;
    EXPECT_NE(message.find("(4 f32, sum)"), std::string::npos) << message;
  });
}

// Without threads: a test queues every rank's work and then lets it happen.
TEST(World, OneThreadCanDriveEveryRank) {
  const auto world = World::Create({.size = 2, .seed = 3});
  std::vector<std::unique_ptr<device::Device>> devices;
  std::vector<std::unique_ptr<Communicator>> comms;
  std::vector<std::unique_ptr<device::Stream>> streams;
  std::vector<std::vector<float>> data(2, std::vector<float>(4, 1.5f));
  for (int64_t rank = 0; rank < 2; ++rank) {
    auto& values = data[static_cast<size_t>(rank)];
    const device::Buffer buffer = {reinterpret_cast<std::byte*>(values.data()), 16};
    devices.push_back(*device::CreateHostDevice({}, world->executor(rank)));
    comms.push_back(world->Join(rank));
    streams.push_back(*devices.back()->CreateStream());
    ASSERT_TRUE(comms.back()
                    ->Post({.type = CommType::kAllreduce,
                            .team = *comms.back()->Team(All(2), 0),
                            .count = 4,
                            .src = buffer,
                            .dst = buffer},
                           *streams.back())
                    .ok());
  }
  world->RunUntilIdle();
  EXPECT_EQ(data, std::vector<std::vector<float>>(2, std::vector<float>(4, 3.0f)));
  for (auto& stream : streams) EXPECT_TRUE(stream->Synchronize(kLong).ok());
  comms.clear();
  streams.clear();
  devices.clear();
}

}  // namespace
}  // namespace hir::comm
