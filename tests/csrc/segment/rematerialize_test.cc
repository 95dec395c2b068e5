// Goal: after rematerialization a group reads what is least, computes what it computed, and nothing is left that
// nobody needs.
#include "csrc/segment/rematerialize.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "csrc/base/text.h"
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

bool Anything(const GroupView&) { return true; }

// Groups of the ops that make the named values: {{"c", "s"}, {"y"}}.
std::vector<Group> GroupsOf(const ir::Graph& graph, const std::vector<std::vector<std::string>>& names) {
  std::vector<Group> groups;
  for (const auto& group : names) {
    std::vector<ir::Op*> ops;
    for (const std::string& name : group) ops.push_back(graph.FindValue(name)->def);
    groups.push_back(MakeGroup(graph, std::move(ops)));
  }
  return groups;
}

// "x m -> s; x m s -> y": what each group reads and writes.
std::string Boundaries(const std::vector<Group>& groups) {
  std::string out;
  for (const Group& group : groups) {
    std::vector<std::string_view> inputs, outputs;
    for (const ir::Value* value : group.inputs) inputs.push_back(value->name);
    for (const ir::Value* value : group.outputs) outputs.push_back(value->name);
    std::sort(inputs.begin(), inputs.end());
    base::Append(out, out.empty() ? "" : "; ", base::Join(inputs, " "), " -> ", base::Join(outputs, " "));
  }
  return out;
}

std::string After(ir::Graph& graph, std::vector<Group>& groups,
                  const std::function<bool(const GroupView&)>& fits = Anything) {
  const Status status = Rematerialize(graph, groups, {.fits = fits, .is_view = [](const Group&) { return false; }});
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(ir::Verify(graph).ok()) << ir::Print(graph);
  return Boundaries(groups);
}

// A softmax-like pair: the second group needs the centered values and their sum.
constexpr char kCentered[] = R"(
fusion @f(%x: bf16[64, 128], %m: f32[64, b]) {
  %f: f32[64, 128] = cast(%x) {dtype=f32}
  %c: f32[64, 128] = sub(%f, %m)
  %s: f32[64, r:128] = sum(%c) {axes=[1], keepdim=false, dtype=null}
  %t: f32[64, b] = broadcast(%s) {is_broadcast_dim=[0, 1]}
  %y: f32[64, 128] = mul(%c, %t)
  return %y
})";

TEST(Rematerialize, RecomputesAWideTensorFromTheNarrowInputItCameFrom) {
  const auto graph = Parse(kCentered);
  auto groups = GroupsOf(*graph, {{"f", "c", "s"}, {"t", "y"}});
  EXPECT_EQ(Boundaries(groups), "m x -> c s; c s -> y");
  EXPECT_EQ(After(*graph, groups), "m x -> s; m s x -> y");
}

TEST(Rematerialize, LeavesAGroupAloneThatWouldNotFitAKernelAnyMore) {
  const auto graph = Parse(kCentered);
  auto groups = GroupsOf(*graph, {{"f", "c", "s"}, {"t", "y"}});
  const std::string before = ir::Print(*graph);
  const auto at_most_three = [](const GroupView& group) { return group.ops.size() <= 3; };
  EXPECT_EQ(After(*graph, groups, at_most_three), "m x -> c s; c s -> y");
  EXPECT_EQ(ir::Print(*graph), before);
}

TEST(Rematerialize, ReadsWhatCostsMoreToMakeAgain) {
  // %a would need two inputs of its own size.
  const auto graph = Parse(R"(
fusion @f(%x: f32[64, 128], %z: f32[64, 128], %w: f32[64, 128]) {
  %a: f32[64, 128] = add(%x, %z)
  %b: f32[64, 128] = mul(%a, %w)
  %s: f32[64, r:128] = sum(%b) {axes=[1], keepdim=false, dtype=null}
  %y: f32[64, 128] = neg(%b)
  return %s, %y
})");
  auto groups = GroupsOf(*graph, {{"a", "b", "s"}, {"y"}});
  EXPECT_EQ(After(*graph, groups), "w x z -> b s; b -> y");
}

TEST(Rematerialize, DoesNotRepeatCostlyArithmeticOrReductions) {
  const auto graph = Parse(R"(
fusion @f(%x: bf16[64, 128]) {
  %f: f32[64, 128] = cast(%x) {dtype=f32}
  %e: f32[64, 128] = erf(%f)
  %s: f32[64, r:128] = sum(%e) {axes=[1], keepdim=false, dtype=null}
  %y: f32[64, 128] = neg(%e)
  %z: f32[64] = neg(%s)
  return %y, %z
})");
  auto groups = GroupsOf(*graph, {{"f", "e", "s"}, {"y"}, {"z"}});
  EXPECT_EQ(After(*graph, groups), "x -> e s; e -> y; s -> z");
}

