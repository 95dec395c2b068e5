// Goal: kernels are cut by the caller's rules, whatever they say, and the plan is right. Method: rules of every kind
// for one program; random rules for random programs, whose plans run on one rank, compared with the interpreter.
// HOSTIR_SEED=n takes one program, HOSTIR_SEEDS=n as many as that.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <optional>

#include "csrc/base/prng.h"
#include "csrc/codegen/cpu/cpu.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/interpret/interpret.h"
#include "csrc/ir/clone.h"
#include "csrc/ir/parse.h"
#include "host_ir/lower/segmentation.h"
#include "host_ir/pipeline/pipeline.h"
#include "tests/property/program_generator.h"
#include "tests/property/run_on_ranks.h"
#include "tests/property/sharded_programs.h"

namespace hir::testing {
namespace {

using host::Segmentation;
using segment::Gain;
using segment::GroupView;

constexpr std::string_view kText = R"(
fusion @f(%x: f32[6, 4], %w: f32[4, 4]) {
  %a = exp(%x)
  %b = neg(%a)
  %c = linear(%b, %w)
  %d = sin(%c)
  %e = sum(%d) {axes=[1], keepdim=true, dtype=f32}
  %f = sub(%d, %e)
  return %b, %f
})";

Result<host::ProgramPlan> PlanBy(const Segmentation& segmentation) {
  HIR_ASSIGN(auto graph, ir::Parse(kText, fusion::kFusionOps));
  return host::PlanProgram(std::move(graph), {.segmentation = segmentation});
}

std::string SegmentsBy(const Segmentation& segmentation) {
  const auto plan = PlanBy(segmentation);
  return plan.ok() ? host::DescribeSegments(*plan) : plan.status().ToString();
}

bool Makes(const GroupView& group, std::string_view name) {
  return std::ranges::any_of(group.ops, [name](const ir::Op* op) { return op->results[0]->name == name; });
}

// The caller merges what it likes, and nothing that no kernel holds: a product stays a call.
TEST(Segmentation, OfACaller) {
  const auto all = [](const GroupView&, const GroupView&, const GroupView&) -> std::optional<Gain> {
    return Gain{.bytes = 1};
  };
  EXPECT_EQ(SegmentsBy({.kernels = all}),
            "k0: kernel pointwise: a = exp, b = neg (x -> b)\n"
            "linear: library: c = linear (b, w -> c)\n"
            "k1: kernel normalization: d = sin, e = sum, f = sub (c -> f)\n");
  const auto but_for_f = [](const GroupView&, const GroupView&, const GroupView& merged) -> std::optional<Gain> {
    return Makes(merged, "f") ? std::nullopt : std::optional(Gain{.bytes = 1});
  };
  EXPECT_EQ(SegmentsBy({.kernels = but_for_f, .saves_bytes = false}),
            "k0: kernel pointwise: a = exp, b = neg (x -> b)\n"
            "linear: library: c = linear (b, w -> c)\n"
            "k1: kernel reduction: d = sin, e = sum (c -> d, e)\n"
            "k2: kernel pointwise: f = sub (d, e -> f)\n");
}

// Pieces come first: no kernel is in two.
TEST(Segmentation, PiecesBoundKernels) {
  const auto before_b = [](const GroupView&, const GroupView&, const GroupView& merged) -> std::optional<Gain> {
    return Makes(merged, "a") ? std::nullopt : std::optional(Gain{.bytes = 1});
  };
  EXPECT_EQ(SegmentsBy({.pieces = before_b, .saves_bytes = false}),
            "k0: kernel pointwise: a = exp (x -> a)\n"
            "k1: kernel pointwise: b = neg (a -> b)\n"
            "linear: library: c = linear (b, w -> c)\n"
            "k2: kernel normalization: d = sin, e = sum, f = sub (c -> f)\n");
}

TEST(Segmentation, ARuleMayFail) {
  const auto fails = [](const GroupView&, const GroupView&, const GroupView&) -> Result<std::optional<Gain>> {
    return Unimplemented("no cost for sin on this device");
  };
  EXPECT_EQ(SegmentsBy({.kernels = fails}), "UNIMPLEMENTED: no cost for sin on this device");
  EXPECT_EQ(SegmentsBy({.pieces = fails}), "UNIMPLEMENTED: no cost for sin on this device");
}

TEST(Segmentation, IsNamed) {
  EXPECT_TRUE(host::SegmentationNamed("fusing").ok());
  EXPECT_EQ(host::SegmentationNamed("fusin").status().ToString(),
            "INVALID_ARGUMENT: segmentation \"fusin\": there are fusing, reshardings, one_op; did you mean fusing?");
}

// A rule that answers by chance, the same of equal groups, as it must.
Segmentation ByChance(uint64_t seed) {
  const auto rule = [seed](uint64_t salt) {
    return [=](const GroupView& producer, const GroupView& consumer, const GroupView&) -> std::optional<Gain> {
      uint64_t state = seed + salt;
      for (const GroupView* group : {&producer, &consumer}) {
        for (const ir::Op* op : group->ops) state = state * 31 + static_cast<uint64_t>(op->results[0]->id);
      }
      base::Prng rng(state);
      if (rng.OneIn(3)) return std::nullopt;
      return Gain{.bytes = rng.Between(0, 9), .launches = 1};
    };
  };
  Segmentation segmentation = {.kernels = rule(1), .saves_bytes = seed % 2 == 0};
  if (seed % 3 == 0) segmentation.pieces = rule(2);
  return segmentation;
}

TEST(Segmentation, AnyRuleGivesARightPlan) {
  codegen::cpu::Compiler compiler({});
  const Seeds seeds = SeedsFromEnvironment({.first = 700000, .count = 120});
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const GeneratedProgram program = Generate(seed, {.num_ops_max = seed % 10 == 0 ? 50 : 16});
    SCOPED_TRACE(program.Describe());
    const auto want = fusion::Interpret(*program.graph, program.inputs);
    ASSERT_TRUE(want.ok()) << want.status().ToString();
    Segmentation segmentation = ByChance(seed);
    if (seed % 4 == 0) segmentation = *host::SegmentationNamed("one_op");
    if (seed % 4 == 1) segmentation = *host::SegmentationNamed("reshardings");
    auto plan = host::PlanProgram(ir::Clone(*program.graph), {.segmentation = segmentation});
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const auto got = RunOnRanks(*plan, program.inputs, {.num_ranks = 1, .seed = seed, .compiler = &compiler});
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    for (size_t i = 0; i < want->size(); ++i)
      ASSERT_EQ(Difference((*got)[i], (*want)[i], program.tolerances[i]), "") << "output " << i;
  }
  std::cout << "seeds " << seeds.first << " to " << seeds.first + seeds.count - 1 << "\n";
}

