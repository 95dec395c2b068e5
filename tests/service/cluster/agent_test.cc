// Goal: a node obeys one head, that of the latest term, in the order of what it says; and what a head may say ends in
// an answer. Method: an agent whose ranks are the other ends of their sockets, without processes, and answer everything
// that comes by those.
#include "service/cluster/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/prng.h"
#include "service/os/channel.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;
using std::chrono::seconds;
using testing::HasSubstr;

// Threads of their own, for as long as their sockets last.
class ObedientRanks {
 public:
  Result<Process> Spawn(const base::Fd& inherited) {
    threads_.emplace_back([channel = std::make_unique<Channel>(base::Fd(dup(inherited.get()))), this] {
      for (;;) {
        auto got = channel->Receive(/*block=*/true);
        if (!got.ok() || !got->has_value()) return;
        pb::ToWorker message;
        if (!message.ParseFromString((*got)->bytes)) return;
        {
          const std::scoped_lock lock(mutex_);
          heard_.push_back(message);
          num_fds_ += (*got)->fds.size();
        }
        pb::FromWorker answer;
        answer.set_generation(message.generation());
        answer.set_seq(message.seq());
        answer.mutable_reply();
        (void)channel->Send(answer.SerializeAsString(), {}, seconds(1));
      }
    });
    return Process();
  }
  ~ObedientRanks() {
    for (std::thread& thread : threads_) thread.join();
  }
  std::vector<pb::ToWorker> heard() const {
    const std::scoped_lock lock(mutex_);
    return heard_;
  }
  size_t num_fds() const {
    const std::scoped_lock lock(mutex_);
    return num_fds_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<pb::ToWorker> heard_;  // Guarded by mutex_.
  size_t num_fds_ = 0;
  std::vector<std::thread> threads_;
};

// What a node says to a head.
class Heard {
 public:
  Agent::Say Say() {
    return [this](pb::FromNode message) {
      const std::scoped_lock lock(mutex_);
      messages_.push_back(std::move(message));
      some_.notify_all();
    };
  }
  // Waits for the next one of that kind; others are passed over.
  pb::FromNode Next(pb::FromNode::BodyCase kind) {
    std::unique_lock lock(mutex_);
    for (;;) {
      while (next_ < messages_.size()) {
        if (messages_[next_++].body_case() == kind) return messages_[next_ - 1];
      }
      if (some_.wait_for(lock, seconds(20)) == std::cv_status::timeout) {
        ADD_FAILURE() << "nothing of kind " << kind;
        return {};
      }
    }
  }
  size_t size() const {
    const std::scoped_lock lock(mutex_);
    return messages_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable some_;
  std::vector<pb::FromNode> messages_;  // Guarded by mutex_.
  size_t next_ = 0;
};

class AgentTest : public ::testing::Test {
 protected:
  AgentTest() {
    AgentOptions options;
    options.fleet.devices = {"cpu:0", "cpu:1"};
    options.fleet.spawn = [this](const base::Fd& inherited) { return ranks_.Spawn(inherited); };
    options.shard_bytes_max = 1000;
    options.node.set_version("1");
    agent_ = std::make_unique<Agent>(std::move(options));
  }
  Result<int64_t> Join(Heard& heard, int64_t term, const std::string& head = "head", const std::string& version = "1") {
    pb::Join join;
    join.set_term(term);
    join.set_knows(head);
    join.set_version(version);
    return agent_->Join(join, heard.Say(), {});
  }
  void Start(int64_t head, int64_t generation) {
    pb::ToNode message;
    message.mutable_start()->set_generation(generation);
    message.mutable_start()->set_first_rank(4);
    message.mutable_start()->set_num_ranks(8);
    message.mutable_start()->set_setup_timeout_ms(10000);
    message.mutable_start()->set_comm_timeout_ms(10000);
    agent_->Take(head, message);
  }
  pb::Order* Order(pb::ToNode& message, int64_t generation, int64_t seq) {
    pb::Order* order = message.mutable_order();
    order->set_generation(generation);
    order->set_seq(seq);
    order->set_timeout_us(10'000'000);
    return order;
  }
  static Status StatusOf(const pb::Error& error) { return {static_cast<Code>(error.code()), error.message()}; }

