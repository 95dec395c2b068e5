// Goal: inputs and outputs lie in memory as their stride_order says, and that costs nothing where kernels and calls can
// read and write so. Method: plans of programs whose segments and parameters are known; values are compared by the
// property tests, whose programs have stride orders, too.
#include "host_ir/pipeline/memory_orders.h"

#include <gtest/gtest.h>

#include <string>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "host_ir/pipeline/pipeline.h"

namespace hir::host {
namespace {

Result<ProgramPlan> Planned(const std::string& text) {
  HIR_ASSIGN(auto graph, ir::Parse(text, fusion::kFusionOps));
  return PlanProgram(std::move(graph), {.num_devices = 2});
}

using Order = std::vector<int64_t>;

TEST(MemoryOrders, ParametersAreWhatLiesInMemory) {
  const auto plan = Planned(
      "fusion @f(%x: f32[2, i0, 5] {stride_order(1, 2, 0)}) {\n"
      "  %y: f32[2, i0, 5] {stride_order(0, 1, 2)} = neg(%x)\n"
      "  return %y\n"
      "}\n");
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->local.inputs[0].memory_order, (Order{1, 0, 2}));
  EXPECT_EQ(ir::ToString(*plan->local.inputs[0].global), "f32[2, i0, 5]");
  EXPECT_EQ(ir::ToString(*plan->host->params[0]->type), "f32[i0, 2, 5]");
  EXPECT_EQ(plan->local.outputs[0].memory_order, (Order{2, 1, 0}));
  EXPECT_EQ(plan->local.outputs[0].name, "y");
  EXPECT_EQ(ir::ToString(*plan->host->params[1]->type), "f32[5, i0, 2]");
  EXPECT_EQ(plan->kernels.size(), 1u);
}

TEST(MemoryOrders, RowMajorIsNone) {
  const auto plan = Planned("fusion @f(%x: f32[2, 3] {stride_order(1, 0)}) {\n  %y = neg(%x)\n  return %y\n}\n");
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->local.inputs[0].memory_order, Order());
}

TEST(MemoryOrders, OneKernelWalksBothInTheirOrder) {
  // Images with their channels innermost take one pass, and no copy in front or behind.
  const auto plan = Planned(
      "fusion @f(%x: f32[8, 64, 56, 56] {stride_order(3, 0, 2, 1)}, %b: f32[64]) {\n"
      "  %c = broadcast(%b) {is_broadcast_dim=[1, 0, 1, 1]}\n"
      "  %d = add(%x, %c)\n"
      "  %y: f32[8, 64, 56, 56] {stride_order(3, 0, 2, 1)} = relu(%d)\n"
      "  return %y\n"
      "}\n");
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  ASSERT_EQ(plan->segments.size(), 1u) << DescribeSegments(*plan);
  EXPECT_EQ(plan->segments[0].kind, SegmentKind::kKernel);
  EXPECT_EQ(plan->segments[0].launches, 1);
}

TEST(MemoryOrders, AnOutputThatReplacesAnInputLiesAsThat) {
  const std::string head = "fusion @f(%x: f32[4, 6] {stride_order(0, 1)}) {\n  %y: f32[4, 6]";
  const std::string tail = " = neg(%x)\n  return %y alias %x\n}\n";
  const auto plan = Planned(head + tail);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->local.outputs[0].memory_order, (Order{1, 0}));
  EXPECT_NE(plan->host->outputs[0].alias, nullptr) << "in place";
  const Status status = Planned(head + " {stride_order(1, 0)}" + tail).status();
  EXPECT_EQ(status.ToString(),
            "INVALID_ARGUMENT: output %y, row-major, replaces input %x, with its axes in the order 1, 0; give both one "
            "stride_order, or return it without alias");
}

TEST(MemoryOrders, AnInputThatIsReturnedIsItself) {
  const auto plan = Planned("fusion @f(%x: f32[4, 6] {stride_order(0, 1)}) {\n  %y = neg(%x)\n  return %x, %y\n}\n");
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->local.outputs[0].memory_order, (Order{1, 0}));
  EXPECT_EQ(plan->local.graph->outputs[0].value, plan->local.graph->params[0]);
  EXPECT_EQ(plan->local.outputs[1].memory_order, Order());
}

TEST(MemoryOrders, APermuteThatLiesAsItsInputIsNoInput) {
  const std::string permute = " = permute(%x) {dims=[1, 0]}\n  return %y\n}\n";
  for (const std::string_view head : {"fusion @f(%x: f32[4, 6]) {\n  %y: f32[6, 4] {stride_order(0, 1)}",
                                      "fusion @f(%x: f32[4, 6] {stride_order(0, 1)}) {\n  %y: f32[6, 4]"}) {
    const auto plan = Planned(std::string(head) + permute);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_NE(plan->local.graph->outputs[0].value->def, nullptr) << head;
  }
}

TEST(MemoryOrders, ProductsReadWhereItLies) {
  const auto plan = Planned(
      "fusion @f(%x: f32[64, 128] {stride_order(0, 1)}, %w: f32[128, 96] {stride_order(0, 1)}) {\n"
      "  %y = matmul(%x, %w)\n"
      "  return %y\n"
      "}\n");
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_TRUE(plan->kernels.empty()) << DescribeSegments(*plan);
}

TEST(MemoryOrders, OfPartsOnAMesh) {
  const auto plan = Planned(
      "mesh @m = [0, 1]\n"
      "fusion @f(%x: f32[4, 6, i0] {mesh=@m, shard(1, mesh_x), stride_order(1, 0, 2)}) {\n"
      "  %y: f32[4, 6, i0] {mesh=@m, stride_order(0, 2, 1)} = neg(%x)\n"
      "  return %y\n"
      "}\n");
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(ir::ToString(*plan->host->params[0]->type), "f32[i0, 4, 3]");
  EXPECT_EQ(plan->local.inputs[0].sharding->ToString(), "axis 1 split 2 ways over mesh_x");
  EXPECT_EQ(plan->local.outputs[0].memory_order, (Order{1, 2, 0}));
}

}  // namespace
}  // namespace hir::host
