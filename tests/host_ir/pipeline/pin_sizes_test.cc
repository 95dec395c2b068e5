// Goal: a size of 1 is a constant of its plan, and so are few elements of an innermost axis; no other is. Method:
// plans of one program for several sizes.
#include <gtest/gtest.h>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "host_ir/pipeline/pipeline.h"

namespace hir::host {
namespace {

constexpr const char* kPermuted = R"(fusion @f(%x: f32[i0, i1, i2]) {
  %y = permute(%x) {dims=[2, 1, 0]}
  return %y
})";

Result<ProgramPlan> PlanFor(const codegen::Sizes& sizes, const char* text = kPermuted) {
  HIR_ASSIGN(std::unique_ptr<ir::Graph> graph, ir::Parse(text, fusion::kFusionOps));
  return PlanProgram(std::move(graph), {.sizes = sizes});
}

TEST(PinSizes, OnesAreConstants) {
  const auto plan = PlanFor({{"i0", 1}, {"i1", 30}, {"i2", 20}});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->pinned, (codegen::Sizes{{"i0", 1}}));
  EXPECT_TRUE(plan->local.inputs[0].global->axes[0].extent->IsConst(1));
  EXPECT_FALSE(plan->local.inputs[0].global->axes[1].extent->IsConst());
}

TEST(PinSizes, OthersAreNot) {
  for (const codegen::Sizes& sizes : {codegen::Sizes{}, codegen::Sizes{{"i0", 17}, {"i1", 0}, {"i2", 20}}}) {
    const auto plan = PlanFor(sizes);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_TRUE(plan->pinned.empty());
  }
}

// Memory runs through rows of i2, of an input that lies the other way round through rows of i0.
TEST(PinSizes, FewElementsOfARowAreConstant) {
  constexpr const char* kStraight = R"(fusion @f(%x: f32[i0, i1, i2]) {
  %y = neg(%x)
  return %y
})";
  constexpr const char* kOrdered =
      R"(fusion @f(%x: f32[i0, i1, i2] {stride_order(2, 1, 0)}, %w: f32[i0, i1, i2] {stride_order(0, 1, 2)}) {
  %y = add(%x, %w)
  return %y
})";
  const codegen::Sizes sizes = {{"i0", 16}, {"i1", 3}, {"i2", 16}}, both = {{"i0", 16}, {"i2", 16}};
  for (const auto& [text, pinned] :
       {std::pair(kStraight, codegen::Sizes{{"i2", 16}}), {kOrdered, both}, {kPermuted, both}}) {
    const auto plan = PlanFor(sizes, text);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_EQ(plan->pinned, pinned) << text;
    EXPECT_EQ(plan->least_shared.at("i2"), 17);
    EXPECT_EQ(plan->least_shared.at("i1"), 2);
  }
  const auto more = PlanFor({{"i0", 17}, {"i1", 3}, {"i2", 17}});
  ASSERT_TRUE(more.ok()) << more.status().ToString();
  EXPECT_TRUE(more->pinned.empty());
}

// Indices, of as many tokens as a prompt has, and what has no rows.
TEST(PinSizes, FewElementsOfOthersAreNot) {
  for (const char* text : {"fusion @f(%x: i64[i0, i1]) {\n  %y = neg(%x)\n  return %y\n}",
                           "fusion @f(%x: f32[i1]) {\n  %y = neg(%x)\n  return %y\n}"}) {
    const auto plan = PlanFor({{"i0", 4}, {"i1", 4}}, text);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_TRUE(plan->pinned.empty());
  }
}

// Sizes that must be equal are one symbol, so that one of them is no reason to repeat the other.
TEST(PinSizes, EqualSizesAreConstantsTogether) {
  const auto plan =
      PlanFor({{"i0", 1}, {"i1", 3}}, "fusion @f(%x: f32[i0], %y: f32[i1]) {\n  %z = add(%x, %y)\n  return %z\n}");
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  for (const auto& boundary : {plan->local.inputs[0], plan->local.inputs[1], plan->local.outputs[0]})
    EXPECT_TRUE(boundary.global->axes[0].extent->IsConst(1));
}

// The program wants two elements and more. Whoever runs it is told so by its guard.
TEST(PinSizes, ASizeThatAGuardRefusesStaysASymbol) {
  const auto plan = PlanFor({{"i0", 1}},
                            "fusion @f(%x: f32[i0]) {\n  %y = slice(%x) {start=[2], end=[i0], strides=[1]}\n"
                            "  return %y\n}");
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_TRUE(plan->pinned.empty());
  EXPECT_FALSE(plan->host->guards.empty());
}

}  // namespace
}  // namespace hir::host
