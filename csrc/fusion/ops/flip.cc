// flip: x backwards along axes.
#include <algorithm>
#include <numeric>

#include "csrc/base/text.h"
#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"
#include "csrc/fusion/ops/sequence.h"

namespace hir::fusion {
namespace {

// Backwards and forwards it is the same along an axis that holds one element, which is repeated, or none.
bool Turns(const ir::Axis& axis) {
  return axis.kind == ir::AxisKind::kIteration && !IsOne(axis) && !axis.extent->IsConst(0);
}

// take_along_axis refuses an axis of no elements, which a symbol may be: one is put in front and never taken.
ir::Value* Flip(ir::Builder& builder, ir::Value* x, size_t axis, const std::string& name) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*x->type);
  const ir::Expr* extent = axes[axis].extent;
  const int64_t in_front = extent->IsConst() ? 0 : 1;
  if (in_front == 1) {
    std::vector<int64_t> widths(2 * (axes.size() - axis), 0);
    widths[widths.size() - 2] = 1;
    x = builder.Make("pad", {x}, {{"widths", std::span<const int64_t>(widths)}, {"value", 0.0}});
  }
  ir::ExprPool& pool = builder.graph().exprs();
  const ir::Expr* last = pool.Add(extent, pool.Const(in_front - 1));
  ir::Value* end = builder.Make("extent", {}, {{"value", last}}, base::Cat(name, ".last"));
  ir::Value* places = SequenceAlong(builder, extent, axis, axes.size(), base::Cat(name, ".place"));
  ir::Value* from_end = builder.Make("sub", {end, places});
  return builder.Make("take_along_axis", {x, from_end}, {{"axis", static_cast<int64_t>(axis)}});
}

}  // namespace

Status InferFlip(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  HIR_ASSIGN(std::vector<int64_t> turned, NormalAxes(op.Ints("axes"), axes.size()));
  if (turned.empty()) {
    turned.resize(axes.size());
    std::iota(turned.begin(), turned.end(), 0);
  }
  SetInts(graph, op, "axes", turned);
  return SetTensor(graph, op, op.operands[0]->type->dtype, axes);
}

const Element* DefineFlip(ElementBuilder& builder, const ir::Op& op, Index index) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[0]->type);
  std::vector<const Element*> own(index.begin(), index.end());
  for (const int64_t axis : op.Ints("axes")) {
    const auto k = static_cast<size_t>(axis);
    if (!Turns(axes[k])) continue;
    const Element* last = builder.Apply(Prim::kSub, {builder.Extent(axes[k].extent), builder.Int(DType::kInt64, 1)});
    own[k] = builder.Apply(Prim::kSub, {last, index[k]});
  }
  return builder.Load(op.operands[0], own);
}

ir::Value* DecomposeFlip(ir::Builder& builder, const ir::Op& op) {
  ir::Value* x = op.operands[0];
  const std::vector<ir::Axis> axes = ir::ValueAxes(*x->type);
  for (const int64_t axis : op.Ints("axes")) {
    const auto k = static_cast<size_t>(axis);
    if (Turns(axes[k])) x = Flip(builder, x, k, std::string(op.results[0]->name));
  }
  return x == op.operands[0] ? builder.Make("set", {x}) : x;
}

}  // namespace hir::fusion
