// Goal: compiled kernels compute what the interpreter does, whatever ops run together.
// Method: random programs without dead code, as planning has them; each is run one op a kernel, merged as far as
// Accepts allows, and (for every third) with some merges refused.
// Output buffers hold garbage first, and bytes behind them are watched (KernelRunner). HOSTIR_SEED=n runs one program.
#include <gtest/gtest.h>

#include <cstdlib>

#include "csrc/fusion/passes/dce.h"
#include "csrc/fusion/passes/decompose_ops.h"
#include "tests/csrc/codegen/kernel_runner.h"
#include "tests/from_environment.h"
#include "tests/property/program_generator.h"

namespace hir::codegen {
namespace {

std::vector<segment::Group> Apart(const ir::Graph& graph) {
  std::vector<segment::Group> groups;
  ir::ForEachOp(graph.body, [&](ir::Op* op) { groups.push_back(segment::MakeGroup(graph, {op})); });
  return groups;
}

// As far as possible, or with some merges refused.
std::vector<segment::Group> Merged(const ir::Graph& graph, bool partly) {
  return *segment::Segment(graph,
                           [&](const segment::GroupView&, const segment::GroupView&,
                               const segment::GroupView& merged) -> std::optional<segment::Gain> {
                             // By contents, so that the answer is pure.
                             if (partly && merged.ops.size() * 7 % 3 == 1 && merged.outputs.size() % 2 == 0)
                               return std::nullopt;
                             if (!Accepts(merged).accepted) return std::nullopt;
                             return segment::Gain{.bytes = 1, .launches = 1};
                           },
                           {.merge_siblings = true});
}

class Kernels : public ::testing::TestWithParam<int> {};

constexpr int64_t kSeedsPerCase = 25;

TEST_P(Kernels, EqualTheInterpreter) {
  int64_t kernels = 0, merged_kernels = 0;
  const int64_t only = testing::FromEnvironment("HOSTIR_SEED", -1);
  const int64_t count = only >= 0 ? 1 : testing::FromEnvironment("HOSTIR_SEEDS", kSeedsPerCase);
  for (int64_t i = 0; i < count; ++i) {
    const auto seed = static_cast<uint64_t>(only >= 0 ? only : GetParam() * kSeedsPerCase + i);
    const testing::GeneratedProgram program = testing::Generate(seed);
    SCOPED_TRACE(program.Describe());
    const auto want = fusion::Interpret(*program.graph, program.inputs);
    ASSERT_TRUE(want.ok()) << want.status().ToString();
    ASSERT_TRUE(fusion::DecomposeOps(*program.graph).ok());
    ASSERT_TRUE(fusion::Dce(*program.graph).ok());
    for (const bool merge : {false, true}) {
      KernelRunner runner(seed);
      const auto groups = merge ? Merged(*program.graph, seed % 3 == 0) : Apart(*program.graph);
      const auto got = runner.Run(*program.graph, program.inputs, groups);
      ASSERT_TRUE(got.ok()) << got.status().ToString();
      (merge ? merged_kernels : kernels) += runner.num_kernels();
      for (size_t k = 0; k < (*want).size(); ++k) {
        EXPECT_EQ(testing::Difference((*got)[k], (*want)[k], program.tolerances[k]), "")
            << "output " << k << (merge ? ", merged" : ", one op a kernel");
      }
    }
    if (::testing::Test::HasFailure()) return;  // One program is enough to read.
  }
  if (count >= kSeedsPerCase) {
    EXPECT_LT(merged_kernels, kernels * 3 / 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Kernels, ::testing::Range(0, 20));

}  // namespace
}  // namespace hir::codegen
