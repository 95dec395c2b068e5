// Random programs with random shardings equal the unsharded program: every rank of the localized graph is evaluated, on
// meshes of 2, 4 and 2x2 devices in any order, some values on a second mesh. Any layout may be on any value, of even or
// uneven blocks or dealt in turns, so this is the proof that propagation, decomposition and localisation are right
// together, whatever a user asks for. No program is refused: one with uneven blocks that an op cannot take is planned
// for its sizes alone, as the pipeline does it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/fusion/passes/passes.h"
#include "csrc/fusion/passes/placement.h"
#include "csrc/ir/clone.h"
#include "csrc/ir/pass.h"
#include "csrc/ir/print.h"
#include "csrc/ir/verify.h"
#include "host_ir/pipeline/pin_sizes.h"
#include "multidevice/plan/localize.h"
#include "tests/from_environment.h"
#include "tests/multidevice/plan/spmd_evaluator.h"
#include "tests/property/program_generator.h"

namespace hir::plan {
namespace {

using base::Prng;
using fusion::Placement;
using mesh::DeviceMesh;
using mesh::ParallelType;
using testing::GeneratedProgram;

DeviceMesh RandomMesh(Prng& prng, const std::vector<int64_t>& shape, int64_t num_devices) {
  std::vector<int64_t> devices(static_cast<size_t>(num_devices));
  std::iota(devices.begin(), devices.end(), 0);
  if (!prng.OneIn(3)) {
    for (size_t i = devices.size(); i-- > 1;)
      std::swap(devices[i], devices[static_cast<size_t>(prng.Below(std::ssize(devices) - 1))]);
  }
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  devices.resize(static_cast<size_t>(size));
  return *DeviceMesh::Make(shape, devices);
}

// Whether `placement` may be: its blocks along `axis` are even; or, of an axis that is stored, half of the time.
bool Allows(Prng& prng, const ir::Value& value, const Placement& placement, size_t axis,
            const fusion::SymbolValues& sizes) {
  const ir::Axis& split = value.type->axes[axis];
  const Result<int64_t> extent = fusion::ValueOf(split.extent, sizes);
  if (!extent.ok()) return false;
  if (*extent % fusion::Ways(*placement.mesh, placement.axes[axis]) == 0) return true;
  return split.kind == ir::AxisKind::kIteration && prng.OneIn(2);
}

// A random placement of `value` that its sizes allow.
Placement RandomPlacement(Prng& prng, Prng& dealer, const ir::Value& value, const ir::Mesh* mesh,
                          const fusion::SymbolValues& sizes) {
  Placement placement = fusion::Replicated(mesh, *value.type);
  std::vector<ParallelType> types(std::begin(mesh::kMeshTypes), std::end(mesh::kMeshTypes));
  if (prng.OneIn(2)) std::swap(types[0], types[1]);
  for (const ParallelType type : types) {
    if (mesh->mesh.Size(type) == 1 || value.type->axes.empty() || prng.OneIn(4)) continue;
    const auto axis = static_cast<size_t>(prng.Below(std::ssize(value.type->axes)));
    placement.axes[axis].push_back(type);
    if (!Allows(prng, value, placement, axis, sizes)) placement.axes[axis].pop_back();
  }
  for (size_t axis = 0; axis < placement.axes.size(); ++axis) {
    fusion::Types& split = placement.axes[axis];
    const int64_t ways = fusion::Ways(*mesh, split);
    const Result<int64_t> extent = fusion::ValueOf(value.type->axes[axis].extent, sizes);
    if (split.size() == 1 && extent.ok() && *extent % ways == 0 && dealer.OneIn(4)) split.dealt = ways;
  }
  return placement;
}

// A sum, split along an axis that it sums over, and its result split along another: what a reduce-scatter is for. Left
// to chance it is one program in a hundred.
void SplitReduction(Prng& prng, ir::Graph& graph, ir::Op& op, const ir::Mesh* mesh, const fusion::SymbolValues& sizes) {
  if (op.info->name != "sum" || !prng.OneIn(2)) return;
  const auto split = [&](ir::Value& value, size_t axis) -> const ir::Layout* {
    Placement placement = fusion::Replicated(mesh, *value.type);
    placement.axes[axis].push_back(ParallelType::kMeshX);
    if (!Allows(prng, value, placement, axis, sizes)) return nullptr;
    return fusion::LayoutFor(graph, *value.type, placement);
  };
  ir::Value& operand = *op.operands[0];
  ir::Value& result = *op.results[0];
  const std::span<const int64_t> axes = op.Ints("axes");
  if (axes.empty() || result.type->axes.empty()) return;
  const auto summed = static_cast<size_t>(axes[static_cast<size_t>(prng.Below(std::ssize(axes)))]);
  const auto kept = static_cast<size_t>(prng.Below(std::ssize(result.type->axes)));
  const ir::Layout* from = split(operand, summed);
  const ir::Layout* to = split(result, kept);
  if (from == nullptr || to == nullptr) return;
  operand.layout = from;
  result.layout = to;
}

// A partial result only where the op can make one: its reduction axes stay as propagation leaves them.
void AnnotateAtRandom(Prng& prng, Prng& dealer, ir::Graph& graph, const std::vector<const ir::Mesh*>& meshes,
                      const fusion::SymbolValues& sizes) {
  const int64_t one_in = prng.Between(1, 4);
  const auto annotate = [&](ir::Value& value) {
    if (value.type->kind != ir::TypeKind::kTensor || !prng.OneIn(one_in)) return;
    const ir::Mesh* mesh = meshes[prng.OneIn(6) ? meshes.size() - 1 : 0];
    value.layout = fusion::LayoutFor(graph, *value.type, RandomPlacement(prng, dealer, value, mesh, sizes));
  };
  for (ir::Value* param : graph.params) annotate(*param);
  for (ir::Op* op = graph.body.first; op != nullptr; op = op->next) {
    annotate(*op->results[0]);
    SplitReduction(prng, graph, *op, meshes[0], sizes);
  }
  for (const ir::Output& output : graph.outputs) {  // They lie alike, and one of them says how.
    if (output.alias != nullptr && output.value->layout != nullptr) output.alias->layout = nullptr;
  }
}

struct Tally {
  int run = 0, refused = 0, uneven = 0, pinned = 0;
  std::map<std::string, int, std::less<>> communications;
};

// Whether a value of the program, all of which have their layouts, lies in uneven blocks.
bool HasUnevenBlocks(const ir::Graph& graph, const fusion::SymbolValues& sizes) {
  for (const ir::Value* value : graph.values()) {
    if (value->layout == nullptr || value->type->kind != ir::TypeKind::kTensor) continue;
    const Result<Placement> placement = fusion::PlacementOf(*value);
    for (size_t i = 0; placement.ok() && i < value->type->axes.size(); ++i) {
      const Result<int64_t> extent = fusion::ValueOf(value->type->axes[i].extent, sizes);
      if (extent.ok() && *extent % fusion::Ways(*placement->mesh, placement->axes[i]) != 0) return true;
    }
  }
  return false;
}

// Whether an axis of a value is stored once, and has no element.
bool StoresWhatItHasNot(const ir::Graph& graph, const fusion::SymbolValues& sizes) {
  return std::ranges::any_of(graph.values(), [&](const ir::Value* value) {
    return value->type->kind == ir::TypeKind::kTensor &&
           std::ranges::any_of(value->type->axes, [&](const ir::Axis& axis) {
             const Result<int64_t> extent = fusion::ValueOf(axis.extent, sizes);
             return axis.kind == ir::AxisKind::kBroadcast && extent.ok() && *extent == 0;
           });
  });
}

Result<LocalProgram> ToLocal(ir::Graph& graph, const SymbolSizes& sizes) {
  HIR_TRY(ir::RunPasses(graph, fusion::kFusionPasses, fusion::kSimplify));
  HIR_TRY(ir::RunPasses(graph, fusion::kFusionPasses, fusion::kShard));
  return Localize(graph, {.sizes = sizes});
}

void RunSeed(uint64_t seed, const std::vector<int64_t>& shape, Tally& tally) {
  Prng prng(seed * 977 + 5);
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  GeneratedProgram program = testing::Generate(seed, {.num_ops_max = 12, .elements_max = 600, .mesh_shape = shape});
  std::unique_ptr<ir::Graph> graph = ir::Clone(*program.graph);
  for (ir::Value* value : graph->values()) value->layout = nullptr;
  std::vector<const ir::Mesh*> meshes = {graph->AddMesh(RandomMesh(prng, shape, size + 1), "p")};
  meshes.push_back(graph->AddMesh(RandomMesh(prng, prng.OneIn(2) ? shape : std::vector<int64_t>{2}, size + 2), "q"));
  Prng dealer(seed);  // Of its own: what is split is the same with and without it.
  AnnotateAtRandom(prng, dealer, *graph, meshes, program.sizes);
  SCOPED_TRACE(base::Cat("seed ", seed, "\n", program.Describe(), ir::Print(*graph)));

  const std::unique_ptr<ir::Graph> as_written = ir::Clone(*graph);
  const SymbolSizes sizes(program.sizes.begin(), program.sizes.end());
  Result<LocalProgram> local = ToLocal(*graph, sizes);
  const bool pinned = local.status().code() == Code::kUnimplemented;
  if (pinned) {
    ASSERT_NE(local.status().message().find("uneven blocks; only"), std::string::npos) << local.status().ToString();
    auto sized = host::PinSizes(*as_written, sizes);
    ASSERT_TRUE(sized.ok()) << sized.status().ToString();
    graph = *std::move(sized);
    local = ToLocal(*graph, {});
  }
  ASSERT_TRUE(local.ok()) << local.status().ToString() << ir::Print(*graph);
  const Status status = ir::Verify(*(*local).graph);
  ASSERT_TRUE(status.ok()) << status.ToString() << ir::Print(*(*local).graph);
  const auto got = SpmdEvaluator(*local, program.sizes).Run(program.inputs);
  // Reshardings have a guard, that an axis which is stored once has the element that it stores.
  if (got.status().code() == Code::kInvalidArgument && got.status().message().ends_with("is stored once")) {
    ASSERT_TRUE(StoresWhatItHasNot(*graph, program.sizes)) << got.status().ToString();
    ++tally.refused;
    return;
  }
  ASSERT_TRUE(got.ok()) << got.status().ToString() << "\n" << ir::Print(*graph) << ir::Print(*(*local).graph);
  const auto want = fusion::Interpret(*program.graph, program.inputs);
  ASSERT_TRUE(want.ok()) << want.status().ToString();
  for (size_t i = 0; i < (*want).size(); ++i) {
    const std::string difference = testing::Difference((*got)[i], (*want)[i], program.tolerances[i]);
    ASSERT_EQ(difference, "") << "output " << i << "\n" << ir::Print(*graph) << ir::Print(*(*local).graph);
  }
  ++tally.run;
  tally.uneven += HasUnevenBlocks(*graph, program.sizes) ? 1 : 0;
  tally.pinned += pinned ? 1 : 0;
  for (const Communication& c : (*local).communications) ++tally.communications[std::string(c.type)];
}

// HOSTIR_SEEDS=N runs N seeds of each mesh, HOSTIR_SEED=S the one seed S.
using testing::FromEnvironment;

class RandomShardings : public ::testing::TestWithParam<std::vector<int64_t>> {};

TEST_P(RandomShardings, EqualTheUnsharded) {
  const auto only = static_cast<uint64_t>(FromEnvironment("HOSTIR_SEED", 0));
  const uint64_t first = only != 0 ? only : 1;
  const uint64_t count = only != 0 ? 1 : static_cast<uint64_t>(FromEnvironment("HOSTIR_SEEDS", 250));
  Tally tally;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    RunSeed(seed, GetParam(), tally);
    if (HasFatalFailure()) return;
  }
  std::string text = base::Cat(tally.run, " programs equal, ", tally.refused, " refused, ", tally.uneven,
                               " with uneven blocks, ", tally.pinned, " planned for their sizes;");
  for (const auto& [type, n] : tally.communications) base::Append(text, " ", type, " ", n);
  std::cout << text << "\n";
  if (only != 0) return;
  EXPECT_EQ(tally.run + tally.refused, static_cast<int>(count));
  EXPECT_LE(tally.refused * 50, static_cast<int>(count));
  EXPECT_GE(tally.uneven * 4, static_cast<int>(count)) << "too few uneven blocks to tell";
  for (const char* type : {"Allreduce", "Allgather", "AllToAll", "ReduceScatter", "Broadcast", "SendRecv"}) {
    EXPECT_GT(tally.communications[type], 0) << "no program needs a " << type;
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, RandomShardings,
                         ::testing::Values(std::vector<int64_t>{2}, std::vector<int64_t>{4},
                                           std::vector<int64_t>{2, 2}),
                         [](const auto& info) { return base::Cat("of_", base::JoinInts(info.param, "_")); });

}  // namespace
}  // namespace hir::plan
