#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/fusion/ops/indices.h"

namespace hir::fusion {
Status InferSqueezeExpanded(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  HIR_ASSIGN(const std::vector<int64_t> squeezed, NormalAxes(op.Ints("axes"), axes.size()));
  SetInts(graph, op, "axes", squeezed);
  std::vector<ir::Axis> result;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!IsSqueezed(op, i)) {
      result.push_back(axes[i]);
    } else if (!IsOne(axes[i]) && axes[i].kind != ir::AxisKind::kBroadcast) {
      return InvalidArgument(base::Cat(AxisName(*op.operands[0], i), " holds ", ir::ToString(axes[i].extent),
                                       " elements; only axes that are stored once can go"));
    } else {
      HIR_TRY(RequireAtMost(graph, graph.exprs().Const(1), axes[i].extent,
                            base::Cat("squeeze_expanded of ", AxisName(*op.operands[0], i))));
    }
  }
  return SetTensor(graph, op, op.operands[0]->type->dtype, result);
}

const Element* DefineSqueezeExpanded(ElementBuilder& builder, const ir::Op& op, Index index) {
  std::vector<const Element*> own;
  size_t next = 0;
  for (size_t i = 0; i < ir::ValueAxes(*op.operands[0]->type).size(); ++i) {
    own.push_back(IsSqueezed(op, i) ? builder.Int(DType::kInt64, 0) : index[next++]);
  }
  return builder.Load(op.operands[0], own);
}

ir::Value* DecomposeSqueezeExpanded(ir::Builder& builder, const ir::Op& op) {
  ir::Value* x = op.operands[0];
  ir::ExprPool& pool = builder.graph().exprs();
  const std::vector<ir::Axis> axes = ir::ValueAxes(*x->type);
  std::vector<const ir::Expr*> start(axes.size(), pool.Const(0)), end;
  for (size_t i = 0; i < axes.size(); ++i) end.push_back(IsSqueezed(op, i) ? pool.Const(1) : axes[i].extent);
  ir::Value* one = SliceTo(builder, x, start, end);
  return builder.Make("squeeze", {one}, {{"axes", op.Ints("axes")}});
}

}  // namespace hir::fusion
