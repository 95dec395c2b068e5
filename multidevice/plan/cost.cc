#include "multidevice/plan/cost.h"

#include <algorithm>
#include <map>
#include <set>

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

// Bytes that `step` moves over the link of a node that holds `members` of a team of `size` ranks on `nodes` nodes, each
// of whose ranks has `in` and then `out`; sent or received, whichever are more. A chunk goes to another node once, and
// so does a sum of what one node has.
double LinkBytes(const Step& step, double members, double size, double nodes, bool has_root, double in, double out) {
  const double others = size - members;
  switch (step.kind) {
    case StepKind::kAllreduce: return 2 * (nodes - 1) / nodes * in;
    case StepKind::kReduceScatter: return std::max(others, members * (nodes - 1)) * out;
    case StepKind::kAllgather: return std::max(others, members * (nodes - 1)) * in;
    case StepKind::kAllToAll: return members * others / size * in;
    case StepKind::kScatter: return (has_root ? others : members) * out;
    case StepKind::kGather: return (has_root ? others : members) * in;
    case StepKind::kBroadcast:
    case StepKind::kReduce:
    case StepKind::kSendRecv:
    case StepKind::kCollectivePermute: return out;
    case StepKind::kSlice:
    case StepKind::kSpread:
    case StepKind::kReorder:
    case StepKind::kRelabel: break;
  }
  return 0;
}

// The same of all teams of a step, by node.
std::vector<double> LinkBytes(const Step& step, const Sharding& before, const Links& links, double in, double out) {
  std::vector<double> bytes(links.of_node.size(), 0);
  if (links.node_of.empty()) return bytes;
  for (const std::vector<int64_t>& team : TeamsOf(step, before)) {
    std::map<int64_t, double> members;
    for (const int64_t device : team) ++members[links.NodeOf(device)];
    if (members.size() == 1) continue;
    for (const auto& [node, count] : members) {
      bytes[static_cast<size_t>(node)] +=
          LinkBytes(step, count, static_cast<double>(team.size()), static_cast<double>(members.size()),
                    node == links.NodeOf(team[0]), in, out);
    }
  }
  return bytes;
}

}  // namespace

int64_t Links::NodeOf(int64_t device) const {
  return static_cast<size_t>(device) < node_of.size() ? node_of[static_cast<size_t>(device)] : 0;
}

int64_t Links::CountNodes(std::span<const int64_t> devices) const {
  std::set<int64_t> nodes;
  for (const int64_t device : devices) nodes.insert(NodeOf(device));
  return std::ssize(nodes);
}

TensorSize TensorSize::Of(const std::vector<int64_t>& extents, int64_t element_bytes) {
  TensorSize size = {.axes = {}, .element_bytes = element_bytes};
  for (const int64_t extent : extents) size.axes.push_back({.extent = extent});
  return size;
}

bool TensorSize::IsEven(size_t axis, int64_t ways) const {
  const AxisSize& a = axes[axis];
  return a.is_known ? a.extent % ways == 0 : !a.may_be_uneven;
}

bool TensorSize::IsEvenNow(size_t axis, int64_t ways) const {
  const AxisSize& a = axes[axis];
  return !a.is_stored_once && (a.is_known || (a.is_at_hand && !a.may_be_uneven)) && a.extent % ways == 0;
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
    const std::vector<double> on_links = LinkBytes(step, before, model.links, in, out);
    double slowest = 0;
    for (size_t node = 0; node < on_links.size(); ++node) {
      if (on_links[node] == 0) continue;
      const Links::Node& link = model.links.of_node[node];
      slowest = std::max(slowest, link.message_seconds + on_links[node] / link.bytes_per_second);
      cost.node_bytes = std::max(cost.node_bytes, on_links[node]);
    }
    cost.seconds += slowest;
  }
  cost.peak_bytes = step.kind == StepKind::kRelabel ? in : in + out;
  if (packs) cost.peak_bytes = std::max(cost.peak_bytes, 2 * in);
  if (unpacks) cost.peak_bytes = std::max(cost.peak_bytes, 2 * out);
  return cost;
}

}  // namespace hir::plan
