// Sums of rows by index: updates[..., n, ...] and indices[n] -> [..., size, ..., r:n], where row v of the result is the
// sum, in the order of n, of the rows of the updates whose index is v: the adjoint of index_select.
#include "csrc/base/text.h"
#include "csrc/fusion/ops/indices.h"

namespace hir::fusion {

using base::Cat;

Status InferIndexSum(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(std::vector<ir::Axis> updates, TensorAxes(op, 0));
  HIR_ASSIGN(const std::vector<ir::Axis> indices, TensorAxes(op, 1));
  const ir::Value& from = *op.operands[0];
  const ir::Value& places = *op.operands[1];
  HIR_TRY(CheckIndices(op, 1));
  if (indices.size() != 1)
    return InvalidArgument(Cat("%", places.name, " has ", indices.size(), " axes; a list of indices has one"));
  if (from.type->dtype == DType::kBool)
    return InvalidArgument(Cat("%", from.name, " is bool; numbers are needed: cast it first"));
  HIR_ASSIGN(const int64_t axis, NormalAxis(op.Int("axis"), updates.size()));
  SetAttr(op, "axis", axis);
  const auto along = static_cast<size_t>(axis);
  HIR_TRY(Unify(graph, updates[along].extent, indices[0].extent, AxisName(from, along), AxisName(places, 0)));
  const ir::Expr* const size = op.ExprOf("size");
  HIR_TRY(RequireExtents(graph, op, {&size, 1}));
  const ir::Axis summed = {ir::AxisKind::kReduction, updates[along].extent};
  updates[along].extent = size;
  for (ir::Axis& updated : updates) updated.kind = ir::AxisKind::kIteration;  // A library writes all of it.
  updates.push_back(summed);
  return SetTensor(graph, op, from.type->dtype, updates);
}

void AxesIndexSum(const ir::Op& op, std::vector<AxisLink>& links) {
  const std::span<const ir::Axis> result = op.results[0]->type->axes;
  const std::vector<ir::Axis> updates = ir::ValueAxes(*op.operands[0]->type);
  const int axis = static_cast<int>(op.Int("axis")), summed = static_cast<int>(result.size()) - 1;
  for (int k = 0; k < summed; ++k) {
    const auto own = static_cast<size_t>(k);
    if (k == axis) continue;
    links.push_back({0, k, 0, k, SameOrBroadcast(updates[own], result[own])});
  }
  links.push_back({0, axis, 0, summed, AxisRelation::kContracted});
  links.push_back({1, 0, 0, summed, AxisRelation::kContracted});
  links.push_back({1, 0, 0, axis, AxisRelation::kOpaque});  // A row of the result asks all indices.
}

const Element* DefineIndexSum(ElementBuilder& builder, const ir::Op& op, Index index) {
  const auto axis = static_cast<size_t>(op.Int("axis"));
  const std::vector<ir::Axis> updates = ir::ValueAxes(*op.operands[0]->type);
  const std::vector<ir::Axis> indices = ir::ValueAxes(*op.operands[1]->type);
  const ir::Expr* const count = op.results[0]->type->axes.back().extent;
  const int variable = builder.NewReduceVariables(1);
  const Element* const zero = builder.Int(DType::kInt64, 0);
  const Element* const n = builder.ReduceIndex(variable);
  const Element* const at = IsOne(indices[0]) ? zero : n;
  const Element* const place = PlaceInside(builder, builder.Load(op.operands[1], {&at, 1}), op.ExprOf("size"));
  std::vector<const Element*> own(index.begin(), index.end());
  own[axis] = IsOne(updates[axis]) ? zero : n;
  const DType dtype = op.results[0]->type->dtype;
  const DType carried = ComputeDType(dtype);
  const Element* const hit = builder.Apply(Prim::kEq, {place, index[axis]});
  const Element* const row = builder.Convert(carried, builder.Load(op.operands[0], own));
  const Element* const chosen = builder.Select(hit, row, builder.Convert(carried, zero));
  return builder.Convert(dtype, builder.Reduce(ReduceKind::kSum, variable, {&count, 1}, chosen));
}

}  // namespace hir::fusion
