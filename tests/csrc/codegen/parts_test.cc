// Goal: a reduction in parts reads what lies side by side, and one long row is cut for all cores. Method: the loops of
// the first launch, as they are printed.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/codegen/loop_nest.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"

namespace hir::codegen {
namespace {

segment::Group WholeOf(const ir::Graph& graph) {
  std::vector<ir::Op*> ops;
  for (ir::Op* op = graph.body.first; op != nullptr; op = op->next) ops.push_back(op);
  return segment::MakeGroup(graph, ops);
}

// "for each of (...) | for (...)": the grid of the first launch on a CPU, and the loops of its first phase.
std::string FirstLoops(const std::string& body, const Sizes& sizes = {}) {
  const auto graph = ir::Parse("fusion @f(" + body + "}", fusion::kFusionOps);
  if (!graph.ok()) return graph.status().ToString();
  const segment::Group group = WholeOf(**graph);
  const auto plan = Plan(group.View(**graph), "k0", {}, sizes);
  if (!plan.ok()) return plan.status().ToString();
  const std::string text = Print(*plan->nests[0]);
  const size_t grid = text.find("for each"), loops = text.find("\n  for", grid);
  return text.substr(grid, loops - grid) + " | " + text.substr(loops + 3, text.find('\n', loops + 1) - loops - 3);
}

TEST(Parts, AreCutAtTheOutermostLoopThatIsLongEnough) {
  EXPECT_EQ(FirstLoops("%x: f32[590, 15, 3, 654]) {\n"
                       "  %s: f32[r:590, 15, r:3, r:654] = sum(%x) {axes=[0, 2, 3], keepdim=false, dtype=null}\n"
                       "  return %s\n"),
            "for each of (%4 in 0..64, %0 in 0..15): | for (%1 in 10*%4..min(590, 10*%4 + 10), %3 in 0..1962):");
}

// Two rows' axes are kept: partial results are contiguous along the second, which is no reason to go along it.
TEST(Parts, GoAlongWhatIsReadContiguously) {
  EXPECT_EQ(FirstLoops("%x: f32[2, 3, 2, 131072]) {\n"
                       "  %s: f32[2, 3, r:2, r:131072] = sum(%x) {axes=[2, 3], keepdim=false, dtype=null}\n"
                       "  return %s\n"),
            "for each of (%4 in 0..64, %1 in 0..6): | for (%3 in 4096*%4..min(262144, 4096*%4 + 4096)):");
}

// Rows of a few columns, sixteen of them abreast: one loop over 48 elements that lie side by side.
TEST(Parts, RowsOfAFewColumnsLieAbreast) {
  EXPECT_EQ(FirstLoops("%x: f32[i0, 3]) {\n"
                       "  %s: f32[r:i0, 3] = sum(%x) {axes=[0], keepdim=false, dtype=null}\n"
                       "  return %s\n",
                       {{"i0", 1000000}}),
            "for each of (%2 in 0..64), columns (%0 in 0..48): | for (%1 in %2*ceildiv(ceildiv(i0, 16), 64).."
            "min(i0 / 16, min(ceildiv(i0, 16), %2*ceildiv(ceildiv(i0, 16), 64) + ceildiv(ceildiv(i0, 16), 64)))):");
}

// A norm, and what is divided by it: alone a row is cut from 32768 elements on, beside others from 262144.
TEST(Parts, OneRowIsCutEarlier) {
  const auto divided = [](const std::string& shape, const std::string& axis) {
    const bool alone = axis == "0";
    const std::string type = "f32[" + shape + "]";
    return FirstLoops("%x: " + type + ") {\n  %s: f32[" + (alone ? "r:" + shape : "8, r:65536") +
                      "] = sum(%x) {axes=[" + axis + "], keepdim=false, dtype=null}\n" +
                      (alone ? "  %b: f32[b] = broadcast(%s) {is_broadcast_dim=[1]}\n"
                             : "  %b: f32[8, b] = broadcast(%s) {is_broadcast_dim=[0, 1]}\n") +
                      "  %y: " + type + " = div(%x, %b)\n  return %y\n");
  };
  EXPECT_EQ(divided("65536", "0").substr(0, 25), "for each of (%1 in 0..64)");
  EXPECT_EQ(divided("16384", "0").substr(0, 14), "for each of ()");
  EXPECT_EQ(divided("8, 65536", "1").substr(0, 24), "for each of (%0 in 0..8)");
}

// Sums that wait for nothing of each other, and what follows them: three launches, however many tensors there are.
TEST(Parts, OfSeveralTensorsShareLaunches) {
  const auto graph = ir::Parse(R"(fusion @f(%a: f32[100000], %b: f32[70000], %c: f32[300, 300]) {
    %aa = mul(%a, %a)
    %bb = mul(%b, %b)
    %cc = mul(%c, %c)
    %sa = sum(%aa) {axes=[0], keepdim=false, dtype=null}
    %sb = sum(%bb) {axes=[0], keepdim=false, dtype=null}
    %sc = sum(%cc) {axes=[0, 1], keepdim=false, dtype=null}
    %ab = add(%sa, %sb)
    %norm = add(%ab, %sc)
    %x = div(%a, %norm)
    %y = div(%b, %norm)
    %z = div(%c, %norm)
    return %x, %y, %z, %norm
  })",
                               fusion::kFusionOps);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  const segment::Group group = WholeOf(**graph);
  for (const Target& target : {Target(), kHopper}) {
    const auto plan = Plan(group.View(**graph), "k0", target, {});
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_EQ(plan->launches.size(), 3u);
    EXPECT_EQ(plan->nests[0]->regions.size(), 3u);
    EXPECT_EQ(plan->nests[2]->regions.size(), 4u);  // And the norm itself.
  }
}

// Hundreds of tensors, each with a size that is not known: whether their sums are long is asked of the longest.
TEST(Parts, OfHundredsOfTensorsOfAnySizes) {
  constexpr int kTensors = 150;
  std::string parameters, body;
  for (int i = 0; i < kTensors; ++i) {
    base::Append(parameters, i == 0 ? "" : ", ", "%x", i, ": f32[i", i, "]");
    base::Append(body, "  %s", i, " = sum(%x", i, ") {axes=[0], keepdim=false, dtype=null}\n");
    if (i > 0) base::Append(body, "  %t", i, " = add(%", i == 1 ? "s0" : base::Cat("t", i - 1), ", %s", i, ")\n");
  }
  const auto graph = ir::Parse(base::Cat("fusion @f(", parameters, ") {\n", body, "  return %t", kTensors - 1, "\n}"),
                               fusion::kFusionOps);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  const segment::Group group = WholeOf(**graph);
  for (const Target& target : {Target(), kHopper}) {
    const auto plan = Plan(group.View(**graph), "k0", target, {});
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_EQ(plan->launches.size(), 3u);
    EXPECT_EQ(plan->nests[0]->regions.size(), static_cast<size_t>(kTensors));
  }
}

}  // namespace
}  // namespace hir::codegen
