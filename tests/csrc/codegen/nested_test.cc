// Reductions that keep other axes than the rows of their kernel, against the interpreter.
#include "csrc/codegen/loop_nest.h"
#include "tests/csrc/codegen/kernel_runner.h"
#include "tests/csrc/codegen/nested_programs.h"

namespace hir::codegen {
namespace {

using base::Cat;

// A plan, and the graph that it speaks of.
struct Planned {
  std::unique_ptr<ir::Graph> graph;
  KernelPlan plan;
};

Planned PlanOf(const std::string& text) {
  auto graph = ir::Parse(text, fusion::kFusionOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  Planned planned = {.graph = std::move(*graph), .plan = {}};
  auto plan = Plan(WholeOf(*planned.graph).View(*planned.graph), "k", {}, {});
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  if (plan.ok()) planned.plan = std::move(*plan);
  return planned;
}

TEST(Nested, GroupNormBackward) {
  for (const char* dtype : {"f32", "bf16"}) {
    for (const auto& [images, groups, channels, places] :
         {std::tuple{3, 2, 3, 20}, {1, 1, 1, 1}, {0, 2, 2, 5}, {5, 2, 2, 0}, {4, 3, 8, 257}, {2, 1, 5, 64}}) {
      CheckProgram(GroupNormBackward(dtype, "i0, i1, i2, i3"),
                   {{"i0", images}, {"i1", groups}, {"i2", channels}, {"i3", places}}, 1);
    }
  }
}

TEST(Nested, SoftmaxAndChannels) {
  CheckProgram(SoftmaxAndChannels("4, 6, 64"), {}, 4);
  CheckProgram(SoftmaxAndChannels("i0, 6, i1"), {{"i0", 3}, {"i1", 37}}, 4);
}

// Every input of the first launch is read by rows, and sums of channels are made beside those of rows.
TEST(Nested, TheNest) {
  const auto& [graph, plan] = PlanOf(R"(fusion @f(%x: f32[4, 3, 32]) {
    %s = sum(%x) {axes=[1, 2], keepdim=true, dtype=null}
    %y = sub(%x, %s)
    %c = sum(%x) {axes=[0, 2], keepdim=false, dtype=null}
    %all = max(%x) {axes=[0, 1, 2], keepdim=false, dtype=null}
    return %y, %c, %all
  })");
  EXPECT_EQ(plan.schedule, "inner-outer");
  ASSERT_EQ(plan.nests.size(), 2u);
  ASSERT_EQ(plan.nests[0]->regions.size(), 1u);
  const Region& rows = plan.nests[0]->regions[0];
  ASSERT_EQ(rows.phases.size(), 3u);
  EXPECT_EQ(rows.phases[0].accumulators.size(), 2u);
  EXPECT_EQ(rows.phases[0].nested.size(), 1u);
  EXPECT_EQ(rows.phases[0].nested_loops, 1u);
  EXPECT_EQ(rows.phases[0].loops.size(), 2u);
  EXPECT_TRUE(rows.phases[2].loops.empty());  // Leaves the row's maximum.
  EXPECT_NE(Print(*plan.nests[0]).find("for each of the outer loops"), std::string::npos);
}

// Rows of which each reduction keeps others, and one that runs over rows alone.
TEST(Nested, IndependentReductions) {
  constexpr char kText[] = R"(fusion @f(%x: f32[i0, i1, i2, i3]) {
    %a = sum(%x) {axes=[1, 2, 3], keepdim=false, dtype=null}
    %b = max(%x) {axes=[0, 2, 3], keepdim=false, dtype=null}
    %c = min(%x) {axes=[0, 1, 3], keepdim=true, dtype=null}
    %d = sum(%x) {axes=[0, 1, 2], keepdim=false, dtype=null}
    %e = sum(%x) {axes=[0, 1, 2, 3], keepdim=false, dtype=null}
    %k = constant() {value=0.5, dtype=f64}
    %half = mul(%e, %k)
    return %a, %b, %c, %d, %half, %e
  })";
  EXPECT_EQ(PlanOf(kText).plan.launches.size(), 2u);
  for (const auto& [a, b, c, d] : {std::tuple{1, 1, 1, 1}, {3, 4, 5, 40}, {70, 2, 3, 9}, {2, 1, 300, 7}})
    CheckProgram(kText, {{"i0", a}, {"i1", b}, {"i2", c}, {"i3", d}}, 2);
}

TEST(Nested, WhatOneGroupCannotHold) {
  const auto reason_of = [](const std::string& text) {
    const auto graph = ir::Parse(text, fusion::kFusionOps);
    EXPECT_TRUE(graph.ok()) << graph.status().ToString();
    return Accepts(WholeOf(**graph).View(**graph)).reason;
  };
  // A row's output that needs the sums of all rows.
  EXPECT_EQ(reason_of(R"(fusion @f(%x: f32[i0, i1, i2]) {
    %s = sum(%x) {axes=[1, 2], keepdim=true, dtype=null}
    %c = sum(%x) {axes=[0, 2], keepdim=true, dtype=null}
    %y = sub(%x, %s)
    %z = sub(%y, %c)
    return %z
  })"),
            "%c keeps other axes than %s");
  // Columns that are kept and lie inside of those that are not.
  EXPECT_EQ(reason_of(R"(fusion @f(%x: f32[i0, i1, i2, 8]) {
    %s = sum(%x) {axes=[1, 2, 3], keepdim=true, dtype=null}
    %y = sub(%x, %s)
    %c = sum(%y) {axes=[0, 1, 3], keepdim=false, dtype=null}
    return %y, %c
  })"),
            "%c keeps other axes than %s");
}

TEST(Nested, RandomProgramsEqualTheInterpreter) {
  int64_t held = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const NestedProgram program(seed);
    SCOPED_TRACE(Cat("seed ", seed, "\n", program.text()));
    const auto graph = ir::Parse(program.text(), fusion::kFusionOps);
    ASSERT_TRUE(graph.ok()) << graph.status().ToString();
    if (!Accepts(WholeOf(**graph).View(**graph)).accepted) continue;
    ++held;
    CheckProgram(program.text(), program.symbols, seed);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(held, 30);
}

}  // namespace
}  // namespace hir::codegen
