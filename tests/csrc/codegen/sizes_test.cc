// Goal: sizes that are known choose schedules, in few buckets whose guards say where they end, and never what is right.
#include <set>

#include "csrc/codegen/loop_nest.h"
#include "tests/csrc/codegen/kernel_runner.h"

namespace hir::codegen {
namespace {

using base::Cat;

constexpr const char* kPrograms[] = {
    R"(fusion @rows(%x: f32[i0, i1]) {
  %y = sum(%x) {axes=[1], keepdim=false, dtype=null}
  %z = mul(%y, %y)
  return %z
})",
    R"(fusion @columns(%x: f32[i0, i1]) {
  %y = sum(%x) {axes=[0], keepdim=false, dtype=null}
  return %y
})",
    R"(fusion @both(%x: f32[i0, i1]) {
  %y = sum(%x) {axes=[0], keepdim=false, dtype=null}
  %z = max(%x) {axes=[1], keepdim=false, dtype=null}
  return %y, %z
})",
    R"(fusion @column_softmax(%x: f32[i0, i1]) {
  %m = max(%x) {axes=[0], keepdim=true, dtype=null}
  %d = sub(%x, %m)
  %e = exp(%d)
  %s = sum(%e) {axes=[0], keepdim=true, dtype=null}
  %y = div(%e, %s)
  return %y
})",
    R"(fusion @add(%x: f32[i0, i1], %y: f32[i1]) {
  %z = add(%x, %y)
  return %z
})"};
constexpr int64_t kExtents[] = {0, 1, 3, 16, 63, 64, 65, 255, 1000, 4096, 16383, 16384, 65536, 100000, 5000000};

struct Planned {
  std::unique_ptr<ir::Graph> graph;
  KernelPlan plan;

  std::string Guards() const {
    std::string text;
    for (const ir::Guard& guard : plan.guards) {
      base::Append(text, ir::ToString(guard.left), " <= ", ir::ToString(guard.right), "; ");
    }
    return text;
  }
  std::string Nests() const {
    std::string text;
    for (const auto& nest : plan.nests) text += Print(*nest);
    return text;
  }
};

Planned PlanOf(const std::string& text, const Target& target, const Sizes& sizes) {
  auto graph = ir::Parse(text, fusion::kFusionOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  std::vector<ir::Op*> ops;
  ir::ForEachOp((*graph)->body, [&](ir::Op* op) { ops.push_back(op); });
  const segment::Group group = segment::MakeGroup(**graph, ops);
  auto plan = Plan(group.View(**graph), "k", target, sizes);
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  return {std::move(*graph), std::move(*plan)};
}

bool Holds(const ir::Guard& guard, const Sizes& sizes) {
  const auto value = [&](const ir::Expr* expr) {
    const auto result = ir::Evaluate(
        expr, [&](std::string_view symbol) { return std::optional<int64_t>(sizes.at(std::string(symbol))); });
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    return result.ok() ? *result : 0;
  };
  EXPECT_EQ(guard.kind, ir::Guard::Kind::kAtMost);
  return value(guard.left) <= value(guard.right);
}

TEST(Sizes, AFewBucketsWithGuards) {
  for (const Target& target : {Target{}, kHopper}) {
    for (const char* program : kPrograms) {
      EXPECT_TRUE(PlanOf(program, target, {}).plan.guards.empty()) << program;
      std::map<std::string, std::string> buckets;  // What the nests are, by guards.
      for (const int64_t rows : kExtents) {
        for (const int64_t columns : kExtents) {
          const Sizes sizes = {{"i0", rows}, {"i1", columns}};
          const Planned planned = PlanOf(program, target, sizes);
          for (const ir::Guard& guard : planned.plan.guards)
            EXPECT_TRUE(Holds(guard, sizes)) << program << planned.Guards();
          const auto [bucket, added] = buckets.emplace(planned.Guards(), planned.Nests());
          EXPECT_EQ(bucket->second, planned.Nests()) << program << planned.Guards();
        }
      }
      EXPECT_LE(buckets.size(), 8U) << program;
    }
  }
}

TEST(Sizes, ChooseTwoLaunches) {
  const Sizes few = {{"i0", 8}, {"i1", 1 << 20}}, many = {{"i0", 1 << 20}, {"i1", 8}};
  EXPECT_EQ(PlanOf(kPrograms[0], {}, few).plan.launches.size(), 2U);
  EXPECT_EQ(PlanOf(kPrograms[0], {}, many).plan.launches.size(), 1U);
  EXPECT_EQ(PlanOf(kPrograms[0], {}, {}).plan.launches.size(), 1U);  // Sizes are not known.
  EXPECT_EQ(PlanOf(kPrograms[1], kHopper, many).plan.launches.size(), 2U);
  // Long rows, but enough of them; as many columns are few blocks.
  const Sizes square = {{"i0", 16384}, {"i1", 16384}};
  EXPECT_EQ(PlanOf(kPrograms[0], kHopper, square).plan.launches.size(), 1U);
  EXPECT_EQ(PlanOf(kPrograms[0], {}, square).plan.launches.size(), 1U);
  EXPECT_EQ(PlanOf(kPrograms[1], kHopper, square).plan.launches.size(), 2U);
  // A maximum and exponentials below it in the same parts, and what is stored.
  EXPECT_EQ(PlanOf(kPrograms[3], kHopper, many).plan.launches.size(), 3U);
  EXPECT_EQ(PlanOf(kPrograms[3], kHopper, few).plan.launches.size(), 1U);
}

TEST(Sizes, EveryPlanIsRightForEverySize) {
  for (const char* program : kPrograms) {
    for (const Sizes& sizes :
         {Sizes{{"i0", 8}, {"i1", 1 << 20}}, Sizes{{"i0", 1 << 20}, {"i1", 8}}, Sizes{{"i0", 2}, {"i1", 3}}}) {
      for (const auto& [rows, columns] : {std::pair{3, 7}, {200, 70}, {1, 5000}}) {
        CheckProgram(program, {{"i0", rows}, {"i1", columns}}, 1, false, sizes);
      }
    }
  }
}

}  // namespace
}  // namespace hir::codegen
