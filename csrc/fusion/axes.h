// How each axis of an op's result comes from the axes of its operands. Sharding propagation, resharding, stream
// grouping, schedules and alias analysis read this and never op names.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/ir/graph.h"

namespace hir::fusion {

enum class AxisRelation : uint8_t {
  kSame,          // result index = operand index
  kBroadcast,     // the operand has extent 1 (or is stored once) where the result has more
  kReduced,       // the result's reduction axis is this operand axis, reduced
  kContracted,    // the same, of two operands that go along it together (matmul, linear, index_sum)
  kSliced,        // result index = start + step * operand index
  kPadded,        // the operand with elements added before or after
  kConcatenated,  // one of the pieces along this axis
  kSplitOuter,    // reshape: the operand axis becomes several; this result axis is the outermost of them
  kSplitInner,    // reshape: one of the others
  kMergedOuter,   // reshape: several operand axes become this one; the operand axis is the outermost of them
  kMergedInner,   // reshape: one of the others
  kGathered,      // the operand index is data: the result may read any part of the operand axis
  kOpaque,        // the result depends on the whole operand axis in some other way
};

struct AxisLink {
  int operand = 0;
  int operand_axis = 0;  // Among the VALUE axes of the operand.
  int result = 0;
  int result_axis = 0;  // Among the LOGICAL axes of the result: reduced ones count.
  AxisRelation relation = AxisRelation::kSame;
};

// The links of `op`, sorted by (result, result_axis, operand). An operand axis without a link was dropped (squeeze); a
// result axis without one is new (broadcast, full).
// REQUIRES: op is not composite (fusion_ops.h).
std::vector<AxisLink> AxesOf(const ir::Op& op);

// Whether an element depends on its place along `axis` of the result, a logical one, so that the part of a rank must
// know where it begins: the entries of the attribute `offset` say that.
bool CountsAlong(const ir::Op& op, size_t axis);

}  // namespace hir::fusion
