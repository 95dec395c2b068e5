// A shortest path (Dijkstra) over shardings. With at most three mesh dimensions, each where it starts, where it
// belongs, or nowhere, there are few.
#include "multidevice/plan/one_mesh.h"

#include <algorithm>
#include <optional>

#include "csrc/base/check.h"

namespace hir::plan {
namespace {

using mesh::ParallelType;
using mesh::Sharding;

constexpr double kCommunication = 1e-6;  // Beside bytes: fewer communications win a tie,
constexpr double kLocal = 1e-9;          // then fewer copies.

struct Node {
  Sharding at;
  double cost = 0;    // Bytes that a rank receives, per byte of the whole tensor.
  size_t before = 0;  // The node this one was reached from.
  std::optional<Step> step = {};
  bool done = false;
};

class Search {
 public:
  Search(const Sharding& from, const Sharding& to, const std::vector<bool>& stored_once)
      : from_(from), to_(to), stored_once_(stored_once) {
    nodes_.push_back({.at = from});
  }

  std::vector<Step> Run() {
    for (;;) {
      size_t next = nodes_.size();
      for (size_t i = 0; i < nodes_.size(); ++i) {
        if (!nodes_[i].done && (next == nodes_.size() || nodes_[i].cost < nodes_[next].cost))
          next = i;
      }
      HIR_CHECK(next < nodes_.size());  // Gathering everything and slicing leads everywhere.
      if (nodes_[next].at == to_) return PathTo(next);
      nodes_[next].done = true;
      Expand(next);
    }
  }

 private:
  std::vector<Step> PathTo(size_t node) const {
    std::vector<Step> steps;
    for (; nodes_[node].step; node = nodes_[node].before) steps.push_back(*nodes_[node].step);
    std::ranges::reverse(steps);
    return steps;
  }

  // The axis that `type` splits in the end.
  std::optional<size_t> Goal(ParallelType type) const {
    for (size_t axis = 0; axis < to_.axes.size(); ++axis) {
      if (std::ranges::find(to_.axes[axis], type) != to_.axes[axis].end()) return axis;
    }
    return std::nullopt;
  }

  // Of the whole tensor, what one rank stores.
  double Share(const Sharding& at) const {
    double share = 1;
    for (size_t axis = 0; axis < at.axes.size(); ++axis) {
      if (!stored_once_[axis]) share /= static_cast<double>(at.Ways(axis));
    }
    return share;
  }

  // Whether blocks along `axis` are sure to be even: those of both ends are.
  bool IsEven(const Sharding& at, size_t axis) const {
    return from_.Ways(axis) % at.Ways(axis) == 0 || to_.Ways(axis) % at.Ways(axis) == 0;
  }

  void Reach(size_t before, double cost, Step step) {
    cost += nodes_[before].cost;
    for (Node& node : nodes_) {
      if (node.at != step.after) continue;
      if (!node.done && cost < node.cost) {
        node.cost = cost;
        node.before = before;
        node.step = std::move(step);
      }
      return;
    }
    nodes_.push_back({.at = step.after, .cost = cost, .before = before, .step = std::move(step)});
  }

  void Expand(size_t node) {
    const Sharding at = nodes_[node].at;
    for (const ParallelType type : mesh::kMeshTypes) {
      const bool partial = std::ranges::find(at.partial, type) != at.partial.end();
      if (partial) {
        ExpandPartial(node, at, type);
      } else if (!IsSplitting(at, type)) {
        Split(node, at, type);
      }
    }
    for (size_t axis = 0; axis < at.axes.size(); ++axis) {
      if (!at.axes[axis].empty()) ExpandAxis(node, at, axis);
    }
  }

  static bool IsSplitting(const Sharding& at, ParallelType type) {
    return std::ranges::any_of(
        at.axes, [&](const auto& types) { return std::ranges::find(types, type) != types.end(); });
  }

  void Split(size_t node, const Sharding& at, ParallelType type) {
    const std::optional<size_t> axis = Goal(type);
    if (!axis) return;
    Step step = {.kind = StepKind::kSlice, .type = type, .axis = *axis, .after = at};
    step.after.axes[*axis].push_back(type);
    if (IsEven(step.after, *axis)) Reach(node, kLocal, std::move(step));
  }

  void ExpandPartial(size_t node, const Sharding& at, ParallelType type) {
    const double d = static_cast<double>(at.mesh.Size(type));
    const double bytes = (d - 1) / d * Share(at);
    Step all = {.kind = StepKind::kAllreduce, .type = type, .after = at};
    std::erase(all.after.partial, type);
    Step scatter = {.kind = StepKind::kReduceScatter, .type = type, .after = all.after};
    Reach(node, 2 * bytes + kCommunication, std::move(all));
    const std::optional<size_t> axis = Goal(type);
    if (!axis || stored_once_[*axis]) return;
    scatter.axis = *axis;
    scatter.after.axes[*axis].push_back(type);
    if (IsEven(scatter.after, *axis)) Reach(node, bytes + kCommunication, std::move(scatter));
  }

  // What can become of the innermost split of `axis`.
  void ExpandAxis(size_t node, const Sharding& at, size_t axis) {
    const ParallelType type = at.axes[axis].back();
    if (stored_once_[axis]) {
      Step spread = {.kind = StepKind::kSpread, .axis = axis, .after = at};
      spread.after.axes[axis].clear();
      Reach(node, kLocal, std::move(spread));
      return;
    }
    const double d = static_cast<double>(at.mesh.Size(type));
    Step gather = {.kind = StepKind::kAllgather, .type = type, .axis = axis, .after = at};
    gather.after.axes[axis].pop_back();
    Step exchange = {
        .kind = StepKind::kAllToAll, .type = type, .axis = axis, .after = gather.after};
    if (IsEven(gather.after, axis))
      Reach(node, (d - 1) * Share(at) + kCommunication, std::move(gather));
    const std::optional<size_t> to = Goal(type);
    if (!to || *to == axis || stored_once_[*to]) return;
    exchange.to_axis = *to;
    exchange.after.axes[*to].push_back(type);
    if (IsEven(exchange.after, *to) && IsEven(exchange.after, axis)) {
      Reach(node, (d - 1) / d * Share(at) + kCommunication, std::move(exchange));
    }
  }

  const Sharding& from_;
  const Sharding& to_;
  const std::vector<bool>& stored_once_;
  std::vector<Node> nodes_;
};

}  // namespace

std::vector<Step> PlanOnOneMesh(const Sharding& from, const Sharding& to,
                                const std::vector<bool>& stored_once) {
  return Search(from, to, stored_once).Run();
}

}  // namespace hir::plan
