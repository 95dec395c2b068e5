// argmax, argmin: where along an axis the greatest or least element is, of equals the first. NaN is both.
#include "csrc/base/text.h"
#include "csrc/fusion/ops/reduced.h"
#include "csrc/fusion/ops/sequence.h"

namespace hir::fusion {
namespace {

using base::Cat;

Status InferArg(ir::Graph& graph, ir::Op& op) {
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  HIR_ASSIGN(const int64_t axis, NormalAxis(op.Int("axis"), axes.size()));
  SetAttr(op, "axis", axis);
  HIR_TRY(RequireElements(graph, op, axes, static_cast<size_t>(axis)));
  const std::vector<ir::Axis> result = ReducedAxes(graph, axes, std::span(&axis, 1), op.Bool("keepdim"));
  return SetTensor(graph, op, DType::kInt64, result);
}

const Element* DefineArg(ElementBuilder& builder, const ir::Op& op, Index index, ReduceKind kind) {
  const int64_t axis = op.Int("axis");
  const DType given = op.operands[0]->type->dtype;
  const DType carried = given == DType::kBool ? DType::kInt32 : ComputeDType(given);
  const auto load = [&](const ReducedLoops& loops) {
    return builder.Convert(carried, builder.Load(op.operands[0], loops.index));
  };
  const ReducedLoops all = LoopsOver(builder, op, std::span(&axis, 1), index);
  const Element* end = builder.Reduce(kind, all.first, all.trips, load(all));
  const ReducedLoops again = LoopsOver(builder, op, std::span(&axis, 1), index);
  const Element* x = load(again);
  const Element* hit = builder.Apply(Prim::kEq, {x, end});
  if (IsFloat(carried)) hit = builder.Apply(Prim::kOr, {hit, builder.Apply(Prim::kIsNan, {x})});
  const Element* place = builder.Select(hit, builder.ReduceIndex(again.first), builder.Extent(again.trips[0]));
  return builder.Reduce(ReduceKind::kMin, again.first, again.trips, place);
}

ir::Value* DecomposeArg(ir::Builder& builder, const ir::Op& op, std::string_view reduction) {
  ir::Value* x = op.operands[0];
  const std::string name(op.results[0]->name);
  const int64_t axis[] = {op.Int("axis")};
  const auto reduce = [&](std::string_view kind, ir::Value* of, bool keepdim, std::string_view suffix) {
    return builder.Make(
        kind, {of},
        {{"axes", std::span<const int64_t>(axis)}, {"keepdim", keepdim}, {"dtype", std::string_view("null")}},
        Cat(name, suffix));
  };
  ir::Value* end = reduce(reduction, x, true, Cat(".", reduction));
  ir::Value* hit = builder.Make("eq", {x, end}, {}, Cat(name, ".hit"));
  // Where there is NaN the end is NaN, which equals nothing.
  if (IsFloat(x->type->dtype)) hit = builder.Make("logical_or", {hit, builder.Make("isnan", {x})});
  const std::vector<ir::Axis> axes = ir::ValueAxes(*x->type);
  const auto along = static_cast<size_t>(axis[0]);
  ir::Value* places = SequenceAlong(builder, axes[along].extent, along, axes.size(), Cat(name, ".place"));
  ir::Value* beyond = builder.Make("extent", {}, {{"value", axes[along].extent}}, Cat(name, ".extent"));
  ir::Value* place = builder.Make("where", {hit, places, beyond});
  return WithoutReductionAxes(builder, op, reduce("min", place, op.Bool("keepdim"), ".first"));
}

}  // namespace

#define PLACE_OF(Name, kEnd, reduction)                                                                              \
  Status Infer##Name(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) { return InferArg(graph, op); } \
  const Element* Define##Name(ElementBuilder& builder, const ir::Op& op, Index index) {                              \
    return DefineArg(builder, op, index, kEnd);                                                                      \
  }                                                                                                                  \
  ir::Value* Decompose##Name(ir::Builder& builder, const ir::Op& op) { return DecomposeArg(builder, op, reduction); }
PLACE_OF(Argmax, ReduceKind::kMax, "max")
PLACE_OF(Argmin, ReduceKind::kMin, "min")
#undef PLACE_OF

}  // namespace hir::fusion
