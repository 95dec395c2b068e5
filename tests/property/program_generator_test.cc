// Goal: the generator reaches everything, and what it says of its programs holds.
// Method: 500 seeds, counted; each program runs in the interpreter on the inputs that came with it.
#include "tests/property/program_generator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "csrc/fusion/check_program.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/interpret/interpret.h"
#include "csrc/fusion/passes/decompose_ops.h"
#include "csrc/fusion/passes/passes.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "csrc/ir/verify.h"

namespace hir::testing {
namespace {

constexpr uint64_t kSeeds = 500;

TEST(ProgramGenerator, ReachesEveryOpAndType) {
  std::set<std::string> ops, dtypes;
  size_t rank_max = 0;
  bool zero = false, one = false, symbols = false;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const GeneratedProgram program = Generate(seed);
    ops.merge(OpsOf(*program.graph));
    dtypes.merge(DTypesOf(*program.graph));
    symbols |= !program.sizes.empty();
    for (const fusion::HostTensor& input : program.inputs) {
      rank_max = std::max(rank_max, input.shape.size());
      for (const int64_t extent : input.shape) {
        zero |= extent == 0;
        one |= extent == 1;
      }
    }
  }
  for (const ir::OpInfo& info : fusion::kFusionOps.ops) {
    const bool reached = ops.contains(std::string(info.name));
    EXPECT_NE(reached, fusion::IsPlanned(static_cast<fusion::FusionOp>(info.code))) << info.name;
  }
  EXPECT_EQ(dtypes.size(), std::size(kAllDTypes));
  EXPECT_EQ(rank_max, 5u);
  EXPECT_TRUE(zero && one && symbols);
}

TEST(ProgramGenerator, ReachesWhatPlanningOnceGotWrong) {
  std::map<std::string, int64_t> features;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const int ops_max = seed % 10 == 0 ? 200 : seed % 3 == 0 ? 50 : 16;
    const GeneratedProgram program = Generate(seed, {.num_ops_max = ops_max});
    for (const auto& [feature, count] : FeaturesOf(*program.graph)) features[feature] += count;
  }
  std::cout << kSeeds << " programs have";
  for (const auto& [feature, count] : features) {
    std::cout << ", " << feature << ": " << count;
    EXPECT_GE(count, 25) << feature;
  }
  std::cout << "\n";
  EXPECT_EQ(features.size(), 8u);
}

TEST(ProgramGenerator, ProgramsRunAndStayFinite) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const GeneratedProgram program = Generate(seed);
    SCOPED_TRACE(program.Describe());
    ASSERT_TRUE(ir::Verify(*program.graph).ok()) << ir::Verify(*program.graph).ToString();
    ASSERT_TRUE(fusion::CheckUserProgram(*program.graph).ok()) << fusion::CheckUserProgram(*program.graph).ToString();
    const auto outputs = fusion::Interpret(*program.graph, program.inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    ASSERT_EQ((*outputs).size(), program.tolerances.size());
    for (const fusion::HostTensor& output : *outputs) {
      for (const double value : fusion::ToDoubles(output)) ASSERT_TRUE(std::isfinite(value));
    }
  }
}

TEST(ProgramGenerator, TextRoundTrips) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    GeneratorOptions options;
    if (seed % 3 == 1) options.mesh_shape = {4};
    if (seed % 3 == 2) options.mesh_shape = {2, 2};
    const GeneratedProgram program = Generate(seed, options);
    const std::string text = ir::Print(*program.graph);
    SCOPED_TRACE(text);
    const auto parsed = ir::Parse(text, fusion::kFusionOps);
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    ASSERT_EQ(ir::Print(**parsed), text);
    const auto want = fusion::Interpret(*program.graph, program.inputs);
    const auto got = fusion::Interpret(**parsed, program.inputs);
    ASSERT_TRUE(want.ok() && got.ok()) << want.status().ToString() << got.status().ToString();
    ASSERT_EQ(*got, *want);
  }
}

TEST(ProgramGenerator, PassesKeepResults) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const GeneratedProgram program = Generate(seed);
    SCOPED_TRACE(program.Describe());
    // Ops made of others round more often: as near as two correct evaluations.
    const auto whole = fusion::Interpret(*program.graph, program.inputs);
    ASSERT_TRUE(fusion::DecomposeOps(*program.graph).ok());
    const auto want = fusion::Interpret(*program.graph, program.inputs);
    ASSERT_TRUE(whole.ok() && want.ok()) << want.status().ToString();
    for (size_t i = 0; i < whole->size(); ++i)
      ASSERT_EQ(Difference((*want)[i], (*whole)[i], program.tolerances[i]), "") << "output " << i;
    const Status status = ir::RunPasses(*program.graph, fusion::kFusionPasses, fusion::kSimplify);
    ASSERT_TRUE(status.ok()) << status.ToString();
    const auto got = fusion::Interpret(*program.graph, program.inputs);
    ASSERT_TRUE(want.ok() && got.ok());
    ASSERT_EQ(*got, *want) << ir::Print(*program.graph);  // Bit by bit: no pass changes what is computed.
  }
}

TEST(ProgramGenerator, SameSeedSameProgram) {
  const GeneratedProgram a = Generate(17), b = Generate(17);
  EXPECT_EQ(a.Describe(), b.Describe());
  EXPECT_EQ(a.inputs, b.inputs);
  EXPECT_NE(Generate(18).Describe(), a.Describe());
}

TEST(ProgramGenerator, DifferenceIsSeen) {
  const fusion::HostTensor a = fusion::TensorOf(DType::kFloat32, {2}, std::vector<double>{1, 2});
  const fusion::HostTensor b = fusion::TensorOf(DType::kFloat32, {2}, std::vector<double>{1, 2.5});
  EXPECT_EQ(Difference(a, a, 0), "");
  EXPECT_EQ(Difference(a, b, 0.5), "");
  EXPECT_EQ(Difference(a, b, 0.25), "element 1 of f32[2] is 2.0, want 2.5 within 0.25");
}

}  // namespace
}  // namespace hir::testing
