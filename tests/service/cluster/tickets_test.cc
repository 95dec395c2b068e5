// Goal: a ticket lets its holder write or read the shards that it names, once, for exactly its bytes, until it is
// revoked; and a grant that is refused leaves nothing. Method: Tickets alone, over a KeptShards.
#include "service/cluster/tickets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kBytesMax = 100;

class TicketsTest : public ::testing::Test {
 protected:
  static std::string Secret(char of) { return std::string(32, of); }
  // With one ticket.
  static pb::Grant Grant(int64_t number, char secret, bool writes, std::vector<int64_t> shards, int64_t bytes) {
    pb::Grant grant;
    grant.set_number(number);
    pb::Ticket& ticket = *grant.add_tickets();
    ticket.set_secret(Secret(secret));
    ticket.set_receipt("receipt");
    ticket.set_writes(writes);
    ticket.set_bytes(bytes);
    ticket.mutable_shards()->Add(shards.begin(), shards.end());
    return grant;
  }
  Status Add(const pb::Grant& grant) { return tickets_.Add(grant, kept_); }
  Result<Tickets::Use> Begin(char secret, bool writes) {
    return tickets_.Begin(Secret(secret), writes, [this] { ++stopped_; });
  }

  std::shared_ptr<KeptShards> kept_ = std::make_shared<KeptShards>(kBytesMax);
  Tickets tickets_;
  int stopped_ = 0;
};

TEST_F(TicketsTest, WhatIsWrittenIsWholeWhenAllOfItIs) {
  ASSERT_TRUE(Add(Grant(1, 'a', true, {7, 8}, 5)).ok());
  EXPECT_EQ(kept_->bytes(), 10);
  const Result<Tickets::Use> use = Begin('a', true);
  ASSERT_TRUE(use.ok());
  EXPECT_EQ(use->bytes, 5);
  ASSERT_EQ(use->memory.size(), 2U);
  EXPECT_EQ(use->memory[1], kept_->Find(8));
  EXPECT_TRUE(kept_->Whole().empty());
  EXPECT_EQ(*tickets_.Written(*use), "receipt");
  EXPECT_THAT(kept_->Whole(), ElementsAre(7, 8));
  tickets_.End(*use);
  tickets_.Revoke(1);  // The transfer is over; what was written stays.
  EXPECT_EQ(stopped_, 0);
  EXPECT_EQ(kept_->bytes(), 10);
}

TEST_F(TicketsTest, ATicketServesOnceAndForOneThing) {
  ASSERT_TRUE(Add(Grant(1, 'a', true, {7}, 5)).ok());
  EXPECT_EQ(Begin('a', false).status().code(), Code::kNotFound);
  EXPECT_EQ(Begin('b', true).status().code(), Code::kNotFound);
  EXPECT_TRUE(Begin('a', true).ok());
  const Status again = Begin('a', true).status();
  EXPECT_EQ(again.code(), Code::kNotFound);
  EXPECT_THAT(again.ToString(), HasSubstr("it has been used, is over, or never was"));
  EXPECT_EQ(again.ToString().find(Secret('a')), std::string::npos);  // A secret.
}

TEST_F(TicketsTest, WhatIsRevokedIsStopped) {
  ASSERT_TRUE(Add(Grant(1, 'a', true, {7}, 5)).ok());
  ASSERT_TRUE(Add(Grant(2, 'b', true, {8}, 5)).ok());
  const Result<Tickets::Use> use = Begin('a', true);
  tickets_.Revoke(1);
  EXPECT_EQ(stopped_, 1);
  EXPECT_EQ(tickets_.Written(*use).status().code(), Code::kAborted);
  tickets_.End(*use);
  EXPECT_TRUE(kept_->Whole().empty());
  tickets_.Clear();  // Another head has joined.
  EXPECT_EQ(stopped_, 1);
  EXPECT_EQ(Begin('b', true).status().code(), Code::kNotFound);
  ASSERT_TRUE(Add(Grant(1, 'c', true, {9}, 5)).ok());  // With numbers of its own.
  tickets_.End(*use);
  EXPECT_TRUE(Begin('c', true).ok());
}

TEST_F(TicketsTest, AGrantThatIsRefusedLeavesNothing) {
  pb::Grant grant = Grant(1, 'a', true, {7}, 60);
  *grant.add_tickets() = Grant(1, 'b', true, {8}, 60).tickets(0);
  const Status full = Add(grant);
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_THAT(full.ToString(), HasSubstr("tensor_bytes_max = 100"));
  EXPECT_EQ(kept_->bytes(), 0);
  EXPECT_EQ(Begin('a', true).status().code(), Code::kNotFound);
}

TEST_F(TicketsTest, WhatNoHeadSaysIsRefused) {
  ASSERT_TRUE(kept_->Get(7, 5).ok());
  for (const pb::Grant& wrong :
       {Grant(1, 'a', true, {}, 5), Grant(1, 'a', true, {8}, 0), Grant(1, 'a', true, {8}, -1),
        Grant(1, 'a', true, {7}, 5), Grant(1, 'a', true, {8, 8}, 5), Grant(1, 'a', false, {8}, 5),
        Grant(1, 'a', false, {7}, 6), Grant(1, 'a', false, {7, 7}, 5)}) {
    EXPECT_EQ(Add(wrong).code(), Code::kInternal) << wrong.ShortDebugString();
    EXPECT_EQ(kept_->bytes(), 5);
  }
  pb::Grant guessed = Grant(1, 'a', false, {7}, 5);
  guessed.mutable_tickets(0)->set_secret("short");
  EXPECT_EQ(Add(guessed).code(), Code::kInternal);
  EXPECT_TRUE(Add(Grant(1, 'a', false, {7}, 5)).ok());
  EXPECT_EQ(Add(Grant(1, 'b', false, {7}, 5)).ToString(), "INTERNAL: grant 1 is there already");
}

TEST_F(TicketsTest, WhoReadsHasTheMemoryUntilItEnds) {
  ASSERT_TRUE(kept_->Write(7, 5, 0, "hello").ok());
  ASSERT_TRUE(Add(Grant(1, 'a', false, {7}, 5)).ok());
  const Result<Tickets::Use> use = Begin('a', false);
  ASSERT_TRUE(use.ok());
  const int64_t shard = 7;
  kept_->Drop({&shard, 1});
  EXPECT_EQ(std::memcmp(use->memory.front()->data(), "hello", 5), 0);
}

}  // namespace
}  // namespace hir::service
