#include "multidevice/plan/resharding.h"

#include <algorithm>

#include "csrc/base/check.h"
#include "multidevice/plan/one_mesh.h"

namespace hir::plan {
namespace {

using mesh::DeviceMesh;
using mesh::ParallelType;
using mesh::Sharding;

// `to` with only the outermost part of what splits each axis, so that it splits like `from`: the same number of blocks.
// Nothing where there is no such part.
std::optional<Sharding> SplitLike(const Sharding& from, const Sharding& to) {
  Sharding result = Sharding::Replicated(to.mesh, to.axes.size());
  for (size_t axis = 0; axis < to.axes.size(); ++axis) {
    const int64_t ways = from.Ways(axis);
    for (const ParallelType type : to.axes[axis]) {
      if (result.Ways(axis) == ways) break;
      result.axes[axis].push_back(type);
    }
    if (result.Ways(axis) != ways) return std::nullopt;
  }
  return result;
}

// For each device of `to`, a device of `from` that holds the same block, no device twice and itself where it can be;
// nothing where that cannot be.
std::optional<std::vector<int64_t>> Sources(const Sharding& from, const Sharding& to) {
  const std::span<const int64_t> devices = to.mesh.devices();
  std::vector<int64_t> sources(devices.size(), -1);
  const auto holds = [&](int64_t source, int64_t device) {
    return from.mesh.PositionOf(source) && mesh::BlockOf(from, source) == mesh::BlockOf(to, device);
  };
  for (size_t i = 0; i < devices.size(); ++i) {
    if (holds(devices[i], devices[i])) sources[i] = devices[i];
  }
  for (size_t i = 0; i < devices.size(); ++i) {
    if (sources[i] >= 0) continue;
    for (const int64_t source : from.mesh.devices()) {
      if (std::ranges::find(sources, source) != sources.end() || !holds(source, devices[i]))
        continue;
      sources[i] = source;
      break;
    }
    if (sources[i] < 0) return std::nullopt;
  }
  return sources;
}

// Collects steps; `at` is where they lead.
struct Route {
  Sharding at;
  std::vector<Step> steps;
  const std::vector<bool>& stored_once;

  void Within(const Sharding& to) {
    for (Step& step : PlanOnOneMesh(at, to, stored_once)) Take(std::move(step));
  }
  void Take(Step step) {
    at = step.after;
    steps.push_back(std::move(step));
  }
  void Relabel(Sharding to) {
    if (to != at) Take({.kind = StepKind::kRelabel, .after = std::move(to)});
  }
};

// Moves what `route` holds to the mesh of `to` without gathering it, if it can.
bool Across(Route& route, const Sharding& to) {
  const std::optional<Sharding> like = SplitLike(route.at, to);
  if (!like) return false;
  const std::optional<std::vector<int64_t>> sources = Sources(route.at, *like);
  if (!sources) return false;
  const std::vector<int64_t> devices(to.mesh.devices().begin(), to.mesh.devices().end());
  if (*sources == devices) {
    route.Relabel(*like);
    return true;
  }
  if (route.at.IsReplicated()) return false;  // One broadcast rather than pairs.
  const std::vector<int64_t> shape(to.mesh.shape().begin(), to.mesh.shape().end());
  Sharding from = *like;
  from.mesh = *DeviceMesh::Make(shape, *sources);
  route.Relabel(std::move(from));
  route.Take({.kind = StepKind::kSendRecv, .after = *like});
  return true;
}

void DropStoredOnce(Sharding& sharding, const std::vector<bool>& stored_once) {
  for (size_t axis = 0; axis < stored_once.size(); ++axis) {
    if (stored_once[axis]) sharding.axes[axis].clear();
  }
}

}  // namespace

std::string_view StepName(StepKind kind) {
  switch (kind) {
    case StepKind::kAllreduce: return "Allreduce";
    case StepKind::kReduceScatter: return "ReduceScatter";
    case StepKind::kAllgather: return "Allgather";
    case StepKind::kAllToAll: return "AllToAll";
    case StepKind::kSlice: return "slice";
    case StepKind::kSpread: return "spread";
    case StepKind::kRelabel: return "relabel";
    case StepKind::kBroadcast: return "Broadcast";
    case StepKind::kSendRecv: return "SendRecv";
  }
  HIR_CHECK(false);
  return {};
}

bool Communicates(StepKind kind) {
  return kind != StepKind::kSlice && kind != StepKind::kSpread && kind != StepKind::kRelabel;
}

std::vector<Step> PlanResharding(const Sharding& from, const Sharding& to,
                                 const std::vector<bool>& stored_once) {
  HIR_CHECK(to.partial.empty() && from.axes.size() == to.axes.size() &&
            stored_once.size() == to.axes.size());
  Route route = {from, {}, stored_once};
  if (from.mesh == to.mesh) {
    route.Within(to);
    return route.steps;
  }
  // Axes that are stored once are whole on every rank: nothing of them needs to travel.
  Sharding whole = from;
  whole.partial.clear();
  DropStoredOnce(whole, stored_once);
  Sharding arrived = to;
  DropStoredOnce(arrived, stored_once);
  route.Within(whole);
  if (!Across(route, arrived)) {
    route.Within(Sharding::Replicated(from.mesh, from.axes.size()));
    if (!Across(route, arrived)) {
      route.Take(
          {.kind = StepKind::kBroadcast, .after = Sharding::Replicated(to.mesh, to.axes.size())});
    }
  }
  route.Within(to);
  return route.steps;
}

std::vector<std::vector<int64_t>> TeamsOf(const Step& step, const Sharding& before) {
  std::vector<std::vector<int64_t>> teams;
  const std::span<const int64_t> devices = before.mesh.devices();
  const std::span<const int64_t> targets = step.after.mesh.devices();
  if (!Communicates(step.kind)) return teams;
  if (step.kind == StepKind::kBroadcast) {
    teams.push_back({devices[0]});
    for (const int64_t target : targets) {
      if (target != devices[0]) teams[0].push_back(target);
    }
    return teams;
  }
  if (step.kind == StepKind::kSendRecv) {
    for (size_t k = 0; k < targets.size(); ++k) {
      if (devices[k] != targets[k]) teams.push_back({devices[k], targets[k]});
    }
    return teams;
  }
  for (const int64_t device : devices) {
    std::vector<int64_t> team = before.mesh.Team(device, step.type);
    if (team[0] == device) teams.push_back(std::move(team));
  }
  return teams;
}

}  // namespace hir::plan
