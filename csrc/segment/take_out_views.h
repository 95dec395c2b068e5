// Takes views out of kernels that would write them: after segmenting.
#pragma once

#include <functional>
#include <vector>

#include "csrc/ir/graph.h"
#include "csrc/segment/segment.h"

namespace hir::segment {

// A group that writes a value, and writes it again, or writes what it reads, under another shape for others, no longer
// does: those others read views, which are groups of their own behind it. `is_view`: whether the result of an op is the
// memory of its operand. A view that is returned has memory of its own; what it is a view of is written there, where it
// is the first view of a computed value and alone in its group. Afterwards all inputs and outputs are up to date.
//
// Before: k0: %a = mul(%x, %y), %b = reshape(%a)   k1, k2 read %a, %b
// After:  k0: %a = mul(%x, %y)   %b = reshape(%a), a view   k1, k2 read %a, %b
Status TakeOutViews(ir::Graph& graph, std::vector<Group>& groups, const std::function<bool(const ir::Op&)>& is_view);

}  // namespace hir::segment
