"""ATen's ops on single elements."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidArgument
from ..values import Tensor
from .lowering import Lowering, lowers

_SAME = (
    "abs acos acosh asin asinh atan atan2 atanh bitwise_not ceil cos cosh erf erfc erfinv exp exp2 expm1 floor frac "
    "isinf isnan lgamma log log10 log1p log2 logical_not neg reciprocal relu round rsqrt sigmoid sign silu sin sinh "
    "sqrt tan tanh trunc eq ge gt le lt ne fmod remainder logical_and logical_or maximum minimum mul pow bitwise_and "
    "bitwise_or bitwise_xor"
)
_NAMES = {name: name for name in _SAME.split()} | {"special_erf": "erf", "isfinite": "isfinite"}
_OVERLOADS = ("default", "Tensor", "Scalar", "Tensor_Scalar", "Tensor_Tensor")


def _register(op: str, name: str) -> None:
    @lowers(*(f"{op}.{overload}" for overload in _OVERLOADS))
    def lower(low: Lowering, out: Any, *operands: Any) -> Tensor:
        made: Tensor = getattr(low.ops, name)(*operands)
        return made


for _op, _name in _NAMES.items():
    _register(_op, _name)


def _scaled(low: Lowering, value: Any, by: Any) -> Any:
    return value if by == 1 else low.ops.mul(value, by) if isinstance(value, Tensor) else value * by


@lowers("add.Tensor", "add.Scalar")
def _add(low: Lowering, out: Any, x: Any, y: Any, alpha: Any = 1) -> Tensor:
    return low.ops.add(x, _scaled(low, y, alpha))


@lowers("sub.Tensor", "sub.Scalar")
def _sub(low: Lowering, out: Any, x: Any, y: Any, alpha: Any = 1) -> Tensor:
    return low.ops.sub(x, _scaled(low, y, alpha))


@lowers("rsub.Tensor", "rsub.Scalar")
def _rsub(low: Lowering, out: Any, x: Any, y: Any, alpha: Any = 1) -> Tensor:
    return low.ops.sub(y, _scaled(low, x, alpha))


@lowers("pow.Tensor_Scalar")
def _power(low: Lowering, out: Any, x: Tensor, exponent: Any) -> Tensor:
    if exponent == 2:
        return low.ops.mul(x, x)
    if exponent < 0 and not out.dtype.is_floating_point:
        raise InvalidArgument(f"{exponent} is no exponent of integers")
    return low.ops.pow(x, exponent)


@lowers("pow.Scalar")
def _power_of(low: Lowering, out: Any, base: Any, exponent: Tensor) -> Tensor:
    return low.ops.pow(base, exponent)


@lowers("div.Tensor", "div.Scalar")
def _div(low: Lowering, out: Any, x: Any, y: Any) -> Tensor:
    return low.ops.truediv(x, y)


@lowers("div.Tensor_mode", "div.Scalar_mode")
def _rounded_div(low: Lowering, out: Any, x: Any, y: Any, rounding_mode: str | None = None) -> Tensor:
    ops = low.ops
    if rounding_mode is None:
        return ops.truediv(x, y)
    if out.dtype.is_floating_point and rounding_mode == "trunc":
        return ops.trunc(ops.truediv(x, y))
    if out.dtype.is_floating_point:  # As Python's: 1.0 // 0.1 is 9, though the quotient rounds to 10.
        whole = ops.round(ops.truediv(ops.sub(x, ops.remainder(x, y)), y))
        return ops.where(ops.eq(y, 0), ops.truediv(x, y), whole)
    quotient = ops.div(x, y)
    if rounding_mode == "trunc":
        return quotient
    is_above = ops.ne(ops.remainder(x, y), ops.fmod(x, y))  # x - remainder may wrap.
    return ops.sub(quotient, ops.cast(is_above, low.data_type(out)))


@lowers("floor_divide.default")
def _floor_divide(low: Lowering, out: Any, x: Any, y: Any) -> Tensor:
    return _rounded_div(low, out, x, y, "floor")


@lowers("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(low: Lowering, out: Any, condition: Tensor, x: Any, y: Any) -> Tensor:
    dtype = low.data_type(out)
    if isinstance(x, Tensor):
        x = low.typed(x, out)
    if isinstance(y, Tensor):
        y = low.typed(y, out)
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        x = low.tensor(x, dtype)
    return low.expanded(low.ops.where(condition, low.held(x, dtype), low.held(y, dtype)), low.shape(out))


@lowers("clamp.default", "clamp.Tensor")
def _clamp(low: Lowering, out: Any, x: Tensor, least: Any = None, most: Any = None) -> Tensor:
    if least is not None:
        x = low.ops.maximum(x, least)
    return x if most is None else low.ops.minimum(x, most)


@lowers("clamp_min.default", "clamp_min.Tensor")
def _clamp_min(low: Lowering, out: Any, x: Tensor, least: Any) -> Tensor:
    return low.ops.maximum(x, least)


@lowers("clamp_max.default", "clamp_max.Tensor")
def _clamp_max(low: Lowering, out: Any, x: Tensor, most: Any) -> Tensor:
    return low.ops.minimum(x, most)


@lowers("gelu.default")
def _gelu(low: Lowering, out: Any, x: Tensor, approximate: str = "none") -> Tensor:
    return low.ops.tanh_gelu(x) if approximate == "tanh" else low.ops.gelu(x)


@lowers("leaky_relu.default")
def _leaky_relu(low: Lowering, out: Any, x: Tensor, slope: float = 0.01) -> Tensor:
    return low.ops.where(low.ops.gt(x, 0), x, low.ops.mul(x, slope))


@lowers("_to_copy.default", "prims.convert_element_type.default")
def _cast(low: Lowering, out: Any, x: Tensor, *_: Any, **__: Any) -> Tensor:
    return x  # The type of the result is that of `out`.


@lowers("clone.default", "alias.default", "detach.default", "lift_fresh_copy.default", "contiguous.default")
def _same(low: Lowering, out: Any, x: Tensor, **_: Any) -> Tensor:
    return x


@lowers("fill.Scalar")
def _fill(low: Lowering, out: Any, x: Tensor, value: Any) -> Tensor:
    return low.tensor(value, low.data_type(out), low.shape(out))


@lowers("copy.default")
def _copy(low: Lowering, out: Any, x: Tensor, values: Tensor, *_: Any, **__: Any) -> Tensor:
    return low.expanded(values, low.shape(out))


@lowers("prims.fma.default")
def _fma(low: Lowering, out: Any, x: Any, y: Any, z: Any) -> Tensor:
    return low.ops.add(low.ops.mul(x, y), z)


@lowers("addcmul.default")
def _addcmul(low: Lowering, out: Any, x: Tensor, y: Tensor, z: Tensor, value: Any = 1) -> Tensor:
    return low.ops.add(x, _scaled(low, low.ops.mul(y, z), value))


@lowers("addcdiv.default")
def _addcdiv(low: Lowering, out: Any, x: Tensor, y: Tensor, z: Tensor, value: Any = 1) -> Tensor:
    return low.ops.add(x, _scaled(low, low.ops.truediv(y, z), value))


@lowers("lerp.Scalar", "lerp.Tensor")
def _lerp(low: Lowering, out: Any, x: Tensor, y: Tensor, weight: Any) -> Tensor:
    return low.ops.lerp(x, y, weight)
