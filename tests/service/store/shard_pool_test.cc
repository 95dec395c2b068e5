// Goal: memory of freed outputs is used again by whom it belonged to, and by nobody else; what is kept is bounded, and
// never in the way of a tensor. Method: the store alone; what the workers would unmap is read from ReleasedShards.
#include "service/store/shard_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "service/store/store.h"

namespace hir::service {
namespace {

constexpr int64_t kPage = 4096;

class Recycling : public testing::Test {
 protected:
  explicit Recycling(StoreOptions options = {.num_devices = 2,
                                             .tensor_bytes_max = 6 * kPage,
                                             .recycled_bytes_max = 2 * kPage})
      : store(options, released) {}
  using Set = std::shared_ptr<ShardSet>;

  static TensorSpec Spec(int64_t bytes, int64_t device = 0) {
    return {.dtype = DType::kBool,
            .shape = {bytes},
            .stored_once = {false},
            .sharding = mesh::Sharding::Replicated(*mesh::DeviceMesh::Make({1}, {device}), 1)};
  }
  Set Output(const std::string& of, int64_t bytes, int64_t device = 0) {
    Result<Set> set = store.Allocate(of, Spec(bytes, device), TensorStore::Use::kOutput);
    EXPECT_TRUE(set.ok()) << set.status().ToString();
    return set.ok() ? *set : nullptr;
  }
  static int64_t IdOf(const Set& set) { return set->shards().front().id; }
  static std::byte* BytesOf(const Set& set) { return set->host()->memory.front().data(); }
  // An output with every byte 0x7f that was freed.
  int64_t Freed(const std::string& of, int64_t bytes, int64_t device = 0) {
    const Set set = Output(of, bytes, device);
    std::memset(BytesOf(set), 0x7f, static_cast<size_t>(bytes));
    return IdOf(set);
  }
  static bool IsZero(const Set& set) {
    const std::byte* bytes = BytesOf(set);
    return std::all_of(bytes, bytes + set->shards().front().bytes, [](std::byte byte) { return byte == std::byte(0); });
  }

