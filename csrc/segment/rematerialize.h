// Rematerialization: after segmenting, what crosses a boundary is computed again by its reader where that moves
// fewer bytes.
#pragma once

#include <functional>
#include <vector>

#include "csrc/ir/graph.h"
#include "csrc/segment/segment.h"

namespace hir::segment {

// Ops copied for one value; a longer way back is not taken.
inline constexpr int kRematerializedOpsMax = 64;

// For each group and each tensor it reads of another: the ops that make it are copied into the group when they are
// cheap, element by element, and start from less than the tensor's own traffic. What the group reads anyway costs
// nothing; an input of the program or a value that crosses a boundary anyway costs one read; any other value would
// have to be written as well. Traffic counts with the element types of the values: a float32 intermediate is remade
// from bfloat16 inputs.
//
// `fits` says whether a group with the copies is still one kernel; where it is not, the group stays as it was.
// Afterwards ops that nothing reads are gone from the graph and from `groups`, and every group's inputs and outputs
// are up to date.
//
// Before: k0: %c = sub(%x, %m), %s = sum(%c)   k1 reads %c: %y = mul(%c, %s)
// After:  k0: %c = sub(%x, %m), %s = sum(%c)   k1: %c.1 = sub(%x, %m), %y = mul(%c.1, %s)
Status Rematerialize(ir::Graph& graph, std::vector<Group>& groups, const std::function<bool(const GroupView&)>& fits);

}  // namespace hir::segment
