// Goal: a sharded program computes what the unsharded one does. Method: random programs with random shardings, of even
// and of uneven blocks, on meshes of up to 2x2x1 and 2x3 go through the whole pipeline and run on simulated ranks
// (compiled kernels, communications with random delays) and over UCX; the values are compared with the interpreter's on
// the program as it was written. HOSTIR_SEEDS=286 runs 2,002 programs on either: 286 on each of the 7 meshes.
#include <gtest/gtest.h>

#include <iostream>
#include <ostream>

#include "csrc/base/text.h"
#include "multidevice/comm/ucx/ucx.h"
#include "tests/property/run_on_ranks.h"
#include "tests/property/sharded_programs.h"

namespace hir::testing {
namespace {

struct MeshCase {
  std::vector<int64_t> shape;
  uint64_t first_seed;
};
void PrintTo(const MeshCase& c, std::ostream* out) {
  *out << "a mesh of " << base::JoinInts(c.shape, " x ") << ", seeds from " << c.first_seed;
}

class ShardedProperty : public ::testing::TestWithParam<MeshCase> {};

// `ranks` null: simulated ones.
void RunSeeds(const MeshCase& mesh, int64_t num_ranks, Seeds seeds, Ranks* ranks) {
  codegen::cpu::Compiler compiler({});
  ShardedTally tally;
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    auto made = MakeShardedProgram(seed, mesh.shape, num_ranks);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    SCOPED_TRACE(made->program.Describe());
    auto outputs = RunOnRanks(made->plan, made->program.inputs,
                              {.num_ranks = num_ranks, .seed = seed, .ranks = ranks, .compiler = &compiler});
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    if (made->on_one_node) {
      const auto others = RunOnRanks(*made->on_one_node, made->program.inputs,
                                     {.num_ranks = num_ranks, .seed = seed, .ranks = ranks, .compiler = &compiler});
      ASSERT_TRUE(others.ok()) << others.status().ToString();
      for (size_t i = 0; i < outputs->size(); ++i)
        ASSERT_EQ((*outputs)[i].bytes, (*others)[i].bytes) << "output " << i << ", beside one node";
    }
    for (size_t i = 0; i < made->expected.size(); ++i) {
      ASSERT_EQ(Difference((*outputs)[i], made->expected[i], made->program.tolerances[i]), "") << "output " << i;
    }
    tally.Count(*made);
  }
  std::cout << tally.Describe(ranks == nullptr ? "simulated ranks" : "UCX", seeds.first) << "\n";
}

int64_t NumRanks(const MeshCase& mesh) {
  int64_t num_ranks = 1;
  for (int64_t extent : mesh.shape) num_ranks *= extent;
  return num_ranks;
}

Seeds SeedsOf(const MeshCase& mesh, uint64_t count) {
  return SeedsFromEnvironment({.first = mesh.first_seed, .count = count});
}

TEST_P(ShardedProperty, EqualsTheUnshardedProgram) {
  RunSeeds(GetParam(), NumRanks(GetParam()), SeedsOf(GetParam(), 60), nullptr);
}

// A reshape of a part whose extent is symbolic wrote out what is stored once.
TEST(ShardedPropertyOnce, AReshapeKeepsWhatIsStoredOnce) { RunSeeds({{2, 2}, 0}, 4, {.first = 4464}, nullptr); }

TEST_P(ShardedProperty, EqualsTheUnshardedProgramOverUcx) {
  if (!comm::HasUcx()) GTEST_SKIP() << "this build has no UCX";
  auto ranks = MakeUcxRanks(NumRanks(GetParam()));
  ASSERT_TRUE(ranks.ok()) << ranks.status().ToString();
  RunSeeds(GetParam(), NumRanks(GetParam()), SeedsOf(GetParam(), 15), ranks->get());
}

INSTANTIATE_TEST_SUITE_P(Meshes, ShardedProperty,
                         ::testing::Values(MeshCase{{2}, 1000}, MeshCase{{3}, 2000}, MeshCase{{4}, 3000},
                                           MeshCase{{2, 2}, 4000}, MeshCase{{2, 2, 1}, 5000}, MeshCase{{1, 2, 2}, 6000},
                                           MeshCase{{2, 3}, 7000}),
                         [](const auto& info) {
                           std::string name = "mesh";
                           for (int64_t extent : info.param.shape) name += base::Cat("_", extent);
                           return name;
                         });

}  // namespace
}  // namespace hir::testing
