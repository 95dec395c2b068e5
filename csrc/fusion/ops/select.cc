#include "csrc/base/text.h"
#include "csrc/fusion/ops/indices.h"
#include "csrc/fusion/ops/sequence.h"

namespace hir::fusion {
namespace {

using base::Cat;

// The index as a number where it is one.
const double* Known(const ir::Op& op) {
  const ir::Op* def = op.operands[1]->def;
  if (def == nullptr || CodeOf(*def) != FusionOp::kConstant) return nullptr;
  return &std::get<double>(def->attrs[0].value);
}

}  // namespace

Status InferSelect(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(std::vector<ir::Axis> x, TensorAxes(op, 0));
  const ir::Value& place = *op.operands[1];
  if (place.type->kind != ir::TypeKind::kScalar || !IsIndex(place.type->dtype)) {
    return InvalidArgument(
        Cat("%", place.name, " is ", ir::ToString(*place.type), "; the index is a host scalar of i32 or i64"));
  }
  HIR_ASSIGN(const int64_t axis, NormalAxis(op.Int("axis"), x.size()));
  SetAttr(op, "axis", axis);
  const auto along = static_cast<size_t>(axis);
  HIR_TRY(RequireSome(graph, op, x, along));
  if (const double* known = Known(op)) {
    const auto number = static_cast<int64_t>(*known);
    const int64_t needed = number < 0 ? -number : number + 1;
    const std::string name = AxisName(*op.operands[0], along);
    if (x[along].extent->IsConst() && x[along].extent->value < needed) {
      return InvalidArgument(Cat(name, " has extent ", x[along].extent->value, "; it has no element ", number));
    }
    HIR_TRY(RequireAtMost(graph, graph.exprs().Const(needed), x[along].extent, Cat("element ", number, " of ", name)));
  }
  x.erase(x.begin() + axis);
  return SetTensor(graph, op, op.operands[0]->type->dtype, x);
}

const Element* DefineSelect(ElementBuilder& builder, const ir::Op& op, Index index) {
  const auto axis = static_cast<size_t>(op.Int("axis"));
  const std::vector<ir::Axis> x = ir::ValueAxes(*op.operands[0]->type);
  std::vector<const Element*> own(index.begin(), index.end());
  own.insert(own.begin() + static_cast<std::ptrdiff_t>(axis),
             PlaceInside(builder, builder.Scalar(op.operands[1]), x[axis].extent));
  return builder.Load(op.operands[0], own);
}

// A slice where the index is a number, else a gather of one element; then without the axis.
ir::Value* DecomposeSelect(ir::Builder& builder, const ir::Op& op) {
  ir::Value* x = op.operands[0];
  ir::ExprPool& pool = builder.graph().exprs();
  const std::vector<ir::Axis> axes = ir::ValueAxes(*x->type);
  const auto axis = static_cast<size_t>(op.Int("axis"));
  ir::Value* one = nullptr;
  if (const double* known = Known(op)) {
    const ir::Expr* place = pool.Const(static_cast<int64_t>(*known));
    if (place->value < 0) place = pool.Add(axes[axis].extent, place);
    std::vector<const ir::Expr*> start(axes.size(), pool.Const(0)), end;
    for (const ir::Axis& a : axes) end.push_back(a.extent);
    start[axis] = place;
    end[axis] = pool.Add(place, pool.Const(1));
    one = SliceTo(builder, x, start, end);
  } else {
    const ir::Expr* shape[] = {pool.Const(1)};
    const ir::Expr* offset[] = {pool.Const(0)};
    ir::Value* places = builder.Make("iota", {op.operands[1], IntConstant(builder, 0)},
                                     {{"shape", std::span<const ir::Expr* const>(shape)},
                                      {"offset", std::span<const ir::Expr* const>(offset)},
                                      {"dtype", std::string_view("i64")}});
    std::vector<int64_t> flags(axes.size(), 1);
    flags[axis] = 0;
    if (flags.size() > 1)
      places = builder.Make("broadcast", {places}, {{"is_broadcast_dim", std::span<const int64_t>(flags)}});
    one = builder.Make("take_along_axis", {x, places}, {{"axis", op.Int("axis")}});
  }
  const int64_t gone[] = {op.Int("axis")};
  return builder.Make("squeeze", {one}, {{"axes", std::span<const int64_t>(gone)}});
}

}  // namespace hir::fusion
