#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"

namespace hir::fusion {

Status InferCast(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(const DType dtype, DTypeAttr(op, "dtype"));
  if (op.operands[0]->type->kind == ir::TypeKind::kScalar) {
    op.results[0]->type = graph.Scalar(dtype);
    return {};
  }
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  return SetTensor(graph, op, dtype, axes);
}

void AxesCast(const ir::Op& op, std::vector<AxisLink>& links) { AxesPointwise(op, links); }

const Element* DefineCast(ElementBuilder& builder, const ir::Op& op, Index index) {
  const ir::Value* x = op.operands[0];
  const bool scalar = x->type->kind == ir::TypeKind::kScalar;
  return builder.Convert(op.results[0]->type->dtype, scalar ? builder.Scalar(x) : builder.Load(x, index));
}

}  // namespace hir::fusion
