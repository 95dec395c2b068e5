// argsort: the indices that bring an axis in order. By counting: an element's place is the number of those before it,
// and the index at a place is that of the one element which has it. NaN is greater than all numbers, as of PyTorch.
#include "csrc/base/text.h"
#include "csrc/fusion/ops/asked.h"
#include "csrc/fusion/ops/sequence.h"

namespace hir::fusion {
namespace {

using base::Cat;

// The sum over the axis behind `axis`.
ir::Value* SumOfAsked(ir::Builder& builder, ir::Value* x, size_t axis, std::string_view name) {
  const int64_t over[] = {static_cast<int64_t>(axis) + 1};
  return builder.Make(
      "sum", {x}, {{"axes", std::span<const int64_t>(over)}, {"keepdim", false}, {"dtype", std::string_view("null")}},
      name);
}

const Element* Less(ElementBuilder& builder, const Element* a, const Element* b) {
  const Element* less = builder.Apply(Prim::kLt, {a, b});
  if (!IsFloat(a->dtype)) return less;
  const Element* a_is_number = builder.Apply(Prim::kNot, {builder.Apply(Prim::kIsNan, {a})});
  const Element* to_nan = builder.Apply(Prim::kAnd, {builder.Apply(Prim::kIsNan, {b}), a_is_number});
  return builder.Apply(Prim::kOr, {less, to_nan});
}

}  // namespace

Status InferArgsort(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(std::vector<ir::Axis> axes, TensorAxes(op, 0));
  HIR_ASSIGN(const int64_t axis, NormalAxis(op.Int("axis"), axes.size()));
  SetAttr(op, "axis", axis);
  axes[static_cast<size_t>(axis)].kind = ir::AxisKind::kIteration;
  HIR_TRY(CheckAsked(graph, axes, static_cast<size_t>(axis)));
  return SetTensor(graph, op, DType::kInt64, axes);
}

const Element* DefineArgsort(ElementBuilder& builder, const ir::Op& op, Index index) {
  const auto axis = static_cast<size_t>(op.Int("axis"));
  const DType given = op.operands[0]->type->dtype;
  const DType carried = given == DType::kBool ? DType::kInt32 : ComputeDType(given);
  const ir::Expr* extent = ir::ValueAxes(*op.operands[0]->type)[axis].extent;
  const auto load = [&](const Element* place) {
    std::vector<const Element*> own(index.begin(), index.end());
    own[axis] = place;
    return builder.Convert(carried, builder.Load(op.operands[0], own));
  };
  const int of_place = builder.NewReduceVariables(1), of_others = builder.NewReduceVariables(1);
  const Element* i = builder.ReduceIndex(of_place);
  const Element* j = builder.ReduceIndex(of_others);
  const Element* low = op.Bool("descending") ? load(i) : load(j);
  const Element* high = op.Bool("descending") ? load(j) : load(i);
  const Element* not_above = builder.Apply(Prim::kNot, {Less(builder, high, low)});
  const Element* earlier = builder.Apply(Prim::kAnd, {not_above, builder.Apply(Prim::kLt, {j, i})});
  const Element* before = builder.Apply(Prim::kOr, {Less(builder, low, high), earlier});
  const Element* place =
      builder.Reduce(ReduceKind::kSum, of_others, {&extent, 1}, builder.Convert(DType::kInt64, before));
  const Element* hit = builder.Apply(Prim::kEq, {place, index[axis]});
  return builder.Reduce(ReduceKind::kSum, of_place, {&extent, 1},
                        builder.Select(hit, i, builder.Int(DType::kInt64, 0)));
}

ir::Value* DecomposeArgsort(ir::Builder& builder, const ir::Op& op) {
  ir::Value* x = op.operands[0];
  const std::string name(op.results[0]->name);
  const auto axis = static_cast<size_t>(op.Int("axis"));
  const std::vector<ir::Axis> axes = ir::ValueAxes(*x->type);
  const AskedPlaces places = PlacesAlong(builder, axes, axis, name);
  ir::Value* low = WithAxis(builder, x, op.Bool("descending") ? axis + 1 : axis);
  ir::Value* high = WithAxis(builder, x, op.Bool("descending") ? axis : axis + 1);
  // The earlier one of equals is before; so it is of two NaN, neither of which is below the other.
  ir::Value* below = builder.Make("lt", {low, high}, {}, Cat(name, ".below"));
  ir::Value* not_above = builder.Make("le", {low, high}, {}, Cat(name, ".not_above"));
  if (IsFloat(x->type->dtype)) {
    ir::Value* low_is_nan = builder.Make("isnan", {low});
    ir::Value* high_is_nan = builder.Make("isnan", {high});
    ir::Value* to_nan = builder.Make("gt", {high_is_nan, low_is_nan});
    below = builder.Make("logical_or", {below, to_nan});
    not_above = builder.Make("logical_or", {not_above, high_is_nan});
  }
  ir::Value* earlier = builder.Make("lt", {places.asked, places.own}, {}, Cat(name, ".earlier"));
  ir::Value* before = builder.Make("where", {earlier, not_above, below}, {}, Cat(name, ".before"));
  ir::Value* place = SumOfAsked(builder, before, axis, Cat(name, ".place"));
  ir::Value* hit = builder.Make("eq", {WithAxis(builder, place, axis), places.own}, {}, Cat(name, ".hit"));
  ir::Value* index = builder.Make("where", {hit, places.asked, IntConstant(builder, 0)});
  return WithoutReductionAxes(builder, op, SumOfAsked(builder, index, axis, Cat(name, ".index")));
}

}  // namespace hir::fusion
