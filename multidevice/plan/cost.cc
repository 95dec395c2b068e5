#include "multidevice/plan/cost.h"

#include <algorithm>

#include "csrc/base/checked.h"
#include "multidevice/plan/resharding.h"

namespace hir::plan {
namespace {

using mesh::Sharding;

// Whether anything lies outside of `axis`, so that its chunks are not one behind the other in memory.
bool IsInner(size_t axis, const Sharding& sharding, const TensorSize& size) {
  for (size_t i = 0; i < axis; ++i) {
    const AxisSize& outer = size.axes[i];
    if (!outer.is_stored_once && (!outer.is_known || outer.extent > sharding.Ways(i))) return true;
  }
  return false;
}

// Whether chunks of `after` are packed from, or unpacked to, what lies as `coarse`.
bool Repacks(size_t axis, int64_t ways, const Sharding& coarse, const TensorSize& size) {
  const AxisSize& whole = size.axes[axis];
  const bool pads = whole.is_known && !size.IsEven(axis, coarse.Ways(axis) * ways);
  return pads || (!whole.is_known && whole.may_be_uneven) || IsInner(axis, coarse, size);
}

bool RepacksAny(const std::vector<int64_t>& chunks, const Sharding& coarse, const TensorSize& size) {
  for (size_t axis = 0; axis < chunks.size(); ++axis) {
    if (chunks[axis] > 1 && Repacks(axis, chunks[axis], coarse, size)) return true;
  }
  return false;
}

// Bytes of chunks that are not the root's own, where one rank of a row of n is the root or none is.
double OthersOf(const mesh::DeviceMesh& rows, const mesh::DeviceMesh& roots, double chunk) {
  const std::vector<std::vector<int64_t>> teams = RowsOf(rows);
  double most = 0;
  for (size_t k = 0; k < teams.size(); ++k) {
    const bool inside = std::ranges::find(teams[k], roots.devices()[k]) != teams[k].end();
    most = std::max(most, (static_cast<double>(teams[k].size()) - (inside ? 1 : 0)) * chunk);
  }
  return most;
}

// Bytes of a rooted collective of n ranks that moves all of a part: scattered, then gathered, or the other way round;
// of two ranks, sent at once.
double Through(const mesh::DeviceMesh& rows, const mesh::DeviceMesh& roots, double part) {
  size_t most = 2;
  const std::vector<std::vector<int64_t>> teams = RowsOf(rows);
  for (size_t k = 0; k < teams.size(); ++k) {
    const bool inside = std::ranges::find(teams[k], roots.devices()[k]) != teams[k].end();
    most = std::max(most, teams[k].size() + (inside ? 0 : 1));
  }
  const double n = static_cast<double>(most);
  return most == 2 ? part : 2 * (n - 1) / n * part;
}

}  // namespace

TensorSize TensorSize::Of(const std::vector<int64_t>& extents, int64_t element_bytes) {
  TensorSize size = {.axes = {}, .element_bytes = element_bytes};
  for (const int64_t extent : extents) size.axes.push_back({.extent = extent});
  return size;
}

bool TensorSize::IsEven(size_t axis, int64_t ways) const {
  const AxisSize& a = axes[axis];
  return a.is_known ? a.extent % ways == 0 : !a.may_be_uneven;
}

bool TensorSize::DealsDirectly(size_t axis, int64_t ways) const {
  const AxisSize& a = axes[axis];
  return !a.is_stored_once && (a.is_known || !a.may_be_uneven) && a.extent % (ways * ways) == 0;
}

double TensorSize::PartBytes(const Sharding& sharding) const {
  double bytes = static_cast<double>(element_bytes);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!axes[i].is_stored_once) bytes *= static_cast<double>(base::CeilDiv(axes[i].extent, sharding.Ways(i)));
  }
  return bytes;
}

StepCost CostOf(const Step& step, const Sharding& before, const TensorSize& size, const CostModel& model) {
  const double in = size.PartBytes(before);
  const double out = size.PartBytes(step.after);
  const double d = static_cast<double>(
      before.mesh.Size(step.type == mesh::ParallelType::kSerial ? mesh::ParallelType::kMeshX : step.type));
  StepCost cost;
  bool packs = false, unpacks = false;
  switch (step.kind) {
    case StepKind::kAllreduce: cost.bytes = 2 * (d - 1) / d * in; break;
    case StepKind::kReduceScatter:
      cost.bytes = (d - 1) * out;
      packs = Repacks(step.axis, before.mesh.Size(step.type), before, size);
      break;
    case StepKind::kAllgather:
      cost.bytes = (d - 1) * in;
      unpacks = Repacks(step.axis, before.mesh.Size(step.type), step.after, size);
      break;
    case StepKind::kAllToAll:
      cost.bytes = (d - 1) / d * in;
      packs = Repacks(step.to_axis, before.mesh.Size(step.type), before, size);
      unpacks = Repacks(step.axis, before.mesh.Size(step.type), step.after, size);
      if (step.axis == step.to_axis) {  // Chunks of what is dealt are one behind the other.
        packs |= step.after.axes[step.axis].is_dealt();
        unpacks |= before.axes[step.axis].is_dealt();
      }
      break;
    case StepKind::kSlice:
    case StepKind::kSpread:
    case StepKind::kReorder: cost.seconds = model.local_seconds + out / model.copied_bytes_per_second; break;
    case StepKind::kRelabel: cost.seconds = model.local_seconds; break;
    case StepKind::kBroadcast: cost.bytes = Through(*step.to, *step.from, out); break;
    case StepKind::kScatter:
      cost.bytes = OthersOf(*step.to, *step.from, out);
      packs = RepacksAny(step.chunks, before, size);
      break;
    case StepKind::kGather:
      cost.bytes = OthersOf(*step.from, *step.to, in);
      unpacks = RepacksAny(step.chunks, step.after, size);
      break;
    case StepKind::kReduce: cost.bytes = Through(*step.from, *step.to, out); break;
    case StepKind::kSendRecv:
    case StepKind::kCollectivePermute: cost.bytes = out; break;
  }
  if (Communicates(step.kind)) {
    cost.seconds = model.communication_seconds + cost.bytes / model.bytes_per_second;
    if (packs) cost.seconds += model.local_seconds + in / model.copied_bytes_per_second;
    if (unpacks) cost.seconds += model.local_seconds + out / model.copied_bytes_per_second;
  }
  cost.peak_bytes = step.kind == StepKind::kRelabel ? in : in + out;
  if (packs) cost.peak_bytes = std::max(cost.peak_bytes, 2 * in);
  if (unpacks) cost.peak_bytes = std::max(cost.peak_bytes, 2 * out);
  return cost;
}

}  // namespace hir::plan
