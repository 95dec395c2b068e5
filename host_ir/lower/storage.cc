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

}  // namespace

bool IsView(const ir::Op& op) {
  using fusion::FusionOp;
  const FusionOp code = fusion::CodeOf(op);
  if (code == FusionOp::kSet || code == FusionOp::kSegmentSet || code == FusionOp::kSqueeze ||
      code == FusionOp::kBroadcast || code == FusionOp::kBroadcastInDim ||
      code == FusionOp::kExpand) {
    return true;
  }
  // A reshape of an expanded axis repeats elements that are stored once.
  return code == FusionOp::kReshape && !HasExpandedAxis(*op.operands[0]) &&
         !HasExpandedAxis(*op.results[0]);
}

}  // namespace hir::host
