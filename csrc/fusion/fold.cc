#include "csrc/fusion/fold.h"

#include <algorithm>

#include "csrc/fusion/prim_eval.h"

namespace hir::fusion {
namespace {

bool IsConstant(const Element* e) { return e->kind == Element::Kind::kInt || e->kind == Element::Kind::kFloat; }
bool IsInt(const Element* e, int64_t value) { return e->kind == Element::Kind::kInt && e->integer == value; }
bool IsFloat(const Element* e, double value) { return e->kind == Element::Kind::kFloat && e->number == value; }
bool IsNumber(const Element* e, int value) { return IsInt(e, value) || IsFloat(e, value); }

const Element* FoldConstants(ElementBuilder& builder, Prim prim, std::span<const Element* const> args) {
  const Element* a = args[0];
  const Element* b = args.back();
  if (hir::IsFloat(a->dtype)) {
    if (const FloatTestFn test = FloatTest(prim)) return builder.Int(DType::kBool, test(a->number, b->number));
    const FloatFn function = FloatFunction(prim, a->dtype);
    HIR_CHECK(function != nullptr);
    return builder.Float(a->dtype, function(a->number, b->number));
  }
  const IntFn function = IntFunction(prim);
  HIR_CHECK(function != nullptr);
  return builder.Int(MakesBool(prim) ? DType::kBool : a->dtype, function(a->integer, b->integer));
}

const Element* FoldSelect(std::span<const Element* const> args) {
  if (args[0]->kind == Element::Kind::kInt) return args[0]->integer != 0 ? args[1] : args[2];
  return args[1] == args[2] ? args[1] : nullptr;
}

// x to a small constant power: products are exact where pow is, and many times faster.
const Element* FoldPow(ElementBuilder& builder, const Element* x, const Element* y) {
  if (IsInt(y, 0)) return builder.Int(x->dtype, 1);
  if (IsFloat(y, 0)) return builder.Float(x->dtype, 1);
  if (IsNumber(y, 1)) return x;
  if (IsNumber(y, 2)) return builder.Apply(Prim::kMul, {x, x});
  if (IsNumber(y, 3)) return builder.Apply(Prim::kMul, {builder.Apply(Prim::kMul, {x, x}), x});
  if (IsFloat(y, -1)) return builder.Apply(Prim::kDiv, {builder.Float(x->dtype, 1), x});
  return nullptr;
}

const Element* FoldBool(Prim prim, const Element* x, const Element* y) {
  if (IsInt(x, 0) || IsInt(x, 1)) std::swap(x, y);
  if (prim == Prim::kAnd && IsInt(y, 1)) return x;
  if (prim == Prim::kAnd && IsInt(y, 0)) return y;
  if (prim == Prim::kOr && IsInt(y, 0)) return x;
  if (prim == Prim::kOr && IsInt(y, 1)) return y;
  return nullptr;
}

const Element* FoldInt(ElementBuilder& builder, Prim prim, const Element* x, const Element* y) {
  if ((prim == Prim::kAdd || prim == Prim::kMul) && x->kind == Element::Kind::kInt) std::swap(x, y);
  const bool same = x == y;
  if (prim == Prim::kAdd && IsInt(y, 0)) return x;
  if (prim == Prim::kSub && IsInt(y, 0)) return x;
  if (prim == Prim::kSub && same) return builder.Int(x->dtype, 0);
  if (prim == Prim::kMul && IsInt(y, 1)) return x;
  if (prim == Prim::kMul && IsInt(y, 0)) return y;
  if (prim == Prim::kDiv && IsInt(y, 1)) return x;
  if (prim == Prim::kRem && IsInt(y, 1)) return builder.Int(x->dtype, 0);
  if ((prim == Prim::kDiv || prim == Prim::kRem) && IsInt(x, 0)) return x;
  if ((prim == Prim::kEq || prim == Prim::kLe || prim == Prim::kGe) && same) return builder.Int(DType::kBool, 1);
  if ((prim == Prim::kNe || prim == Prim::kLt || prim == Prim::kGt) && same) return builder.Int(DType::kBool, 0);
  // (x + c1) + c2: one constant.
  if ((prim == Prim::kAdd || prim == Prim::kSub) && y->kind == Element::Kind::kInt && x->kind == Element::Kind::kPrim &&
      (x->prim == Prim::kAdd || x->prim == Prim::kSub) && x->args[1]->kind == Element::Kind::kInt) {
    const Element* c1 = x->args[1];
    if (x->prim == Prim::kSub) c1 = builder.Apply(Prim::kNeg, {c1});
    return builder.Apply(Prim::kAdd, {x->args[0], builder.Apply(prim, {c1, y})});
  }
  return nullptr;
}

}  // namespace

const Element* Fold(ElementBuilder& builder, Prim prim, std::span<const Element* const> args) {
  if (prim == Prim::kSelect) return FoldSelect(args);
  if (std::ranges::all_of(args, IsConstant)) return FoldConstants(builder, prim, args);
  if (args.size() != 2) return nullptr;
  const Element* x = args[0];
  const Element* y = args[1];
  if (x->dtype == DType::kBool) return FoldBool(prim, x, y);
  if (prim == Prim::kPow) return FoldPow(builder, x, y);
  if (!hir::IsFloat(x->dtype)) return FoldInt(builder, prim, x, y);
  if (prim == Prim::kMul && IsFloat(x, 1)) return y;
  if ((prim == Prim::kMul || prim == Prim::kDiv) && IsFloat(y, 1)) return x;
  return nullptr;
}

const Element* FoldConvert(ElementBuilder& builder, DType dtype, const Element* x) {
  if (x->kind == Element::Kind::kInt) {
    if (!hir::IsFloat(dtype)) return builder.Int(dtype, dtype == DType::kBool ? x->integer != 0 : x->integer);
    if (ComputeDType(dtype) == dtype) return builder.Float(dtype, IntToFloat(dtype, x->integer));
  }
  if (x->kind == Element::Kind::kFloat) {
    if (!hir::IsFloat(dtype)) return builder.Int(dtype, FloatToInt(dtype, x->number));
    if (ComputeDType(dtype) == dtype) return builder.Float(dtype, RoundTo(dtype, x->number));
  }
  return nullptr;
}

}  // namespace hir::fusion
