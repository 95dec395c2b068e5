#include "tests/property/sharded_programs.h"

#include <cstdlib>

#include "csrc/base/text.h"
#include "csrc/fusion/interpret/interpret.h"
#include "csrc/fusion/passes/placement.h"
#include "csrc/ir/clone.h"
#include "tests/from_environment.h"

namespace hir::testing {
namespace {

using base::Cat;

// The plan that a daemon would use: made without sizes on every second seed, and again for them where it does not serve
// them.
Result<host::ProgramPlan> PlanFor(const GeneratedProgram& program, host::PlanOptions options) {
  host::PlanOptions sized = options;
  sized.sizes = {program.sizes.begin(), program.sizes.end()};
  if (program.seed % 2 == 0) {
    HIR_ASSIGN(host::ProgramPlan plan, host::PlanProgram(ir::Clone(*program.graph), options));
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

// Neighbours on a node, or far apart. A message between nodes costs little, so that small tensors take the ways of
// large ones.
plan::Links LinksOf(uint64_t seed, int64_t num_devices) {
  const auto nodes = static_cast<int64_t>(2 + seed / 4 % 2);
  if (seed % 4 < 2 || num_devices < nodes) return {};
  plan::Links links = {.of_node = std::vector<plan::Links::Node>(static_cast<size_t>(nodes), {1e-8, 1e6})};
  for (int64_t device = 0; device < num_devices; ++device)
    links.node_of.push_back(seed % 8 < 6 ? device * nodes / num_devices : device % nodes);
  return links;
}

std::string StepsOf(const host::ProgramPlan& plan) {
  std::string steps;
  for (const plan::Communication& c : plan.local.communications)
    base::Append(steps, c.type, " ", c.tensor, " ", ir::ToString(c.bytes), "\n");
  return steps;
}

}  // namespace

Result<ShardedProgram> MakeShardedProgram(uint64_t seed, const std::vector<int64_t>& mesh_shape, int64_t num_devices,
                                          const codegen::Target& target, int streams) {
  ShardedProgram made;
  made.program =
      Generate(seed, {.num_ops_max = 10, .elements_max = 512, .mesh_shape = mesh_shape, .uneven = seed % 3 != 0});
  auto expected = fusion::Interpret(*made.program.graph, made.program.inputs);
  if (!expected.ok()) return expected.status().WithContext(made.program.Describe());
  host::PlanOptions options = {.num_devices = num_devices, .target = target};
  if (seed % 3 == 1) options.overlap = host::OverlapChoice::kAlways;
  if (streams > 0) {
    made.streams = AnnotateStreams(made.program, seed);
    options.streams = streams;
  }
  options.links = LinksOf(seed, num_devices);
  auto plan = PlanFor(made.program, options);
  if (!plan.ok()) return plan.status().WithContext(made.program.Describe());
  if (!options.links.node_of.empty()) {
    options.links = {};
    auto on_one_node = PlanFor(made.program, options);
    if (!on_one_node.ok()) return on_one_node.status().WithContext(made.program.Describe());
    if (StepsOf(*on_one_node) != StepsOf(*plan)) made.on_one_node = *std::move(on_one_node);
  }
  made.expected = *std::move(expected);
  made.plan = *std::move(plan);
  return made;
}

void ShardedTally::Count(const ShardedProgram& made) {
  const host::ProgramPlan& plan = made.plan;
  const fusion::SymbolValues& sizes = made.program.sizes;
  ++programs;
  communications += std::ssize(plan.local.communications);
  on_nodes += made.on_one_node ? 1 : 0;
  pinned += plan.pinned.empty() ? 0 : 1;
  bool has_uneven = false, has_dealt = false;
  for (const ir::Value* value : plan.global->values()) {
    if (value->type->kind != ir::TypeKind::kTensor) continue;
    if (value->layout == nullptr || value->layout->mesh == nullptr) continue;  // Of an op that is gone.
    const auto placement = fusion::PlacementOf(*value);
    for (size_t i = 0; i < value->type->axes.size(); ++i) {
      const int64_t extent = *fusion::ValueOf(value->type->axes[i].extent, sizes);
      has_dealt |= placement->axes[i].is_dealt();
      has_uneven |= extent % fusion::Ways(*placement->mesh, placement->axes[i]) != 0;
    }
  }
  uneven += has_uneven ? 1 : 0;
  dealt += has_dealt ? 1 : 0;
}

std::string ShardedTally::Describe(std::string_view where, uint64_t first_seed) const {
  return Cat(programs, " programs equal on ", where, ", seeds ", first_seed, " to ",
             first_seed + static_cast<uint64_t>(programs) - 1, ": ", uneven, " with uneven blocks, ", dealt,
             " with elements dealt in turns, ", pinned, " planned for their sizes alone, ", on_nodes,
             " in other steps between nodes, ", communications, " communications");
}

Seeds SeedsFromEnvironment(Seeds otherwise) {
  const auto only = static_cast<uint64_t>(FromEnvironment("HOSTIR_SEED", 0));
  if (only != 0) return {.first = only, .count = 1};
  const int64_t count = FromEnvironment("HOSTIR_SEEDS", static_cast<int64_t>(otherwise.count));
  return {.first = otherwise.first, .count = static_cast<uint64_t>(count)};
}

}  // namespace hir::testing
