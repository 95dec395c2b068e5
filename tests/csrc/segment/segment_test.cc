// Goal: Segment partitions a program into acyclic groups in topological order, by the caller's
// predicate alone, whatever the predicate says. Method: small programs with known answers, then
// random programs with random predicates.
#include "csrc/segment/segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <utility>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"

namespace hir::segment {
namespace {

using testing::ElementsAre;

std::unique_ptr<ir::Graph> Parse(const std::string& text) {
  auto graph = ir::Parse(text, fusion::kFusionOps);
  if (!graph.ok()) ADD_FAILURE() << graph.status().ToString() << "\n" << text;
  return *std::move(graph);
}

// "a b | c": the result names of each group.
std::string Names(const std::vector<Group>& groups) {
  std::string out;
  for (const Group& group : groups) {
    if (!out.empty()) out += " | ";
    std::vector<std::string_view> names;
    for (const ir::Op* op : group.ops) names.push_back(op->results[0]->name);
    out += base::Join(names, " ");
  }
  return out;
}

bool Holds(const GroupView& group, std::string_view name) {
  return std::any_of(group.ops.begin(), group.ops.end(),
                     [name](const ir::Op* op) { return op->results[0]->name == name; });
}

std::optional<Gain> Always(const GroupView&, const GroupView&, const GroupView&) {
  return Gain{.bytes = 1, .launches = 1};
}

constexpr char kDiamond[] = R"(
fusion @f(%x: f32[8]) {
  %a: f32[8] = exp(%x)
  %b: f32[8] = neg(%a)
  %c: f32[8] = add(%a, %b)
  return %c
})";

TEST(Segment, AnErrorOfThePredicateEndsIt) {
  int asked = 0;
  const auto fails = [&asked](const GroupView&, const GroupView&, const GroupView&) -> Result<std::optional<Gain>> {
    ++asked;
    return Unavailable("the rule's service is away");
  };
  const auto groups = Segment(*Parse(kDiamond), fails, {.merge_siblings = true});
  EXPECT_EQ(groups.status().ToString(), "UNAVAILABLE: the rule's service is away");
  EXPECT_EQ(asked, 1);
}

TEST(Segment, ALossIsNoGain) {
  const auto loses = [](const GroupView&, const GroupView&, const GroupView&) -> std::optional<Gain> {
    return Gain{.bytes = -1, .launches = 1};
  };
  EXPECT_EQ(Names(*Segment(*Parse(kDiamond), loses)), "a | b | c");
  const auto launches_more = [](const GroupView&, const GroupView&, const GroupView&) -> std::optional<Gain> {
    return Gain{.bytes = 0, .launches = -1};
  };
  EXPECT_EQ(Names(*Segment(*Parse(kDiamond), launches_more)), "a | b | c");
}

TEST(Segment, MergesAllWhenAllowed) { EXPECT_EQ(Names(*Segment(*Parse(kDiamond), Always)), "a b c"); }

TEST(Segment, MergesNothingWhenRefused) {
  const auto never = [](const GroupView&, const GroupView&, const GroupView&) -> std::optional<Gain> {
    return std::nullopt;
  };
  EXPECT_EQ(Names(*Segment(*Parse(kDiamond), never)), "a | b | c");
}

TEST(Segment, NeverMergesAroundAnOpThatStaysOutside) {
  // a and c are neighbours, but b lies on another path between them: {a, c} would wait for itself.
  const auto without_b = [](const GroupView&, const GroupView&, const GroupView& merged) -> std::optional<Gain> {
    return Holds(merged, "b") ? std::nullopt : std::optional(Gain{});
  };
  EXPECT_EQ(Names(*Segment(*Parse(kDiamond), without_b)), "a | b | c");
}

TEST(Segment, LargestGainFirst) {
  const auto graph = Parse(R"(
fusion @f(%x: f32[8]) {
  %a: f32[8] = exp(%x)
  %b: f32[8] = neg(%a)
  %c: f32[8] = abs(%b)
  return %c
})");
  // Two ops fit; b goes with c because that saves more.
  const auto pairs = [](const GroupView& producer, const GroupView&, const GroupView& merged) -> std::optional<Gain> {
    if (merged.ops.size() > 2) return std::nullopt;
    return Gain{.bytes = Holds(producer, "b") ? 10 : 1, .launches = 1};
  };
  EXPECT_EQ(Names(*Segment(*graph, pairs)), "a | b c");
  // And with equal gains, the earlier pair.
  const auto equal = [](const GroupView&, const GroupView&, const GroupView& merged) -> std::optional<Gain> {
    return merged.ops.size() > 2 ? std::nullopt : std::optional(Gain{.bytes = 1, .launches = 1});
  };
  EXPECT_EQ(Names(*Segment(*graph, equal)), "a b | c");
}

TEST(Segment, MergesANodeWithAllItsConsumersAtOnce) {
  const auto graph = Parse(R"(
fusion @f(%x: f32[8]) {
  %a: f32[8] = exp(%x)
  %b: f32[8] = neg(%a)
  %c: f32[8] = abs(%a)
  return %b, %c
})");
  const auto only_three = [](const GroupView&, const GroupView&, const GroupView& merged) -> std::optional<Gain> {
    return merged.ops.size() == 3 ? std::optional(Gain{}) : std::nullopt;
  };
  EXPECT_EQ(Names(*Segment(*graph, only_three)), "a b c");
}

TEST(Segment, MergesAChainOfThreeAtOnce) {
  const auto graph = Parse(R"(
fusion @f(%x: f32[8]) {
  %a: f32[8] = exp(%x)
  %b: f32[8] = neg(%a)
  %c: f32[8] = tanh(%b)
  return %c
})");
  const auto all_or_none = [](const GroupView&, const GroupView&, const GroupView& merged) -> std::optional<Gain> {
    return merged.ops.size() == 3 ? std::optional(Gain{.bytes = 1, .launches = 1}) : std::nullopt;
  };
  EXPECT_EQ(Names(*Segment(*graph, all_or_none)), "a b c");
}

TEST(Segment, SiblingsMergeOnlyWhenAsked) {
  const auto graph = Parse(R"(
fusion @f(%x: f32[8]) {
  %a: f32[8] = exp(%x)
  %b: f32[8] = neg(%x)
  return %a, %b
})");
  EXPECT_EQ(Names(*Segment(*graph, Always)), "a | b");
  EXPECT_EQ(Names(*Segment(*graph, Always, {.merge_siblings = true})), "a b");
}

TEST(Segment, AGroupReadsAndWritesWhatCrossesItsBoundary) {
  const auto graph = Parse(kDiamond);
  const Group group = MakeGroup(*graph, {graph->FindValue("b")->def, graph->FindValue("a")->def});
  EXPECT_THAT(group.ops, ElementsAre(graph->FindValue("a")->def, graph->FindValue("b")->def));
  EXPECT_THAT(group.inputs, ElementsAre(graph->FindValue("x")));
  EXPECT_THAT(group.outputs, ElementsAre(graph->FindValue("a"), graph->FindValue("b")));
}

TEST(Segment, StorageCountsBroadcastAxesOnceAndReducedAxesNever) {
  const auto graph = Parse(R"(
fusion @f(%x: bf16[8, b:4, 2], %n: f64[i0]) {
  %s: bf16[8, b:4, r:2] = sum(%x) {axes=[2], keepdim=false, dtype=null}
  return %s
})");
  EXPECT_EQ(StorageBytes(*graph->FindValue("x")), 8 * 2 * 2);
  EXPECT_EQ(StorageBytes(*graph->FindValue("s")), 8 * 2);
  EXPECT_EQ(StorageBytes(*graph->FindValue("n")), kUnknownExtent * 8);
}

TEST(Segment, SumsOfTheLargestSizesFit) {
  const auto graph = Parse(R"(
fusion @f(%x: f32[1152921504606846975]) {
  %s: f32[1152921504606846975] = neg(%x)
  return %s
})");
  EXPECT_EQ(StorageBytes(*graph->FindValue("x")), kStorageBytesMax);
  EXPECT_EQ(StorageBytes(*graph->FindValue("s")), kStorageBytesMax);
}

// A program of `num_ops` adds and negs over random earlier values.
std::string RandomProgram(base::Prng& prng, int num_ops) {
  std::string text = "fusion @f(%v0: f32[4], %v1: f32[4]) {\n";
  for (int i = 2; i < num_ops + 2; ++i) {
    const int64_t near = std::max<int64_t>(0, i - 6);
    base::Append(text, "  %v", i, ": f32[4] = add(%v", prng.Between(near, i - 1), ", %v", prng.Below(i), ")\n");
  }
  return text + base::Cat("  return %v", num_ops + 1, "\n}\n");
}

void ExpectAcyclicPartition(const ir::Graph& graph, const std::vector<Group>& groups) {
  std::map<const ir::Op*, size_t> group_of;
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const ir::Op* op : groups[i].ops) EXPECT_TRUE(group_of.emplace(op, i).second) << "an op in two groups";
  }
  for (const ir::Op* op = graph.body.first; op != nullptr; op = op->next) {
    ASSERT_TRUE(group_of.contains(op));
    for (const ir::Value* operand : op->operands) {
      if (operand->def == nullptr) continue;
      EXPECT_LE(group_of.at(operand->def), group_of.at(op)) << "not in topological order";
    }
  }
}

