#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"

namespace hir::fusion {

Status InferFull(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(const DType dtype, DTypeAttr(op, "dtype"));
  HIR_TRY(RequireExtents(graph, op, op.Exprs("shape")));
  std::vector<ir::Axis> axes;
  for (const ir::Expr* extent : op.Exprs("shape")) axes.push_back({ir::AxisKind::kIteration, extent});
  return SetTensor(graph, op, dtype, axes);
}

void AxesFull(const ir::Op&, std::vector<AxisLink>&) {}

const Element* DefineFull(ElementBuilder& builder, const ir::Op& op, Index) {
  return builder.Convert(op.results[0]->type->dtype, builder.Float(DType::kFloat64, op.Float("value")));
}

}  // namespace hir::fusion
