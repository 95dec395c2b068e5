"""Products. Follows csrc/fusion/ops/matmul.cc, linear.cc and grouped.cc; a bias is linear's, epilogues and transposed
operands are planning's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgument
from .operand import Operand, axis_name, broadcast_axes, extents_of, stored, tensor_axes, type_of
from .sizes import Sizes
from .value_type import INDICES, REDUCTION, Axis, ValueType, tensor


def _element_type(operands: Sequence[Operand], attrs: dict[str, Any]) -> str:
    """The one of all operands."""
    dtype = type_of(operands[0]).dtype
    for operand in operands:
        other = type_of(operand).dtype
        if other == "bool":
            raise InvalidArgument(f"%{operand._name} is bool; numbers are needed: cast it first")
        if other != dtype:
            first = operands[0]._name
            raise InvalidArgument(
                f"%{first} is {dtype}, %{operand._name} is {other}; operands have one element type",
            )
    precision = attrs.get("precision", "full")
    if precision == "tf32" and dtype != "f32":
        raise InvalidArgument(f"precision tf32 is for f32, not {dtype}")
    return dtype


def _check_some(operand: Operand, axes: Sequence[Axis]) -> None:
    if not axes:
        raise InvalidArgument(f"%{operand._name} has no axes; one or more are needed")


def _unify(x: Operand, x_axis: int, y: Operand, y_axis: int, sizes: Sizes) -> None:
    a, b = tensor_axes(x, sizes)[x_axis][1], tensor_axes(y, sizes)[y_axis][1]
    sizes.unify(a, b, axis_name(x, x_axis), axis_name(y, y_axis))


def _result(dtype: str, axes: Sequence[Axis], contracted: Axis, sizes: Sizes) -> ValueType:
    """A library writes all of it."""
    made = [*stored(axes), (REDUCTION, contracted[1])]
    return tensor(dtype, [(kind, sizes.resolve(extent)) for kind, extent in made])


def _linear(op: str, operands: Sequence[Operand], attrs: dict[str, Any], sizes: Sizes) -> ValueType | None:
    if len(operands) not in (2, 3):
        raise InvalidArgument(f"{len(operands)} operands; it takes x, the weight and perhaps a bias")
    x, weight, *bias = operands
    x_axes, w_axes = tensor_axes(x, sizes), tensor_axes(weight, sizes)
    _check_some(x, x_axes)
    if len(w_axes) != 2:
        raise InvalidArgument(f"the weight %{weight._name} has {len(w_axes)} axes; it must be [out, in]")
    dtype = _element_type(operands, attrs)
    _unify(x, len(x_axes) - 1, weight, 1, sizes)
    for value in bias:
        axes = tensor_axes(value, sizes)
        if len(axes) != 1:
            raise InvalidArgument(f"the bias %{value._name} has {len(axes)} axes; it must be [out]")
        _unify(weight, 0, value, 0, sizes)
    return _result(dtype, [*x_axes[:-1], w_axes[0]], x_axes[-1], sizes)


def _matmul(op: str, operands: Sequence[Operand], attrs: dict[str, Any], sizes: Sizes) -> ValueType | None:
    if len(operands) == 3:
        return None  # Made by planning.
    if len(operands) != 2:
        raise InvalidArgument(f"{len(operands)} operands; it takes x and y")
    x, y = operands
    x_axes, y_axes = tensor_axes(x, sizes), tensor_axes(y, sizes)
    _check_some(x, x_axes)
    _check_some(y, y_axes)
    dtype = _element_type(operands, attrs)
    _unify(x, len(x_axes) - 1, y, max(len(y_axes) - 2, 0), sizes)
    axes = broadcast_axes([(x, x_axes[:-2]), (y, y_axes[:-2])], sizes)
    axes += [*x_axes[-2:-1], *(y_axes[-1:] if len(y_axes) > 1 else ())]
    return _result(dtype, axes, x_axes[-1], sizes)


_FORMS = {
    "grouped_matmul": (("x is [rows, k]", 2), ("y is [groups, k, n]", 3), ("ends are [groups]", 1)),
    "grouped_outer": (("x is [rows, k]", 2), ("y is [rows, n]", 2), ("ends are [groups]", 1)),
}


def _grouped(op: str, operands: Sequence[Operand], attrs: dict[str, Any], sizes: Sizes) -> ValueType | None:
    axes = [tensor_axes(operand, sizes) for operand in operands]
    for operand, own, (form, rank) in zip(operands, axes, _FORMS[op], strict=True):
        if len(own) != rank:
            count = "1 axis" if len(own) == 1 else f"{len(own)} axes"
            raise InvalidArgument(f"%{operand._name} has {count}; {form}")
    x, y, ends = operands
    dtype, other = type_of(x).dtype, type_of(y).dtype
    if dtype == "bool":
        raise InvalidArgument(f"%{x._name} is bool; numbers are needed: cast it first")
    if dtype != other:
        raise InvalidArgument(f"%{x._name} is {dtype}, %{y._name} is {other}; operands have one element type")
    if type_of(ends).dtype not in INDICES:
        raise InvalidArgument(
            f"%{ends._name} is {type_of(ends).dtype}; ends of groups are i32 or i64: cast it first",
        )
    transposed = attrs.get("transposed", "none")
    if transposed not in ("none", "y"):
        raise InvalidArgument(f"transposed is none or y, not {transposed}")
    if transposed == "y":
        return None  # Made by planning.
    if op == "grouped_outer":
        _unify(x, 0, y, 0, sizes)
        result, reduced = [axes[2][0], axes[0][1], axes[1][1]], axes[0][0]
    else:
        _unify(x, 1, y, 1, sizes)
        _unify(y, 0, ends, 0, sizes)
        result, reduced = [axes[0][0], axes[1][2]], axes[0][1]
    offsets = extents_of(attrs["offset"], sizes)
    if len(offsets) != len(result) + 1:
        raise InvalidArgument(
            f"offset has {len(offsets)} entries; the result has {len(result) + 1} axes, the reduced one too",
        )
    return _result(dtype, result, reduced, sizes)


INFER = {"grouped_matmul": _grouped, "grouped_outer": _grouped, "linear": _linear, "matmul": _matmul}
