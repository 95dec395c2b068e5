// The rules at CommDesc: each breach has its message, each permitted form passes.
#include "multidevice/comm/check_desc.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace hir::comm {
namespace {

constexpr int64_t kRank = 2;
const TeamInfo kTeam = {.ranks = {0, 2, 3}, .index = 1};

class CheckDescTest : public testing::Test {
 protected:
  // A legal description with `count` f32 per chunk, src and dst apart.
  CommDesc Legal(CommType type, int64_t count = 4) {
    CommDesc desc = {.type = type, .count = count, .seq = 9};
    desc.src = {bytes_, 3 * 4 * count};
    desc.dst = {bytes_ + 512, 3 * 4 * count};
    if (IsRooted(type)) desc.root = 3;
    if (HasHalves(type)) desc.to = 0, desc.from = 3;
    return desc;
  }
  std::string Checked(const CommDesc& desc) { return CheckDesc(desc, &kTeam, kRank).ToString(); }
  alignas(64) std::byte bytes_[1024] = {};
};

TEST_F(CheckDescTest, LegalOnesPass) {
  for (CommType type : kAllCommTypes) {
    EXPECT_EQ(Checked(Legal(type)), "OK") << CommTypeName(type);
    CommDesc empty = {.type = type, .root = 0};
    EXPECT_EQ(Checked(empty), "OK") << "count 0, null buffers: " << CommTypeName(type);
  }
}

TEST_F(CheckDescTest, TeamAndCount) {
  EXPECT_EQ(CheckDesc({.team = TeamId{5}, .seq = 1}, nullptr, 0).ToString(),
            "INVALID_ARGUMENT: allreduce #1: there is no team 5");
  CommDesc desc = Legal(CommType::kAllreduce);
  desc.count = -1;
  EXPECT_EQ(Checked(desc), "INVALID_ARGUMENT: allreduce #9: count is -1");
  desc.count = std::numeric_limits<int64_t>::max() / 8;
  EXPECT_EQ(Checked(desc), "INVALID_ARGUMENT: allreduce #9: count 1152921504606846975 is too large");
}

TEST_F(CheckDescTest, AMeanIsOfFloats) {
  CommDesc desc = Legal(CommType::kAllreduce);
  desc.reduce = ReduceOp::kMean;
  EXPECT_EQ(Checked(desc), "OK");
  desc.dtype = DType::kInt32;
  EXPECT_EQ(Checked(desc),
            "INVALID_ARGUMENT: allreduce #9: reduce is mean, of i32; a mean is of floats: cast "
            "them, or use sum");
}

TEST_F(CheckDescTest, Peers) {
  for (CommType type : {CommType::kGather, CommType::kScatter, CommType::kReduce, CommType::kBroadcast}) {
    const std::string name(CommTypeName(type));
    CommDesc desc = Legal(type);
    desc.root = 1;
    EXPECT_EQ(Checked(desc), "INVALID_ARGUMENT: " + name + " #9: root 1 is not in team [0, 2, 3]");
    desc.root = kNoRank;
    EXPECT_EQ(Checked(desc), "INVALID_ARGUMENT: " + name + " #9: root -1 is not in team [0, 2, 3]");
  }
  CommDesc desc = Legal(CommType::kCollectivePermute);
  desc.from = 4;
  EXPECT_EQ(Checked(desc), "INVALID_ARGUMENT: collective_permute #9: from 4 is not in team [0, 2, 3]");
  desc = Legal(CommType::kSendRecv);
  desc.to = 1;
  EXPECT_EQ(Checked(desc), "INVALID_ARGUMENT: send_recv #9: to 1 is not in team [0, 2, 3]");
  desc.to = kNoRank, desc.from = 7;
  EXPECT_EQ(Checked(desc), "INVALID_ARGUMENT: send_recv #9: from 7 is not in team [0, 2, 3]");
  desc.to = 2, desc.from = 3;
  EXPECT_EQ(Checked(desc),
            "INVALID_ARGUMENT: send_recv #9: to is 2 and from is 3 on rank 2: both name this rank, "
            "or neither");
  desc.to = 2, desc.from = 2;
  EXPECT_EQ(Checked(desc), "OK");
  desc.to = kNoRank, desc.from = kNoRank;
  EXPECT_EQ(Checked(desc), "OK");
}

TEST_F(CheckDescTest, Buffers) {
  CommDesc desc = Legal(CommType::kAllgather);
  desc.dst.bytes = 47;
  EXPECT_EQ(Checked(desc), "INVALID_ARGUMENT: allgather #9: dst has 47 bytes, 48 are needed (3 x 4 f32)");
  desc = Legal(CommType::kReduceScatter);
  desc.src.bytes = 16;
  EXPECT_EQ(Checked(desc), "INVALID_ARGUMENT: reduce_scatter #9: src has 16 bytes, 48 are needed (3 x 4 f32)");
  desc = Legal(CommType::kAllToAll);
  desc.src.data = nullptr;
  EXPECT_EQ(Checked(desc), "INVALID_ARGUMENT: all_to_all #9: src is null");
  desc = Legal(CommType::kAllreduce);
  desc.dst.data += 2;
  EXPECT_EQ(Checked(desc), "INVALID_ARGUMENT: allreduce #9: dst is not aligned to 4 bytes");
  desc = Legal(CommType::kBroadcast);  // This rank is not the root.
  desc.src = {};
  EXPECT_EQ(Checked(desc), "OK");
  desc = Legal(CommType::kSendRecv);
  desc.src = {}, desc.to = kNoRank;
  EXPECT_EQ(Checked(desc), "OK");
}

// This rank is 2: what only the root has is looked at there, and needs n chunks there.
TEST_F(CheckDescTest, BuffersOfTheRoot) {
  for (CommType type : {CommType::kGather, CommType::kReduce}) {
    CommDesc desc = Legal(type);
    desc.dst = {};
    EXPECT_EQ(Checked(desc), "OK") << CommTypeName(type);
    desc.dst = desc.src;  // Not looked at, so it overlaps nothing.
    EXPECT_EQ(Checked(desc), "OK") << CommTypeName(type);
    desc.dst = {bytes_ + 512, 15}, desc.root = kRank;
    EXPECT_NE(Checked(desc), "OK") << CommTypeName(type);
  }
  CommDesc desc = Legal(CommType::kGather);
  desc.root = kRank, desc.dst.bytes = 47;
  EXPECT_EQ(Checked(desc), "INVALID_ARGUMENT: gather #9: dst has 47 bytes, 48 are needed (3 x 4 f32)");
  desc = Legal(CommType::kScatter);
  desc.src = {};
  EXPECT_EQ(Checked(desc), "OK");
  desc.root = kRank, desc.src = {bytes_, 47};
  EXPECT_EQ(Checked(desc), "INVALID_ARGUMENT: scatter #9: src has 47 bytes, 48 are needed (3 x 4 f32)");
}

TEST_F(CheckDescTest, InPlace) {
  const auto with = [&](CommType type, int64_t src, int64_t dst) {
    CommDesc desc = Legal(type);
    if (IsRooted(type)) desc.root = kRank;
    desc.src.data = bytes_ + src;
    desc.dst.data = bytes_ + dst;
    return Checked(desc);
  };
  const auto refused = [](std::string_view name) {
    return "INVALID_ARGUMENT: " + std::string(name) + " #9: src and dst overlap, and not as the in-place form allows";
  };
  for (CommType type : {CommType::kReduce, CommType::kAllreduce, CommType::kAllToAll, CommType::kSendRecv,
                        CommType::kCollectivePermute, CommType::kBroadcast}) {
    EXPECT_EQ(with(type, 64, 64), "OK");
    EXPECT_EQ(with(type, 64, 72), refused(CommTypeName(type)));
  }
  EXPECT_EQ(with(CommType::kAllreduce, 64, 68), refused("allreduce"));
  EXPECT_EQ(with(CommType::kAllToAll, 64, 108), refused("all_to_all"));
  EXPECT_EQ(with(CommType::kSendRecv, 64, 60), refused("send_recv"));
  // Chunks have 16 bytes, and this rank has place 1.
  EXPECT_EQ(with(CommType::kGather, 80, 64), "OK");
  EXPECT_EQ(with(CommType::kGather, 64, 64), refused("gather"));
  EXPECT_EQ(with(CommType::kScatter, 64, 80), "OK");
  EXPECT_EQ(with(CommType::kScatter, 64, 64), refused("scatter"));
  EXPECT_EQ(with(CommType::kAllgather, 80, 64), "OK");
  EXPECT_EQ(with(CommType::kAllgather, 64, 64), refused("allgather"));
  EXPECT_EQ(with(CommType::kReduceScatter, 64, 80), "OK");
  EXPECT_EQ(with(CommType::kReduceScatter, 64, 96), refused("reduce_scatter"));
  EXPECT_EQ(with(CommType::kAllreduce, 64, 80), "OK");  // Side by side.
}

}  // namespace
}  // namespace hir::comm
