#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"
#include "csrc/fusion/promote.h"

namespace hir::fusion {
namespace {

struct Piece {
  const Element* start = nullptr;  // Where the piece begins along the axis.
  const ir::Value* value = nullptr;
};

// The element at `index` from one of `pieces`, by halving: as deep as the logarithm of their number.
const Element* Choose(ElementBuilder& builder, std::span<const Piece> pieces, Index index, size_t axis, DType carried) {
  if (pieces.size() == 1) {
    std::vector<const Element*> own(index.begin(), index.end());
    own[axis] = builder.Apply(Prim::kSub, {index[axis], pieces[0].start});
    return builder.Convert(carried, builder.Load(pieces[0].value, own));
  }
  const size_t half = pieces.size() / 2;
  const Element* before = builder.Apply(Prim::kLt, {index[axis], pieces[half].start});
  return builder.Select(before, Choose(builder, pieces.first(half), index, axis, carried),
                        Choose(builder, pieces.subspan(half), index, axis, carried));
}

}  // namespace

Status InferCat(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  if (op.operands.empty()) return InvalidArgument("there is no operand");
  HIR_ASSIGN(std::vector<ir::Axis> result, TensorAxes(op, 0));
  HIR_ASSIGN(const int64_t axis, NormalAxis(op.Int("axis"), result.size()));
  SetAttr(op, "axis", axis);
  const auto along = static_cast<size_t>(axis);
  const ir::Value& first = *op.operands[0];
  DType dtype = first.type->dtype;
  result[along].kind = ir::AxisKind::kIteration;
  for (size_t i = 1; i < op.operands.size(); ++i) {
    const ir::Value& value = *op.operands[i];
    HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, static_cast<int>(i)));
    if (axes.size() != result.size()) {
      return InvalidArgument(
          base::Cat("%", first.name, " has ", result.size(), " axes, %", value.name, " has ", axes.size()));
    }
    HIR_ASSIGN(dtype, PromoteTensors(dtype, value.type->dtype));
    for (size_t k = 0; k < axes.size(); ++k) {
      if (k == along) {
        result[k].extent = graph.exprs().Add(result[k].extent, axes[k].extent);
        continue;
      }
      HIR_TRY(Unify(graph, result[k].extent, axes[k].extent, AxisName(first, k), AxisName(value, k)));
      if (axes[k].kind == ir::AxisKind::kIteration) result[k].kind = ir::AxisKind::kIteration;
    }
  }
  return SetTensor(graph, op, dtype, result);
}

void AxesCat(const ir::Op& op, std::vector<AxisLink>& links) {
  const std::span<const ir::Axis> result = op.results[0]->type->axes;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[i]->type);
    for (size_t k = 0; k < axes.size(); ++k) {
      const bool along = static_cast<int64_t>(k) == op.Int("axis") && op.operands.size() > 1;
      links.push_back({static_cast<int>(i), static_cast<int>(k), 0, static_cast<int>(k),
                       along ? AxisRelation::kConcatenated : SameOrBroadcast(axes[k], result[k])});
    }
  }
}

const Element* DefineCat(ElementBuilder& builder, const ir::Op& op, Index index) {
  const auto axis = static_cast<size_t>(op.Int("axis"));
  std::vector<Piece> pieces;
  const Element* start = builder.Int(DType::kInt64, 0);
  for (const ir::Value* value : op.operands) {
    pieces.push_back({start, value});
    start = builder.Apply(Prim::kAdd, {start, builder.Extent(ir::ValueAxes(*value->type)[axis].extent)});
  }
  const DType dtype = op.results[0]->type->dtype;
  return builder.Convert(dtype, Choose(builder, pieces, index, axis, ComputeDType(dtype)));
}

}  // namespace hir::fusion
