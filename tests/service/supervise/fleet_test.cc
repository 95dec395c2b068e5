// Goal: a rank that says what nobody asked harms no call of others, nor the daemon. Method: ranks that are the other
// ends of the sockets, without processes, and say what the test tells them.
#include "service/supervise/fleet.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
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
  // A key that no other call says, of so many bytes with its value.
  void Publish(size_t rank, size_t bytes) {
    pb::FromWorker publish;
    publish.mutable_rendezvous_publish()->set_key(std::to_string(++num_keys_));
    publish.mutable_rendezvous_publish()->set_value(std::string(bytes, 'v'));
    Say(rank, publish);
  }
  void Ask(size_t rank, size_t bytes) {
    pb::FromWorker get;
    get.mutable_rendezvous_get()->set_key(std::to_string(++num_keys_) + std::string(bytes, 'k'));
    Say(rank, get);
  }
  // After so many keys of a rank, which takes what is said in pieces that its socket holds.
  Status CallAfter(Fleet& fleet, int count, const std::function<void()>& say) {
    for (int i = 0; i < count && fleet.healthy(); ++i) {
      say();
      Reply(0);
      Reply(1);
      const Status status = fleet.Call(Run(), {seconds(10), ""}, "a run", Ranks::Waits::kEachOther);
      if (!status.ok()) return status;
      for (const auto& rank : ranks_) {  // What it was sent, for which its socket has no room in the end.
        for (auto got = rank->Receive(/*block=*/false); got.ok() && got->has_value();) got = rank->Receive(false);
      }
    }
    return {};
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
  int num_keys_ = 0;
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

constexpr size_t kValueBytes = 64 << 10;

TEST_F(MadRanks, KeysWithoutNumberAreNotKept) {
  Fleet fleet(Options());
  ASSERT_TRUE(fleet.Start().ok());
  ASSERT_EQ(CallAfter(fleet, 250, [this] { Publish(1, kValueBytes); }).ToString(), "OK") << "16 MiB are not reached";
  const Status status = CallAfter(fleet, 250, [this] { Publish(1, kValueBytes); });
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("rank 1: rendezvous keys of 16"), std::string::npos) << status.ToString();
  EXPECT_NE(status.message().find("a generation has 16777216"), std::string::npos) << status.ToString();
  EXPECT_FALSE(fleet.healthy());
}

TEST_F(MadRanks, KeysThatNobodyPublishesAreNotAskedForWithoutNumber) {
  Fleet fleet(Options());
  ASSERT_TRUE(fleet.Start().ok());
  const Status status = CallAfter(fleet, 500, [this] { Ask(1, kValueBytes); });
  EXPECT_EQ(status.code(), Code::kUnavailable) << status.ToString();
  EXPECT_FALSE(fleet.healthy());
}

// What was asked for and has come is charged once.
TEST_F(MadRanks, KeysThatComeAreNotAskedForAnyMore) {
  Fleet fleet(Options());
  ASSERT_TRUE(fleet.Start().ok());
  const Status status = CallAfter(fleet, 500, [this] {
    Ask(1, 20 << 10);
    pb::FromWorker publish;
    publish.mutable_rendezvous_publish()->set_key(std::to_string(num_keys_) + std::string(20 << 10, 'k'));
    Say(1, publish);
  });
  EXPECT_EQ(status.ToString(), "OK");
}

}  // namespace
}  // namespace hir::service