  const std::shared_ptr<ReleasedShards> released = std::make_shared<ReleasedShards>([] {});
  TensorStore store;
  const std::string session = *store.OpenSession();
};

TEST_F(Recycling, TheNextOutputOfThatSizeIsTheSameShard) {
  const int64_t id = Freed(session, 100);
  EXPECT_EQ(store.recycled_bytes(), kPage);
  EXPECT_EQ(store.tensor_bytes(), 0);
  const Set next = Output(session, 100);
  EXPECT_EQ(IdOf(next), id) << "which the worker has mapped";
  EXPECT_EQ(BytesOf(next)[99], std::byte(0x7f)) << "no page was touched";
  EXPECT_EQ(store.recycled_bytes(), 0);
  EXPECT_EQ(store.tensor_bytes(), 100);
  EXPECT_NE(IdOf(Output(session, 100)), id) << "it is in use";
  EXPECT_TRUE(released->Take().empty());
}

TEST_F(Recycling, AnotherSizeDeviceOrSessionGetsFreshMemory) {
  const std::string other = *store.OpenSession();
  const int64_t id = Freed(session, 100);
  const std::vector<Set> fresh = {Output(session, 101), Output(session, 100, 1), Output(other, 100)};
  for (const Set& set : fresh) {
    EXPECT_NE(IdOf(set), id);
    EXPECT_TRUE(IsZero(set));
  }
  EXPECT_EQ(IdOf(Output(session, 100)), id);
}

TEST_F(Recycling, AnUploadGetsFreshMemory) {
  const int64_t id = Freed(session, 100);
  const Set set = *store.Allocate(session, Spec(100), TensorStore::Use::kUpload);
  EXPECT_NE(IdOf(set), id);
  EXPECT_TRUE(IsZero(set));
}

TEST_F(Recycling, WhatADownloadReadsIsNotUsedAgain) {
  Set set = Output(session, 100);
  const int64_t id = IdOf(set);
  const std::shared_ptr<HostShards> read = set->host();
  set.reset();
  EXPECT_EQ(store.recycled_bytes(), 0);
  EXPECT_EQ(released->Take(), std::vector<int64_t>{id});
  EXPECT_NE(IdOf(Output(session, 100)), id);
}

TEST_F(Recycling, ASessionLeavesNothing) {
  const int64_t freed = Freed(session, 100);
  Set used = Output(session, 200);  // By a run that is under way.
  const int64_t id = IdOf(used);
  store.CloseSession(session);
  EXPECT_EQ(store.recycled_bytes(), 0);
  EXPECT_EQ(released->Take(), std::vector<int64_t>{freed});
  used.reset();
  EXPECT_EQ(store.recycled_bytes(), 0);
  EXPECT_EQ(released->Take(), std::vector<int64_t>{id});
}

TEST_F(Recycling, AtTheLimitTheOneKeptForLongestGoes) {
  const int64_t first = Freed(session, kPage), second = Freed(session, kPage - 1);
  EXPECT_EQ(store.recycled_bytes(), 2 * kPage) << "at the limit";
  EXPECT_TRUE(released->Take().empty());
  const int64_t third = Freed(session, 1);
  EXPECT_EQ(released->Take(), std::vector<int64_t>{first});
  const int64_t large = Freed(session, 2 * kPage + 1);
  EXPECT_EQ(released->Take(), std::vector<int64_t>{large}) << "and costs the others nothing";
  EXPECT_EQ(IdOf(Output(session, kPage - 1)), second);
  EXPECT_EQ(IdOf(Output(session, 1)), third);
}

TEST_F(Recycling, NoTensorIsRefusedForIt) {
  Freed(session, kPage);
  Freed(session, kPage - 1);
  const Set most = Output(session, 4 * kPage);
  EXPECT_EQ(store.recycled_bytes(), 2 * kPage) << "both fit";
  const Set more = Output(session, kPage + 1);
  EXPECT_EQ(store.recycled_bytes(), 0);
  EXPECT_EQ(released->Take().size(), 2U);
}

TEST_F(Recycling, AnUploadThatGrowsTakesItsPlace) {
  const Set upload = *store.Allocate(session, Spec(6 * kPage), TensorStore::Use::kUpload);
  Freed(session, kPage);
  ASSERT_TRUE(upload->charge.Grow(5 * kPage).ok());
  store.MakeRoom();
  EXPECT_EQ(store.recycled_bytes(), kPage) << "at the limit";
  ASSERT_TRUE(upload->charge.Grow(1).ok());
  store.MakeRoom();
  EXPECT_EQ(store.recycled_bytes(), 0);
}

class ManyTensors : public Recycling {
 protected:
  ManyTensors() : Recycling({.num_devices = 2}) {}
};

TEST_F(ManyTensors, AreBounded) {
  std::vector<Set> sets;
  for (int64_t i = 0; i <= ShardPool::kTensorsMax; ++i) sets.push_back(Output(session, 10 + i));
  for (Set& set : sets) set.reset();
  EXPECT_EQ(store.recycled_bytes(), ShardPool::kTensorsMax * kPage);
  EXPECT_EQ(released->Take().size(), 1U);
}

TEST_F(Recycling, InAnyOrder) {
  std::mt19937 random(7);
  std::vector<std::string> sessions = {session, *store.OpenSession()};
  struct Held {
    Set set;
    std::string of;
  };
  std::vector<Held> held;
  std::set<int64_t> in_use, gone;
  for (int step = 0; step < 20000; ++step) {
    const std::string& of = sessions[random() % 2];
    if (random() % 2 == 0 && held.size() < 4) {
      const Set set = Output(of, 1 + static_cast<int64_t>(random() % 4) * 1000, static_cast<int64_t>(random() % 2));
      ASSERT_NE(set, nullptr);
      ASSERT_TRUE(in_use.insert(IdOf(set)).second) << "two tensors are one shard";
      ASSERT_FALSE(gone.contains(IdOf(set))) << "the workers have unmapped it";
      const std::byte mark = of == session ? std::byte(1) : std::byte(2);
      const std::byte before = BytesOf(set)[0];
      ASSERT_TRUE(before == std::byte(0) || before == mark) << "another session's";
      BytesOf(set)[0] = mark;
      held.push_back({set, of});
    } else if (!held.empty()) {
      const size_t at = random() % held.size();
      in_use.erase(IdOf(held[at].set));
      held.erase(held.begin() + static_cast<ptrdiff_t>(at));
    }
    if (random() % 500 == 0) {
      store.CloseSession(sessions[1]);
      sessions[1] = *store.OpenSession();
      // Its tensors that are held are a run's; what they leave goes.
      std::erase_if(held, [&](const Held& one) {
        if (one.of == session) return false;
        in_use.erase(IdOf(one.set));
        return true;
      });
    }
    for (const int64_t id : released->Take()) {
      ASSERT_TRUE(gone.insert(id).second);
      ASSERT_FALSE(in_use.contains(id));
    }
    ASSERT_LE(store.recycled_bytes(), 2 * kPage);
    ASSERT_LE(store.recycled_bytes() + store.tensor_bytes(), 6 * kPage);
  }
}

}  // namespace
}  // namespace hir::service
