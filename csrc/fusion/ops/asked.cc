// Elements that ask all others along an axis.
#include "csrc/fusion/ops/asked.h"

#include "csrc/base/text.h"
#include "csrc/fusion/ops/sequence.h"

namespace hir::fusion {

Status CheckAsked(ir::Graph& graph, const std::vector<ir::Axis>& axes, size_t axis) {
  std::vector<ir::Axis> asked = {{ir::AxisKind::kIteration, axes[axis].extent},
                                 {ir::AxisKind::kIteration, graph.exprs().Const(1)}};
  asked.insert(asked.end(), axes.begin(), axes.end());
  return ir::CheckType({.kind = ir::TypeKind::kTensor, .dtype = DType::kInt64, .axes = asked});
}

AskedPlaces PlacesAlong(ir::Builder& builder, const std::vector<ir::Axis>& axes, size_t axis, std::string_view name) {
  const size_t rank = axes.size() + 1 - axis;
  return {.own = SequenceAlong(builder, axes[axis].extent, 0, rank, base::Cat(name, ".place")),
          .asked = SequenceAlong(builder, axes[axis].extent, 1, rank, base::Cat(name, ".asked"))};
}

ir::Value* WithAxis(ir::Builder& builder, ir::Value* x, size_t at) {
  std::vector<int64_t> flags(ir::ValueAxes(*x->type).size() + 1, 0);
  flags[at] = 1;
  return builder.Make("broadcast", {x}, {{"is_broadcast_dim", std::span<const int64_t>(flags)}});
}

}  // namespace hir::fusion
