// Each primitive on one number: what constant folding, the interpreter and the code generators share.
#pragma once

#include <cstdint>

#include "csrc/base/dtype.h"
#include "csrc/fusion/prims.h"

namespace hir::fusion {

// eq, ne, lt, le, gt, ge, isnan: the result is bool whatever the operands are.
bool MakesBool(Prim prim);
bool IsComparison(Prim prim);  // Of these, the six of two operands.

// Floats are computed in double, but for what depends on the width of `dtype` (kNextAfter); `b` is ignored by
// primitives of one operand. Null for those that make a bool, for kSelect and for those without a meaning on floats.
using FloatFn = double (*)(double a, double b);
FloatFn FloatFunction(Prim prim, DType dtype);
using FloatTestFn = bool (*)(double a, double b);
FloatTestFn FloatTest(Prim prim);  // Null but for those that make a bool.

// Integers and bools (0 or 1) are computed in int64; Wrap brings the result back into its type. Null where the
// primitive has no meaning on integers. Comparisons give 0 or 1.
using IntFn = int64_t (*)(int64_t a, int64_t b);
IntFn IntFunction(Prim prim);
int64_t Wrap(DType dtype, int64_t value);  // REQUIRES: dtype is no float.
// The number of `dtype`, no float, that changes no reduction of such.
int64_t IntNeutral(ReduceKind kind, DType dtype);

// kConvert on one number. Floats to integers truncate towards 0 and saturate; NaN gives 0. To bool: not 0.
int64_t FloatToInt(DType to, double value);
double IntToFloat(DType to, int64_t value);  // Rounded once.

}  // namespace hir::fusion
