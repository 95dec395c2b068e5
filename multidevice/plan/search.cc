// PlanResharding: a shortest path (Dijkstra) over the ways in which the tensor may lie. Within a mesh a step changes
// what one dimension splits: each dimension is where it starts, where it belongs, or nowhere. Between meshes it arrives
// at one of a list of shardings. With at most three dimensions a mesh there are few of either.
//
// Where a mesh is on several nodes, a dimension that stays within each may split an axis on the way, so that each rank
// of a node sends its block to others, and not all of them the same. Links decide how bytes travel, never how numbers
// are added up: sums are made in the order in which they are without links.
#include <algorithm>
#include <map>
#include <optional>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "multidevice/plan/between_meshes.h"

namespace hir::plan {
namespace {

using base::Cat;
using mesh::ParallelType;
using mesh::Sharding;

struct Node {
  Sharding at;
  double seconds = 0;
  size_t before = 0;  // The node this one was reached from.
  std::optional<Step> step = {};
  bool done = false;
};

// The dimensions over which a tensor that lies as `from` is partial, in the order in which `plan` adds them up.
std::vector<ParallelType> SumsOf(const Plan& plan, const Sharding& from) {
  std::vector<ParallelType> sums;
  const Sharding* at = &from;
  for (const Step& step : plan.steps) {
    for (const ParallelType type : at->partial) {
      if (std::ranges::count(step.after.partial, type) == 0) sums.push_back(type);
    }
    at = &step.after;
  }
  return sums;
}

class Search {
 public:
  // `sums`: the order in which sums are made; without it any.
  Search(const Sharding& from, const Sharding& to, const TensorSize& size, const CostModel& cost, double bytes_max,
         std::vector<ParallelType> sums = {})
      : from_(from), to_(to), size_(size), cost_(cost), bytes_max_(bytes_max), sums_(std::move(sums)) {
    if (from.mesh != to.mesh) arrivals_ = Arrivals(from, to, size);
    nodes_.push_back({.at = from});
  }

  Result<Plan> Run() {
    for (;;) {
      size_t next = nodes_.size();
      for (size_t i = 0; i < nodes_.size(); ++i) {
        if (!nodes_[i].done && (next == nodes_.size() || nodes_[i].seconds < nodes_[next].seconds)) next = i;
      }
      if (next == nodes_.size()) return Refused();
      if (nodes_[next].at == to_) return PlanTo(next);
      nodes_[next].done = true;
      Expand(next);
    }
  }

 private:
  Plan PlanTo(size_t node) const {
    Plan plan;
    for (; nodes_[node].step; node = nodes_[node].before) plan.steps.push_back(*nodes_[node].step);
    std::ranges::reverse(plan.steps);
    const Sharding* at = &from_;
    for (const Step& step : plan.steps) {
      const StepCost cost = CostOf(step, *at, size_, cost_);
      plan.seconds += cost.seconds;
      plan.bytes += cost.bytes;
      plan.node_bytes += cost.node_bytes;
      plan.peak_bytes = std::max(plan.peak_bytes, cost.peak_bytes);
      at = &step.after;
    }
    return plan;
  }

  Status Refused() const {
    HIR_CHECK(least_refused_ < kNoBound);  // Gathering everything and slicing leads everywhere.
    return ResourceExhausted(Cat("resharding from ", from_.ToString(), " to ", to_.ToString(),
                                 ": every sequence of steps holds more than resharding_bytes_max = ",
                                 static_cast<int64_t>(bytes_max_), " bytes on a rank at once (at least ",
                                 static_cast<int64_t>(least_refused_), "); raise it, or split the tensor further"));
  }

  // The axes that `type` of the mesh of `at` may split: where it belongs; on other meshes, whatever is split there.
  std::vector<size_t> Goals(const Sharding& at, ParallelType type) const {
    std::vector<size_t> goals;
    for (size_t axis = 0; axis < to_.axes.size(); ++axis) {
      const auto& types = to_.axes[axis];
      if (at.mesh == to_.mesh ? std::ranges::count(types, type) > 0 : !types.empty()) goals.push_back(axis);
    }
    const std::optional<size_t> on_the_way = AxisOnTheWay(at, type);
    if (on_the_way && std::ranges::count(goals, *on_the_way) == 0) goals.push_back(*on_the_way);
    return goals;
  }

