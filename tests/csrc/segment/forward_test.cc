// Goal: values that cost nothing to make again never cross a segment boundary; everything else
// stays single.
#include "csrc/segment/forward.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "csrc/ir/verify.h"

namespace hir::segment {
namespace {

std::unique_ptr<ir::Graph> Parse(const std::string& text) {
  auto graph = ir::Parse(text, fusion::kFusionOps);
  if (!graph.ok()) ADD_FAILURE() << graph.status().ToString() << "\n" << text;
  return *std::move(graph);
}

int Count(const ir::Graph& graph, std::string_view name) {
  int count = 0;
  ir::ForEachOp(graph.body, [&](const ir::Op* op) { count += op->info->name == name; });
  return count;
}

std::optional<Gain> OneOpEach(const GroupView&, const GroupView&, const GroupView&) { return std::nullopt; }

// What `text` is after Forward, with the number of ops called `name`.
int CountAfter(const std::string& text, std::string_view name) {
  const auto graph = Parse(text);
  const Status status = Forward(*graph);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(ir::Verify(*graph).ok()) << ir::Print(*graph);
  return Count(*graph, name);
}

TEST(Forward, CopiesAWideningCastOfAnInputToEachReader) {
  EXPECT_EQ(CountAfter(R"(
fusion @f(%x: bf16[8, 4]) {
  %f: f32[8, 4] = cast(%x) {dtype=f32}
  %a: f32[8, 4] = exp(%f)
  %b: f32[r:8, 4] = sum(%f) {axes=[0], keepdim=false, dtype=null}
  %c: f32[8, 4] = mul(%f, %f)
  return %a, %b, %c
})",
                       "cast"),
            3);
}

// Both products read one, and the kernel has its own.
TEST(Forward, LibraryCallsShareWhatTheyRead) {
  EXPECT_EQ(CountAfter(R"(
fusion @f(%x: bf16[8, 8], %w: f32[8, 8]) {
  %f: f32[8, 8] = cast(%x) {dtype=f32}
  %a: f32[8, 8] = exp(%f)
  %b: f32[8, 8, r:8] = matmul(%f, %w)
  %c: f32[8, 8, r:8] = matmul(%w, %f)
  return %a, %b, %c
})",
                       "cast"),
            2);
}

TEST(Forward, LeavesANarrowingCastAlone) {
  EXPECT_EQ(CountAfter(R"(
fusion @f(%x: f32[8]) {
  %h: bf16[8] = cast(%x) {dtype=bf16}
  %a: bf16[8] = exp(%h)
  %b: bf16[8] = neg(%h)
  return %a, %b
})",
                       "cast"),
            1);
}

TEST(Forward, LeavesWhatTheProgramReturnsAlone) {
  EXPECT_EQ(CountAfter(R"(
fusion @f(%x: bf16[8]) {
  %f: f32[8] = cast(%x) {dtype=f32}
  %a: f32[8] = exp(%f)
  %b: f32[8] = neg(%f)
  return %f, %a, %b
})",
                       "cast"),
            1);
}

TEST(Forward, CopiesWholeChainsFromTheInput) {
  const std::string text = R"(
fusion @f(%x: bf16[8]) {
  %f: f32[8] = cast(%x) {dtype=f32}
  %n: f32[8] = neg(%f)
  %a: f32[8] = exp(%n)
  %b: f32[8] = sin(%n)
  return %a, %b
})";
  EXPECT_EQ(CountAfter(text, "cast"), 2);
  EXPECT_EQ(CountAfter(text, "neg"), 2);
}

// The backward pass of rotary embedding made a tensor of zeros that two resizing segments shared
// (seed 000).
constexpr char kZeros[] = R"(
fusion @f(%x: bf16[1, 32, 128, 8], %y: bf16[1, 32, 128, 8]) {
  %z: bf16[1, 32, 128, 8] = full() {shape=[1, 32, 128, 8], value=0.0, dtype=bf16}
  %a: bf16[1, 32, 128, 8] = add(%x, %z)
  %b: bf16[1, 32, 128, 8] = mul(%y, %z)
  return %a, %b
})";

TEST(Forward, Seed000AFactoryIsNoSegmentsOutput) {
  const auto graph = Parse(kZeros);
  ASSERT_TRUE(Forward(*graph).ok());
  EXPECT_EQ(Count(*graph, "full"), 2);
  // With a predicate that lets a factory join its reader, each segment makes its own zeros.
  const auto join_factories = [](const GroupView& producer, const GroupView&, const GroupView&) -> std::optional<Gain> {
    return producer.ops[0]->info->name == "full" ? std::optional(Gain{}) : std::nullopt;
  };
  const auto groups = *Segment(*graph, join_factories);
  ASSERT_EQ(groups.size(), 2u);
  for (const Group& group : groups) {
    ASSERT_EQ(group.outputs.size(), 1u);
    EXPECT_NE(group.outputs[0]->def->info->name, "full");
  }
}

TEST(MergeCopies, MakesEqualOpsOfOneGroupOneAgain) {
  const auto graph = Parse(R"(
fusion @f(%x: bf16[8]) {
  %f: f32[8] = cast(%x) {dtype=f32}
  %a: f32[8] = exp(%f)
  %b: f32[8] = add(%a, %f)
  return %b
})");
  ASSERT_TRUE(Forward(*graph).ok());
  ASSERT_EQ(Count(*graph, "cast"), 2);
  const auto always = [](const GroupView&, const GroupView&, const GroupView&) -> std::optional<Gain> {
    return Gain{};
  };
  auto groups = *Segment(*graph, always);
  ASSERT_EQ(groups.size(), 1u);
  MergeCopies(*graph, groups, [](const GroupView&) { return true; });
  EXPECT_EQ(Count(*graph, "cast"), 1);
  EXPECT_EQ(groups[0].ops.size(), 3u);
  EXPECT_TRUE(ir::Verify(*graph).ok()) << ir::Print(*graph);
}

TEST(MergeCopies, LeavesAGroupThatWouldFitNoKernel) {
  const auto graph = Parse(R"(
fusion @f(%x: i64[8, 8]) {
  %o: i64 = constant() {value=0.0, dtype=i64}
  %s: i64 = constant() {value=1.0, dtype=i64}
  %k: i64[8] = iota(%o, %s) {shape=[8], offset=[0], dtype=i64}
  %r: i64[8, b] = broadcast(%k) {is_broadcast_dim=[0, 1]}
  %a: i64[8, 8] = add(%x, %r)
  %b: i64[8, 8] = mul(%a, %k)
  return %b
})");
  ASSERT_TRUE(Forward(*graph).ok());
  ASSERT_EQ(Count(*graph, "iota"), 2);
  const auto always = [](const GroupView&, const GroupView&, const GroupView&) -> std::optional<Gain> {
    return Gain{};
  };
  auto groups = *Segment(*graph, always);
  ASSERT_EQ(groups.size(), 1u);
  const std::string before = ir::Print(*graph);
  size_t asked = 0;
  MergeCopies(*graph, groups, [&](const GroupView& group) {
    asked = group.ops.size();
    return false;
  });
  EXPECT_LT(asked, groups[0].ops.size());
  EXPECT_EQ(ir::Print(*graph), before);
}

TEST(MergeCopies, LeavesCopiesInDifferentGroupsApart) {
  const auto graph = Parse(kZeros);
  ASSERT_TRUE(Forward(*graph).ok());
  auto groups = *Segment(*graph, OneOpEach);
  MergeCopies(*graph, groups, [](const GroupView&) { return true; });
  EXPECT_EQ(Count(*graph, "full"), 2);
}

}  // namespace
}  // namespace hir::segment
