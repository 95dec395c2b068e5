#include "multidevice/comm/ucx/ucx_team.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/text.h"
#include "multidevice/rendezvous/memory.h"
#include "tests/multidevice/comm/ucx/shared/left_behind.h"

namespace hir::comm {
namespace {

// A rendezvous on which `rank` cannot read what the first one says of its memory: as where it may not open it.
class Misread final : public Rendezvous {
 public:
  explicit Misread(Rendezvous& rendezvous) : rendezvous_(rendezvous) {}
  Status Publish(std::string_view key, std::string_view bytes) override { return rendezvous_.Publish(key, bytes); }
  Result<std::string> Get(std::string_view key, base::Nanos timeout) override {
    HIR_ASSIGN(std::string text, rendezvous_.Get(key, timeout));
    if (key == "t/2") text.back() = text.back() == '1' ? '2' : '1';
    return text;
  }

 private:
  Rendezvous& rendezvous_;
};

// Ranks 2, 0 and 1 make a team, each of which can share as much as `shared_bytes_max` says at its place.
std::vector<UcxTeam> Exchange(const std::vector<int64_t>& shared_bytes_max, bool misread = false) {
  const std::vector<int64_t> ranks = {2, 0, 1};
  std::vector<UcxTeam> teams(3);
  MemoryRendezvous rendezvous;
  Misread misreading(rendezvous);
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      Rendezvous& mine = rendezvous;
      const TeamExchange exchange = {.rendezvous = misread && i == 1 ? misreading : mine,
                                     .key = "t/",
                                     .deadline = base::Clock::Steady().Now() + std::chrono::seconds(20),
                                     .ranks = ranks,
                                     .rank = ranks[i]};
      teams[i].number = 10 + static_cast<int64_t>(i);
      const Status status = exchange.Run(shared_bytes_max[i], teams[i]);
      EXPECT_TRUE(status.ok()) << status.ToString();
    });
  }
  threads.clear();
  return teams;
}

TEST(UcxTeam, AllOfATeamShareTheLeastThatOneAllows) {
  const int64_t files = OpenFiles();
  {
    for (const UcxTeam& team : Exchange({5000, 3000, 4000})) {
      EXPECT_THAT(team.number_at, testing::ElementsAre(10, 11, 12));
      ASSERT_NE(team.slots, nullptr);
      EXPECT_EQ(team.shared_bytes_max, 3000);
    }
    EXPECT_EQ(OpenFiles(), files);
  }
  EXPECT_EQ(SharedMappings(), 0);
}

TEST(UcxTeam, WhereOneCannotNobodyDoes) {
  const int64_t files = OpenFiles();
  for (const auto& limits : {std::vector<int64_t>{0, 64, 64}, {64, 0, 64}, {64, 64, 0}}) {
    for (const UcxTeam& team : Exchange(limits)) {
      EXPECT_THAT(team.number_at, testing::ElementsAre(10, 11, 12));
      EXPECT_EQ(team.slots, nullptr);
    }
  }
  for (const UcxTeam& team : Exchange({64, 64, 64}, true)) EXPECT_EQ(team.slots, nullptr);
  EXPECT_EQ(OpenFiles(), files);
  EXPECT_EQ(SharedMappings(), 0);
}

TEST(UcxTeam, TheSizeOfAContributionDecides) {
  TeamInfo info;
  info.ranks = {2, 0, 1};
  std::vector<UcxTeam> teams = Exchange({96, 96, 96});
  UcxTeam& team = teams[0];
  team.info = &info;
  const auto route = [&](CommType type, int64_t count) {
    return RouteOf({.type = type, .root = 2, .dtype = DType::kFloat32, .count = count}, team);
  };
  EXPECT_EQ(route(CommType::kAllreduce, 24), kBySharedMemory);
  EXPECT_EQ(route(CommType::kAllreduce, 25), kByMessages);
  EXPECT_EQ(route(CommType::kAllreduce, 0), kByMessages);
  EXPECT_EQ(route(CommType::kAllToAll, 8), kBySharedMemory);  // A contribution is three chunks.
  EXPECT_EQ(route(CommType::kAllToAll, 9), kByMessages);
  EXPECT_EQ(route(CommType::kSendRecv, 1), kByMessages);
  team.slots = nullptr;
  EXPECT_EQ(route(CommType::kAllreduce, 1), kByMessages);
}

}  // namespace
}  // namespace hir::comm
