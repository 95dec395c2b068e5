// Goal: a rank that says what nobody asked harms no call of others, nor the daemon. Method: ranks that are the other
// ends of the sockets, without processes, and say what the test tells them.
#include "service/supervise/fleet.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;
using std::chrono::seconds;

class MadRanks : public ::testing::Test {
 protected:
  // Each rank answers the start.
  FleetOptions Options() {
    FleetOptions options;
    options.devices = {"cpu:0", "cpu:1"};
    options.spawn = [this](const base::Fd& inherited) -> Result<Process> {
      ranks_.push_back(std::make_unique<Channel>(base::Fd(dup(inherited.get()))));
      Reply(ranks_.size() - 1);
      return Process();
    };
    return options;
  }
  void Say(size_t rank, pb::FromWorker message) {
    message.set_generation(1);
    ASSERT_TRUE(ranks_[rank]->Send(message.SerializeAsString(), {}, seconds(1)).ok());
  }
  void Reply(size_t rank) {
    pb::FromWorker done;
    done.mutable_reply();
    Say(rank, done);
  }
  static std::vector<std::vector<RankMessage>> Run() {
    std::vector<std::vector<RankMessage>> messages(2);
    for (auto& of_rank : messages) of_rank.emplace_back().message.mutable_execute()->set_run(1);
    return messages;
  }

  std::vector<std::unique_ptr<Channel>> ranks_;
};

TEST_F(MadRanks, ADumpThatNobodyAskedFor) {
  Fleet fleet(Options());
  ASSERT_TRUE(fleet.Start().ok());
  pb::FromWorker dumped;
  dumped.mutable_dumped()->set_where("somewhere");
  Say(1, dumped);
  Reply(0);
  Reply(1);
  const Status status = fleet.Call(Run(), {seconds(10), ""}, "a run", Ranks::Waits::kEachOther);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

// Replies of one are not those of another.
TEST_F(MadRanks, MoreRepliesThanMessages) {
  Fleet fleet(Options());
  ASSERT_TRUE(fleet.Start().ok());
  for (int i = 0; i < 3; ++i) Reply(0);
  const Status late = fleet.Call(Run(), {std::chrono::milliseconds(50), ""}, "a run", Ranks::Waits::kEachOther);
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late.ToString();
}

}  // namespace
}  // namespace hir::service
