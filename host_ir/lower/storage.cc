#include "host_ir/lower/storage.h"

#include <algorithm>

#include "csrc/fusion/fusion_ops.h"

namespace hir::host {
namespace {

bool HasExpandedAxis(const ir::Value& value) {
  return std::any_of(value.type->axes.begin(), value.type->axes.end(), [](const ir::Axis& axis) {
    return axis.kind == ir::AxisKind::kBroadcast && !axis.extent->IsConst(1);
  });
}

// Elements in memory, in `pool`.
const ir::Expr* StoredElements(ir::ExprPool& pool, const ir::Value& value) {
  const ir::Expr* elements = pool.Const(1);
  for (const ir::Axis& axis : value.type->axes) {
    if (axis.kind == ir::AxisKind::kIteration)
      elements = pool.Mul(elements, pool.Import(axis.extent));
  }
  return elements;
}

}  // namespace

bool IsView(const ir::Op& op) {
  using fusion::FusionOp;
  const FusionOp code = fusion::CodeOf(op);
  if (code == FusionOp::kSet || code == FusionOp::kSegmentSet || code == FusionOp::kSqueeze ||
      code == FusionOp::kBroadcast || code == FusionOp::kBroadcastInDim ||
      code == FusionOp::kExpand) {
    // An axis stretched to nothing is stored like any other.
    ir::ExprPool pool;
    return StoredElements(pool, *op.operands[0]) == StoredElements(pool, *op.results[0]);
  }
  // A reshape of an expanded axis repeats elements that are stored once.
  return code == FusionOp::kReshape && !HasExpandedAxis(*op.operands[0]) &&
         !HasExpandedAxis(*op.results[0]);
}

}  // namespace hir::host
