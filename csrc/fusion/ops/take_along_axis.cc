// x at data: the result at an index is x there, but along `axis` at the element that y holds.
#include "csrc/base/text.h"
#include "csrc/fusion/ops/indices.h"

namespace hir::fusion {

using base::Cat;

Status InferTakeAlongAxis(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
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
  x[along] = {ir::AxisKind::kBroadcast, graph.exprs().Const(1)};  // The result has y's axis.
  const ShapedOperand operands[] = {{&from, x}, {&places, y}};
  HIR_ASSIGN(const std::vector<ir::Axis> result, BroadcastAxes(graph, operands));
  return SetTensor(graph, op, from.type->dtype, result);
}

void AxesTakeAlongAxis(const ir::Op& op, std::vector<AxisLink>& links) {
  const std::span<const ir::Axis> result = op.results[0]->type->axes;
  for (int i = 0; i < 2; ++i) {
    const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[static_cast<size_t>(i)]->type);
    for (size_t k = 0; k < axes.size(); ++k) {
      const bool taken = i == 0 && static_cast<int64_t>(k) == op.Int("axis");
      links.push_back({i, static_cast<int>(k), 0, static_cast<int>(k),
                       taken ? AxisRelation::kGathered : SameOrBroadcast(axes[k], result[k])});
    }
  }
}

const Element* DefineTakeAlongAxis(ElementBuilder& builder, const ir::Op& op, Index index) {
  const auto axis = static_cast<size_t>(op.Int("axis"));
  const std::vector<ir::Axis> x = ir::ValueAxes(*op.operands[0]->type);
  const std::vector<ir::Axis> y = ir::ValueAxes(*op.operands[1]->type);
  const Element* zero = builder.Int(DType::kInt64, 0);
  std::vector<const Element*> from, places;
  for (size_t k = 0; k < index.size(); ++k) {
    from.push_back(IsOne(x[k]) ? zero : index[k]);
    places.push_back(IsOne(y[k]) ? zero : index[k]);
  }
  from[axis] = PlaceInside(builder, builder.Load(op.operands[1], places), x[axis].extent);
  return builder.Load(op.operands[0], from);
}

}  // namespace hir::fusion
