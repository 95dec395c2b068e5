"""The pointwise operations in NumPy: a second, independent definition of each.

Floating point is computed in float64 and rounded once to the result's type; integers wrap around.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

BF16, F16, F32, F64 = np.dtype(ml_dtypes.bfloat16), np.dtype("f2"), np.dtype("f4"), np.dtype("f8")
BOOL, U8, I8, I32, I64 = np.dtype(bool), np.dtype("u1"), np.dtype("i1"), np.dtype("i4"), np.dtype("i8")
FLOATS, INTS = (BF16, F16, F32, F64), (U8, I8, I32, I64)
NUMBERS, ALL = FLOATS + INTS, (*FLOATS, *INTS, BOOL)

erf = np.vectorize(math.erf, otypes=[float])
erfc = np.vectorize(math.erfc, otypes=[float])
Function = Callable[..., Any]


@dataclass(frozen=True)
class Pointwise:
    """What an op does to operands of one type: floats as float64, integers and bools as they are."""

    of_floats: Function
    of_ints: Function | None = None  # None: integers become float32 first, or are refused.
    of_bools: Function | None = None
    result: str = "same"  # "same", "float" (integers give float32) or "bool"
    exact: bool = True  # Nothing to round but the result.
    arity: int = 1
    native: bool = False  # Floats as they are, not as float64.

    @property
    def dtypes(self) -> tuple[np.dtype[Any], ...]:
        if self.result == "float":
            return ALL
        ints = INTS if self.of_ints else ()
        return (*FLOATS * bool(self.of_floats), *ints, *(BOOL,) * bool(self.of_bools))

    def __call__(self, dtype: np.dtype[Any], *operands: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with np.errstate(all="ignore"):
            if self.result == "float":  # Integers are float32 from here on.
                wide = [(x if dtype in FLOATS else x.astype(F32)).astype(F64) for x in operands]
                value = self.of_floats(*wide)
                return rounded(value, dtype if dtype in FLOATS else F32)
            if dtype in FLOATS:
                value = self.of_floats(*(x if self.native else x.astype(F64) for x in operands))
            else:
                of = self.of_bools if dtype == BOOL else self.of_ints
                assert of is not None
                value = of(*operands)
            return np.asarray(value, bool) if self.result == "bool" else rounded(value, dtype)


def rounded(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Float64 to a type; to bfloat16 by way of float32, as ml_dtypes does: values here are far from ties."""
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(dtype)


def _gelu(x: Any) -> Any:
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def _tanh_gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _sign(x: Any) -> Any:
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)


def _identity(x: Any) -> Any:
    return x


def _int_power(x: Any, y: Any) -> Any:
    """Repeated multiplication, which wraps; to a power below 0, what truncates 1 / x ** -y, and 0 of 0."""
    units = np.where(x == 1, 1, np.where(x == -1, np.where(y % 2 == 0, 1, -1), 0))
    return np.where(y < 0, units, np.power(x, np.where(y < 0, 0, y))).astype(x.dtype)


def _int_divide(x: Any, y: Any) -> Any:
    """Truncates; by 0 it is 0."""
    wide = np.abs(x.astype(object)) // np.where(y == 0, 1, np.abs(y.astype(object)))
    sign = np.where((x < 0) != (y < 0), -1, 1).astype(object)
    return _wrap(np.where(y == 0, 0, wide * sign), x.dtype)


def _int_rem(x: Any, y: Any) -> Any:
    wide = x.astype(object) - _int_divide(x, y).astype(object) * y.astype(object)
    return _wrap(np.where(y == 0, 0, np.where(y == -1, 0, wide)), x.dtype)


def _int_floor_rem(x: Any, y: Any) -> Any:
    rem = _int_rem(x, y)
    return np.where((rem != 0) & ((rem < 0) != (y < 0)), rem + y, rem)


def _floor_rem(x: Any, y: Any) -> Any:
    rem = np.fmod(x, y)
    return np.where((rem != 0) & ((rem < 0) != (y < 0)), rem + y, rem)


def _wrap(wide: Any, dtype: np.dtype[Any]) -> Any:
    least = int(np.iinfo(dtype).min)
    return ((wide - least) % 2 ** (8 * dtype.itemsize) + least).astype(dtype)


