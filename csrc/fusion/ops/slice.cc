#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"

namespace hir::fusion {
namespace {

using base::Cat;

struct Range {
  const ir::Expr* start = nullptr;
  const ir::Expr* end = nullptr;
};

// A slice bound as NumPy reads it: negative constants count from the end, and INT64_MAX is the end.
const ir::Expr* FromEnd(ir::ExprPool& pool, const ir::Expr* bound, const ir::Expr* extent) {
  if (bound->IsConst(INT64_MAX)) return extent;
  return bound->IsConst() && bound->value < 0 ? pool.Add(extent, bound) : bound;
}

// Where everything is constant the bounds are clamped as NumPy does; a bound beside a symbol becomes a guard instead,
// so that the result's extent needs no min and max.
Result<Range> Normalize(ir::Graph& graph, Range range, const ir::Expr* extent, const std::string& name) {
  ir::ExprPool& pool = graph.exprs();
  range = {FromEnd(pool, range.start, extent), FromEnd(pool, range.end, extent)};
  HIR_TRY(pool.status());
  const auto clamp = [&](const ir::Expr* bound, int64_t low) {
    return pool.Const(std::clamp(bound->value, low, std::max(low, extent->value)));
  };
  if (extent->IsConst() && range.start->IsConst()) range.start = clamp(range.start, 0);
  if (extent->IsConst() && range.end->IsConst()) range.end = clamp(range.end, 0);
  if (range.start->IsConst() && range.end->IsConst() && range.end->value < range.start->value) range.end = range.start;
  const std::string what = Cat("slice of ", name);
  HIR_TRY(RequireAtMost(graph, pool.Const(0), range.start, what));
  HIR_TRY(RequireAtMost(graph, range.start, range.end, what));
  HIR_TRY(RequireAtMost(graph, range.end, extent, what));
  return range;
}

bool IsWhole(const ir::Op& op, size_t axis, const ir::Axis& operand) {
  return op.Exprs("start")[axis]->IsConst(0) && ir::Equal(op.Exprs("end")[axis], operand.extent) &&
         op.Ints("strides")[axis] == 1;
}

}  // namespace

Status InferSlice(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  std::vector<const ir::Expr*> starts(op.Exprs("start").begin(), op.Exprs("start").end());
  std::vector<const ir::Expr*> ends(op.Exprs("end").begin(), op.Exprs("end").end());
  std::vector<int64_t> strides(op.Ints("strides").begin(), op.Ints("strides").end());
  if (strides.empty()) strides.assign(axes.size(), 1);
  HIR_TRY(CheckCount(op, "start", starts.size(), axes.size()));
  HIR_TRY(CheckCount(op, "end", ends.size(), axes.size()));
  HIR_TRY(CheckCount(op, "strides", strides.size(), axes.size()));
  std::vector<ir::Axis> result = axes;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (strides[i] < 1) return InvalidArgument(Cat("stride ", strides[i], " on axis ", i, "; strides are at least 1"));
    HIR_ASSIGN(const Range range, Normalize(graph, {starts[i], ends[i]}, axes[i].extent, AxisName(*op.operands[0], i)));
    starts[i] = range.start;
    ends[i] = range.end;
    ir::ExprPool& pool = graph.exprs();
    result[i].extent = pool.CeilDiv(pool.Sub(range.end, range.start), pool.Const(strides[i]));
    if (result[i].extent->IsConst(0)) result[i].kind = ir::AxisKind::kIteration;  // Nothing is stored, not even once.
  }
  SetExprs(graph, op, "start", starts);
  SetExprs(graph, op, "end", ends);
  SetInts(graph, op, "strides", strides);
  return SetTensor(graph, op, op.operands[0]->type->dtype, result);
}

void AxesSlice(const ir::Op& op, std::vector<AxisLink>& links) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[0]->type);
  for (size_t i = 0; i < axes.size(); ++i) {
    links.push_back({0, static_cast<int>(i), 0, static_cast<int>(i),
                     IsWhole(op, i, axes[i]) ? AxisRelation::kSame : AxisRelation::kSliced});
  }
}

const Element* DefineSlice(ElementBuilder& builder, const ir::Op& op, Index index) {
  std::vector<const Element*> own;
  for (size_t i = 0; i < index.size(); ++i) {
    const Element* step = builder.Int(DType::kInt64, op.Ints("strides")[i]);
    own.push_back(
        builder.Apply(Prim::kAdd, {builder.Apply(Prim::kMul, {index[i], step}), builder.Extent(op.Exprs("start")[i])}));
  }
  return builder.Load(op.operands[0], own);
}

}  // namespace hir::fusion
