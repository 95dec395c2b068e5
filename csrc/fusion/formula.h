// The language of the formulas in fusion_ops.def: C++ operators and functions over S, an element being built. Private
// to csrc/fusion.
//
// A number in a formula takes the type of the S beside it. On bools + and max are or, * and min are and. On integers,
// rounding functions and tests for NaN do nothing or are false.
#pragma once

#include <cmath>

#include "csrc/fusion/element.h"

namespace hir::fusion {

struct S {
  ElementBuilder* builder = nullptr;
  const Element* e = nullptr;
  DType type = DType::kFloat32;  // Of an operand: what it promoted to, while e is computed with.
};

inline S Number(const S& like, double value) {
  if (IsFloat(like.e->dtype)) return {like.builder, like.builder->Float(like.e->dtype, value)};
  return {like.builder, like.builder->Int(like.e->dtype, static_cast<int64_t>(value))};
}
inline S Apply(Prim prim, const S& x) { return {x.builder, x.builder->Apply(prim, {x.e})}; }
inline S Apply(Prim prim, const S& x, const S& y) { return {x.builder, x.builder->Apply(prim, {x.e, y.e})}; }
inline bool IsBool(const S& x) { return x.e->dtype == DType::kBool; }
// A bool as an integer, so that it has an order.
inline S Ordered(const S& x) { return IsBool(x) ? S{x.builder, x.builder->Convert(DType::kInt32, x.e)} : x; }

inline S operator+(const S& x, const S& y) { return Apply(IsBool(x) ? Prim::kOr : Prim::kAdd, x, y); }
inline S operator-(const S& x, const S& y) { return Apply(Prim::kSub, x, y); }
inline S operator*(const S& x, const S& y) { return Apply(IsBool(x) ? Prim::kAnd : Prim::kMul, x, y); }
inline S operator/(const S& x, const S& y) { return Apply(Prim::kDiv, x, y); }
inline S operator-(const S& x) { return Apply(Prim::kNeg, x); }
inline S operator&(const S& x, const S& y) { return Apply(Prim::kAnd, x, y); }
inline S operator|(const S& x, const S& y) { return Apply(Prim::kOr, x, y); }
inline S operator^(const S& x, const S& y) { return Apply(Prim::kXor, x, y); }
inline S operator<<(const S& x, const S& y) { return Apply(Prim::kShl, x, y); }
inline S operator>>(const S& x, const S& y) { return Apply(Prim::kShr, x, y); }
inline S operator~(const S& x) { return Apply(Prim::kNot, x); }
inline S operator!(const S& x) { return Apply(Prim::kNot, x); }
inline S operator==(const S& x, const S& y) { return Apply(Prim::kEq, Ordered(x), Ordered(y)); }
inline S operator!=(const S& x, const S& y) { return Apply(Prim::kNe, Ordered(x), Ordered(y)); }
inline S operator<(const S& x, const S& y) { return Apply(Prim::kLt, Ordered(x), Ordered(y)); }
inline S operator<=(const S& x, const S& y) { return Apply(Prim::kLe, Ordered(x), Ordered(y)); }
inline S operator>(const S& x, const S& y) { return Apply(Prim::kGt, Ordered(x), Ordered(y)); }
inline S operator>=(const S& x, const S& y) { return Apply(Prim::kGe, Ordered(x), Ordered(y)); }

inline S operator+(double x, const S& y) { return Number(y, x) + y; }
inline S operator*(double x, const S& y) { return Number(y, x) * y; }
inline S operator/(double x, const S& y) { return Number(y, x) / y; }
inline S operator<(const S& x, double y) { return x < Number(x, y); }
inline S operator<=(const S& x, double y) { return x <= Number(x, y); }
inline S operator>(const S& x, double y) { return x > Number(x, y); }

inline S Select(const S& condition, const S& yes, const S& no) {
  return {yes.builder, yes.builder->Select(condition.e, yes.e, no.e)};
}
inline S Select(const S& condition, double yes, const S& no) { return Select(condition, Number(no, yes), no); }

inline S Max(const S& x, const S& y) { return Apply(IsBool(x) ? Prim::kOr : Prim::kMax, x, y); }
inline S Min(const S& x, const S& y) { return Apply(IsBool(x) ? Prim::kAnd : Prim::kMin, x, y); }
inline S Rem(const S& x, const S& y) { return Apply(Prim::kRem, x, y); }
// The remainder with the sign of y.
inline S FloorRem(const S& x, const S& y) {
  const S rem = Rem(x, y);
  const S zero = Number(x, 0);
  return Select((rem != zero) & ((rem < zero) ^ (y < zero)), rem + y, rem);
}
inline S Pow(const S& x, const S& y) { return Apply(Prim::kPow, x, y); }
// On integers: the bits that the sign left behind are cleared by a mask of as many zeros; y beyond the bits gives 0.
inline S LogicalShiftRight(const S& x, const S& y) {
  const S bits = Number(x, static_cast<double>(8 * DTypeBytes(x.type)));
  const S mask = ~(Number(x, -1) << (bits - y));
  return Select((y < 0.0) | (y >= bits), 0.0, (x >> y) & mask);
}
inline S Gcd(const S& x, const S& y) { return Apply(Prim::kGcd, x, y); }

inline S IsNan(const S& x) {
  if (IsFloat(x.e->dtype)) return Apply(Prim::kIsNan, x);
  return {x.builder, x.builder->Int(DType::kBool, 0)};
}
inline S Abs(const S& x) { return Apply(Prim::kAbs, x); }
inline S IsInf(const S& x) {
  if (IsFloat(x.e->dtype)) return Abs(x) == Number(x, INFINITY);
  return {x.builder, x.builder->Int(DType::kBool, 0)};
}
inline S IsInf(const S& x, int sign) {
  if (IsFloat(x.e->dtype)) return x == Number(x, sign < 0 ? -HUGE_VAL : HUGE_VAL);
  return {x.builder, x.builder->Int(DType::kBool, 0)};
}
inline S True(const S& x) { return {x.builder, x.builder->Int(DType::kBool, 1)}; }
// NaN has no sign here: which one arithmetic gives it differs between machines.
inline S SignBit(const S& x) {
  if (!IsFloat(x.e->dtype)) return x < 0.0;
  return (x < 0.0) | ((x == Number(x, 0)) & (1.0 / x < 0.0));
}

// Of 16-bit floats by the step of float32 that they are computed in: 2^16 or 2^13 times that, and in float16, which has
// a smallest step sooner, at least 2^-24.
inline S NextAfter16(const S& x, const S& y) {
  const bool brain = x.type == DType::kBFloat16;
  const S zero = Number(x, 0), smallest = Number(x, brain ? 0x1p-133 : 0x1p-24);
  const S step = Number(x, brain ? 0x1p16 : 0x1p13) * (Apply(Prim::kNextAfter, x, y) - x);
  const S moved = x + Select(step < zero, Min(step, -smallest), Max(step, smallest));
  const S signed_zero = x * zero;
  const S greatest = Number(x, brain ? 0x1.fep127 : 65504.0);
  const S from_infinity = Select(x > zero, greatest, -greatest);
  const S other = Select(IsInf(x) & !IsNan(y), from_infinity, Select(moved == zero, signed_zero, moved));
  return Select(x == y, y, other);
}
inline S NextAfter(const S& x, const S& y) {
  const bool wide = x.type == DType::kFloat32 || x.type == DType::kFloat64;
  return wide ? Apply(Prim::kNextAfter, x, y) : NextAfter16(x, y);
}

// Roundings leave integers alone.
inline S Rounding(Prim prim, const S& x) { return IsFloat(x.e->dtype) ? Apply(prim, x) : x; }
inline S Floor(const S& x) { return Rounding(Prim::kFloor, x); }
inline S Ceil(const S& x) { return Rounding(Prim::kCeil, x); }
inline S Round(const S& x) { return Rounding(Prim::kRound, x); }
inline S Trunc(const S& x) { return Rounding(Prim::kTrunc, x); }

inline S Sqrt(const S& x) { return Apply(Prim::kSqrt, x); }
inline S Rsqrt(const S& x) { return Apply(Prim::kRsqrt, x); }
#define FUNCTION(Name, ...) \
  inline S Name(const S& x, const auto&... y) { return Apply(Prim::k##Name, x, y...); }
#include "csrc/fusion/prims.def"

}  // namespace hir::fusion
