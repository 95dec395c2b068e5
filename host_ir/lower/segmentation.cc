#include "host_ir/lower/segmentation.h"

#include <algorithm>

#include "csrc/codegen/codegen.h"
#include "csrc/fusion/attention.h"
#include "csrc/fusion/fusion_ops.h"

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
int64_t BytesSaved(const GroupView& producer, const GroupView& consumer, const GroupView& merged) {
  int64_t bytes = 0;
  for (const ir::Value* value : producer.outputs) {
    if (!Contains(consumer.inputs, value)) continue;
    bytes += segment::StorageBytes(*value);                                        // Not read.
    if (!Contains(merged.outputs, value)) bytes += segment::StorageBytes(*value);  // Not written.
  }
  for (const ir::Value* value : producer.inputs) {
    if (Contains(consumer.inputs, value)) bytes += segment::StorageBytes(*value);
  }
  return bytes;
}

bool Reads(const GroupView& consumer, const GroupView& producer) {
  return std::any_of(producer.outputs.begin(), producer.outputs.end(),
                     [&](const ir::Value* value) { return Contains(consumer.inputs, value); });
}

}  // namespace

bool FitsOneKernel(const GroupView& group) { return MayStandTogether(group) && codegen::Accepts(group).accepted; }

std::optional<segment::Gain> GainOfOneKernel(const GroupView& producer, const GroupView& consumer,
                                             const GroupView& merged) {
  if (!AreOneCall(merged) && !MayStandTogether(merged)) return std::nullopt;
  return segment::Gain{.bytes = BytesSaved(producer, consumer, merged), .launches = 1};
}

std::optional<segment::Gain> OneKernelHoldsIt(const GroupView& producer, const GroupView& consumer,
                                              const GroupView& merged) {
  const std::optional<segment::Gain> gain = GainOfOneKernel(producer, consumer, merged);
  if (!gain || AreOneCall(merged)) return gain;
  if (!codegen::Accepts(merged).accepted) return std::nullopt;
  const bool strangers = gain->bytes == 0 && !Reads(consumer, producer);
  if (strangers && codegen::Accepts(producer).schedule != codegen::Accepts(consumer).schedule) return std::nullopt;
  return gain;
}

}  // namespace hir::host
