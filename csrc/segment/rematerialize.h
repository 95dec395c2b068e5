// Rematerialization: after segmenting, what crosses a boundary is computed again by its reader where that moves
// fewer bytes.
#pragma once

#include <functional>
#include <vector>

#include "csrc/ir/graph.h"
#include "csrc/segment/segment.h"

namespace hir::segment {

// Values looked at for one group; a longer way back is not taken.
inline constexpr int kRematerializedOpsMax = 256;

struct RematerializeOptions {
  std::function<bool(const GroupView&)> fits = {};  // Whether a group with copies is still one kernel.
  std::function<bool(const Group&)> is_view = {};   // Such groups read nothing, and stay as they are.
  Sizes sizes = {};
};

// For each group, of what it reads of others: which values are read, and which are computed again, element by element,
// from what else is read, is a minimum cut. Its weights are bytes, with the element types of the values: a float32
// intermediate is made again from bfloat16 inputs. What the group reads anyway costs nothing; an input of the program
// or a value that crosses a boundary anyway costs one read, and its share of the write; any other value would have to
// be written as well. Arithmetic costs what memory would move in its time: nothing for sums and products, the bytes of
// one float32 for an exp. Reductions are not computed again.
//
// Where `fits` refuses the group with its copies, each value is tried alone. Afterwards ops that nothing reads are gone
// from the graph and from `groups`, and every group's inputs and outputs are up to date.
//
// Before: k0: %c = sub(%x, %m), %s = sum(%c)   k1 reads %c: %y = mul(%c, %s)
// After:  k0: %c = sub(%x, %m), %s = sum(%c)   k1: %c.1 = sub(%x, %m), %y = mul(%c.1, %s)
Status Rematerialize(ir::Graph& graph, std::vector<Group>& groups, const RematerializeOptions& options);

}  // namespace hir::segment