  // The axis that `type`, whose teams each are within one node of several, may split for a while.
  std::optional<size_t> AxisOnTheWay(const Sharding& at, ParallelType type) const {
    if (!StaysWithinNodes(at.mesh, type)) return std::nullopt;
    // One that nothing splits can be whole again before the others are.
    for (const bool split : {false, true}) {
      for (size_t axis = 0; axis < at.axes.size(); ++axis) {
        const bool fits = size_.IsEvenNow(axis, at.Ways(axis) * at.mesh.Size(type));
        if (fits && !at.axes[axis].is_dealt() && at.axes[axis].empty() != split) return axis;
      }
    }
    return std::nullopt;
  }

  // Whether `mesh` is on several nodes, and each team along `type` on one of them.
  bool StaysWithinNodes(const mesh::DeviceMesh& mesh, ParallelType type) const {
    if (cost_.links.node_of.empty()) return false;
    for (const Known& known : known_) {
      if (known.type == type && known.mesh == mesh) return known.stays;
    }
    bool stays = cost_.links.CountNodes(mesh.devices()) > 1;
    for (const int64_t device : mesh.devices()) stays = stays && cost_.links.CountNodes(mesh.Team(device, type)) == 1;
    known_.push_back({mesh, type, stays});
    return stays;
  }

  // Where it costs the same, sums along the inner dimensions are first: their ranks are the closer ones, and after them
  // each of a node needs to send a share only.
  static double OrderSeconds(const Sharding& at, const Sharding& after) {
    if (at.partial.size() == after.partial.size()) return 0;
    return std::ranges::count(after.partial, std::ranges::min(at.partial)) > 0 ? 1e-12 : 0;
  }

  // Whether a step makes the sum that is next.
  bool SumsInOrder(const Sharding& at, const Sharding& after) const {
    const auto is_due = [&](ParallelType type) {
      return std::ranges::count(at.partial, type) > 0 && std::ranges::count(after.partial, type) == 0;
    };
    for (const ParallelType type : sums_) {
      if (std::ranges::count(at.partial, type) > 0) return is_due(type) || at.partial.size() == after.partial.size();
    }
    return true;
  }

  // Whether blocks along `axis` are even, or no more uneven than both ends make them.
  bool IsFine(const Sharding& at, size_t axis) const {
    const int64_t ways = at.Ways(axis);
    return from_.Ways(axis) % ways == 0 || to_.Ways(axis) % ways == 0 ||
           (size_.axes[axis].is_known && size_.IsEven(axis, ways)) ||
           (!cost_.links.node_of.empty() && size_.IsEvenNow(axis, ways));
  }

  void Reach(size_t before, Step step) {
    if (!SumsInOrder(nodes_[before].at, step.after)) return;
    const StepCost cost = CostOf(step, nodes_[before].at, size_, cost_);
    if (cost.peak_bytes > bytes_max_) {
      least_refused_ = std::min(least_refused_, cost.peak_bytes);
      return;
    }
    const double seconds = nodes_[before].seconds + cost.seconds + OrderSeconds(nodes_[before].at, step.after);
    for (Node& node : nodes_) {
      if (node.at != step.after) continue;
      if (!node.done && seconds < node.seconds) {
        node.seconds = seconds;
        node.before = before;
        node.step = std::move(step);
      }
      return;
    }
    nodes_.push_back({.at = step.after, .seconds = seconds, .before = before, .step = std::move(step)});
  }

  void Expand(size_t node) {
    const Sharding at = nodes_[node].at;
    for (const ParallelType type : mesh::kMeshTypes) {
      if (at.mesh.Size(type) == 1) continue;
      const bool partial = std::ranges::find(at.partial, type) != at.partial.end();
      if (partial) {
        ExpandPartial(node, at, type);
      } else if (!IsSplitting(at, type)) {
        Split(node, at, type);
      }
    }
    for (size_t axis = 0; axis < at.axes.size(); ++axis) {
      if (at.axes[axis].dealt != to_.axes[axis].dealt) Reorder(node, at, axis);
      if (!at.axes[axis].empty()) ExpandAxis(node, at, axis);
    }
    ExpandAcross(node, at);
  }

  static bool IsSplitting(const Sharding& at, ParallelType type) {
    return std::ranges::any_of(at.axes,
                               [&](const auto& types) { return std::ranges::find(types, type) != types.end(); });
  }

  void Split(size_t node, const Sharding& at, ParallelType type) {
    for (const size_t axis : Goals(at, type)) {
      if (size_.axes[axis].is_stored_once && at.mesh != to_.mesh) continue;
      Step step = {.kind = StepKind::kSlice, .type = type, .axis = axis, .after = at};
      step.after.axes[axis].push_back(type);
      if (IsFine(step.after, axis)) Reach(node, std::move(step));
    }
  }