// The bytes of one float32, against a write and a read of that less what is read instead.
TEST(Rematerialize, RepeatsAnExpWhereItPays) {
  const auto from = [](const std::string& dtype) {
    const auto graph = Parse("fusion @f(%x: " + dtype + R"([64, 128]) {
  %f: f32[64, 128] = cast(%x) {dtype=f32}
  %e: f32[64, 128] = exp(%f)
  %s: f32[64, r:128] = sum(%e) {axes=[1], keepdim=false, dtype=null}
  %y: f32[64, 128] = neg(%e)
  return %s, %y
})");
    auto groups = GroupsOf(*graph, {{"f", "e", "s"}, {"y"}});
    return After(*graph, groups);
  };
  EXPECT_EQ(from("bf16"), "x -> s; x -> y");
  EXPECT_EQ(from("f32"), "x -> e s; e -> y");
}

TEST(Rematerialize, ReadsThroughReshapes) {
  const auto graph = Parse(R"(
fusion @f(%x: f32[6, 4], %m: f32[2, b, b]) {
  %g: f32[2, 3, 4] = reshape(%x) {shape=[2, 3, 4]}
  %c: f32[2, 3, 4] = sub(%g, %m)
  %s: f32[r:2, 3, 4] = sum(%c) {axes=[0], keepdim=false, dtype=null}
  %y: f32[2, 3, 4] = neg(%c)
  return %s, %y
})");
  auto groups = GroupsOf(*graph, {{"g", "c", "s"}, {"y"}});
  EXPECT_EQ(After(*graph, groups), "m x -> s; m x -> y");
}

// The whole of x would be more than c.
TEST(Rematerialize, ASliceCostsItsPart) {
  const auto graph = Parse(R"(
fusion @f(%x: f32[64, 128]) {
  %p: f32[64, 8] = slice(%x) {start=[0, 0], end=[64, 8], strides=[1, 1]}
  %c: f32[64, 8] = neg(%p)
  %s: f32[r:64, 8] = sum(%c) {axes=[0], keepdim=false, dtype=null}
  %y: f32[64, 8] = abs(%c)
  return %s, %y
})");
  auto groups = GroupsOf(*graph, {{"p", "c", "s"}, {"y"}});
  EXPECT_EQ(After(*graph, groups), "x -> s; x -> y");
}

TEST(Rematerialize, OfSeveralThoseThatFit) {
  const auto graph = Parse(R"(
fusion @f(%x: bf16[64, 128], %w: bf16[64, 128]) {
  %a: f32[64, 128] = cast(%x) {dtype=f32}
  %b: f32[64, 128] = cast(%w) {dtype=f32}
  %s: f32[64, r:128] = sum(%a) {axes=[1], keepdim=false, dtype=null}
  %t: f32[64, r:128] = sum(%b) {axes=[1], keepdim=false, dtype=null}
  %y: f32[64, 128] = mul(%a, %b)
  return %s, %t, %y
})");
  auto groups = GroupsOf(*graph, {{"a", "b", "s", "t"}, {"y"}});
  const auto without_w = [](const GroupView& group) {
    return group.ops.size() > 3 ||
           std::ranges::none_of(group.inputs, [](const ir::Value* input) { return input->name == "w"; });
  };
  EXPECT_EQ(After(*graph, groups, without_w), "w x -> b s t; b x -> y");
}

// A symbol counts as many as are known.
TEST(Rematerialize, KnowsSizes) {
  for (const int64_t size : {1, 100}) {
    const auto graph = Parse(R"(
fusion @f(%x: f32[i0, 8], %v: f32[b, 8]) {
  %c: f32[i0, 8] = sub(%x, %v)
  %s: f32[r:i0, 8] = sum(%c) {axes=[0], keepdim=false, dtype=null}
  %p: f32[b, 8] = broadcast(%s) {is_broadcast_dim=[1, 0]}
  %y: f32[i0, 8] = div(%c, %p)
  return %y
})");
    auto groups = GroupsOf(*graph, {{"c", "s"}, {"p", "y"}});
    const Status status = Rematerialize(
        *graph, groups, {.fits = Anything, .is_view = [](const Group&) { return false; }, .sizes = {{"i0", size}}});
    EXPECT_TRUE(status.ok());
    // The difference of one row is read: it takes no more than v.
    EXPECT_EQ(Boundaries(groups), size == 1 ? "v x -> c s; c s -> y" : "v x -> s; s v x -> y");
  }
}

