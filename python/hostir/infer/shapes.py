"""Operations that move elements by place, and new values. Follows csrc/fusion/ops of the same names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from ..errors import InvalidArgument
from . import extents
from .extent_text import text
from .extents import Extent
from .operand import (
    Operand,
    axis_name,
    broadcast_axes,
    check_count,
    dtype_of,
    extents_of,
    normal_axes,
    normal_axis,
    require_extents,
    stored,
    tensor_axes,
    type_of,
    type_text,
)
from .sizes import Sizes
from .value_type import (
    BROADCAST,
    FLOATS,
    INDICES,
    INTS,
    ITERATION,
    LIMITS,
    ONE,
    Axis,
    ValueType,
    promote,
    scalar,
    tensor,
)

_Attrs = dict[str, Any]
_WIDTH_MAX = 2**40
_END = 2**63 - 1


def _like(operand: Operand, axes: Sequence[Axis]) -> ValueType:
    return tensor(type_of(operand).dtype, tuple(axes))


def _broadcast(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    axes = tensor_axes(operands[0], sizes)
    flags = attrs["is_broadcast_dim"]
    for flag in flags:
        if flag not in (0, 1):
            raise InvalidArgument(f"is_broadcast_dim holds {flag}; it holds 0 and 1")
    kept = flags.count(0)
    if kept != len(axes):
        raise InvalidArgument(f"is_broadcast_dim keeps {kept} axes; %{operands[0]._name} has {len(axes)}")
    left = iter(axes)
    return _like(operands[0], [ONE if flag else next(left) for flag in flags])


def _stretch(operand: Operand, number: int, axis: Axis, at: int, extent: Extent, sizes: Sizes) -> Axis:
    """``axis``, numbered ``number``, as axis ``at`` of a result of ``extent``."""
    if axis[1] == 1:
        return axis if extent == 1 else _stored_once(extent)
    sizes.unify(axis[1], extent, axis_name(operand, number), f"entry {at} of shape")
    return axis[0], sizes.resolve(axis[1])


def _stored_once(extent: Extent) -> Axis:
    return (ITERATION if extent == 0 else BROADCAST), extent  # Of no elements not even one is stored.


def _broadcast_in_dim(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    axes = tensor_axes(operands[0], sizes)
    shape = extents_of(attrs["shape"], sizes)
    check_count(operands[0], "dims", len(attrs["dims"]), len(axes))
    normal: list[int] = []
    for dim in attrs["dims"]:
        one = normal_axis(dim, len(shape))
        if normal and one <= normal[-1]:
            raise InvalidArgument(f"dims holds {one} after {normal[-1]}; it must ascend")
        normal.append(one)
    require_extents(op, shape, sizes)
    result = [_stored_once(extent) for extent in shape]
    for k, (axis, at) in enumerate(zip(axes, normal, strict=True)):
        result[at] = _stretch(operands[0], k, axis, at, sizes.resolve(shape[at]), sizes)
    return _like(operands[0], [(kind, sizes.resolve(extent)) for kind, extent in result])


def _expand(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    axes = tensor_axes(operands[0], sizes)
    shape = extents_of(attrs["shape"], sizes)
    check_count(operands[0], "shape", len(shape), len(axes))
    shape = [axis[1] if extent == -1 else extent for axis, extent in zip(axes, shape, strict=True)]
    result = [
        _stretch(operands[0], k, axis, k, sizes.resolve(extent), sizes)
        for k, (axis, extent) in enumerate(zip(axes, shape, strict=True))
    ]
    require_extents(op, [sizes.resolve(extent) for extent in shape], sizes)
    return _like(operands[0], [(kind, sizes.resolve(extent)) for kind, extent in result])


def _cat(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    if not operands:
        raise InvalidArgument("there is no operand")
    result = list(tensor_axes(operands[0], sizes))
    along = normal_axis(attrs["axis"], len(result))
    result[along] = (ITERATION, result[along][1])
    for operand in operands[1:]:
        axes = tensor_axes(operand, sizes)
        if len(axes) != len(result):
            first = operands[0]._name
            raise InvalidArgument(f"%{first} has {len(result)} axes, %{operand._name} has {len(axes)}")
        for k, (kind, extent) in enumerate(axes):
            if k == along:
                result[k] = (ITERATION, extents.add(sizes.resolve(result[k][1]), sizes.resolve(extent)))
                continue
            sizes.unify(result[k][1], extent, axis_name(operands[0], k), axis_name(operand, k))
            if kind == ITERATION:
                result[k] = (ITERATION, result[k][1])
    dtype = reduce(promote, (type_of(operand).dtype for operand in operands))
    return tensor(dtype, [(kind, sizes.resolve(extent)) for kind, extent in result])


def _pad(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    axes = list(tensor_axes(operands[0], sizes))
    widths, rank = attrs["widths"], len(axes)
    if len(widths) % 2 or len(widths) > 2 * rank:
        raise InvalidArgument(
            f"widths has {len(widths)} entries; %{operands[0]._name} has {rank} axes, so it holds at most {rank} pairs"
        )
    for axis, (_, extent) in enumerate(axes):
        before, after = widths[2 * (rank - 1 - axis) :][:2] or (0, 0)
        for width in (before, after):
            if not -_WIDTH_MAX <= width <= _WIDTH_MAX:
                raise InvalidArgument(f"width {width} on axis {axis}; the limit is {_WIDTH_MAX}")
        if before == after == 0:
            continue
        more, name = before + after, axis_name(operands[0], axis)
        if isinstance(extent, int) and extent < -more:
            raise InvalidArgument(f"{name} has extent {extent}, less than the {-more} to crop")
        sizes.at_most(-more, extent, f"pad of {name}")
        axes[axis] = (ITERATION, extents.add(extent, more))
    return _like(operands[0], axes)


def _permute(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    axes = tensor_axes(operands[0], sizes)
    if len(attrs["dims"]) != len(axes):
        raise InvalidArgument(f"dims has {len(attrs['dims'])} entries; the tensor has {len(axes)} axes")
    normal_axes(attrs["dims"], len(axes))
    return _like(operands[0], [axes[dim] for dim in attrs["dims"]])


def _slice(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    axes = list(tensor_axes(operands[0], sizes))
    bounds = {name: extents_of(attrs[name], sizes) for name in ("start", "end")}
    strides = list(attrs["strides"]) or [1] * len(axes)
    for name, entries in (*bounds.items(), ("strides", strides)):
        check_count(operands[0], name, len(entries), len(axes))
    for k, (kind, extent) in enumerate(axes):
        if strides[k] < 1:
            raise InvalidArgument(f"stride {strides[k]} on axis {k}; strides are at least 1")
        start, end = (_from_end(bounds[name][k], extent) for name in ("start", "end"))
        if isinstance(extent, int):
            start, end = (min(max(b, 0), extent) if isinstance(b, int) else b for b in (start, end))
        if isinstance(start, int) and isinstance(end, int) and end < start:
            end = start
        for low, high in ((0, start), (start, end), (end, extent)):
            sizes.at_most(low, high, f"slice of {axis_name(operands[0], k)}")
        taken = extents.ceil_div(extents.sub(end, start), strides[k])
        axes[k] = (ITERATION if taken == 0 else kind, taken)  # Nothing is stored, not even once.
    return _like(operands[0], axes)


def _from_end(bound: Extent, extent: Extent) -> Extent:
    """A bound as NumPy reads it: negative constants count from the end."""
    if bound == _END:
        return extent
    return extents.add(extent, bound) if isinstance(bound, int) and bound < 0 else bound


def _squeeze(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    axes = tensor_axes(operands[0], sizes)
    squeezed = normal_axes(attrs["axes"], len(axes))
    for k in squeezed:
        kind, extent = axes[k]
        name = axis_name(operands[0], k)
        if op == "squeeze" and extent != 1:
            raise InvalidArgument(f"{name} has extent {text(extent)}; only axes of extent 1 can go")
        if op == "squeeze_expanded" and extent != 1 and kind != BROADCAST:
            raise InvalidArgument(f"{name} holds {text(extent)} elements; only axes that are stored once can go")
        if op == "squeeze_expanded":
            sizes.at_most(1, extent, f"squeeze_expanded of {name}")
    return _like(operands[0], [axis for k, axis in enumerate(axes) if k not in squeezed])


def _triangle(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    axes = tensor_axes(operands[0], sizes)
    if len(axes) < 2:
        raise InvalidArgument(f"%{operands[0]._name} has {len(axes)} axes; two are needed")
    if not -(2**53) <= attrs["diagonal"] <= 2**53:
        raise InvalidArgument(f"diagonal={attrs['diagonal']} is not in [-2^53, 2^53]")
    # An axis that was stored once is stored in full.
    return _like(operands[0], broadcast_axes([(operands[0], axes), (operands[0], stored(axes[-2:]))], sizes))


def _flip(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    axes = tensor_axes(operands[0], sizes)
    normal_axes(attrs["axes"], len(axes))
    return _like(operands[0], axes)


def _constant(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    dtype, value = dtype_of(attrs), attrs["value"]
    if dtype in INTS and not (value == value // 1 and abs(value) <= 2**53):
        raise InvalidArgument(f"value={value!r} is not an integer between -2^53 and 2^53")
    if dtype in LIMITS and not LIMITS[dtype][0] <= value <= LIMITS[dtype][1]:
        raise InvalidArgument(f"value={value!r} does not fit {dtype}")
    if dtype == "bool" and value not in (0, 1):
        raise InvalidArgument(f"value={value!r} is not a bool (0 or 1)")
    return scalar(dtype)


def _extent(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    extents_of([attrs["value"]], sizes)
    return scalar("i64")


def _size(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    normal_axis(attrs["axis"], len(tensor_axes(operands[0], sizes)))
    return scalar("i64")


def _full(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    shape = extents_of(attrs["shape"], sizes)
    require_extents(op, shape, sizes)
    return tensor(dtype_of(attrs), [(ITERATION, extent) for extent in shape])


def _iota(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    dtype = dtype_of(attrs)
    if dtype == "bool":
        raise InvalidArgument("dtype=bool: a sequence is of numbers")
    for name in ("shape", "offset"):
        if len(attrs[name]) != 1:
            raise InvalidArgument(f"{name} has {len(attrs[name])} entries; a sequence has one axis")
    for operand in operands:
        of = type_of(operand)
        if of.is_tensor:
            what = type_text(operand, sizes)
            raise InvalidArgument(f"%{operand._name} is {what}; start and step are host scalars")
        if dtype in INTS and of.dtype in FLOATS:
            raise InvalidArgument(f"%{operand._name} is {of.dtype}, dtype={dtype} needs an integer: cast it first")
    return _full(op, (), attrs, sizes)


def _random(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    for operand in operands:
        of = type_of(operand)
        if of.is_tensor or of.dtype not in INDICES:
            what = type_text(operand, sizes)
            raise InvalidArgument(f"%{operand._name} is {what}; seed and offset are host scalars of i32 or i64")
    dtype = dtype_of(attrs)
    if dtype not in FLOATS:
        raise InvalidArgument(f"dtype={dtype}: random numbers are floats; cast them")
    return _full(op, (), attrs, sizes)


INFER = {
    "broadcast": _broadcast,
    "broadcast_in_dim": _broadcast_in_dim,
    "cat": _cat,
    "constant": _constant,
    "expand": _expand,
    "extent": _extent,
    "flip": _flip,
    "full": _full,
    "iota": _iota,
    "normal": _random,
    "pad": _pad,
    "permute": _permute,
    "size": _size,
    "slice": _slice,
    "squeeze": _squeeze,
    "squeeze_expanded": _squeeze,
    "tril": _triangle,
    "triu": _triangle,
    "uniform": _random,
}
