// Each primitive on one number: what constant folding, the interpreter and the code generators share.
#pragma once

#include <cstdint>

#include "csrc/base/dtype.h"
#include "csrc/fusion/element.h"

namespace hir::fusion {

// How many operands `prim` takes.
int NumOperands(Prim prim);
// eq, ne, lt, le, gt, ge, isnan: the result is bool whatever the operands are.
bool MakesBool(Prim prim);

// The function of the C library that it is on doubles; with an f behind it on floats (erfinv and erfcinv as CUDA has
// them). Null where there is none.
const char* LibraryName(Prim prim);

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

// kConvert on one number. Floats to integers truncate towards 0 and saturate; NaN gives 0. To bool: not 0.
int64_t FloatToInt(DType to, double value);
double IntToFloat(DType to, int64_t value);  // Rounded once.

}  // namespace hir::fusion
