// Goal: a sharded program computes what the unsharded one does. Method: random programs with random shardings on
// meshes of 2, 4 and 2x2 go through the whole pipeline and run on simulated ranks (compiled kernels, communications
// with random delays); the values are compared with the interpreter's on the program as it was written.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ostream>

#include "csrc/base/text.h"
#include "csrc/fusion/interpret/interpret.h"
#include "csrc/ir/clone.h"
#include "tests/property/program_generator.h"
#include "tests/property/run_on_ranks.h"

namespace hir::testing {
namespace {

// HOSTIR_SEEDS=N runs N seeds of each mesh instead of what a default test run has time for; HOSTIR_SEED=S only that
// one.
int FromEnvironment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

struct MeshCase {
  std::vector<int64_t> shape;
  uint64_t first_seed;
};
void PrintTo(const MeshCase& c, std::ostream* out) {
  *out << "a mesh of " << base::JoinInts(c.shape, " x ") << ", seeds from " << c.first_seed;
}

class ShardedProperty : public ::testing::TestWithParam<MeshCase> {};

TEST_P(ShardedProperty, EqualsTheUnshardedProgram) {
  const MeshCase& mesh = GetParam();
  int64_t num_ranks = 1;
  for (int64_t extent : mesh.shape) num_ranks *= extent;
  codegen::cpu::Compiler compiler({});
  const uint64_t only = static_cast<uint64_t>(FromEnvironment("HOSTIR_SEED", 0));
  const uint64_t first = only != 0 ? only : mesh.first_seed;
  const uint64_t count =
      only != 0 ? 1 : static_cast<uint64_t>(FromEnvironment("HOSTIR_SEEDS", 170));
  for (uint64_t seed = first; seed < first + count; ++seed) {
    GeneratedProgram program =
        Generate(seed, {.num_ops_max = 10, .elements_max = 512, .mesh_shape = mesh.shape});
    SCOPED_TRACE(program.Describe());
    auto expected = fusion::Interpret(*program.graph, program.inputs);
    ASSERT_TRUE(expected.ok()) << expected.status().ToString();
    auto plan = host::PlanProgram(ir::Clone(*program.graph), {.num_devices = num_ranks});
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    auto outputs = RunOnRanks(*plan, program.inputs,
                              {.num_ranks = num_ranks, .seed = seed, .compiler = &compiler});
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    for (size_t i = 0; i < expected->size(); ++i) {
      EXPECT_EQ(Difference((*outputs)[i], (*expected)[i], program.tolerances[i]), "")
          << "output " << i;
    }
    if (HasFailure()) break;  // One program's story is enough.
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, ShardedProperty,
                         ::testing::Values(MeshCase{{2}, 1000}, MeshCase{{4}, 2000},
                                           MeshCase{{2, 2}, 3000}),
                         [](const auto& info) {
                           std::string name = "mesh";
                           for (int64_t extent : info.param.shape) name += base::Cat("_", extent);
                           return name;
                         });

}  // namespace
}  // namespace hir::testing
