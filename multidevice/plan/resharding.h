// What it takes to change how a tensor lies: a cheapest sequence of steps, each a communication or work on one rank's
// own part. Pure values; localize.cc turns steps into ops.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "multidevice/sharding.h"

namespace hir::plan {

enum class StepKind : uint8_t {
  kAllreduce,      // partial over `type` -> the same everywhere
  kReduceScatter,  // partial over `type` -> `axis` split by it, innermost
  kAllgather,      // `axis` no longer split by `type`, which was innermost
  kAllToAll,       // split by `type`, innermost: `axis` before, `to_axis` after
  kSlice,          // each rank keeps its block: `axis` split by `type`, innermost
  kSpread,         // `axis`, stored once, no longer split: each rank has all of it already
  kRelabel,        // each rank of the new mesh has its part already
  kBroadcast,  // from the first device of the old mesh, which has all, to every device of the new one
  kSendRecv,  // position k of the old mesh to position k of the new one, which has the same block
};
// "Allreduce"; kSlice, kSpread and kRelabel communicate nothing.
std::string_view StepName(StepKind kind);
bool Communicates(StepKind kind);

struct Step {
  StepKind kind = StepKind::kSlice;
  mesh::ParallelType type = mesh::ParallelType::kSerial;
  size_t axis = 0;
  size_t to_axis = 0;
  mesh::Sharding after;  // How the tensor lies when the step is done.
};

// Steps from `from` to `to`, for a tensor whose axes with `stored_once` hold one element along them. On one mesh the
// steps move the fewest bytes of all sequences of such steps that split no axis into blocks that may be uneven.
// Communications within one device, and copies that every receiver holds already, never appear. REQUIRES: `to` is not
// partial; equal ranks.
std::vector<Step> PlanResharding(const mesh::Sharding& from, const mesh::Sharding& to,
                                 const std::vector<bool>& stored_once);

// The ranks that communicate in `step` from `before`, one list for each group that does so side by side.
std::vector<std::vector<int64_t>> TeamsOf(const Step& step, const mesh::Sharding& before);

}  // namespace hir::plan
