// What it takes to change how a tensor lies: a cheapest sequence of steps, each a communication or work on one rank's
// own part. Pure values; localize.cc turns steps into ops.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "multidevice/plan/cost.h"
#include "multidevice/sharding.h"

namespace hir::plan {

enum class StepKind : uint8_t {
  // In each team along `type`, a dimension of the mesh:
  kAllreduce,      // partial over `type` -> the same everywhere
  kReduceScatter,  // partial over `type` -> `axis` split by it, innermost
  kAllgather,      // `axis` no longer split by `type`, which was innermost
  kAllToAll,       // split by `type`, innermost: `axis` before, `to_axis` after; where both are one axis, it was dealt
  // by `type` alone and falls into blocks now, or the other way round
  // On each rank alone:
  kSlice,    // each rank keeps its block: `axis` split by `type`, innermost
  kSpread,   // `axis`, stored once, no longer split: each rank has all of it already
  kReorder,  // the elements of `axis`, which is not split, in another order: natural, or dealt
  kRelabel,  // each rank of the new mesh has its part already
  // Between the meshes `from` and `to`. A row is the devices that differ along mesh_x only.
  kBroadcast,          // position k of `from` -> every device of row k of `to`
  kScatter,            // position k of `from` -> row k of `to`, a chunk each
  kGather,             // row k of `from`, a chunk each -> position k of `to`
  kReduce,             // row k of `from`, partial results -> position k of `to`, which is in that row
  kSendRecv,           // position k of `from` -> position k of `to`
  kCollectivePermute,  // the same; both hold the same devices
};
// "Allreduce"; kSlice, kSpread, kReorder and kRelabel communicate nothing.
std::string_view StepName(StepKind kind);
bool Communicates(StepKind kind);
bool IsBetweenMeshes(StepKind kind);

struct Step {
  StepKind kind = StepKind::kSlice;
  mesh::ParallelType type = mesh::ParallelType::kSerial;
  size_t axis = 0;
  size_t to_axis = 0;
  mesh::Sharding after;  // How the tensor lies when the step is done.
  // Between meshes: who sends, who receives. Devices of the meshes before and after, some of them left out.
  std::optional<mesh::DeviceMesh> from = {};
  std::optional<mesh::DeviceMesh> to = {};
  // kGather, kScatter: into how many chunks each axis falls; their numbers count the last axis fastest.
  std::vector<int64_t> chunks = {};
};

struct Plan {
  std::vector<Step> steps;
  double seconds = 0;     // By the cost model.
  double bytes = 0;       // That one rank receives, or sends where that is more; of all steps.
  double node_bytes = 0;  // That go over the link of the busiest node of each step; of all steps.
  double peak_bytes = 0;  // That one rank holds at once for it: parts, and what is packed and unpacked.
};

// The cheapest plan by `cost` among the sequences of steps that hold no more than `bytes_max` at once and split no
// axis unevenly that neither `from` nor `to` does. Between nodes they may split one that neither does, evenly for the
// sizes at hand. Communications within one device, and copies that every receiver holds already, never appear. Sums are
// made in one order, whatever links there are.
// Errors: kResourceExhausted where no sequence stays below the bound, naming it by the name that users know,
//         resharding_bytes_max.
// REQUIRES: `to` is not partial; equal ranks.
Result<Plan> PlanResharding(const mesh::Sharding& from, const mesh::Sharding& to, const TensorSize& size,
                            const CostModel& cost = {}, double bytes_max = kNoBound);

// The ranks that communicate in `step` from `before`, one list for each group that does so side by side.
std::vector<std::vector<int64_t>> TeamsOf(const Step& step, const mesh::Sharding& before);
// The rows of a mesh: devices that differ along mesh_x only.
std::vector<std::vector<int64_t>> RowsOf(const mesh::DeviceMesh& mesh);

}  // namespace hir::plan
