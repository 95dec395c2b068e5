"""Rules of primitives that work element by element, where their meaning is JAX's and not quite the operation's."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from ..values import Tensor
from .known import UNSIGNED, Known
from .layouts import sharding_of
from .refusals import refused
from .walk import Value, Walk, extents, rule

_SAME = {
    "abs": "abs",
    "acos": "acos",
    "acosh": "acosh",
    "add": "add",
    "add_any": "add",
    "and": "bitwise_and",
    "asin": "asin",
    "asinh": "asinh",
    "atan": "atan",
    "atan2": "atan2",
    "atanh": "atanh",
    "ceil": "ceil",
    "cos": "cos",
    "cosh": "cosh",
    "eq": "eq",
    "erf": "erf",
    "erf_inv": "erfinv",
    "erfc": "erfc",
    "exp": "exp",
    "exp2": "exp2",
    "expm1": "expm1",
    "floor": "floor",
    "ge": "ge",
    "gt": "gt",
    "is_finite": "isfinite",
    "le": "le",
    "lgamma": "lgamma",
    "log": "log",
    "log1p": "log1p",
    "logistic": "sigmoid",
    "lt": "lt",
    "max": "maximum",
    "min": "minimum",
    "mul": "mul",
    "ne": "ne",
    "neg": "neg",
    "nextafter": "nextafter",
    "not": "bitwise_not",
    "or": "bitwise_or",
    "pow": "pow",
    "rsqrt": "rsqrt",
    "shift_left": "bitwise_left_shift",
    "shift_right_arithmetic": "bitwise_right_shift",
    "shift_right_logical": "logical_right_shift",
    "sin": "sin",
    "sinh": "sinh",
    "sqrt": "sqrt",
    "sub": "sub",
    "tan": "tan",
    "tanh": "tanh",
    "xor": "bitwise_xor",
}


def _same(walk: Walk, equation: Any, values: list[Value]) -> Any:
    made = getattr(walk.ops, _SAME[equation.primitive.name])(*walk.operands(equation, values))
    return _wrapped(walk, equation, made) if equation.primitive.name in _WRAPS else made


_WRAPS = frozenset({"add", "mul", "neg", "not", "shift_left", "sub"})


def _wrapped(walk: Walk, equation: Any, made: Any) -> Any:
    """uint32 is int64 in programs, and wraps at 2^32."""
    is_unsigned = equation.outvars[0].aval.dtype == UNSIGNED
    return walk.ops.bitwise_and(made, (1 << 32) - 1) if is_unsigned else made


rule(*_SAME, elementwise=True)(_same)


@rule("square", elementwise=True)
def _square(walk: Walk, equation: Any, values: list[Value]) -> Any:
    x = walk.tensor(values[0])
    return x * x


@rule("integer_pow", elementwise=True)
def _integer_pow(walk: Walk, equation: Any, values: list[Value]) -> Any:
    """By squaring, as JAX does it."""
    x, power = walk.tensor(values[0]), equation.params["y"]
    made: Tensor | None = None
    square, left = x, abs(power)
    while left:
        if left & 1:
            made = square if made is None else made * square
        left >>= 1
        square = square * square if left else square
    if made is None:
        return walk.full(extents(x), 1, x.dtype)
    return made if power > 0 else walk.ops.reciprocal(made)


@rule("div", "rem", elementwise=True)
def _div(walk: Walk, equation: Any, values: list[Value]) -> Any:
    """By 0 an integer is -1, all bits, and its remainder the integer."""
    x, y = walk.operands(equation, values)
    is_div = equation.primitive.name == "div"
    made = walk.ops.div(x, y) if is_div else walk.ops.fmod(x, y)
    kind = equation.outvars[0].aval.dtype.kind
    if kind not in "iu" or (not isinstance(y, Tensor) and y != 0):
        return made
    dtype = equation.outvars[0].aval.dtype
    of_zero = (-1 if kind == "i" else int(np.iinfo(dtype).max)) if is_div else x
    return walk.ops.where(walk.ops.eq(walk.tensor(values[1]), 0), of_zero, made)


@rule("lt_to", "le_to", elementwise=True)
def _in_total_order(walk: Walk, equation: Any, values: list[Value]) -> Any:
    """-0 is below 0, and NaN above all."""
    ops, (x, y) = walk.ops, walk.operands(equation, values)
    below, equal = ops.lt(x, y), ops.eq(x, y)
    if equation.invars[0].aval.dtype.kind not in "iub":
        sign = ops.logical_and(ops.signbit(x), ops.logical_not(ops.signbit(y)))
        zeros = ops.logical_and(equal, ops.logical_and(sign, ops.eq(x, 0.0)))
        below = ops.logical_or(
            ops.logical_or(below, zeros), ops.logical_and(ops.isnan(y), ops.logical_not(ops.isnan(x)))
        )
        equal = ops.logical_or(equal, ops.logical_and(ops.isnan(x), ops.isnan(y)))
        above = ops.logical_and(ops.signbit(y), ops.logical_not(ops.signbit(x)))
        equal = ops.logical_and(equal, ops.logical_not(ops.logical_and(above, ops.eq(y, 0.0))))
    return below if equation.primitive.name == "lt_to" else ops.logical_or(below, equal)


@rule("sign", elementwise=True)
def _sign(walk: Walk, equation: Any, values: list[Value]) -> Any:
    """NaN stays."""
    x = walk.tensor(values[0])
    made = walk.ops.sign(x)
    return made if x.dtype.kind == "i" else walk.ops.where(walk.ops.isnan(x), x, made)


@rule("cbrt", elementwise=True)
def _cbrt(walk: Walk, equation: Any, values: list[Value]) -> Any:
    x = walk.tensor(values[0])
    root = walk.ops.pow(walk.ops.abs(x), 1 / 3)
    return walk.ops.where(walk.ops.lt(x, 0), -root, root)


@rule("round", elementwise=True)
def _round(walk: Walk, equation: Any, values: list[Value]) -> Any:
    x = walk.tensor(values[0])
    if equation.params["rounding_method"] == jax.lax.RoundingMethod.TO_NEAREST_EVEN:
        return walk.ops.round(x)
    whole = walk.ops.trunc(x)  # Halves go away from zero.
    away = walk.ops.ge(walk.ops.abs(x - whole), 0.5)
    return whole + walk.ops.where(away, walk.ops.sign(x), 0.0)


@rule("clamp", elementwise=True)
def _clamp(walk: Walk, equation: Any, values: list[Value]) -> Any:
    low, x, high = values
    return walk.ops.clamp(walk.tensor(x), walk.operand(low), walk.operand(high))


@rule("select_n", elementwise=True)
def _select_n(walk: Walk, equation: Any, values: list[Value]) -> Any:
    which, *cases = values
    shape = equation.outvars[0].aval.shape
    chosen = walk.tensor(which)
    if len(cases) == 1:
        return cases[0]
    if all(isinstance(case, Known) for case in cases) or chosen.shape != shape:
        cases = [walk.stretched(walk.tensor(cases[0]), shape), *cases[1:]]
    if chosen.dtype == np.bool_:
        return walk.ops.where(chosen, walk.operand(cases[1]), walk.operand(cases[0]))
    made = walk.operand(cases[-1])  # Beyond the last case it is the last one, too.
    for place in reversed(range(len(cases) - 1)):
        made = walk.ops.where(walk.ops.le(chosen, place), walk.operand(cases[place]), made)
    return made


@rule("convert_element_type", elementwise=True)
def _convert_element_type(walk: Walk, equation: Any, values: list[Value]) -> Any:
    x, dtype = walk.tensor(values[0]), np.dtype(equation.params["new_dtype"])
    if dtype == UNSIGNED:
        whole = walk.ops.cast(x, np.int64)
        return walk.ops.bitwise_and(whole, (1 << 32) - 1) if x.dtype.kind in "ib" else _clipped(walk, whole)
    return x if x.dtype == dtype else walk.ops.cast(x, dtype)


def _clipped(walk: Walk, whole: Any) -> Any:
    return walk.ops.clamp(whole, 0, (1 << 32) - 1)


@rule("reduce_precision", elementwise=True)
def _reduce_precision(walk: Walk, equation: Any, values: list[Value]) -> Any:
    """By way of the type that has so many bits."""
    import ml_dtypes

    bits = equation.params["exponent_bits"], equation.params["mantissa_bits"]
    by_way_of = {(5, 10): np.float16, (8, 7): ml_dtypes.bfloat16, (8, 23): np.float32, (11, 52): np.float64}
    if bits not in by_way_of:
        raise refused(equation, f"{bits[0]} bits of exponent and {bits[1]} of mantissa are no type of hostir")
    x = walk.tensor(values[0])
    return walk.ops.cast(walk.ops.cast(x, by_way_of[bits]), x.dtype)


@rule("copy", "copy_p", "optimization_barrier", "pvary", "stop_gradient")
def _same_value(walk: Walk, equation: Any, values: list[Value]) -> Any:
    return values


@rule("sharding_constraint")
def _sharding_constraint(walk: Walk, equation: Any, values: list[Value]) -> Any:
    given, open_axes = equation.params["sharding"], equation.params.get("unconstrained_dims")
    if open_axes:
        raise refused(equation, f"{given.spec} leaves axes open", "say None, or how they are split")
    x = walk.tensor(values[0])
    sharding = sharding_of(given, walk.mesh, x.ndim, "with_sharding_constraint")
    assert sharding is not None
    copy = walk.ops.set(x)
    copy.lay_out(sharding)
    return copy


def least(dtype: np.dtype[Any]) -> bool | int | float:
    """No element is below it."""
    return False if dtype.kind == "b" else int(np.iinfo(dtype).min) if dtype.kind in "iu" else -math.inf


def greatest(dtype: np.dtype[Any]) -> bool | int | float:
    """No element is above it."""
    return True if dtype.kind == "b" else int(np.iinfo(dtype).max) if dtype.kind in "iu" else math.inf
