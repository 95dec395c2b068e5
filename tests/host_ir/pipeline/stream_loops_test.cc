// Goal: what lives only in the iterations of a stream loop takes one slice a stream, and a loop's parts are one
// iteration's. Method: plans of small programs; the pool is laid out for one rank, with sizes bound.
#include <gtest/gtest.h>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "host_ir/pipeline/pipeline.h"
#include "host_ir/pool_plan.h"
#include "host_ir/shapes.h"

namespace hir::host {
namespace {

// Bytes of the pool on rank 0; every size is a constant.
int64_t PoolBytes(std::string_view text, int streams) {
  auto graph = ir::Parse(text, fusion::kFusionOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  const auto plan = PlanProgram(*std::move(graph), {.num_devices = 2, .streams = streams});
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  const auto pool = PoolPlan::Make(*plan->host, 0);
  EXPECT_TRUE(pool.ok()) << pool.status().ToString();
  std::vector<int64_t> bytes;
  ir::ExprPool exprs;
  for (const PoolLife& life : pool->lives()) {
    const ir::Type& type = *life.alloc->results[0]->type;
    bytes.push_back(StorageElements(exprs, type)->value * DTypeBytes(type.dtype));
  }
  std::vector<int64_t> offsets(bytes.size());
  return pool->Place(bytes, 64, offsets)->reserved;
}

constexpr std::string_view kSixteenWays = R"(fusion @f(%x: f32[256, 64], %w: f32[64, 64]) {
  %t: f32[256, 64] {outer_split(0, 16), parallelize(0, stream)} = exp(%x)
  %y: f32[256, 64, r:64] {outer_split(0, 16), parallelize(0, stream)} = matmul(%t, %w)
  return %y
})";

TEST(StreamLoops, SixteenIterationsOnFourStreamsHoldAQuarter) {
  constexpr int64_t kWhole = int64_t{256} * 64 * 4;
  EXPECT_EQ(PoolBytes(kSixteenWays, 1), kWhole / 16);
  EXPECT_EQ(PoolBytes(kSixteenWays, 4), kWhole / 4);
  EXPECT_EQ(PoolBytes(kSixteenWays, 8), kWhole / 2);
}

TEST(StreamLoops, ThePartsOfALoopFollowIt) {
  auto graph = ir::Parse(kSixteenWays, fusion::kFusionOps);
  const auto plan = PlanProgram(*std::move(graph), {.num_devices = 1});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  ASSERT_EQ(plan->segments.size(), 3u);
  EXPECT_EQ(plan->segments[0].kind, SegmentKind::kLoop);
  EXPECT_EQ(plan->segments[0].schedule, "axis 0 in 16 chunks, 4 streams");
  for (size_t i = 1; i < 3; ++i) {
    ASSERT_NE(plan->segments[i].loop, nullptr);
    EXPECT_EQ(ir::ToString(plan->segments[i].loop->iterations), "16");
  }
}

// Guards of loops in loops are the program's: whoever binds sizes sees them.
TEST(StreamLoops, EvenChunksOfInnerLoopsAreGuarded) {
  auto graph = ir::Parse(R"(fusion @f(%x: f32[i0, i1]) {
  %y: f32[i0, i1] {outer_split(0, 2), outer_split(2, 3), parallelize(0, stream), parallelize(2, stream)} = exp(%x)
  return %y
})",
                         fusion::kFusionOps);
  const auto plan = PlanProgram(*std::move(graph), {.num_devices = 1});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  std::vector<std::string> guarded;
  for (const ir::Guard& guard : plan->host->guards) guarded.push_back(ir::ToString(guard.left));
  EXPECT_EQ(guarded, (std::vector<std::string>{"i0 mod 2", "i1 mod 3"}));
}

// A communication in a loop is one iteration's, of as many bytes as that moves.
TEST(StreamLoops, ACommunicationInALoopIsOneIterations) {
  auto graph = ir::Parse(R"(mesh @m = [0, 1]
fusion @f(%x: f32[64, 128] {mesh=@m, shard(1, mesh_x)}, %w: f32[32, 128] {mesh=@m, shard(1, mesh_x)}) {
  %y: f32[64, 32, r:128] {mesh=@m, outer_split(0, 4), parallelize(0, stream)} = linear(%x, %w)
  return %y
})",
                         fusion::kFusionOps);
  const auto plan = PlanProgram(*std::move(graph), {.num_devices = 2});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const std::vector<QueuedCommunication> queued = CommunicationsInQueueOrder(*plan);
  ASSERT_EQ(queued.size(), 1u);
  EXPECT_EQ(ir::ToString(queued[0].communication->bytes), "2048");
  EXPECT_EQ(plan->segments[queued[0].segment].loop->name, "loop0");
}

}  // namespace
}  // namespace hir::host
