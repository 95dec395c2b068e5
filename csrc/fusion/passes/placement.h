// Placement: a layout in normal form. Layouts are written in many ways (splits, factors of 1, meshes with dimensions of
// one device); two values lie alike exactly when their placements are equal.
#pragma once

#include <functional>
#include <vector>

#include "csrc/fusion/passes/stream_axes.h"
#include "csrc/ir/graph.h"
#include "multidevice/sharding.h"

namespace hir::fusion {

// What splits an axis; where elements are dealt in turns, one dimension does, of as many devices.
using Types = mesh::AxisSplit;

struct Placement {
  const ir::Mesh* mesh = nullptr;
  // One per LOGICAL axis: what splits it. On a reduction axis: partial results.
  std::vector<Types> axes = {};

  bool operator==(const Placement&) const = default;
};

// Of `value`, a tensor whose layout has a mesh. Stream axes are no part of it (stream_axes.h).
// Errors: kUnimplemented where a mesh type is on a part that neither a chain of outer splits by mesh sizes makes nor an
//         inner split that deals elements in turns (merges, blocks dealt in turns: docs/decisions/0007);
//         kInvalidArgument where the turns are not whole; both naming value and axis. Blocks may be uneven.
Result<Placement> PlacementOf(const ir::Value& value);

// All copies, on `mesh`.
Placement Replicated(const ir::Mesh* mesh, const ir::Type& type);
// The layout that says `placement` of a value of `type`, and that `streams` cut what a rank holds, in the shortest way.
// REQUIRES: StreamsWithin(placement, streams) are all of them.
const ir::Layout* LayoutFor(ir::Graph& graph, const ir::Type& type, const Placement& placement,
                            const std::vector<StreamAxis>& streams = {});

int64_t Ways(const ir::Mesh& mesh, const Types& types);
// Into how many shares the tensor is divided over all axes.
int64_t Shares(const Placement& placement);

// Those of `streams` along which the parts can be cut that devices hold under `placement`: not through merged axes of
// which devices hold parts, but for the outermost one in blocks.
std::vector<StreamAxis> StreamsWithin(const Placement& placement, std::vector<StreamAxis> streams);

// Whether the meshes cut each of these axes of one value as that one of the other.
bool AreCutAlike(const Placement& a, std::span<const int> a_axes, const Placement& b, std::span<const int> b_axes);

// Gives what `value` is computed from stream axes, as far as they follow from its own: the operands of its op that have
// none, and so on. Only of values of which `may` says so: those that a pass made itself. (What the user wrote without a
// stream axis is computed as a whole.)
void CarryStreamsBack(ir::Graph& graph, const ir::Value& value, const std::function<bool(const ir::Value&)>& may);

bool HasPartial(const ir::Type& type, const Placement& placement);
// The same without partial results: what consumers of the value are to see.
Placement WithoutPartial(const ir::Type& type, Placement placement);

// As a value for everyone: axes are value axes.
mesh::Sharding ToSharding(const ir::Type& type, const Placement& placement);

// What splits each VALUE axis.
std::vector<Types> ValueTypes(const ir::Type& type, const Placement& placement);
// The other way; reduction axes are not split.
Placement FromValueTypes(const ir::Type& type, const ir::Mesh* mesh, const std::vector<Types>& types);

}  // namespace hir::fusion