def _bisected(function: Callable[[float], float], x: float, high: float) -> float:
    """Where `function`, which falls between 0 and `high`, is x."""
    low = 0.0
    for _ in range(400):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) > x else (low, middle)
    return (low + high) / 2


def _log_erfc(y: float) -> float:
    """Far from 0, by its asymptotic series: erfc itself loses digits where its results are subnormal."""
    v = 1 / (2 * y * y)
    series = 1 - v * (1 - 3 * v * (1 - 5 * v * (1 - 7 * v * (1 - 9 * v * (1 - 11 * v)))))
    return -y * y - math.log(y * math.sqrt(math.pi)) + math.log(series)


def _erfcinv(x: float) -> float:
    if not 0 <= x <= 2:
        return math.nan
    if x in (0, 2):
        return math.inf if x == 0 else -math.inf
    if x < 1e-290:
        return _bisected(lambda y: _log_erfc(y) if y > 5 else 0, math.log(x), 28)
    if abs(x - 1) < 0.5:
        return _erfinv(1 - x)
    return _bisected(math.erfc, x, 28) if x <= 1 else -_bisected(math.erfc, 2 - x, 28)


def _erfinv(x: float) -> float:
    if not abs(x) <= 0.5:
        return math.copysign(_erfcinv(1 - abs(x)), x)
    if abs(x) < 1e-9:  # The next term of the series is x^3.
        return x * math.sqrt(math.pi) / 2
    return math.copysign(_bisected(lambda y: -math.erf(y), -abs(x), 1), x) if x else x


def _lgamma(x: float) -> float:
    if not math.isfinite(x):
        return abs(x)
    if x <= 0 and x == math.floor(x):
        return math.inf
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


def _logical_right_shift(x: Any, y: Any) -> Any:
    bits = 8 * x.dtype.itemsize
    unsigned = x.view(f"u{x.dtype.itemsize}")
    inside = (y >= 0) & (y < bits)
    moved = unsigned >> np.where(inside, y, 0).astype(unsigned.dtype)
    return np.where(inside, moved, 0).astype(unsigned.dtype).view(x.dtype)


def _ints(function: Function) -> Pointwise:
    return Pointwise(None, function, arity=2)  # type: ignore[arg-type]


def _smooth(function: Function, arity: int = 1) -> Pointwise:
    return Pointwise(function, result="float", exact=False, arity=arity)


def _test(function: Function, of_ints: Function) -> Pointwise:
    return Pointwise(function, of_ints, of_ints, "bool")


def _compare(function: Function) -> Pointwise:
    return Pointwise(function, function, function, "bool", arity=2)


def _bits(function: Function, arity: int) -> Pointwise:
    return Pointwise(None, function, function, arity=arity)  # type: ignore[arg-type]


def _logic(function: Function, arity: int) -> Pointwise:
    return Pointwise(function, function, function, "bool", arity=arity)