// Bytes of one value at the program's sizes.
int64_t BytesOf(const ir::Value& value, const GeneratedProgram& program) {
  if (value.type->kind != ir::TypeKind::kTensor) return 0;
  int64_t bytes = DTypeBytes(value.type->dtype);
  for (const ir::Axis& axis : value.type->axes) {
    if (axis.kind != ir::AxisKind::kIteration) continue;
    const auto extent = ir::Evaluate(axis.extent, [&](std::string_view symbol) -> std::optional<int64_t> {
      return program.sizes.at(std::string(symbol));
    });
    EXPECT_TRUE(extent.ok());
    bytes *= extent.ok() ? *extent : 1;
  }
  return bytes;
}

// Bytes that kernels and calls of the plan read and write.
int64_t BytesOf(const host::ProgramPlan& plan, const GeneratedProgram& program) {
  int64_t bytes = 0;
  for (const host::LoweredSegment& segment : plan.segments) {
    if (segment.kind != host::SegmentKind::kKernel && segment.kind != host::SegmentKind::kLibrary) continue;
    for (const ir::Value* value : segment.group->inputs) bytes += BytesOf(*value, program);
    for (const ir::Value* value : segment.group->outputs) bytes += BytesOf(*value, program);
  }
  return bytes;
}

TEST(Segmentation, FusingMovesNoMoreThanOneOpAtATime) {
  const Seeds seeds = SeedsFromEnvironment({.first = 800000, .count = 1500});
  uint64_t saved = 0;
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const GeneratedProgram program = Generate(seed, {.num_ops_max = seed % 10 == 0 ? 50 : 16});
    SCOPED_TRACE(program.Describe());
    std::array<int64_t, 3> bytes = {};
    for (size_t i = 0; i < bytes.size(); ++i) {
      constexpr std::string_view kNames[] = {"fusing", "one_op", "reshardings"};  // Of the last, that it is planned.
      const auto plan =
          host::PlanProgram(ir::Clone(*program.graph), {.segmentation = *host::SegmentationNamed(kNames[i])});
      ASSERT_TRUE(plan.ok()) << plan.status().ToString();
      bytes[i] = BytesOf(*plan, program);
    }
    ASSERT_LE(bytes[0], bytes[1]);
    saved += bytes[0] < bytes[1] ? 1 : 0;
  }
  std::cout << "seeds " << seeds.first << " to " << seeds.first + seeds.count - 1 << ": fewer bytes in " << saved
            << "\n";
  EXPECT_GE(saved, seeds.count / 2);
}

}  // namespace
}  // namespace hir::testing
