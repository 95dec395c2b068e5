"""Reductions over axes. Follows csrc/fusion/ops/reduction.cc, variance.cc, any_all.cc and argmax.cc."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgument
from .extents import Extent
from .operand import Operand, axis_name, dtype_of, normal_axes, normal_axis, tensor_axes, type_of
from .sizes import Sizes
from .value_type import FLOATS, ONE, REDUCTION, Axis, ValueType, tensor

_CORRECTION_MAX = 2**53


def _reduced(attrs: dict[str, Any], rank: int) -> list[int]:
    return normal_axes(attrs["axes"], rank) or list(range(rank))


def _require_elements(op: str, operand: Operand, axis: int, extent: Extent, sizes: Sizes) -> None:
    if extent == 0:
        raise InvalidArgument(f"{axis_name(operand, axis)} has extent 0: of nothing there is no {op}")
    sizes.at_most(1, extent, f"{op} over {axis_name(operand, axis)}")


def _infer(op: str, operands: Sequence[Operand], attrs: dict[str, Any], sizes: Sizes) -> ValueType:
    axes = list(tensor_axes(operands[0], sizes))
    reduced = _reduced(attrs, len(axes))
    given = type_of(operands[0]).dtype
    has_neutral = op in ("sum", "prod")
    dtype = dtype_of(attrs, null_is=given if given in FLOATS or not has_neutral else "i64")
    if dtype == "bool" and has_neutral:
        raise InvalidArgument("dtype=bool: a sum or product is a number; use max or min")
    for axis in reduced:
        _, extent = axes[axis]
        if not has_neutral:
            _require_elements(op, operands[0], axis, extent, sizes)
        axes[axis] = ONE if attrs["keepdim"] else (REDUCTION, extent)
    return tensor(dtype, axes)


def _variance(op: str, operands: Sequence[Operand], attrs: dict[str, Any], sizes: Sizes) -> ValueType:
    correction = attrs.get("correction", 0)
    if not 0 <= correction <= _CORRECTION_MAX:
        raise InvalidArgument(f"correction={correction} is not in [0, 2^53]")
    given = type_of(operands[0]).dtype
    return _without_axes(operands[0], attrs, sizes, given if given in FLOATS else "f32")


def _any_all(op: str, operands: Sequence[Operand], attrs: dict[str, Any], sizes: Sizes) -> ValueType:
    return _without_axes(operands[0], attrs, sizes, "bool")


def _place(op: str, operands: Sequence[Operand], attrs: dict[str, Any], sizes: Sizes) -> ValueType:
    axes = tensor_axes(operands[0], sizes)
    axis = normal_axis(attrs["axis"], len(axes))
    _require_elements(op, operands[0], axis, axes[axis][1], sizes)
    return tensor("i64", kept_axes(axes, [axis], attrs["keepdim"]))


def _without_axes(operand: Operand, attrs: dict[str, Any], sizes: Sizes, dtype: str) -> ValueType:
    """The type of an op made of others: no reduced axis is left in it."""
    axes = tensor_axes(operand, sizes)
    reduced = _reduced(attrs, len(axes))
    return tensor(dtype, kept_axes(axes, reduced, attrs["keepdim"]))


def kept_axes(axes: Sequence[Axis], reduced: Sequence[int], keepdim: bool) -> list[Axis]:
    return [ONE if k in reduced else axis for k, axis in enumerate(axes) if keepdim or k not in reduced]


INFER = {
    **dict.fromkeys(("sum", "prod", "min", "max"), _infer),
    **dict.fromkeys(("mean", "var", "var_sum"), _variance),
    **dict.fromkeys(("any", "all"), _any_all),
    **dict.fromkeys(("argmax", "argmin"), _place),
}
