// Goal: what a node keeps is there until it is dropped, of the size it was made with, and never more than the limit.
// Method: a KeptShards alone.
#include "service/cluster/kept_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace hir::service {
namespace {

using testing::HasSubstr;

TEST(KeptShards, KeepsTheBytesUntilTheyAreDropped) {
  KeptShards kept(100);
  ASSERT_TRUE(kept.Write(7, 10, 0, "hello").ok());
  EXPECT_FALSE(kept.HasArrived(7));
  ASSERT_TRUE(kept.Write(7, 10, 5, "world").ok());
  EXPECT_TRUE(kept.HasArrived(7));
  const KeptShards::Memory memory = *kept.Get(7, 10);
  EXPECT_EQ(std::memcmp(memory->data(), "helloworld", 10), 0);
  EXPECT_EQ(kept.bytes(), 10);
  kept.Drop(std::vector<int64_t>{7, 8});
  EXPECT_EQ(kept.bytes(), 0);
  EXPECT_EQ(kept.Find(7), nullptr);
  EXPECT_EQ(std::memcmp(memory->data(), "helloworld", 10), 0);  // Who has it still, has it.
}

TEST(KeptShards, NewOnesAreZero) {
  KeptShards kept(100);
  const KeptShards::Memory memory = *kept.Get(1, 100);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(memory->data()[i], std::byte{0});
  EXPECT_EQ((*kept.Get(2, 0))->bytes(), 0);
}

TEST(KeptShards, RefusesWhatDoesNotFit) {
  KeptShards kept(100);
  ASSERT_TRUE(kept.Get(1, 60).ok());
  EXPECT_THAT(kept.Get(2, 41).status().ToString(), HasSubstr("tensor_bytes_max = 100"));
  EXPECT_TRUE(kept.Get(2, 40).ok());
  EXPECT_EQ(kept.Get(1, 61).status().code(), Code::kInternal);
  kept.Drop(std::vector<int64_t>{1, 2});
  EXPECT_TRUE(kept.Get(3, 100).ok());
}

// Shards that were freed are kept until an order says so; clients' puts meanwhile take no room from outputs of runs.
TEST(KeptShards, ClientsTakeNoRoomFromOrders) {
  KeptShards kept(100);
  ASSERT_TRUE(kept.Get(1, 60).ok());
  ASSERT_TRUE(kept.GetForClient(2, 40).ok());
  EXPECT_EQ(kept.GetForClient(2, 40).status().code(), Code::kInternal);
  EXPECT_EQ(kept.GetForClient(3, 1).status().code(), Code::kResourceExhausted);
  ASSERT_TRUE(kept.Get(4, 40).ok());
  EXPECT_EQ(kept.Get(5, 1).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(kept.bytes(), 140);
  kept.Drop(std::vector<int64_t>{4});
  ASSERT_TRUE(kept.Get(2, 40).ok());  // Read by a run: it counts as others.
  EXPECT_EQ(kept.Get(4, 1).status().code(), Code::kResourceExhausted);
  kept.Drop(std::vector<int64_t>{1, 2});
  EXPECT_EQ(kept.bytes(), 0);
  EXPECT_TRUE(kept.Get(6, 100).ok());
}

// Where the first bytes could not be kept the rest is no shard: it would have zeros.
TEST(KeptShards, RefusesBytesBehindOnesThatAreMissing) {
  KeptShards kept(100);
  EXPECT_THAT(kept.Write(1, 10, 5, "world").ToString(), HasSubstr("5 bytes at 5 of shard 1, whose bytes before are"));
  EXPECT_EQ(kept.Find(1), nullptr);
  ASSERT_TRUE(kept.Write(1, 10, 0, "hello").ok());
  EXPECT_FALSE(kept.Write(1, 10, 6, "orld").ok());
  EXPECT_FALSE(kept.HasArrived(1));
  ASSERT_TRUE(kept.Write(1, 10, 0, "hel").ok());  // Again, from the start.
  ASSERT_TRUE(kept.Write(1, 10, 3, "loworld").ok());
  EXPECT_TRUE(kept.HasArrived(1));
  kept.Drop(std::vector<int64_t>{1});
  ASSERT_TRUE(kept.Get(1, 10).ok());
  EXPECT_FALSE(kept.HasArrived(1));
}

// A head that has gone mad writes no byte elsewhere.
TEST(KeptShards, RefusesBytesOutside) {
  KeptShards kept(100);
  for (const auto& [total, offset] : std::vector<std::pair<int64_t, int64_t>>{
           {10, 8}, {10, -1}, {10, 11}, {-5, 0}, {10, INT64_MAX}, {INT64_MIN, INT64_MIN}, {2, 0}}) {
    EXPECT_FALSE(kept.Write(1, total, offset, "abc").ok()) << total << " " << offset;
  }
  EXPECT_FALSE(kept.Write(1, INT64_MAX, 0, "abc").ok());
  EXPECT_EQ(kept.bytes(), 0);
}

}  // namespace
}  // namespace hir::service
