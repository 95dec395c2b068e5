// Takes views out of kernels that would write them: after segmenting.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "csrc/ir/graph.h"
#include "csrc/segment/segment.h"

namespace hir::segment {

struct ViewRules {
  // Whether the result of an op is the memory of its operand, element for element in one order.
  std::function<bool(const ir::Op&)> is_view;
  // Whether it is if it may lie in any order, or be a part: as a permute or a slice. True where is_view is.
  std::function<bool(const ir::Op&)> is_strided_view;
  // Whether all of `readers` take the result of the last of `views` as it lies then. The first view's operand lies
  // row-major; each other one views the one before.
  std::function<bool(std::span<ir::Op* const> views, std::span<ir::Op* const> readers)> are_read_in_place;
  // Whether what makes the first view's operand can write it so that the last view's result lies row-major.
  std::function<bool(std::span<ir::Op* const> views)> are_written_in_place;
};

// A group that writes a value, and writes it again, or writes what it reads, under another shape or in another order
// for others, no longer does: those others read views, which are groups of their own behind it. A view that is returned
// has memory of its own; what it is a view of is written there, where it is the first view of a computed value and
// alone in its group, or the group computes with that value or with what it is made of. Views of a value that nothing
// else reads, and that can be written as they have it, are a group of their own. Afterwards all inputs and outputs are
// up to date.
//
// Before: k0: %a = mul(%x, %y), %b = reshape(%a)   k1, k2 read %a, %b
// After:  k0: %a = mul(%x, %y)   %b = reshape(%a), a view   k1, k2 read %a, %b
Status TakeOutViews(ir::Graph& graph, std::vector<Group>& groups, const ViewRules& rules);

}  // namespace hir::segment
