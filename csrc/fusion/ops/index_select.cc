#include "csrc/base/text.h"
#include "csrc/fusion/ops/indices.h"

namespace hir::fusion {

Status InferIndexSelect(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(std::vector<ir::Axis> x, TensorAxes(op, 0));
  HIR_ASSIGN(const std::vector<ir::Axis> y, TensorAxes(op, 1));
  HIR_TRY(CheckIndices(op, 1));
  if (y.size() != 1) {
    return InvalidArgument(base::Cat("%", op.operands[1]->name, " has ", y.size(), " axes; a list of indices has one"));
  }
  HIR_ASSIGN(const int64_t axis, NormalAxis(op.Int("axis"), x.size()));
  SetAttr(op, "axis", axis);
  const auto along = static_cast<size_t>(axis);
  HIR_TRY(RequireSome(graph, op, x, along));
  x[along] = y[0];
  return SetTensor(graph, op, op.operands[0]->type->dtype, x);
}

const Element* DefineIndexSelect(ElementBuilder& builder, const ir::Op& op, Index index) {
  const auto axis = static_cast<size_t>(op.Int("axis"));
  const std::vector<ir::Axis> x = ir::ValueAxes(*op.operands[0]->type);
  const Element* place = builder.Load(op.operands[1], index.subspan(axis, 1));
  std::vector<const Element*> own(index.begin(), index.end());
  own[axis] = PlaceInside(builder, place, x[axis].extent);
  return builder.Load(op.operands[0], own);
}

// The list as indices along the axis for all of the others at once.
ir::Value* DecomposeIndexSelect(ir::Builder& builder, const ir::Op& op) {
  ir::Value* list = op.operands[1];
  std::vector<int64_t> flags(ir::ValueAxes(*op.operands[0]->type).size(), 1);
  flags[static_cast<size_t>(op.Int("axis"))] = 0;
  if (flags.size() > 1)
    list = builder.Make("broadcast", {list}, {{"is_broadcast_dim", std::span<const int64_t>(flags)}});
  return builder.Make("take_along_axis", {op.operands[0], list}, {{"axis", op.Int("axis")}});
}

}  // namespace hir::fusion
