"""Operations whose indices are data. Follows csrc/fusion/ops/gather.cc, index_sum.cc, scatter.cc and their kin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgument
from .operand import (
    Operand,
    axis_name,
    broadcast_axes,
    dtype_of,
    extent_of,
    normal_axis,
    require_extents,
    stored,
    tensor_axes,
    type_of,
    type_text,
)
from .sizes import Sizes
from .value_type import BROADCAST, INDICES, ITERATION, ONE, REDUCTION, Axis, ValueType, check, tensor

_Attrs = dict[str, Any]


def _check_indices(operand: Operand) -> None:
    dtype = type_of(operand).dtype
    if dtype not in INDICES:
        raise InvalidArgument(f"%{operand._name} is {dtype}; indices are i32 or i64: cast it first")


def _check_ranks(x: Operand, rank: int, other: Operand, other_rank: int) -> None:
    if rank != other_rank:
        raise InvalidArgument(f"%{x._name} has {rank} axes, %{other._name} has {other_rank}")


def _require_some(op: str, operand: Operand, axes: Sequence[Axis], along: int, sizes: Sizes) -> None:
    name, extent = axis_name(operand, along), axes[along][1]
    if extent == 0:
        raise InvalidArgument(f"{name} has extent 0: there is nothing to take")
    sizes.at_most(1, extent, f"{op} over {name}")


def _take_along_axis(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    x, y = list(tensor_axes(operands[0], sizes)), tensor_axes(operands[1], sizes)
    _check_ranks(operands[0], len(x), operands[1], len(y))
    _check_indices(operands[1])
    along = normal_axis(attrs["axis"], len(x))
    _require_some(op, operands[0], x, along, sizes)
    x[along] = ONE  # The result has y's axis.
    axes = broadcast_axes([(operands[0], x), (operands[1], y)], sizes)
    return tensor(type_of(operands[0]).dtype, axes)


def _gather(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    x, y = tensor_axes(operands[0], sizes), tensor_axes(operands[1], sizes)
    _check_ranks(operands[0], len(x), operands[1], len(y))
    _check_indices(operands[1])
    along = normal_axis(attrs["axis"], len(x))
    _require_some(op, operands[0], x, along, sizes)
    result = list(y)
    for k, ((kind, whole), (_, part)) in enumerate(zip(x, y, strict=True)):
        name = axis_name(operands[0], k)
        if k == along:
            continue
        if isinstance(whole, int) and isinstance(part, int) and part > whole:
            places = axis_name(operands[1], k)
            raise InvalidArgument(f"{places} has extent {part}, more than the {whole} of {name}")
        sizes.at_most(part, whole, f"gather from {name}")
        if kind != BROADCAST:
            result[k] = (ITERATION, part)
    return tensor(type_of(operands[0]).dtype, result)


def _index_select(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    x, y = list(tensor_axes(operands[0], sizes)), tensor_axes(operands[1], sizes)
    _check_indices(operands[1])
    if len(y) != 1:
        raise InvalidArgument(f"%{operands[1]._name} has {len(y)} axes; a list of indices has one")
    along = normal_axis(attrs["axis"], len(x))
    _require_some(op, operands[0], x, along, sizes)
    x[along] = y[0]
    return tensor(type_of(operands[0]).dtype, x)


def _scatter(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    into, places, source = operands
    x, y, z = (list(tensor_axes(operand, sizes)) for operand in operands)
    _check_ranks(into, len(x), places, len(y))
    _check_ranks(into, len(x), source, len(z))
    _check_indices(places)
    if type_of(source).dtype != type_of(into).dtype:
        raise InvalidArgument(
            f"%{into._name} is {type_of(into).dtype}, %{source._name} is {type_of(source).dtype}; "
            "nothing promotes: cast one"
        )
    along = normal_axis(attrs["axis"], len(x))
    name = axis_name(places, along)
    sizes.unify(y[along][1], z[along][1], name, axis_name(source, along))
    if y[along][1] == 0:
        raise InvalidArgument(f"{name} has extent 0: there is nothing to put")
    sizes.at_most(1, y[along][1], f"scatter over {name}")
    count = y[along][1]
    x[along] = y[along] = z[along] = (ITERATION, sizes.resolve(x[along][1]))
    result = broadcast_axes([(into, x), (places, y), (source, z)], sizes)
    check("i64", ((ITERATION, count), *result))  # Each element of the result asks all indices.
    return tensor(type_of(into).dtype, result)


def _index_sum(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    updates, places = operands
    x, y = list(tensor_axes(updates, sizes)), tensor_axes(places, sizes)
    _check_indices(places)
    if len(y) != 1:
        raise InvalidArgument(f"%{places._name} has {len(y)} axes; a list of indices has one")
    if type_of(updates).dtype == "bool":
        raise InvalidArgument(f"%{updates._name} is bool; numbers are needed: cast it first")
    along = normal_axis(attrs["axis"], len(x))
    sizes.unify(x[along][1], y[0][1], axis_name(updates, along), axis_name(places, 0))
    size = extent_of(attrs["size"], sizes)
    require_extents(op, (size,), sizes)
    count = x[along][1]
    x[along] = (ITERATION, size)
    made = [*stored(x), (REDUCTION, count)]  # A library writes all of it.
    return tensor(type_of(updates).dtype, [(kind, sizes.resolve(extent)) for kind, extent in made])


def _select(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    x, place = list(tensor_axes(operands[0], sizes)), type_of(operands[1])
    if place.is_tensor or place.dtype not in INDICES:
        what = type_text(operands[1], sizes)
        raise InvalidArgument(f"%{operands[1]._name} is {what}; the index is a host scalar of i32 or i64")
    along = normal_axis(attrs["axis"], len(x))
    _require_some(op, operands[0], x, along, sizes)
    if operands[1]._constant is not None:
        number, name, extent = int(operands[1]._constant), axis_name(operands[0], along), x[along][1]
        needed = -number if number < 0 else number + 1
        if isinstance(extent, int) and extent < needed:
            raise InvalidArgument(f"{name} has extent {extent}; it has no element {number}")
        sizes.at_most(needed, extent, f"element {number} of {name}")
    del x[along]
    return tensor(type_of(operands[0]).dtype, x)


def _one_hot(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    axes = tensor_axes(operands[0], sizes)
    _check_indices(operands[0])
    if attrs["classes"] < 0:
        raise InvalidArgument(f"classes={attrs['classes']}; it is 0 or more")
    return tensor(dtype_of(attrs), (*axes, (ITERATION, attrs["classes"])))


INFER = {
    "gather": _gather,
    "index_select": _index_select,
    "index_sum": _index_sum,
    "one_hot": _one_hot,
    "scatter": _scatter,
    "select": _select,
    "take_along_axis": _take_along_axis,
}
