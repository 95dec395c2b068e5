#include "csrc/base/text.h"
#include "csrc/fusion/ops/stretch.h"

namespace hir::fusion {

Result<ir::Axis> Stretch(ir::Graph& graph, const ir::Value& value, size_t number, const ir::Axis& axis, size_t at,
                         const ir::Expr* extent) {
  if (IsOne(axis) && graph.Resolve(extent)->IsConst(1)) return axis;
  // Not even one is stored where there are none.
  const bool none = graph.Resolve(extent)->IsConst(0);
  if (IsOne(axis)) {
    return ir::Axis{none ? ir::AxisKind::kIteration : ir::AxisKind::kBroadcast, extent};
  }
  HIR_TRY(Unify(graph, axis.extent, extent, AxisName(value, number), base::Cat("entry ", at, " of shape")));
  return axis;
}

Status InferExpand(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  std::vector<const ir::Expr*> shape(op.Exprs("shape").begin(), op.Exprs("shape").end());
  HIR_TRY(CheckCount(op, "shape", shape.size(), axes.size()));
  std::vector<ir::Axis> result;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (shape[i]->IsConst(-1)) shape[i] = axes[i].extent;
    HIR_ASSIGN(const ir::Axis axis, Stretch(graph, *op.operands[0], i, axes[i], i, shape[i]));
    result.push_back(axis);
  }
  HIR_TRY(RequireExtents(graph, op, shape));
  SetExprs(graph, op, "shape", shape);
  return SetTensor(graph, op, op.operands[0]->type->dtype, result);
}

void AxesExpand(const ir::Op& op, std::vector<AxisLink>& links) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[0]->type);
  for (size_t i = 0; i < axes.size(); ++i) {
    links.push_back(
        {0, static_cast<int>(i), 0, static_cast<int>(i), SameOrBroadcast(axes[i], op.results[0]->type->axes[i])});
  }
}

const Element* DefineExpand(ElementBuilder& builder, const ir::Op& op, Index index) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[0]->type);
  std::vector<const Element*> own;
  for (size_t i = 0; i < axes.size(); ++i) {
    own.push_back(IsOne(axes[i]) ? builder.Int(DType::kInt64, 0) : index[i]);
  }
  return builder.Load(op.operands[0], own);
}

}  // namespace hir::fusion
