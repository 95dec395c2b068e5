// Goal: every program is planned, and what its plan computes is what the program says. Method: random programs of 3 to
// 200 ops go through the whole pipeline, for a CPU and for a GPU; the CPU's plans run on one rank, compared with the
// interpreter; the GPU's become CUDA C++. HOSTIR_SEED=n takes one program, HOSTIR_SEEDS=n as many as that a case.
#include <gtest/gtest.h>

#include <iostream>
#include <map>

#include "csrc/codegen/gpu/gpu.h"
#include "csrc/fusion/interpret/interpret.h"
#include "csrc/ir/clone.h"
#include "host_ir/host_ops.h"
#include "tests/property/program_generator.h"
#include "tests/property/run_on_ranks.h"
#include "tests/property/sharded_programs.h"

namespace hir::testing {
namespace {

constexpr uint64_t kCases = 10;

GeneratedProgram ProgramOf(uint64_t seed) {
  const int ops_max = seed % 20 == 0 ? 200 : seed % 3 == 0 ? 50 : 16;
  return Generate(seed, {.num_ops_max = ops_max});
}

Seeds SeedsOf(int number, uint64_t first, uint64_t count) {
  Seeds seeds = SeedsFromEnvironment({.first = first, .count = count});
  if (seeds.first == first) seeds.first += static_cast<uint64_t>(number) * seeds.count;
  return seeds;
}

// Made without sizes, for the program's own, or for far larger ones, which choose other schedules: a plan is right for
// every size.
Result<host::ProgramPlan> PlanOf(const GeneratedProgram& program, const codegen::Target& target) {
  host::PlanOptions options = {.num_devices = 1, .target = target};
  if (program.seed % 4 < 2) options.sizes = {program.sizes.begin(), program.sizes.end()};
  if (program.seed % 4 == 1) {
    for (auto& [symbol, size] : options.sizes) size *= 1 << 15;
  }
  return host::PlanProgram(ir::Clone(*program.graph), options);
}

class Pipeline : public ::testing::TestWithParam<int> {};

TEST_P(Pipeline, PlansEveryProgram) {
  const Seeds seeds = SeedsOf(GetParam(), 100000, 300);
  std::map<std::string, int64_t> features;
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const GeneratedProgram program = ProgramOf(seed);
    SCOPED_TRACE(program.Describe());
    const auto plan = PlanOf(program, {});
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const auto on_gpu = PlanOf(program, codegen::kHopper);
    ASSERT_TRUE(on_gpu.ok()) << on_gpu.status().ToString();
    for (const host::ProgramPlan* made : {&*plan, &*on_gpu}) {
      for (const codegen::KernelPlan& kernel : made->kernels) {
        features["kernels in parts, of 3 and more launches"] += kernel.launches.size() > 2 ? 1 : 0;
        for (const codegen::Launch& launch : kernel.launches)
          features["inputs written where they are read"] += std::ssize(launch.in_place);
      }
      ir::ForEachOp(made->host->body, [&](const ir::Op* op) {
        if (host::CodeOf(*op) == host::HostOp::kViewPermute) ++features["permutes that calls read or write through"];
        if (host::CodeOf(*op) == host::HostOp::kViewSlice) ++features["slices that calls read"];
      });
      for (const ir::Output& output : made->host->outputs)
        features["outputs that may lie in an input"] += output.alias != nullptr ? 1 : 0;
    }
    for (const codegen::KernelPlan& kernel : on_gpu->kernels) {
      const auto cuda = codegen::gpu::EmitCuda(kernel);
      ASSERT_TRUE(cuda.ok()) << cuda.status().ToString();
    }
    for (const auto& [feature, count] : FeaturesOf(*program.graph)) features[feature] += count;
  }
  if (seeds.count >= 300) {
    EXPECT_GE(features["permutes that calls read or write through"], 10);
    EXPECT_GE(features["slices that calls read"], 10);
  }
  std::cout << "seeds " << seeds.first << " to " << seeds.first + seeds.count - 1 << ":";
  for (const auto& [feature, count] : features) std::cout << " " << feature << ": " << count << ";";
  std::cout << "\n";
}

TEST_P(Pipeline, ComputesWhatTheProgramSays) {
  const Seeds seeds = SeedsOf(GetParam(), 200000, 30);
  codegen::cpu::Compiler compiler({});
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const GeneratedProgram program = ProgramOf(seed);
    SCOPED_TRACE(program.Describe());
    const auto want = fusion::Interpret(*program.graph, program.inputs);
    ASSERT_TRUE(want.ok()) << want.status().ToString();
    auto plan = PlanOf(program, {});
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const auto got = RunOnRanks(*plan, program.inputs, {.num_ranks = 1, .seed = seed, .compiler = &compiler});
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    for (size_t i = 0; i < want->size(); ++i)
      ASSERT_EQ(Difference((*got)[i], (*want)[i], program.tolerances[i]), "") << "output " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Pipeline, ::testing::Range(0, static_cast<int>(kCases)));

}  // namespace
}  // namespace hir::testing
