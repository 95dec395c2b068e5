// Types and loops of composite reductions.
#include "csrc/fusion/ops/reduced.h"

#include <algorithm>
#include <numeric>

#include "csrc/base/text.h"

namespace hir::fusion {
namespace {

bool Holds(std::span<const int64_t> axes, size_t axis) {
  return std::ranges::find(axes, static_cast<int64_t>(axis)) != axes.end();
}

}  // namespace

std::vector<ir::Axis> ReducedAxes(ir::Graph& graph, const std::vector<ir::Axis>& axes, std::span<const int64_t> reduced,
                                  bool keepdim) {
  std::vector<ir::Axis> result;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!Holds(reduced, i)) {
      result.push_back(axes[i]);
    } else if (keepdim) {
      result.push_back({ir::AxisKind::kBroadcast, graph.exprs().Const(1)});
    }
  }
  return result;
}

Result<std::vector<int64_t>> NormalReduced(ir::Graph& graph, ir::Op& op, size_t count) {
  HIR_ASSIGN(std::vector<int64_t> reduced, NormalAxes(op.Ints("axes"), count));
  if (reduced.empty()) {
    reduced.resize(count);
    std::iota(reduced.begin(), reduced.end(), 0);
  }
  SetInts(graph, op, "axes", reduced);
  return reduced;
}

Status InferReduced(ir::Graph& graph, ir::Op& op, DType dtype) {
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  HIR_ASSIGN(const std::vector<int64_t> reduced, NormalReduced(graph, op, axes.size()));
  return SetTensor(graph, op, dtype, ReducedAxes(graph, axes, reduced, op.Bool("keepdim")));
}

Status RequireElements(ir::Graph& graph, const ir::Op& op, const std::vector<ir::Axis>& axes, size_t axis) {
  const std::string name = AxisName(*op.operands[0], axis);
  const ir::Expr* extent = axes[axis].extent;
  if (extent->IsConst(0))
    return InvalidArgument(base::Cat(name, " has extent 0: of nothing there is no ", op.info->name));
  return RequireAtMost(graph, graph.exprs().Const(1), extent, base::Cat(op.info->name, " over ", name));
}

ReducedLoops LoopsOver(ElementBuilder& builder, const ir::Op& op, std::span<const int64_t> reduced, Index index) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[0]->type);
  ReducedLoops loops;
  for (const int64_t axis : reduced) loops.trips.push_back(axes[static_cast<size_t>(axis)].extent);
  loops.first = builder.NewReduceVariables(static_cast<int>(loops.trips.size()));
  size_t kept = 0;
  int variable = loops.first;
  for (size_t i = 0; i < axes.size(); ++i) {
    const bool is_reduced = Holds(reduced, i);
    loops.index.push_back(is_reduced ? builder.ReduceIndex(variable++) : index[kept]);
    if (!is_reduced || op.Bool("keepdim")) ++kept;
  }
  return loops;
}

ir::Value* WithoutReductionAxes(ir::Builder& builder, const ir::Op& op, ir::Value* x) {
  return ir::Equal(*x->type, *op.results[0]->type) ? x : builder.Make("set", {x});
}

}  // namespace hir::fusion
