// Sizes as numbers: extent is one of the whole program, whatever part of a tensor a rank holds; size asks a tensor.
#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"

namespace hir::fusion {

Status InferExtent(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_TRY(RequireDivisors(graph, op, op.ExprOf("value")));
  op.results[0]->type = graph.Scalar(DType::kInt64);
  return {};
}

void AxesExtent(const ir::Op&, std::vector<AxisLink>&) {}

const Element* DefineExtent(ElementBuilder& builder, const ir::Op& op, Index) {
  return builder.Extent(op.ExprOf("value"));
}

Status InferSize(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  HIR_ASSIGN(const int64_t axis, NormalAxis(op.Int("axis"), axes.size()));
  SetAttr(op, "axis", axis);
  op.results[0]->type = graph.Scalar(DType::kInt64);
  return {};
}

const Element* DefineSize(ElementBuilder& builder, const ir::Op& op, Index) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[0]->type);
  return builder.Extent(axes[static_cast<size_t>(op.Int("axis"))].extent);
}

ir::Value* DecomposeSize(ir::Builder& builder, const ir::Op& op) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[0]->type);
  return builder.Make("extent", {}, {{"value", axes[static_cast<size_t>(op.Int("axis"))].extent}});
}

}  // namespace hir::fusion
