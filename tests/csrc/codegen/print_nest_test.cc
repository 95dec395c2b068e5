// Goal: a printed nest shows tensors, loops, and each element once, in an order in which it could run.
#include <gtest/gtest.h>

#include "csrc/codegen/loop_nest.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"

namespace hir::codegen {
namespace {

TEST(PrintNest, ShowsTensorsLoopsAndElements) {
  const auto graph = ir::Parse(R"(
fusion @f(%x: f32[i0, 8], %b: f32[8]) {
  %a: f32[i0, 8] = add(%x, %b)
  %y: f32[i0, 8] = mul(%a, %a)
  return %y
})",
                               fusion::kFusionOps);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  std::vector<ir::Op*> ops;
  for (ir::Op* op = (*graph)->body.first; op != nullptr; op = op->next) ops.push_back(op);
  const segment::Group group = segment::MakeGroup(**graph, ops);
  const auto plan = Plan(group.View(**graph), "k0", {}, {});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  ASSERT_EQ(plan->nests.size(), 1u);
  EXPECT_EQ(Print(*plan->nests[0]), R"(input x: f32, strides [8, 1]
input b: f32, strides [1]
output y: f32, strides [8, 1]
for each of (%0 in 0..i0), columns (%1 in 0..8):
  for ():
    e0: i64 = %0
    e1: i64 = %1
    e2: f32 = load x(e0, e1)
    e3: f32 = load b(e1)
    e4: f32 = add(e2, e3)
    e5: f32 = mul(e4, e4)
    y[e0, e1] = e5
)");
}

}  // namespace
}  // namespace hir::codegen
