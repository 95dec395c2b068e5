// Goal: memory is shared by work that is known to be over before the other begins, and by no other. Method: the offsets
// that a plan gives to allocations of 64 bytes each.
#include "host_ir/pool_plan.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "host_ir/eval/host_program.h"

namespace hir::host {
namespace {

// The allocs that `rank` touches, in program order.
std::vector<int64_t> Offsets(std::string_view program, int64_t rank, size_t num_allocs) {
  auto loaded = HostProgram::Load(std::string(program));
  EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
  if (!loaded.ok()) return {};
  auto plan = PoolPlan::Make((*loaded)->graph(), rank);
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  if (!plan.ok()) return {};
  const std::vector<int64_t> bytes(num_allocs, 64);
  std::vector<int64_t> offsets(num_allocs, -1);
  EXPECT_TRUE(plan->Place(bytes, 64, offsets).ok());
  return offsets;
}

// Rank 0 sends %p to 2 and 3 while it receives %q from 1: what is sent must not be written meanwhile.
constexpr std::string_view kTogether = R"(
mesh @root = [0]
mesh @far = [2, 3]
mesh @one = [1]
mesh @near = [0, 1]
host @f(%x: f32[16], %y: f32[16]) {
  %p: f32[16] = alloc() {space=pool}
  launch(%x, %p) {kernel="k0", inputs=1, outputs=1, workspaces=0, extents=[], grid=1, stream=0}
  %q: f32[16] = alloc() {space=pool}
  group() {
    communication(%p, %q) {type=broadcast, reduce=none, mesh=@root, dim=none, to=@far, stream=0, seq=0}
    communication(%p, %q) {type=broadcast, reduce=none, mesh=@one, dim=none, to=@near, stream=0, seq=1}
  }
  dealloc(%p)
  launch(%q, %y) {kernel="k1", inputs=1, outputs=1, workspaces=0, extents=[], grid=1, stream=0}
  dealloc(%q)
  return %y
}
)";

TEST(PoolPlan, CommunicationsOfAGroupShareNoMemory) {
  for (int64_t rank = 0; rank < 2; ++rank) {
    const std::vector<int64_t> offsets = Offsets(kTogether, rank, 2);
    ASSERT_EQ(offsets.size(), 2u);
    EXPECT_NE(offsets[0], offsets[1]) << "rank " << rank;
  }
}

TEST(PoolPlan, OneBehindTheOtherShareMemory) {
  std::string one_by_one(kTogether);
  one_by_one.erase(one_by_one.find("  group() {"), sizeof("  group() {"));
  one_by_one.erase(one_by_one.find("  }\n"), sizeof("  }"));
  const std::vector<int64_t> offsets = Offsets(one_by_one, 0, 2);
  ASSERT_EQ(offsets.size(), 2u);
  EXPECT_EQ(offsets[0], offsets[1]) << "the first communication is over when the second begins";
}

}  // namespace
}  // namespace hir::host
