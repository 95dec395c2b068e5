// Goal: a sharded program computes what the unsharded one does. Method: random programs with random shardings, of even
// and of uneven blocks, on meshes of up to 2x2x1 and 2x3 go through the whole pipeline and run on simulated ranks
// (compiled kernels, communications with random delays) and over UCX; the values are compared with the interpreter's on
// the program as it was written. HOSTIR_SEEDS=286 runs 2,002 programs on either: 286 on each of the 7 meshes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <ostream>

#include "csrc/base/text.h"
#include "csrc/fusion/interpret/interpret.h"
#include "csrc/fusion/passes/placement.h"
#include "csrc/ir/clone.h"
#include "multidevice/comm/ucx/ucx.h"
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

// The plan that a daemon would use: made without sizes on every second seed, and again for them where it does not serve
// them.
Result<host::ProgramPlan> PlanFor(const GeneratedProgram& program, int64_t num_ranks) {
  const host::PlanOptions sized = {.num_devices = num_ranks,
                                   .sizes = {program.sizes.begin(), program.sizes.end()}};
  if (program.seed % 2 == 0) {
    HIR_ASSIGN(host::ProgramPlan plan,
               host::PlanProgram(ir::Clone(*program.graph), {.num_devices = num_ranks}));
    bool serves = true;
    for (const ir::Guard& guard : plan.local.evenness) {
      HIR_ASSIGN(const int64_t left, fusion::ValueOf(guard.left, program.sizes));
      HIR_ASSIGN(const int64_t right, fusion::ValueOf(guard.right, program.sizes));
      serves &= guard.kind == ir::Guard::Kind::kEqual ? left == right : left <= right;
    }
    if (serves) return plan;
  }
  return host::PlanProgram(ir::Clone(*program.graph), sized);
}

// What the programs of a run had.
struct Tally {
  int64_t programs = 0, communications = 0, uneven = 0, pinned = 0;
};

void Count(const host::ProgramPlan& plan, const fusion::SymbolValues& sizes, Tally& tally) {
  ++tally.programs;
  tally.communications += std::ssize(plan.local.communications);
  tally.pinned += plan.pinned.empty() ? 0 : 1;
  bool uneven = false;
  for (const ir::Value* value : plan.global->values()) {
    if (value->layout == nullptr || value->type->kind != ir::TypeKind::kTensor) continue;
    const auto placement = fusion::PlacementOf(*value);
    for (size_t i = 0; i < value->type->axes.size(); ++i) {
      const int64_t extent = *fusion::ValueOf(value->type->axes[i].extent, sizes);
      uneven |= extent % fusion::Ways(*placement->mesh, placement->axes[i]) != 0;
    }
  }
  tally.uneven += uneven ? 1 : 0;
}

// `ranks` null: simulated ones.
void RunSeeds(const MeshCase& mesh, int64_t num_ranks, int seeds, Ranks* ranks) {
  codegen::cpu::Compiler compiler({});
  const uint64_t only = static_cast<uint64_t>(FromEnvironment("HOSTIR_SEED", 0));
  const uint64_t first = only != 0 ? only : mesh.first_seed;
  const uint64_t count =
      only != 0 ? 1 : static_cast<uint64_t>(FromEnvironment("HOSTIR_SEEDS", seeds));
  Tally tally;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    GeneratedProgram program = Generate(seed, {.num_ops_max = 10,
                                               .elements_max = 512,
                                               .mesh_shape = mesh.shape,
                                               .uneven = seed % 3 != 0});
    SCOPED_TRACE(program.Describe());
    auto expected = fusion::Interpret(*program.graph, program.inputs);
    ASSERT_TRUE(expected.ok()) << expected.status().ToString();
    auto plan = PlanFor(program, num_ranks);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    auto outputs =
        RunOnRanks(*plan, program.inputs,
                   {.num_ranks = num_ranks, .seed = seed, .ranks = ranks, .compiler = &compiler});
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    for (size_t i = 0; i < expected->size(); ++i) {
      ASSERT_EQ(Difference((*outputs)[i], (*expected)[i], program.tolerances[i]), "")
          << "output " << i;
    }
    Count(*plan, program.sizes, tally);
  }
  std::cout << tally.programs << " programs equal" << (ranks == nullptr ? "" : " over UCX")
            << ", seeds " << first << " to " << first + count - 1 << ": " << tally.uneven
            << " with uneven blocks, " << tally.pinned << " planned for their sizes alone, "
            << tally.communications << " communications\n";
}

int64_t NumRanks(const MeshCase& mesh) {
  int64_t num_ranks = 1;
  for (int64_t extent : mesh.shape) num_ranks *= extent;
  return num_ranks;
}

TEST_P(ShardedProperty, EqualsTheUnshardedProgram) {
  RunSeeds(GetParam(), NumRanks(GetParam()), 60, nullptr);
}

TEST_P(ShardedProperty, EqualsTheUnshardedProgramOverUcx) {
  if (!comm::HasUcx()) GTEST_SKIP() << "this build has no UCX";
  auto ranks = MakeUcxRanks(NumRanks(GetParam()));
  ASSERT_TRUE(ranks.ok()) << ranks.status().ToString();
  RunSeeds(GetParam(), NumRanks(GetParam()), 15, ranks->get());
}

INSTANTIATE_TEST_SUITE_P(Meshes, ShardedProperty,
                         ::testing::Values(MeshCase{{2}, 1000}, MeshCase{{3}, 2000},
                                           MeshCase{{4}, 3000}, MeshCase{{2, 2}, 4000},
                                           MeshCase{{2, 2, 1}, 5000}, MeshCase{{1, 2, 2}, 6000},
                                           MeshCase{{2, 3}, 7000}),
                         [](const auto& info) {
                           std::string name = "mesh";
                           for (int64_t extent : info.param.shape) name += base::Cat("_", extent);
                           return name;
                         });

}  // namespace
}  // namespace hir::testing