TEST(SegmentProperty, RandomPredicatesGiveAcyclicPartitionsAndTheSameAnswerAgain) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(base::Cat("seed ", seed));
    base::Prng prng(seed);
    const std::string text = RandomProgram(prng, static_cast<int>(prng.Between(1, 40)));
    const int64_t largest = prng.Between(1, 12);
    // Pure, but arbitrary: decided by the positions of the merged ops.
    const auto predicate = [&](const GroupView&, const GroupView&, const GroupView& merged) -> std::optional<Gain> {
      uint64_t hash = seed;
      for (const ir::Op* op : merged.ops) hash = base::Prng(hash ^ static_cast<uint64_t>(op->results[0]->id)).Next();
      if (static_cast<int64_t>(merged.ops.size()) > largest || hash % 4 == 0) return std::nullopt;
      return Gain{.bytes = static_cast<int64_t>(hash % 7), .launches = 1};
    };
    const Options options{.merge_siblings = prng.OneIn(2)};
    const auto first = Parse(text);
    const auto groups = *Segment(*first, predicate, options);
    ExpectAcyclicPartition(*first, groups);
    EXPECT_EQ(Names(groups), Names(*Segment(*Parse(text), predicate, options)));
    // A bound that is right, too large, or of what would be refused changes nothing.
    Options bounded = options;
    bounded.gain_at_most = [&](const GroupView& a, const GroupView& b, const GroupView& merged) {
      const Gain gain = predicate(a, b, merged).value_or(Gain{.bytes = 3, .launches = 1});
      return Gain{.bytes = gain.bytes + static_cast<int64_t>(merged.ops.size() % 3), .launches = 1};
    };
    EXPECT_EQ(Names(groups), Names(*Segment(*Parse(text), predicate, bounded)));
  }
}