TEST(Rematerialize, WhatTheProgramReturnsIsReadWhenThatIsNoMore) {
  const auto graph = Parse(R"(
fusion @f(%x: f32[64], %m: f32[64]) {
  %c: f32[64] = sub(%x, %m)
  %s: f32[r:64] = sum(%c) {axes=[0], keepdim=false, dtype=null}
  %y: f32[64] = neg(%c)
  return %c, %s, %y
})");
  auto groups = GroupsOf(*graph, {{"c", "s"}, {"y"}});
  EXPECT_EQ(After(*graph, groups), "m x -> c s; c -> y");
}

TEST(Rematerialize, ASharedLeafIsPaidOnce) {
  // Both tensors of the second group come from %x: remaking one makes the other free.
  const auto graph = Parse(R"(
fusion @f(%x: bf16[64, 128]) {
  %f: f32[64, 128] = cast(%x) {dtype=f32}
  %a: f32[64, 128] = neg(%f)
  %b: f32[64, 128] = add(%f, %f)
  %s: f32[64, r:128] = sum(%a) {axes=[1], keepdim=false, dtype=null}
  %y: f32[64, 128] = mul(%a, %b)
  return %s, %y
})");
  auto groups = GroupsOf(*graph, {{"f", "a", "b", "s"}, {"y"}});
  EXPECT_EQ(After(*graph, groups), "x -> s; x -> y");
}

TEST(Rematerialize, AGroupWhoseOpsAreAllRemadeElsewhereGoes) {
  const auto graph = Parse(R"(
fusion @f(%x: bf16[64]) {
  %f: f32[64] = cast(%x) {dtype=f32}
  %y: f32[64] = neg(%f)
  return %y
})");
  auto groups = GroupsOf(*graph, {{"f"}, {"y"}});
  EXPECT_EQ(After(*graph, groups), "x -> y");
}

TEST(Rematerialize, CopiesReadEachOtherInProgramOrder) {
  // %d is remade first, for a reader late in the group; %c is read by one in front of that, and by the copy of %d.
  const auto graph = Parse(R"(
fusion @f(%x: bf16[64, 128], %y: bf16[64, 128]) {
  %f: f32[64, 128] = cast(%x) {dtype=f32}
  %g: f32[64, 128] = cast(%y) {dtype=f32}
  %c: f32[64, 128] = add(%f, %g)
  %d: f32[64, 128] = neg(%c)
  %s: f32[64, r:128] = sum(%d) {axes=[1], keepdim=false, dtype=null}
  %p: f32[64, 128] = exp(%c)
  %q: f32[64, 128] = mul(%p, %d)
  return %s, %q
})");
  auto groups = GroupsOf(*graph, {{"f", "g", "c", "d", "s"}, {"p", "q"}});
  EXPECT_EQ(Boundaries(groups), "x y -> c d s; c d -> q");
  EXPECT_EQ(After(*graph, groups), "x y -> s; x y -> q");
}

TEST(Rematerialize, WhatABoundaryReadsStaysInMemory) {
  const auto graph = Parse(R"(
fusion @f(%x: bf16[64, 128], %y: bf16[64, 128]) {
  %f: f32[64, 128] = cast(%x) {dtype=f32}
  %g: f32[64, 128] = cast(%y) {dtype=f32}
  %d: f32[64, 128] = sub(%f, %g)
  %a: f32[64, 128] = add(%d, %f)
  %b: f32[64, 128] = segment_set(%a)
  %c: f32[64, 128] = mul(%b, %d)
  return %c
})");
  auto groups = GroupsOf(*graph, {{"f", "g", "d", "a"}, {"b", "c"}});
  EXPECT_EQ(Boundaries(groups), "x y -> d a; a d -> c");
  EXPECT_EQ(After(*graph, groups), "x y -> a; a x y -> c");
}

TEST(Rematerialize, AGroupThatWritesOtherValuesThenMustFitToo) {
  // Remaking %b reads %a, which then is written: by a group that no kernel could hold.
  const auto graph = Parse(R"(
fusion @f(%x: f32[64, 128]) {
  %a: bf16[64, 128] = cast(%x) {dtype=bf16}
  %b: f32[64, 128] = cast(%a) {dtype=f32}
  %s: f32[64, r:128] = sum(%b) {axes=[1], keepdim=false, dtype=null}
  %e: f32[64, 128] = exp(%b)
  %y: f32[64, 128] = neg(%b)
  return %s, %e, %y
})");
  const auto fits = [](const GroupView& group) { return group.outputs.empty() || group.outputs[0]->name != "a"; };
  auto groups = GroupsOf(*graph, {{"a", "b", "s", "e"}, {"y"}});
  EXPECT_EQ(After(*graph, groups, fits), "x -> b s e; b -> y");
  groups = GroupsOf(*graph, {{"a", "b", "s", "e"}, {"y"}});
  EXPECT_EQ(After(*graph, groups), "x -> a s e; a -> y");
}

}  // namespace
}  // namespace hir::segment
