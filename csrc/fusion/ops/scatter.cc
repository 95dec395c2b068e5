// x with some elements replaced. An element of the result asks all indices along the axis for the last one that names
// it: nothing is written twice, so the order of equal indices is the same everywhere.
#include "csrc/base/text.h"
#include "csrc/fusion/ops/indices.h"
#include "csrc/fusion/ops/sequence.h"

namespace hir::fusion {

using base::Cat;

Status InferScatter(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(std::vector<ir::Axis> x, TensorAxes(op, 0));
  HIR_ASSIGN(std::vector<ir::Axis> y, TensorAxes(op, 1));
  HIR_ASSIGN(std::vector<ir::Axis> z, TensorAxes(op, 2));
  const ir::Value& into = *op.operands[0];
  const ir::Value& places = *op.operands[1];
  const ir::Value& from = *op.operands[2];
  for (const auto& [value, rank] : {std::pair(&places, y.size()), {&from, z.size()}}) {
    if (rank != x.size())
      return InvalidArgument(Cat("%", into.name, " has ", x.size(), " axes, %", value->name, " has ", rank));
  }
  HIR_TRY(CheckIndices(op, 1));
  if (from.type->dtype != into.type->dtype) {
    return InvalidArgument(Cat("%", into.name, " is ", DTypeName(into.type->dtype), ", %", from.name, " is ",
                               DTypeName(from.type->dtype), "; nothing promotes: cast one"));
  }
  HIR_ASSIGN(const int64_t axis, NormalAxis(op.Int("axis"), x.size()));
  SetAttr(op, "axis", axis);
  const auto along = static_cast<size_t>(axis);
  HIR_TRY(Unify(graph, y[along].extent, z[along].extent, AxisName(places, along), AxisName(from, along)));
  const std::string name = AxisName(places, along);
  if (y[along].extent->IsConst(0)) return InvalidArgument(Cat(name, " has extent 0: there is nothing to put"));
  HIR_TRY(RequireAtMost(graph, graph.exprs().Const(1), y[along].extent, Cat("scatter over ", name)));
  const ir::Axis count = {ir::AxisKind::kIteration, y[along].extent};
  const ir::Axis own = {ir::AxisKind::kIteration, graph.Resolve(x[along].extent)};
  x[along] = y[along] = z[along] = own;
  const ShapedOperand operands[] = {{&into, x}, {&places, y}, {&from, z}};
  HIR_ASSIGN(const std::vector<ir::Axis> result, BroadcastAxes(graph, operands));
  std::vector<ir::Axis> asked = {count};  // Each element of the result asks all indices.
  asked.insert(asked.end(), result.begin(), result.end());
  HIR_TRY(ir::CheckType({.kind = ir::TypeKind::kTensor, .dtype = DType::kInt64, .axes = asked}));
  return SetTensor(graph, op, into.type->dtype, result);
}

const Element* DefineScatter(ElementBuilder& builder, const ir::Op& op, Index index) {
  const auto axis = static_cast<size_t>(op.Int("axis"));
  const auto load = [&](size_t operand, const Element* along) {
    const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[operand]->type);
    std::vector<const Element*> own;
    for (size_t k = 0; k < axes.size(); ++k) {
      const Element* place = k == axis ? along : index[k];
      own.push_back(IsOne(axes[k]) ? builder.Int(DType::kInt64, 0) : place);
    }
    return builder.Load(op.operands[operand], own);
  };
  const ir::Expr* count = ir::ValueAxes(*op.operands[1]->type)[axis].extent;
  const Element* extent = builder.Extent(ir::ValueAxes(*op.operands[0]->type)[axis].extent);
  const Element* none = builder.Int(DType::kInt64, -1);
  const int variable = builder.NewReduceVariables(1);
  const Element* at = builder.ReduceIndex(variable);
  const Element* place = builder.Convert(DType::kInt64, load(1, at));
  const Element* negative = builder.Apply(Prim::kLt, {place, builder.Int(DType::kInt64, 0)});
  place = builder.Select(negative, builder.Apply(Prim::kAdd, {place, extent}), place);
  const Element* hit = builder.Apply(Prim::kEq, {place, index[axis]});
  const Element* last = builder.Reduce(ReduceKind::kMax, variable, {&count, 1}, builder.Select(hit, at, none));
  const Element* inside = builder.Apply(Prim::kMax, {last, builder.Int(DType::kInt64, 0)});
  const DType dtype = op.results[0]->type->dtype;
  const DType carried = ComputeDType(dtype);
  return builder.Convert(
      dtype, builder.Select(builder.Apply(Prim::kGt, {last, none}), builder.Convert(carried, load(2, inside)),
                            builder.Convert(carried, load(0, index[axis]))));
}

// A new axis in front of the indices' own counts the places of the result; a maximum over the indices goes away again.
ir::Value* DecomposeScatter(ir::Builder& builder, const ir::Op& op) {
  ir::Value* x = op.operands[0];
  ir::Value* y = op.operands[1];
  const std::string name(op.results[0]->name);
  const std::vector<ir::Axis> axes = ir::ValueAxes(*x->type);
  const auto axis = static_cast<size_t>(op.Int("axis"));
  const ir::Expr* places = axes[axis].extent;
  const ir::Expr* count = ir::ValueAxes(*y->type)[axis].extent;
  const size_t behind = axes.size() - axis;  // The indices' axis and those after it.
  ir::Value* wide = builder.Make("cast", {y}, {{"dtype", std::string_view("i64")}});
  ir::Value* zero = IntConstant(builder, 0);
  ir::Value* none = IntConstant(builder, -1);
  ir::Value* extent = builder.Make("extent", {}, {{"value", places}}, Cat(name, ".extent"));
  ir::Value* negative = builder.Make("lt", {wide, zero});
  ir::Value* from_end = builder.Make("add", {wide, extent});
  ir::Value* normal = builder.Make("where", {negative, from_end, wide}, {}, Cat(name, ".index"));
  std::vector<int64_t> flags(axes.size() + 1, 0);
  flags[axis] = 1;
  ir::Value* spread = builder.Make("broadcast", {normal}, {{"is_broadcast_dim", std::span<const int64_t>(flags)}});
  ir::Value* hit = builder.Make("eq", {spread, SequenceAlong(builder, places, 0, behind + 1, Cat(name, ".place"))}, {},
                                Cat(name, ".hit"));
  ir::Value* number = SequenceAlong(builder, count, 0, behind, Cat(name, ".number"));
  ir::Value* named = builder.Make("where", {hit, number, none});
  const int64_t over[] = {op.Int("axis") + 1};
  ir::Value* last =
      builder.Make("max", {named},
                   {{"axes", std::span<const int64_t>(over)}, {"keepdim", false}, {"dtype", std::string_view("null")}},
                   Cat(name, ".last"));
  ir::Value* inside = builder.Make("maximum", {last, zero});
  ir::Value* taken = builder.Make("take_along_axis", {op.operands[2], inside}, {{"axis", op.Int("axis")}});
  ir::Value* some = builder.Make("gt", {last, none});
  return builder.Make("where", {some, taken, x});
}

}  // namespace hir::fusion