TEST(Segment, AsksAboutAThousandOpsNearlyLinearly) {
  base::Prng prng(7);
  const auto graph = Parse(RandomProgram(prng, 1000));
  int64_t asked = 0;
  const auto counting = [&](const GroupView&, const GroupView&, const GroupView& merged) -> std::optional<Gain> {
    ++asked;
    return merged.ops.size() > 20 ? std::nullopt : std::optional(Gain{.bytes = 1, .launches = 1});
  };
  ExpectAcyclicPartition(*graph, *Segment(*graph, counting));
  EXPECT_LT(asked, 30 * 1000);
  const int64_t without_bound = std::exchange(asked, 0);
  const auto most = [](const GroupView&, const GroupView&, const GroupView&) {
    return Gain{.bytes = 1, .launches = 1};
  };
  ExpectAcyclicPartition(*graph, *Segment(*graph, counting, {.gain_at_most = most}));
  EXPECT_LT(asked, without_bound / 2);
  EXPECT_GT(asked, 0);
}

// Each sum has a constant of its own; tensors that are kept off memory come first.
TEST(Segment, AsksAboutOpsOnConstantsNearlyLinearly) {
  constexpr int kSums = 400;
  std::string text = "fusion @f(%x: f32[i0]) {\n";
  std::string last = "x";
  for (int i = 0; i < kSums; ++i) {
    const std::string next = base::Cat("y", i);
    base::Append(text, "  %c", i, " = constant() {value=", i, ".5, dtype=f64}\n  %", next, " = add(%", last, ", %c", i,
                 ")\n");
    last = next;
  }
  const auto graph = Parse(base::Cat(text, "  return %", last, "\n}\n"));
  int64_t asked = 0;
  const auto all = [&](const GroupView& producer, const GroupView&, const GroupView&) {
    ++asked;
    const bool is_tensor = producer.outputs[0]->type->kind == ir::TypeKind::kTensor;
    return std::optional(Gain{.bytes = is_tensor ? 4 : 0, .launches = 1});
  };
  const std::vector<Group> groups = *Segment(*graph, all);
  ExpectAcyclicPartition(*graph, groups);
  EXPECT_EQ(groups.size(), 1);
  EXPECT_LT(asked, 5 * kSums);
}

}  // namespace
}  // namespace hir::segment