  ObedientRanks ranks_;
  std::unique_ptr<Agent> agent_;
};

TEST_F(AgentTest, StartsItsPartOfTheMesh) {
  Heard heard;
  const int64_t head = *Join(heard, 1);
  EXPECT_EQ(heard.Next(pb::FromNode::kJoined).joined().version(), "1");
  Start(head, 5);
  const pb::RanksStarted started = heard.Next(pb::FromNode::kStarted).started();
  EXPECT_EQ(started.generation(), 5);
  EXPECT_EQ(started.error().code(), 0) << started.error().message();
  std::vector<int64_t> ranks;
  for (const pb::ToWorker& message : ranks_.heard()) {
    EXPECT_EQ(message.hello().num_ranks(), 8);
    EXPECT_EQ(message.hello().first_rank(), 4);
    ranks.push_back(message.rank());
  }
  EXPECT_THAT(ranks, testing::UnorderedElementsAre(4, 5));
}

TEST_F(AgentTest, AHeadOfAnEarlierTermIsRefused) {
  Heard first, second, third;
  ASSERT_TRUE(Join(first, 3).ok());
  EXPECT_THAT(Join(second, 2).status().ToString(), HasSubstr("term 2 is over: this node has heard of term 3"));
  EXPECT_TRUE(Join(third, 4).ok());
}

TEST_F(AgentTest, ATermHasOneHead) {
  const auto join = [&](const std::string& head, int64_t term) {
    pb::Join join;
    join.set_term(term);
    join.set_version("1");
    join.set_head(head);
    return agent_->Join(join, [](const pb::FromNode&) {}, {}).status().ToString();
  };
  EXPECT_EQ(join("a", 3), "OK");
  EXPECT_EQ(join("b", 3), "ABORTED: term 3 has a head: a, not b");
  EXPECT_EQ(join("a", 3), "OK");  // Whose link was lost.
  EXPECT_EQ(join("b", 4), "OK");
  agent_->Fence(5);
  EXPECT_EQ(join("c", 5), "OK");
}

TEST_F(AgentTest, AnotherVersionIsRefusedByName) {
  Heard heard;
  EXPECT_THAT(Join(heard, 1, "head", "2").status().ToString(), HasSubstr("version 1, the head of the cluster 2"));
}

// Two heads that both believe in themselves: what the earlier one says is not heard, nor answered.
TEST_F(AgentTest, AHeadThatWasReplacedIsNotHeard) {
  Heard first, second;
  const int64_t before = *Join(first, 1);
  Start(before, 1);
  first.Next(pb::FromNode::kStarted);
  const int64_t after = *Join(second, 2, "other");
  const size_t said = first.size();
  for (int i = 0; i < 10; ++i) {
    pb::ToNode message;
    Order(message, 1, i + 1)->add_parts()->mutable_message()->mutable_execute()->set_run(99);
    agent_->Take(before, message);
  }
  agent_->Leave(before);
  Start(after, 1);
  EXPECT_EQ(second.Next(pb::FromNode::kStarted).started().error().code(), 0);
  EXPECT_EQ(first.size(), said);
  EXPECT_EQ(second.size(), 2U);  // That it has joined and started: no answer to the other's orders.
  for (const pb::ToWorker& message : ranks_.heard()) EXPECT_FALSE(message.has_execute());
}

// A put past the head: the shard is there for the order that binds it, and whole; its ticket ends with the head.
TEST_F(AgentTest, WhatAClientWroteIsThereForRanksAndForALaterHead) {
  Heard heard;
  const int64_t head = *Join(heard, 1);
  Start(head, 1);
  heard.Next(pb::FromNode::kStarted);
  const auto grant = [&](int64_t to, int64_t number, char secret, int64_t shard) {
    pb::ToNode message;
    message.mutable_grant()->set_number(number);
    pb::Ticket& ticket = *message.mutable_grant()->add_tickets();
    ticket.set_secret(std::string(32, secret));
    ticket.set_receipt("all");
    ticket.set_writes(true);
    ticket.set_bytes(5);
    ticket.add_shards(shard);
    agent_->Take(to, message);
  };
  grant(head, 1, 'a', 7);
  grant(head, 2, 'b', 8);
  const pb::Granted first = heard.Next(pb::FromNode::kGranted).granted();
  EXPECT_EQ(first.number(), 1);
  EXPECT_EQ(first.error().code(), 0) << first.error().message();
  EXPECT_EQ(heard.Next(pb::FromNode::kGranted).granted().number(), 2);
  const Result<Tickets::Use> use = agent_->tickets().Begin(std::string(32, 'a'), true, [] {});
  ASSERT_TRUE(use.ok()) << use.status().ToString();
  EXPECT_EQ(*agent_->tickets().Written(*use), "all");
  agent_->tickets().End(*use);

  const size_t fds = ranks_.num_fds();
  pb::ToNode bind;
  pb::DeviceShard& shard =
      *Order(bind, 1, 1)->add_parts()->mutable_message()->mutable_bind()->add_shards();  // Without bytes before.
  bind.mutable_order()->mutable_parts(0)->add_ranks(0);
  shard.set_id(7);
  shard.set_bytes(5);
  agent_->Take(head, bind);
  const pb::Answer bound = heard.Next(pb::FromNode::kAnswer).answer();
  EXPECT_EQ(bound.error().code(), 0) << bound.error().message();
  EXPECT_EQ(ranks_.num_fds(), fds + 1);

  Heard later;
  const int64_t next = *Join(later, 2);
  EXPECT_THAT(later.Next(pb::FromNode::kJoined).joined().shards(), testing::ElementsAre(7));  // Nobody wrote 8.
  EXPECT_EQ(agent_->tickets().Begin(std::string(32, 'b'), true, [] {}).status().code(), Code::kNotFound);
  EXPECT_EQ(agent_->kept_bytes(), 5);
  const size_t said = later.size();
  grant(head, 3, 'c', 9);  // Of a term that is over.
  grant(next, 1, 'd', 9);
  EXPECT_EQ(later.Next(pb::FromNode::kGranted).granted().number(), 1);
  EXPECT_EQ(later.size(), said + 1);
  EXPECT_EQ(agent_->tickets().Begin(std::string(32, 'c'), true, [] {}).status().code(), Code::kNotFound);
}

TEST_F(AgentTest, ShardsOutliveRanksAndTheLinkOfTheSameHead) {
  Heard heard;
  int64_t head = *Join(heard, 1);
  pb::ToNode bytes;
  bytes.mutable_bytes()->set_shard(7);
  bytes.mutable_bytes()->set_total(5);
  bytes.mutable_bytes()->set_data("hello");
  agent_->Take(head, bytes);
  for (int64_t generation = 1; generation <= 2; ++generation) {
    Start(head, generation);
    ASSERT_EQ(heard.Next(pb::FromNode::kStarted).started().error().code(), 0);
    pb::ToNode message;
    pb::DeviceShard& shard =
        *Order(message, generation, 1)->add_parts()->mutable_message()->mutable_bind()->add_shards();
    shard.set_id(7);
    shard.set_bytes(5);
    shard.set_has_memory(generation == 1);
    agent_->Take(head, message);
    ASSERT_EQ(heard.Next(pb::FromNode::kAnswer).answer().error().code(), 0);
    agent_->Leave(head);
    head = *Join(heard, 1);
  }
  Start(head, 3);
  heard.Next(pb::FromNode::kStarted);
  pb::ToNode message;
  pb::DeviceShard& shard = *Order(message, 3, 1)->add_parts()->mutable_message()->mutable_fetch()->add_shards();
  shard.set_id(7);
  shard.set_bytes(5);
  agent_->Take(head, message);
  EXPECT_EQ(heard.Next(pb::FromNode::kBytes).bytes().data(), "hello");
  EXPECT_EQ(heard.Next(pb::FromNode::kAnswer).answer().error().code(), 0);
  EXPECT_EQ(agent_->kept_bytes(), 5);
}

TEST_F(AgentTest, AnotherHeadFindsNothing) {
  Heard heard;
  pb::ToNode bytes;
  bytes.mutable_bytes()->set_shard(7);
  bytes.mutable_bytes()->set_total(5);
  agent_->Take(*Join(heard, 1), bytes);
  EXPECT_EQ(agent_->kept_bytes(), 5);
  Start(*Join(heard, 2, "other"), 1);
  heard.Next(pb::FromNode::kStarted);
  EXPECT_EQ(agent_->kept_bytes(), 0);
}

TEST_F(AgentTest, WhatHasNoRoomIsSaid) {
  Heard heard;
  const int64_t head = *Join(heard, 1);
  Start(head, 1);
  heard.Next(pb::FromNode::kStarted);
  pb::ToNode message;
  pb::DeviceShard& shard = *Order(message, 1, 1)->add_parts()->mutable_message()->mutable_bind()->add_shards();
  shard.set_id(7);
  shard.set_bytes(1001);
  agent_->Take(head, message);
  const pb::Answer answer = heard.Next(pb::FromNode::kAnswer).answer();
  EXPECT_EQ(StatusOf(answer.error()).code(), Code::kResourceExhausted);
  EXPECT_THAT(answer.error().message(), HasSubstr("tensor_bytes_max = 1000"));
  EXPECT_FALSE(answer.ended());
}

TEST_F(AgentTest, ALaterTermEndsItsHead) {
  Heard heard;
  Status over;
  pb::Join join;
  join.set_term(2);
  join.set_version("1");
  const int64_t head = *agent_->Join(join, heard.Say(), [&](const Status& why) { over = why; });
  EXPECT_TRUE(agent_->hears_head());
  agent_->Fence(2);
  EXPECT_TRUE(agent_->hears_head());
  agent_->Fence(3);
  EXPECT_FALSE(agent_->hears_head());
  EXPECT_EQ(over.code(), Code::kAborted);
  Start(head, 1);
  Heard again, next;
  EXPECT_EQ(Join(again, 2).status().code(), Code::kAborted);
  Start(*Join(next, 3), 1);
  EXPECT_EQ(next.Next(pb::FromNode::kStarted).started().error().code(), 0);
  EXPECT_EQ(heard.size(), 1U);
}

// Only shards that an order made, or brought, are for a later head: not those that are on their way, or being written.
TEST_F(AgentTest, ALaterHeadHearsOfWhatIsWholeAndWhatWasToBeRemembered) {
  Heard heard;
  const int64_t head = *Join(heard, 1);
  Start(head, 1);
  ASSERT_EQ(heard.Next(pb::FromNode::kStarted).started().error().code(), 0);
  for (const int64_t shard : {7, 8}) {
    pb::ToNode bytes;
    bytes.mutable_bytes()->set_shard(shard);
    bytes.mutable_bytes()->set_total(4);
    bytes.mutable_bytes()->set_data(shard == 7 ? "1234" : "12");  // Half of 8.
    agent_->Take(head, bytes);
  }
  pb::ToNode run;
  pb::Order& order = *Order(run, 1, 1);
  pb::DeviceShard& brought = *order.add_parts()->mutable_message()->mutable_bind()->add_shards();
  brought.set_id(7);
  brought.set_bytes(4);
  brought.set_has_memory(true);
  pb::DeviceShard& made = *order.add_parts()->mutable_message()->mutable_bind()->add_shards();
  made.set_id(9);
  made.set_bytes(4);
  pb::TensorArg& output = *order.add_parts()->mutable_message()->mutable_execute()->add_outputs();
  for (int rank = 0; rank < 8; ++rank) output.add_shards(rank == 5 ? 9 : 100 + rank);  // 4 and 5 are here.
  agent_->Take(head, run);
  ASSERT_EQ(heard.Next(pb::FromNode::kAnswer).answer().error().code(), 0);
  pb::ToNode remember;
  remember.mutable_remember()->set_count(3);
  for (const char* handle : {"a", "b"}) remember.mutable_remember()->add_tensors()->set_handle(handle);
  agent_->Take(head, remember);
  remember.Clear();
  remember.mutable_remember()->set_count(4);
  remember.mutable_remember()->add_forgotten("a");
  agent_->Take(head, remember);
  remember.Clear();
  remember.mutable_remember()->add_dropped(8);  // Shards alone: it knows as much as before.
  agent_->Take(head, remember);

  Heard later;
  const int64_t next = *Join(later, 5);
  const pb::Joined joined = later.Next(pb::FromNode::kJoined).joined();
  EXPECT_THAT(joined.shards(), testing::ElementsAre(7, 9));
  EXPECT_EQ(joined.directory().term(), 1);
  EXPECT_EQ(joined.directory().count(), 4);
  ASSERT_EQ(joined.directory().tensors_size(), 1);
  EXPECT_EQ(joined.directory().tensors(0).handle(), "b");

  // A run that does not end well leaves none of its outputs.
  Start(next, 2);
  ASSERT_EQ(later.Next(pb::FromNode::kStarted).started().error().code(), 0);
  pb::ToNode fails;
  pb::Order& second = *Order(fails, 2, 1);
  *second.add_parts()->mutable_message()->mutable_execute()->add_outputs() = output;
  second.add_parts()->add_ranks(99);
  agent_->Take(next, fails);
  EXPECT_NE(later.Next(pb::FromNode::kAnswer).answer().error().code(), 0);
  remember.Clear();
  remember.mutable_remember()->set_from_start(true);
  remember.mutable_remember()->add_dropped(7);
  agent_->Take(next, remember);
  Heard last;
  ASSERT_TRUE(Join(last, 6).ok());
  const pb::Joined after = last.Next(pb::FromNode::kJoined).joined();
  EXPECT_TRUE(after.shards().empty());
  EXPECT_EQ(after.directory().term(), 5);
  EXPECT_TRUE(after.directory().tensors().empty());
}

// A run's outputs are there when it was run: not when there is memory for them.
TEST_F(AgentTest, OutputsInTwoPhasesAreWholeAfterTheSecond) {
  Heard heard;
  const int64_t head = *Join(heard, 1);
  Start(head, 1);
  ASSERT_EQ(heard.Next(pb::FromNode::kStarted).started().error().code(), 0);
  int64_t seq = 0;
  const auto run = [&](pb::Execute::Phase phase) {
    pb::ToNode message;
    pb::Order& order = *Order(message, 1, ++seq);
    pb::Execute& execute = *order.add_parts()->mutable_message()->mutable_execute();
    execute.set_phase(phase);
    execute.set_profile(true);  // So that it is no broadcast, which these ranks do not hear.
    if (phase == pb::Execute::PHASE_BIND) {
      pb::DeviceShard& shard = *order.add_parts()->mutable_message()->mutable_bind()->add_shards();
      shard.set_id(9);
      shard.set_bytes(4);
      pb::TensorArg& output = *execute.add_outputs();
      for (int rank = 0; rank < 8; ++rank) output.add_shards(rank == 5 ? 9 : 0);
    }
    agent_->Take(head, message);
    EXPECT_EQ(heard.Next(pb::FromNode::kAnswer).answer().error().code(), 0);
  };
  run(pb::Execute::PHASE_BIND);
  run(pb::Execute::PHASE_RUN);
  Heard second;
  const int64_t next = *Join(second, 2);
  EXPECT_THAT(second.Next(pb::FromNode::kJoined).joined().shards(), testing::ElementsAre(9));
  Start(next, 2);
  ASSERT_EQ(second.Next(pb::FromNode::kStarted).started().error().code(), 0);
  pb::ToNode bind;
  pb::Order& order = *Order(bind, 2, 1);
  pb::Execute& execute = *order.add_parts()->mutable_message()->mutable_execute();
  execute.set_phase(pb::Execute::PHASE_BIND);
  execute.set_profile(true);
  pb::TensorArg& output = *execute.add_outputs();
  for (int rank = 0; rank < 8; ++rank) output.add_shards(rank == 5 ? 9 : 0);
  agent_->Take(next, bind);
  ASSERT_EQ(second.Next(pb::FromNode::kAnswer).answer().error().code(), 0);
  Heard third;
  ASSERT_TRUE(Join(third, 3).ok());
  EXPECT_TRUE(third.Next(pb::FromNode::kJoined).joined().shards().empty());
  EXPECT_EQ(agent_->kept_bytes(), 0);
}

// All three come before the second has its turn.
TEST_F(AgentTest, AStartThatWasEndedStartsNothing) {
  Heard heard;
  int64_t head = 0;
  const auto say = [&, tell = heard.Say()](const pb::FromNode& message) {
    tell(message);
    if (message.started().generation() != 1) return;
    Start(head, 2);
    pb::ToNode end;
    end.mutable_end()->set_generation(2);
    agent_->Take(head, end);
    Start(head, 3);
  };
  pb::Join join;
  join.set_term(1);
  join.set_version("1");
  head = *agent_->Join(join, say, {});
  Start(head, 1);
  EXPECT_EQ(heard.Next(pb::FromNode::kStarted).started().generation(), 1);
  const pb::RanksStarted started = heard.Next(pb::FromNode::kStarted).started();
  EXPECT_EQ(started.generation(), 3);
  EXPECT_EQ(started.error().code(), 0) << started.error().message();
  for (const pb::ToWorker& message : ranks_.heard()) EXPECT_NE(message.generation(), 2);
}

TEST_F(AgentTest, OrdersThatMakeNoSenseAreAnswered) {
  Heard heard;
  const int64_t head = *Join(heard, 1);
  pb::ToNode early;
  Order(early, 1, 1)->add_parts()->mutable_message()->mutable_execute();
  agent_->Take(head, early);
  EXPECT_TRUE(heard.Next(pb::FromNode::kAnswer).answer().ended());
  Start(head, 1);
  heard.Next(pb::FromNode::kStarted);
  for (const int64_t rank : {int64_t{-1}, int64_t{2}, INT64_MAX}) {
    pb::ToNode message;
    pb::Order::Part& part = *Order(message, 1, 2)->add_parts();
    part.add_ranks(rank);
    part.mutable_message()->mutable_execute();
    agent_->Take(head, message);
    EXPECT_EQ(StatusOf(heard.Next(pb::FromNode::kAnswer).answer().error()).code(), Code::kInvalidArgument);
  }
  pb::ToNode unknown;
  Order(unknown, 1, 3)->add_parts()->mutable_message()->mutable_fetch()->add_shards()->set_id(12345);
  agent_->Take(head, unknown);
  EXPECT_EQ(StatusOf(heard.Next(pb::FromNode::kAnswer).answer().error()).code(), Code::kInternal);
  agent_->Take(head, pb::ToNode());  // Nothing at all.
}

// A head that has gone mad: the node goes on, and obeys the next one.
TEST_F(AgentTest, WhateverAHeadSaysTheNextOneIsObeyed) {
  Heard heard;
  const int64_t head = *Join(heard, 1);
  base::Prng prng(7);
  const auto number = [&] {
    const int64_t kExtremes[] = {0, 1, 2, 5, -1, 1000, INT64_MAX, INT64_MIN, INT64_MAX / 1000};
    return kExtremes[prng.Below(std::ssize(kExtremes))];
  };
  int64_t generation = 1;
  for (int i = 0; i < 2000; ++i) {
    pb::ToNode message;
    switch (prng.Below(6)) {
      case 0: {
        pb::StartRanks& start = *message.mutable_start();
        start.set_generation(number());
        start.set_first_rank(number());
        start.set_num_ranks(number());
        start.set_setup_timeout_ms(10000);
        start.set_comm_timeout_ms(number());
        if (prng.OneIn(2)) break;
        start.set_generation(generation = i + 1);
        start.set_first_rank(4);
        start.set_num_ranks(8);
        break;
      }
      case 1: {
        pb::ShardBytes& bytes = *message.mutable_bytes();
        bytes.set_shard(number());
        bytes.set_total(number());
        bytes.set_offset(number());
        bytes.set_data(std::string(static_cast<size_t>(prng.Below(20)), 'x'));
        break;
      }
      case 2: message.mutable_end()->set_generation(prng.OneIn(4) ? generation : prng.Below(3)); break;
      case 3: message.mutable_provide()->set_key(std::string(static_cast<size_t>(prng.Below(3)), 'k')); break;
      default: {
        pb::Order& order = *Order(message, prng.OneIn(4) ? number() : generation, i);
        for (int64_t parts = prng.Below(4); parts > 0; --parts) {
          pb::Order::Part& part = *order.add_parts();
          if (prng.OneIn(2)) part.add_ranks(number());
          pb::ToWorker& to = *part.mutable_message();
          pb::DeviceShard* shard = nullptr;
          if (prng.OneIn(3)) shard = to.mutable_bind()->add_shards();
          if (shard == nullptr && prng.OneIn(3)) shard = to.mutable_fetch()->add_shards();
          if (shard == nullptr) to.mutable_release()->add_shards(number());
          if (shard == nullptr) continue;
          shard->set_id(number());
          shard->set_bytes(number());
          shard->set_has_memory(prng.OneIn(2));
          shard->set_exported(prng.OneIn(5));
        }
      }
    }
    agent_->Take(head, message);
    if (i % 20 > 0) continue;
    pb::ToNode marker;  // An end overtakes what waits: so a little waits at a time.
    Order(marker, 1, 100000 + i);
    agent_->Take(head, marker);
    for (int64_t seq = 0; seq != 100000 + i;) seq = heard.Next(pb::FromNode::kAnswer).answer().seq();
  }
  EXPECT_GT(ranks_.heard().size(), 100U);
  Heard sane;
  const int64_t next = *Join(sane, 2, "next");
  Start(next, 1);
  EXPECT_EQ(sane.Next(pb::FromNode::kStarted).started().error().code(), 0);
  EXPECT_EQ(agent_->kept_bytes(), 0);
}

}  // namespace
}  // namespace hir::service
