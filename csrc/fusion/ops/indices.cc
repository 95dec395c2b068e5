#include "csrc/fusion/ops/indices.h"

#include "csrc/base/text.h"

namespace hir::fusion {

using base::Cat;

Status CheckIndices(const ir::Op& op, int i) {
  const ir::Value& places = *op.operands[static_cast<size_t>(i)];
  if (IsIndex(places.type->dtype)) return {};
  return InvalidArgument(
      Cat("%", places.name, " is ", DTypeName(places.type->dtype), "; indices are i32 or i64: cast it first"));
}

Status RequireSome(ir::Graph& graph, const ir::Op& op, const std::vector<ir::Axis>& x, size_t axis) {
  const std::string name = AxisName(*op.operands[0], axis);
  if (x[axis].extent->IsConst(0)) return InvalidArgument(Cat(name, " has extent 0: there is nothing to take"));
  return RequireAtMost(graph, graph.exprs().Const(1), x[axis].extent, Cat(op.info->name, " over ", name));
}

const Element* PlaceInside(ElementBuilder& builder, const Element* place, const ir::Expr* extent) {
  const Element* zero = builder.Int(DType::kInt64, 0);
  const Element* count = builder.Extent(extent);
  place = builder.Convert(DType::kInt64, place);
  const Element* from_end = builder.Apply(Prim::kAdd, {place, count});
  place = builder.Select(builder.Apply(Prim::kLt, {place, zero}), from_end, place);
  const Element* last = builder.Apply(Prim::kSub, {count, builder.Int(DType::kInt64, 1)});
  return builder.Apply(Prim::kMin, {builder.Apply(Prim::kMax, {place, zero}), last});
}

ir::Value* SliceTo(ir::Builder& builder, ir::Value* x, const std::vector<const ir::Expr*>& start,
                   const std::vector<const ir::Expr*>& end) {
  const std::vector<int64_t> strides(end.size(), 1);
  return builder.Make("slice", {x},
                      {{"start", std::span<const ir::Expr* const>(start)},
                       {"end", std::span<const ir::Expr* const>(end)},
                       {"strides", std::span<const int64_t>(strides)}});
}

}  // namespace hir::fusion
