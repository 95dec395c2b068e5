// Single steps between two shardings that differ in more than one dimension's place: from one mesh to another, or from
// one device of a mesh to another. Private to multidevice/plan.
#pragma once

#include <optional>
#include <vector>

#include "multidevice/plan/resharding.h"

namespace hir::plan {

// The one step from `from` to `to`, if there is one: a relabel where every receiver has its part; a SendRecv,
// CollectivePermute or Broadcast where blocks are equal; a Gather or Scatter where those of one side are blocks of the
// other's; a Reduce where `from` is partial. No two groups of a step share a sender, or a receiver.
// REQUIRES: equal ranks; `to` is not partial.
std::optional<Step> StepBetween(const mesh::Sharding& from, const mesh::Sharding& to, const TensorSize& size);

// Where a tensor that lies as `from`, on its way to `to`, may lie on the mesh of `to` or on part of the mesh of either.
std::vector<mesh::Sharding> Arrivals(const mesh::Sharding& from, const mesh::Sharding& to, const TensorSize& size);

}  // namespace hir::plan
