#include "host_ir/lower/segmentation.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "csrc/fusion/attention.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/segment/sink_reshapes.h"

namespace hir::host {
namespace {

using segment::GroupView;

bool Contains(std::span<ir::Value* const> values, const ir::Value* value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

bool Contains(std::span<ir::Op* const> ops, const ir::Op* op) {
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

// Factories carry no mesh of their own meaning: scalars have none at all.
const ir::Mesh* MeshOf(const ir::Op& op) {
  const ir::Layout* layout = op.results[0]->layout;
  return layout == nullptr ? nullptr : layout->mesh;
}

// One call makes all results of an attention, or of its gradients.
bool AreOneCall(const GroupView& merged) {
  return std::ranges::all_of(merged.ops, [&](const ir::Op* op) {
    return std::ranges::all_of(merged.ops, [&](const ir::Op* other) {
      return MeshOf(*op) == MeshOf(*other) && fusion::ShareCall(*op, *other);
    });
  });
}

bool MayStandTogether(const GroupView& merged) {
  const ir::Mesh* mesh = nullptr;
  for (const ir::Op* op : merged.ops) {
    if (op->info->effects != ir::kPure) return false;
    const ir::Mesh* its = MeshOf(*op);
    if (its != nullptr && mesh != nullptr && its != mesh) return false;
    if (its != nullptr) mesh = its;
    const bool boundary = fusion::CodeOf(*op) == fusion::FusionOp::kSegmentSet && op->operands[0]->def != nullptr;
    if (boundary && Contains(merged.ops, op->operands[0]->def)) return false;
  }
  return true;
}

// The gain of groups that save less than is idle when they are one: it is their turn when all others have become what
// they will, as what these save may be saved without.
constexpr segment::Gain kLast = {.bytes = 0, .launches = 1};

bool IsOfReduction(const ir::Value& value) {
  return value.def != nullptr && IsTensor(value) && std::ranges::any_of(value.type->axes, [](const ir::Axis& axis) {
           return axis.kind == ir::AxisKind::kReduction;
         });
}

// Neither reads what the other makes, nor both one tensor.
bool AreStrangers(const GroupView& producer, const GroupView& consumer) {
  const auto is_read = [&](const ir::Value* value) { return Contains(consumer.inputs, value); };
  return std::ranges::none_of(producer.outputs, is_read) &&
         std::ranges::none_of(producer.inputs,
                              [&](const ir::Value* value) { return IsTensor(*value) && is_read(value); });
}

// A value between the two is neither written nor read any more; one that both read is read once.
int64_t BytesSaved(const GroupView& producer, const GroupView& consumer, const GroupView& merged,
                   codegen::Acceptance& acceptance) {
  int64_t bytes = 0;
  for (const ir::Value* value : producer.outputs) {
    if (!Contains(consumer.inputs, value)) continue;
    bytes += acceptance.BytesOf(*value);                                        // Not read.
    if (!Contains(merged.outputs, value)) bytes += acceptance.BytesOf(*value);  // Not written.
  }
  for (const ir::Value* value : producer.inputs) {
    if (Contains(consumer.inputs, value)) bytes += acceptance.BytesOf(*value);
  }
  return bytes;
}

// The costs of both apart. A group that no kernel holds counts its bytes alone.
struct Apart {
  int64_t total = 0, idle = 0;
};
Apart CostApart(const GroupView& producer, const GroupView& consumer, codegen::Acceptance& acceptance) {
  Apart apart;
  for (const GroupView& group : {producer, consumer}) {
    if (const std::optional<codegen::Cost> cost = acceptance.CostOf(group)) {
      apart.total += cost->Total();
      apart.idle += cost->idle;
      continue;
    }
    for (const ir::Value* value : group.inputs) apart.total += acceptance.BytesOf(*value);
    for (const ir::Value* value : group.outputs) apart.total += acceptance.BytesOf(*value);
  }
  return apart;
}

// Bytes that rematerialization saves of both apart: of what one makes for the other, and for nobody else, all that is
// made of the inputs element by element may be made again from these. Results of reductions are read.
int64_t MadeAgain(const GroupView& producer, const GroupView& consumer, const GroupView& merged,
                  codegen::Acceptance& acceptance) {
  int64_t saved = 0;
  std::vector<const ir::Value*> pending;
  for (const ir::Value* value : producer.outputs) {
    if (!Contains(consumer.inputs, value) || Contains(merged.outputs, value) || IsOfReduction(*value)) continue;
    saved += 2 * acceptance.BytesOf(*value);
    pending.push_back(value);
  }
  std::unordered_set<const ir::Value*> seen(pending.begin(), pending.end());
  while (!pending.empty()) {
    const ir::Value* value = pending.back();
    pending.pop_back();
    const bool is_input = value->def == nullptr || Contains(producer.inputs, value);
    if (is_input && !Contains(consumer.inputs, value)) saved -= acceptance.BytesOf(*value);
    if (!is_input && IsOfReduction(*value) && !Contains(producer.outputs, value))
      saved -= 2 * acceptance.BytesOf(*value);
    if (is_input || IsOfReduction(*value)) continue;
    for (const ir::Value* operand : value->def->operands) {
      if (seen.insert(operand).second) pending.push_back(operand);
    }
  }
  return std::max<int64_t>(saved, 0);
}

constexpr std::string_view kNames[] = {"fusing", "reshardings", "one_op"};

Result<std::optional<segment::Gain>> Anything(const GroupView&, const GroupView&, const GroupView&) {
  return segment::Gain{.launches = 1};
}

// Numbers of the host are a kernel's arguments, and no work of their own.
Result<std::optional<segment::Gain>> NothingButScalars(const GroupView& producer, const GroupView&, const GroupView&) {
  const bool scalars = std::ranges::all_of(
      producer.outputs, [](const ir::Value* value) { return value->type->kind == ir::TypeKind::kScalar; });
  return scalars && !producer.outputs.empty() ? std::optional(segment::Gain{.launches = 1}) : std::nullopt;
}

}  // namespace

Result<Segmentation> SegmentationNamed(std::string_view name) {
  if (name.empty() || name == kNames[0]) return Segmentation();
  if (name == kNames[1]) return Segmentation{.kernels = Anything, .saves_bytes = false};
  if (name == kNames[2]) return Segmentation{.kernels = NothingButScalars, .saves_bytes = false};
  const std::string_view nearest = base::Nearest(name, kNames);
  return InvalidArgument(base::Cat("segmentation ", base::Quoted(name), ": there are ", base::Join(kNames, ", "),
                                   nearest.empty() ? "" : base::Cat("; did you mean ", nearest, "?")));
}

Result<std::vector<segment::Group>> GroupsOf(const ir::Graph& graph, const Segmentation& segmentation,
                                             const segment::Sizes& sizes, const codegen::Target& target) {
  std::unordered_map<const ir::Op*, size_t> piece_of;  // Lookups only.
  if (segmentation.pieces) {
    HIR_ASSIGN(const std::vector<segment::Group> pieces,
               segment::Segment(graph, segmentation.pieces, {.merge_sinks = true, .merge_siblings = true}));
    for (size_t i = 0; i < pieces.size(); ++i) {
      for (const ir::Op* op : pieces[i].ops) piece_of[op] = i;
    }
  }
  const auto inside = [&piece_of](const segment::ShouldMerge& rule) -> segment::ShouldMerge {
    if (piece_of.empty()) return rule;
    return [&piece_of, &rule](const GroupView& producer, const GroupView& consumer,
                              const GroupView& merged) -> Result<std::optional<segment::Gain>> {
      const size_t piece = piece_of.at(merged.ops[0]);
      const auto is_of_it = [&](const ir::Op* op) { return piece_of.at(op) == piece; };
      if (!std::ranges::all_of(merged.ops, is_of_it)) return std::nullopt;
      return rule(producer, consumer, merged);
    };
  };
  segment::Options options = {.merge_sinks = true, .merge_siblings = true};
  codegen::Acceptance acceptance(target, sizes);
  // A reshape behind a kernel is a view of its own, so that the kernel's rows are the reduction's to the end.
  std::optional<segment::LateReshapes> late;
  if (segmentation.saves_bytes) late.emplace(graph);
  const auto stays_apart = [&late](const GroupView& group) {
    return late && std::ranges::any_of(group.ops, [&late](const ir::Op* op) { return late->Has(*op); });
  };
  const segment::ShouldMerge fusing = [&](const GroupView& producer, const GroupView& consumer,
                                          const GroupView& merged) -> Result<std::optional<segment::Gain>> {
    if (stays_apart(producer) || stays_apart(consumer)) return std::nullopt;
    return OneKernelHoldsIt(producer, consumer, merged, acceptance);
  };
  const segment::ShouldMerge fusing_at_most = [&](const GroupView& producer, const GroupView& consumer,
                                                  const GroupView& merged) -> Result<std::optional<segment::Gain>> {
    if (stays_apart(producer) || stays_apart(consumer)) return std::nullopt;
    return GainOfOneKernel(producer, consumer, merged, acceptance);
  };
  const segment::ShouldMerge theirs = [&](const GroupView& producer, const GroupView& consumer,
                                          const GroupView& merged) -> Result<std::optional<segment::Gain>> {
    const bool one_call = AreOneCall(merged);
    if (!one_call && !MayStandTogether(merged)) return std::nullopt;
    HIR_ASSIGN(const std::optional<segment::Gain> gain, segmentation.kernels(producer, consumer, merged));
    return gain && (one_call || acceptance.Of(merged).accepted) ? gain : std::nullopt;
  };
  if (segmentation.kernels) return segment::Segment(graph, inside(theirs), options);
  options.gain_at_most = inside(fusing_at_most);
  return segment::Segment(graph, inside(fusing), options);
}

bool FitsOneKernel(const GroupView& group) { return MayStandTogether(group) && codegen::Accepts(group).accepted; }

std::optional<segment::Gain> GainOfOneKernel(const GroupView& producer, const GroupView& consumer,
                                             const GroupView& merged, codegen::Acceptance& acceptance) {
  if (!AreOneCall(merged) && !MayStandTogether(merged)) return std::nullopt;
  return segment::Gain{.bytes = BytesSaved(producer, consumer, merged, acceptance), .launches = 1};
}

std::optional<segment::Gain> OneKernelHoldsIt(const GroupView& producer, const GroupView& consumer,
                                              const GroupView& merged, codegen::Acceptance& acceptance) {
  const std::optional<segment::Gain> gain = GainOfOneKernel(producer, consumer, merged, acceptance);
  if (!gain || AreOneCall(merged)) return gain;
  const std::optional<codegen::Cost> cost = acceptance.CostOf(merged);
  if (!cost) return std::nullopt;
  const bool same_loops = acceptance.Of(producer).schedule == acceptance.Of(consumer).schedule;
  if (!same_loops && AreStrangers(producer, consumer)) return std::nullopt;
  Apart apart = CostApart(producer, consumer, acceptance);
  if (cost->idle > apart.idle) apart.total -= MadeAgain(producer, consumer, merged, acceptance);
  if (cost->Total() > apart.total) return std::nullopt;
  return cost->idle - apart.idle > apart.total - cost->Total() ? kLast : gain;
}

}  // namespace hir::host
