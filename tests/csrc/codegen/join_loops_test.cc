// Goal: loops that memory runs through side by side are one loop, and others stay apart. Method: the loops of a CPU's
// nest, as they are printed; that values stay right is the random programs' part (tests/property).
#include <gtest/gtest.h>

#include <string>

#include "csrc/codegen/loop_nest.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"

namespace hir::codegen {
namespace {

// The lines of the only launch that say "for", joined by " | ".
std::string LoopsOf(const std::string& body) {
  const auto graph = ir::Parse("fusion @f(" + body + "}", fusion::kFusionOps);
  if (!graph.ok()) return graph.status().ToString();
  std::vector<ir::Op*> ops;
  for (ir::Op* op = (*graph)->body.first; op != nullptr; op = op->next) ops.push_back(op);
  const segment::Group group = segment::MakeGroup(**graph, ops);
  const auto plan = Plan(group.View(**graph), "k0", {}, {});
  if (!plan.ok()) return plan.status().ToString();
  std::string loops;
  const std::string text = Print(*plan->nests[0]);
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    const size_t first = line.find_first_not_of(' ');
    if (first != std::string::npos && line.compare(first, 3, "for") == 0)
      loops += (loops.empty() ? "" : " | ") + line.substr(first);
    at = end == std::string::npos ? text.size() : end + 1;
  }
  return loops;
}

TEST(JoinLoops, AllOfAContiguousTensor) {
  EXPECT_EQ(LoopsOf("%x: f32[2, 3, 4, 5]) {\n  %y: f32[2, 3, 4, 5] = neg(%x)\n  return %y\n"),
            "for each of (), columns (%3 in 0..120): | for ():");
  EXPECT_EQ(LoopsOf("%x: f32[i0, i1, i2]) {\n  %y: f32[i0, i1, i2] = neg(%x)\n  return %y\n"),
            "for each of (%3 in 0..ceildiv(i0*i1*i2, 16384)), columns (%2 in 16384*%3..min(i0*i1*i2, 16384*%3 + "
            "16384)): | for ():");
}

TEST(JoinLoops, BesideAnAxisThatAnotherTensorTellsApart) {
  EXPECT_EQ(LoopsOf("%x: f32[2, 3, 4, 5], %c: f32[3]) {\n"
                    "  %b: f32[b, 3, b, b] = broadcast(%c) {is_broadcast_dim=[1, 0, 1, 1]}\n"
                    "  %y: f32[2, 3, 4, 5] = mul(%x, %b)\n  return %y\n"),
            "for each of (%0 in 0..2, %1 in 0..3), columns (%3 in 0..20): | for ():");
}

TEST(JoinLoops, WhatAPermutationKeepsTogether) {
  EXPECT_EQ(LoopsOf("%x: f32[2, 3, 4, 5]) {\n  %y: f32[5, 2, 3, 4] = permute(%x) {dims=[3, 0, 1, 2]}\n"
                    "  return %y\n"),
            "for each of (%0 in 0..5), columns (%3 in 0..24): | for ():");
}

TEST(JoinLoops, RowsAndWhatIsReduced) {
  EXPECT_EQ(LoopsOf("%x: f32[4, 5, 6, 7]) {\n"
                    "  %s: f32[4, 5, r:6, r:7] = sum(%x) {axes=[2, 3], keepdim=false, dtype=null}\n  return %s\n"),
            "for each of (%1 in 0..20): | for (%3 in 0..42): | for ():");
}

// A bound between rows is one between elements; one between columns comes again in each row.
TEST(JoinLoops, RowsOfSeveralTensors) {
  const auto of = [](const std::string& types, int axis) {
    return LoopsOf(types + ") {\n  %c = cat(%x, %y) {axis=" + std::to_string(axis) +
                   "}\n  %n = neg(%c)\n  return %n\n");
  };
  EXPECT_EQ(of("%x: f32[3, 4], %y: f32[2, 4]", 0), "for each of (), columns (%1 in 0..20): | for ():");
  EXPECT_EQ(of("%x: f32[3, 4], %y: f32[3, 5]", 1), "for each of (%0 in 0..3), columns (%1 in 0..9): | for ():");
  EXPECT_EQ(of("%x: f32[2, 3, 4], %y: f32[2, 5, 4]", 1), "for each of (%0 in 0..2), columns (%2 in 0..32): | for ():");
  EXPECT_EQ(of("%x: f32[i0, 4], %y: f32[2, 4]", 0), "for each of (%0 in 0..i0 + 2), columns (%1 in 0..4): | for ():");
}

// A place along the joined axis is used as a number, so that nothing but its own loop runs over it.
TEST(JoinLoops, NotWhereAPlaceIsAValue) {
  EXPECT_EQ(LoopsOf("%x: i64[4, 5]) {\n"
                    "  %one: i64 = constant() {value=1.0, dtype=i64}\n"
                    "  %n: i64[5] = iota(%one, %one) {shape=[5], offset=[0], dtype=i64}\n"
                    "  %b: i64[b, 5] = broadcast(%n) {is_broadcast_dim=[1, 0]}\n"
                    "  %y: i64[4, 5] = mul(%x, %b)\n  return %y\n"),
            "for each of (%0 in 0..4), columns (%1 in 0..5): | for ():");
}

}  // namespace
}  // namespace hir::codegen
