#include "csrc/base/text.h"
#include "csrc/fusion/ops/indices.h"

namespace hir::fusion {

using base::Cat;

Status InferGather(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(std::vector<ir::Axis> x, TensorAxes(op, 0));
  HIR_ASSIGN(const std::vector<ir::Axis> y, TensorAxes(op, 1));
  const ir::Value& from = *op.operands[0];
  const ir::Value& places = *op.operands[1];
  if (x.size() != y.size()) {
    return InvalidArgument(Cat("%", from.name, " has ", x.size(), " axes, %", places.name, " has ", y.size()));
  }
  HIR_TRY(CheckIndices(op, 1));
  HIR_ASSIGN(const int64_t axis, NormalAxis(op.Int("axis"), x.size()));
  SetAttr(op, "axis", axis);
  const auto along = static_cast<size_t>(axis);
  HIR_TRY(RequireSome(graph, op, x, along));
  for (size_t k = 0; k < x.size(); ++k) {
    const std::string name = AxisName(from, k);
    const bool both_known = x[k].extent->IsConst() && y[k].extent->IsConst();
    if (k != along && both_known && y[k].extent->value > x[k].extent->value) {
      return InvalidArgument(Cat(AxisName(places, k), " has extent ", y[k].extent->value, ", more than the ",
                                 x[k].extent->value, " of ", name));
    }
    if (k != along) {
      HIR_TRY(RequireAtMost(graph, y[k].extent, x[k].extent, Cat("gather from ", name)));
    }
    const bool stored_once = x[k].kind == ir::AxisKind::kBroadcast || k == along;
    x[k] = y[k];
    if (!stored_once) x[k].kind = ir::AxisKind::kIteration;
  }
  return SetTensor(graph, op, from.type->dtype, x);
}

const Element* DefineGather(ElementBuilder& builder, const ir::Op& op, Index index) {
  const auto axis = static_cast<size_t>(op.Int("axis"));
  const std::vector<ir::Axis> x = ir::ValueAxes(*op.operands[0]->type);
  std::vector<const Element*> own(index.begin(), index.end());
  own[axis] = PlaceInside(builder, builder.Load(op.operands[1], index), x[axis].extent);
  return builder.Load(op.operands[0], own);
}

// take_along_axis, of a part of x where y is shorter.
ir::Value* DecomposeGather(ir::Builder& builder, const ir::Op& op) {
  ir::Value* x = op.operands[0];
  const std::vector<ir::Axis> from = ir::ValueAxes(*x->type);
  const std::vector<ir::Axis> places = ir::ValueAxes(*op.operands[1]->type);
  const std::vector<const ir::Expr*> start(from.size(), builder.graph().exprs().Const(0));
  std::vector<const ir::Expr*> end;
  bool whole = true;
  for (size_t k = 0; k < from.size(); ++k) {
    const bool along = static_cast<int64_t>(k) == op.Int("axis");
    end.push_back(along ? from[k].extent : places[k].extent);
    whole = whole && ir::Equal(end.back(), from[k].extent);
  }
  if (!whole) x = SliceTo(builder, x, start, end);
  return builder.Make("take_along_axis", {x, op.operands[1]}, {{"axis", op.Int("axis")}});
}

}  // namespace hir::fusion
