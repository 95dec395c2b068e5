#include "host_ir/lower/segmentation.h"

#include <algorithm>
#include <unordered_map>

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

// A value between the two is neither written nor read any more; one that both read is read once.
int64_t BytesSaved(const GroupView& producer, const GroupView& consumer, const GroupView& merged,
                   const segment::Sizes& sizes) {
  int64_t bytes = 0;
  for (const ir::Value* value : producer.outputs) {
    if (!Contains(consumer.inputs, value)) continue;
    bytes += segment::StorageBytes(*value, sizes);                                        // Not read.
    if (!Contains(merged.outputs, value)) bytes += segment::StorageBytes(*value, sizes);  // Not written.
  }
  for (const ir::Value* value : producer.inputs) {
    if (Contains(consumer.inputs, value)) bytes += segment::StorageBytes(*value, sizes);
  }
  return bytes;
}

bool Reads(const GroupView& consumer, const GroupView& producer) {
  return std::any_of(producer.outputs.begin(), producer.outputs.end(),
                     [&](const ir::Value* value) { return Contains(consumer.inputs, value); });
}

// A kernel that sums all of a tensor has its threads by that tensor. Whether another one that it holds is much larger:
// a vector's length, and a matrix that is divided by it.
constexpr int64_t kBesideASum = 8;
bool StarvesBesideASum(const GroupView& merged, const segment::Sizes& sizes) {
  int64_t summed = 0;
  for (const ir::Op* op : merged.ops) {
    const bool makes_one =
        std::ranges::any_of(op->results[0]->type->axes,
                            [](const ir::Axis& axis) { return axis.kind == ir::AxisKind::kReduction; }) &&
        segment::StorageBytes(*op->results[0], sizes) <= DTypeBytes(op->results[0]->type->dtype);
    if (!makes_one) continue;
    for (const ir::Value* operand : op->operands) summed = std::max(summed, segment::StorageBytes(*operand, sizes));
  }
  if (summed == 0) return false;
  return std::ranges::any_of(merged.ops, [&](const ir::Op* op) {
    return std::ranges::any_of(op->results, [&](const ir::Value* result) {
      return summed < segment::StorageBytes(*result, sizes) / kBesideASum;
    });
  });
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
    return OneKernelHoldsIt(producer, consumer, merged, acceptance, sizes);
  };
  const segment::ShouldMerge fusing_at_most = [&](const GroupView& producer, const GroupView& consumer,
                                                  const GroupView& merged) -> Result<std::optional<segment::Gain>> {
    if (stays_apart(producer) || stays_apart(consumer)) return std::nullopt;
    return GainOfOneKernel(producer, consumer, merged, sizes);
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
                                             const GroupView& merged, const segment::Sizes& sizes) {
  if (!AreOneCall(merged) && !MayStandTogether(merged)) return std::nullopt;
  return segment::Gain{.bytes = BytesSaved(producer, consumer, merged, sizes), .launches = 1};
}

std::optional<segment::Gain> OneKernelHoldsIt(const GroupView& producer, const GroupView& consumer,
                                              const GroupView& merged, codegen::Acceptance& acceptance,
                                              const segment::Sizes& sizes) {
  const std::optional<segment::Gain> gain = GainOfOneKernel(producer, consumer, merged, sizes);
  if (!gain || AreOneCall(merged)) return gain;
  const codegen::Verdict verdict = acceptance.Of(merged);
  if (!verdict.accepted || verdict.is_starved) return std::nullopt;
  if (StarvesBesideASum(merged, sizes)) return std::nullopt;
  const bool strangers = gain->bytes == 0 && !Reads(consumer, producer);
  if (strangers && acceptance.Of(producer).schedule != acceptance.Of(consumer).schedule) return std::nullopt;
  return gain;
}

}  // namespace hir::host
