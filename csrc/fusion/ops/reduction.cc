// sum, prod, min, max: one inference and one definition, by kind.
#include <algorithm>

#include "csrc/fusion/ops/reduced.h"
#include "csrc/fusion/prim_eval.h"

namespace hir::fusion {
namespace {

constexpr int kRepeatBits = 63;  // Of an extent.

bool HasNeutral(ReduceKind kind) { return kind == ReduceKind::kSum || kind == ReduceKind::kProd; }

Result<DType> ReductionType(const ir::Op& op, ReduceKind kind) {
  const DType given = op.operands[0]->type->dtype;
  if (!HasNeutral(kind)) return DTypeAttr(op, "dtype", given);
  HIR_ASSIGN(const DType dtype, DTypeAttr(op, "dtype", IsFloat(given) ? given : DType::kInt64));
  if (dtype == DType::kBool) return InvalidArgument("dtype=bool: a sum or product is a number; use max or min");
  return dtype;
}

Status InferReduction(ir::Graph& graph, ir::Op& op, ReduceKind kind) {
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  HIR_ASSIGN(const std::vector<int64_t> reduced, NormalReduced(graph, op, axes.size()));
  HIR_ASSIGN(const DType dtype, ReductionType(op, kind));
  std::vector<ir::Axis> result = axes;
  for (const int64_t axis : reduced) {
    ir::Axis& r = result[static_cast<size_t>(axis)];
    if (!HasNeutral(kind)) HIR_TRY(RequireElements(graph, op, axes, static_cast<size_t>(axis)));
    r = op.Bool("keepdim") ? ir::Axis{ir::AxisKind::kBroadcast, graph.exprs().Const(1)}
                           : ir::Axis{ir::AxisKind::kReduction, r.extent};
  }
  return SetTensor(graph, op, dtype, result);
}

// Logical axis k of the result is value axis k of the operand, whether reduced or not.
void ReductionAxes(const ir::Op& op, std::vector<AxisLink>& links) {
  const std::span<const int64_t> reduced = op.Ints("axes");
  for (size_t i = 0; i < op.results[0]->type->axes.size(); ++i) {
    const bool is_reduced = std::ranges::find(reduced, static_cast<int64_t>(i)) != reduced.end();
    links.push_back(
        {0, static_cast<int>(i), 0, static_cast<int>(i), is_reduced ? AxisRelation::kReduced : AxisRelation::kSame});
  }
}

// The reduction of `repeats` (null: one) elements equal to x.
const Element* RepeatSome(ElementBuilder& builder, ReduceKind kind, const Element* x, const Element* repeats) {
  if (repeats == nullptr || !HasNeutral(kind)) return x;
  if (kind == ReduceKind::kSum) return builder.Apply(Prim::kMul, {x, builder.Convert(x->dtype, repeats)});
  if (IsFloat(x->dtype)) return builder.Apply(Prim::kPow, {x, builder.Convert(x->dtype, repeats)});
  // Integers wrap, so by squaring: the product of x^(2^k) over the bits k of the exponent.
  const Element* power = builder.Int(x->dtype, 1);
  for (int bit = 0; bit < kRepeatBits; ++bit) {
    const Element* shifted = builder.Apply(Prim::kShr, {repeats, builder.Int(DType::kInt64, bit)});
    const Element* has_bit =
        builder.Convert(DType::kBool, builder.Apply(Prim::kAnd, {shifted, builder.Int(DType::kInt64, 1)}));
    power = builder.Select(has_bit, builder.Apply(Prim::kMul, {power, x}), power);
    x = builder.Apply(Prim::kMul, {x, x});
  }
  return power;
}

// The same where there may be none: x may be inf then, or stand for what no tensor has, and neither times 0 is 0.
const Element* Repeat(ElementBuilder& builder, ReduceKind kind, const Element* x, const Element* repeats,
                      bool may_be_none) {
  const Element* some = RepeatSome(builder, kind, x, repeats);
  if (!may_be_none || !HasNeutral(kind)) return some;
  const Element* neutral = IsFloat(x->dtype) ? builder.Float(x->dtype, InfoOf(kind).neutral)
                                             : builder.Int(x->dtype, IntNeutral(kind, x->dtype));
  return builder.Select(builder.Apply(Prim::kGt, {repeats, builder.Int(DType::kInt64, 0)}), some, neutral);
}

// A rank may have none of the elements: then the least or greatest number of the type that they are carried in stands
// for that of `result`, which need not hold it.
const Element* Held(ElementBuilder& builder, DType result, ReduceKind kind, const Element* value) {
  if (HasNeutral(kind) || IsFloat(result) || value->dtype == result) return value;
  const IntLimits limits = LimitsOf(result);
  if (kind == ReduceKind::kMax) return builder.Apply(Prim::kMax, {value, builder.Int(value->dtype, limits.least)});
  return builder.Apply(Prim::kMin, {value, builder.Int(value->dtype, limits.greatest)});
}

const Element* DefineReduction(ElementBuilder& builder, const ir::Op& op, Index index, ReduceKind kind) {
  const ir::Value* x = op.operands[0];
  const std::vector<ir::Axis> axes = ir::ValueAxes(*x->type);
  const std::span<const int64_t> reduced = op.Ints("axes");
  const bool keepdim = op.Bool("keepdim");
  // Broadcast axes need no loop: a sum of e equal elements is e times one, a product its e-th power, the least or
  // greatest of them (there is at least one) is any of them.
  const auto is_repeat = [](const ir::Axis& axis) { return axis.kind == ir::AxisKind::kBroadcast; };
  std::vector<const ir::Expr*> trips;
  const Element* repeats = nullptr;
  bool may_be_none = false;
  for (const int64_t axis : reduced) {
    const ir::Axis& r = axes[static_cast<size_t>(axis)];
    if (!is_repeat(r)) {
      if (!IsOne(r)) trips.push_back(r.extent);
      continue;
    }
    may_be_none |= !r.extent->IsConst() || r.extent->IsConst(0);
    const Element* extent = builder.Extent(r.extent);
    repeats = repeats == nullptr ? extent : builder.Apply(Prim::kMul, {repeats, extent});
  }
  const int first = builder.NewReduceVariables(static_cast<int>(trips.size()));
  int variable = first;
  size_t kept = 0;
  std::vector<const Element*> own;
  for (size_t i = 0; i < axes.size(); ++i) {
    const bool is_reduced = std::ranges::find(reduced, static_cast<int64_t>(i)) != reduced.end();
    if (!is_reduced) {
      own.push_back(index[kept++]);
      continue;
    }
    if (keepdim) ++kept;
    own.push_back(is_repeat(axes[i]) || IsOne(axes[i]) ? builder.Int(DType::kInt64, 0)
                                                       : builder.ReduceIndex(variable++));
  }
  const DType result = op.results[0]->type->dtype;
  // Bools as integers, so that they have an order.
  const DType carried = result == DType::kBool ? DType::kInt32 : ComputeDType(result);
  const Element* body = builder.Convert(carried, builder.Convert(result, builder.Load(x, own)));
  const Element* value = Repeat(builder, kind, builder.Reduce(kind, first, trips, body), repeats, may_be_none);
  // A rank may have none of the elements: the greatest of no bools is false, though its integer is the least there is.
  if (result == DType::kBool) return builder.Apply(Prim::kGt, {value, builder.Int(DType::kInt32, 0)});
  return builder.Convert(result, Held(builder, result, kind, value));
}

}  // namespace

#define REDUCTION(Name, ...)                                                                    \
  Status Infer##Name(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {          \
    return InferReduction(graph, op, ReduceKind::k##Name);                                      \
  }                                                                                             \
  void Axes##Name(const ir::Op& op, std::vector<AxisLink>& links) { ReductionAxes(op, links); } \
  const Element* Define##Name(ElementBuilder& builder, const ir::Op& op, Index index) {         \
    return DefineReduction(builder, op, index, ReduceKind::k##Name);                            \
  }
#include "csrc/fusion/prims.def"

}  // namespace hir::fusion