POINTWISE: dict[str, Pointwise] = {
    "abs": Pointwise(np.abs, np.abs),
    "acos": _smooth(np.arccos),
    "acosh": _smooth(np.arccosh),
    "asin": _smooth(np.arcsin),
    "asinh": _smooth(np.arcsinh),
    "atan": _smooth(np.arctan),
    "atanh": _smooth(np.arctanh),
    "bitwise_not": _bits(np.invert, 1),
    "ceil": Pointwise(np.ceil, _identity),
    "cos": _smooth(np.cos),
    "cosh": _smooth(np.cosh),
    "erf": _smooth(erf),
    "erfc": _smooth(erfc),
    "erfcinv": _smooth(np.vectorize(_erfcinv, otypes=[float])),
    "erfinv": _smooth(np.vectorize(_erfinv, otypes=[float])),
    "exp": _smooth(np.exp),
    "exp2": _smooth(np.exp2),
    "expm1": _smooth(np.expm1),
    "floor": Pointwise(np.floor, _identity),
    "frac": Pointwise(lambda x: x - np.trunc(x), np.zeros_like),
    "gelu": _smooth(_gelu),
    "imag": Pointwise(np.zeros_like, np.zeros_like, np.zeros_like),
    "isfinite": _test(np.isfinite, lambda x: np.ones(x.shape)),
    "isinf": _test(np.isinf, lambda x: np.zeros(x.shape)),
    "isnan": _test(np.isnan, lambda x: np.zeros(x.shape)),
    "isneginf": _test(np.isneginf, lambda x: np.zeros(x.shape)),
    "isposinf": _test(np.isposinf, lambda x: np.zeros(x.shape)),
    "isreal": _test(np.isreal, np.isreal),
    "lgamma": _smooth(np.vectorize(_lgamma, otypes=[float])),
    "log": _smooth(np.log),
    "log10": _smooth(np.log10),
    "log1p": _smooth(np.log1p),
    "log2": _smooth(np.log2),
    "logical_not": _logic(np.logical_not, 1),
    "neg": Pointwise(np.negative, np.negative),
    "real": Pointwise(_identity, _identity, _identity),
    "reciprocal": _smooth(lambda x: 1 / x),
    "relu": Pointwise(lambda x: np.where(x <= 0, 0.0, x), lambda x: np.maximum(x, 0)),
    "round": Pointwise(np.rint, _identity),
    "rsqrt": _smooth(lambda x: 1 / np.sqrt(x)),
    "sigmoid": _smooth(lambda x: 1 / (1 + np.exp(-x))),
    "sign": Pointwise(lambda x: np.where(np.isnan(x), 0, _sign(x)), _sign),
    "signbit": _test(lambda x: np.signbit(x) & ~np.isnan(x), lambda x: x.astype(I64) < 0),
    "silu": _smooth(lambda x: x / (1 + np.exp(-x))),
    "sin": _smooth(np.sin),
    "sinh": _smooth(np.sinh),
    "sqrt": _smooth(np.sqrt),
    "tan": _smooth(np.tan),
    "tanh": _smooth(np.tanh),
    "tanh_gelu": _smooth(_tanh_gelu),
    "trunc": Pointwise(np.trunc, _identity),
    "add": Pointwise(np.add, np.add, np.logical_or, arity=2),
    "atan2": _smooth(np.arctan2, 2),
    "bitwise_and": _bits(np.bitwise_and, 2),
    "bitwise_left_shift": _ints(np.left_shift),
    "bitwise_or": _bits(np.bitwise_or, 2),
    "bitwise_right_shift": _ints(np.right_shift),
    "bitwise_xor": _bits(np.bitwise_xor, 2),
    "div": Pointwise(np.divide, _int_divide, arity=2),
    "eq": _compare(np.equal),
    "fmod": Pointwise(np.fmod, _int_rem, arity=2),
    "gcd": _ints(np.gcd),
    "ge": _compare(np.greater_equal),
    "gt": _compare(np.greater),
    "le": _compare(np.less_equal),
    "logical_and": _logic(np.logical_and, 2),
    "logical_or": _logic(np.logical_or, 2),
    "logical_right_shift": _ints(_logical_right_shift),
    "lt": _compare(np.less),
    "maximum": Pointwise(np.maximum, np.maximum, np.logical_or, arity=2),
    "minimum": Pointwise(np.minimum, np.minimum, np.logical_and, arity=2),
    "mod": Pointwise(np.fmod, _int_rem, arity=2),
    "mul": Pointwise(np.multiply, np.multiply, np.logical_and, arity=2),
    "ne": _compare(np.not_equal),
    # As C's where both are zeros: the second one.
    "nextafter": Pointwise(lambda x, y: np.where(x == y, y, np.nextafter(x, y)), native=True, arity=2),
    "pow": Pointwise(np.power, _int_power, exact=False, arity=2),
    "remainder": Pointwise(_floor_rem, _int_floor_rem, exact=False, arity=2),
    "sub": Pointwise(np.subtract, np.subtract, arity=2),
    "truediv": _smooth(np.divide, 2),
    "addcmul": Pointwise(lambda x, y, z, w: x + w * (y * z), lambda x, y, z, w: x + w * (y * z), exact=False, arity=4),
    "clamp": Pointwise(
        lambda x, y, z: np.minimum(np.maximum(x, y), z), lambda x, y, z: np.minimum(np.maximum(x, y), z), arity=3
    ),
    "lerp": _smooth(lambda x, y, z: x + z * (y - x), 3),
    "threshold": Pointwise(lambda x, y, z: np.where(x <= y, z, x), lambda x, y, z: np.where(x <= y, z, x), arity=3),
}  # And where, whose first operand is a bool.
