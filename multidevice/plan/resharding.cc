#include "multidevice/plan/resharding.h"

#include <algorithm>

#include "csrc/base/check.h"

namespace hir::plan {

using mesh::DeviceMesh;
using mesh::ParallelType;
using mesh::Sharding;

std::string_view StepName(StepKind kind) {
  switch (kind) {
    case StepKind::kAllreduce: return "Allreduce";
    case StepKind::kReduceScatter: return "ReduceScatter";
    case StepKind::kAllgather: return "Allgather";
    case StepKind::kAllToAll: return "AllToAll";
    case StepKind::kSlice: return "slice";
    case StepKind::kSpread: return "spread";
    case StepKind::kReorder: return "reorder";
    case StepKind::kRelabel: return "relabel";
    case StepKind::kBroadcast: return "Broadcast";
    case StepKind::kScatter: return "Scatter";
    case StepKind::kGather: return "Gather";
    case StepKind::kReduce: return "Reduce";
    case StepKind::kSendRecv: return "SendRecv";
    case StepKind::kCollectivePermute: return "CollectivePermute";
  }
  HIR_CHECK(false);
  return {};
}

bool Communicates(StepKind kind) {
  return kind != StepKind::kSlice && kind != StepKind::kSpread && kind != StepKind::kReorder &&
         kind != StepKind::kRelabel;
}

bool IsBetweenMeshes(StepKind kind) {
  return kind == StepKind::kBroadcast || kind == StepKind::kScatter || kind == StepKind::kGather ||
         kind == StepKind::kReduce || kind == StepKind::kSendRecv || kind == StepKind::kCollectivePermute;
}

std::vector<std::vector<int64_t>> RowsOf(const DeviceMesh& mesh) {
  std::vector<std::vector<int64_t>> rows;
  const auto length = static_cast<size_t>(mesh.Size(ParallelType::kMeshX));
  const std::span<const int64_t> devices = mesh.devices();
  for (size_t at = 0; at < devices.size(); at += length) {
    const std::span<const int64_t> row = devices.subspan(at, length);
    rows.emplace_back(row.begin(), row.end());
  }
  return rows;
}

namespace {

// The rows of `mesh` with the device of each that `roots` names first, or before them.
std::vector<std::vector<int64_t>> WithRoots(const DeviceMesh& mesh, const DeviceMesh& roots) {
  std::vector<std::vector<int64_t>> teams;
  const std::vector<std::vector<int64_t>> rows = RowsOf(mesh);
  for (size_t k = 0; k < rows.size(); ++k) {
    std::vector<int64_t>& team = teams.emplace_back();
    team.push_back(roots.devices()[k]);
    for (const int64_t device : rows[k]) {
      if (device != team[0]) team.push_back(device);
    }
  }
  return teams;
}

}  // namespace

std::vector<std::vector<int64_t>> TeamsOf(const Step& step, const Sharding& before) {
  std::vector<std::vector<int64_t>> teams;
  switch (step.kind) {
    case StepKind::kSlice:
    case StepKind::kSpread:
    case StepKind::kReorder:
    case StepKind::kRelabel: return teams;
    case StepKind::kBroadcast:
    case StepKind::kScatter: return WithRoots(*step.to, *step.from);
    case StepKind::kGather:
    case StepKind::kReduce: return WithRoots(*step.from, *step.to);
    case StepKind::kSendRecv:
    case StepKind::kCollectivePermute:
      for (size_t k = 0; k < step.to->devices().size(); ++k) {
        if (step.from->devices()[k] != step.to->devices()[k])
          teams.push_back({step.from->devices()[k], step.to->devices()[k]});
      }
      return teams;
    case StepKind::kAllreduce:
    case StepKind::kReduceScatter:
    case StepKind::kAllgather:
    case StepKind::kAllToAll: break;
  }
  for (const int64_t device : before.mesh.devices()) {
    std::vector<int64_t> team = before.mesh.Team(device, step.type);
    if (team[0] == device) teams.push_back(std::move(team));
  }
  return teams;
}

}  // namespace hir::plan