  void ExpandPartial(size_t node, const Sharding& at, ParallelType type) {
    Step all = {.kind = StepKind::kAllreduce, .type = type, .after = at};
    std::erase(all.after.partial, type);
    for (const size_t axis : Goals(at, type)) {
      if (size_.axes[axis].is_stored_once) continue;
      Step scatter = {.kind = StepKind::kReduceScatter, .type = type, .axis = axis, .after = all.after};
      scatter.after.axes[axis].push_back(type);
      if (IsFine(scatter.after, axis)) Reach(node, std::move(scatter));
    }
    Reach(node, std::move(all));
  }

  // `axis` in the order in which it is wanted.
  void Reorder(size_t node, const Sharding& at, size_t axis) {
    const mesh::AxisSplit& split = at.axes[axis];
    Step step = {.kind = StepKind::kReorder, .axis = axis, .to_axis = axis, .after = at};
    step.after.axes[axis].dealt = to_.axes[axis].dealt;
    if (split.size() == 1) {
      const int64_t ways = at.Ways(axis);
      if (split.dealt * to_.axes[axis].dealt != ways || !size_.DealsDirectly(axis, ways)) return;
      if (split.is_dealt() && to_.axes[axis].is_dealt()) return;
      step.kind = StepKind::kAllToAll;
      step.type = split[0];
    } else if (!split.empty()) {
      return;
    }
    Reach(node, std::move(step));
  }

  // What can become of the innermost split of `axis`.
  void ExpandAxis(size_t node, const Sharding& at, size_t axis) {
    const ParallelType type = at.axes[axis].back();
    if (size_.axes[axis].is_stored_once) {
      Step spread = {.kind = StepKind::kSpread, .axis = axis, .after = at};
      spread.after.axes[axis] = {};
      Reach(node, std::move(spread));
      return;
    }
    Step gather = {.kind = StepKind::kAllgather, .type = type, .axis = axis, .after = at};
    gather.after.axes[axis].pop_back();
    for (const size_t to : Goals(at, type)) {
      if (to == axis || size_.axes[to].is_stored_once) continue;
      Step exchange = {.kind = StepKind::kAllToAll, .type = type, .axis = axis, .to_axis = to, .after = gather.after};
      exchange.after.axes[to].push_back(type);
      if (IsFine(exchange.after, to) && IsFine(exchange.after, axis)) Reach(node, std::move(exchange));
    }
    if (IsFine(gather.after, axis)) Reach(node, std::move(gather));
  }

  // Axes that are stored once are whole on every rank: nothing of them needs to travel.
  bool SplitsStoredOnce(const Sharding& at) const {
    for (size_t axis = 0; axis < at.axes.size(); ++axis) {
      if (size_.axes[axis].is_stored_once && !at.axes[axis].empty()) return true;
    }
    return false;
  }

  void ExpandAcross(size_t node, const Sharding& at) {
    if (SplitsStoredOnce(at)) return;
    for (const Sharding& arrival : arrivals_) {
      if (arrival.mesh == at.mesh || at.mesh == to_.mesh) continue;
      if (std::optional<Step> step = StepBetween(at, arrival, size_)) Reach(node, std::move(*step));
    }
    // Another order of the dimensions that split an axis, or another dimension: blocks change devices.
    if (at.mesh != to_.mesh || at == to_ || !at.partial.empty() || SplitsStoredOnce(to_)) return;
    std::optional<Step> step = StepBetween(at, to_, size_);
    if (step && step->kind == StepKind::kCollectivePermute) Reach(node, std::move(*step));
  }

  struct Known {
    mesh::DeviceMesh mesh;
    ParallelType type;
    bool stays;
  };
  mutable std::vector<Known> known_;
  const Sharding& from_;
  const Sharding& to_;
  const TensorSize& size_;
  const CostModel& cost_;
  const double bytes_max_;
  const std::vector<ParallelType> sums_;
  double least_refused_ = kNoBound;
  std::vector<Sharding> arrivals_;
  std::vector<Node> nodes_;
};

}  // namespace

Result<Plan> PlanResharding(const Sharding& from, const Sharding& to, const TensorSize& size, const CostModel& cost,
                            double bytes_max) {
  HIR_CHECK(to.partial.empty() && from.axes.size() == to.axes.size() && size.axes.size() == to.axes.size());
  if (cost.links.node_of.empty()) return Search(from, to, size, cost, bytes_max).Run();
  CostModel without = cost;
  without.links = {};
  HIR_ASSIGN(const Plan reference, Search(from, to, size, without, bytes_max).Run());
  return Search(from, to, size, cost, bytes_max, SumsOf(reference, from)).Run();
}

}  // namespace hir::plan
