"""What inference reads of an operand, and the questions that many ops ask. Follows csrc/fusion/infer.cc."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..errors import InvalidArgument
from . import extent_text, extents
from .extents import Expr, Extent
from .sizes import Sizes
from .value_type import ITERATION, ONE, Axis, ValueType, text


class Operand(Protocol):
    """A value of a program: its name, its type where that is known, its number where it is a constant."""

    _name: str
    _type: ValueType | None
    _constant: float | None


def type_of(operand: Operand) -> ValueType:
    assert operand._type is not None  # infer() sees to it.
    return operand._type


def tensor_axes(operand: Operand, sizes: Sizes) -> tuple[Axis, ...]:
    """Those that readers see, of what must be a tensor."""
    of = type_of(operand)
    if of.axes is None:
        raise InvalidArgument(f"%{operand._name} is {of.dtype}; a tensor is needed")
    return sizes.value_axes(of)


def type_text(operand: Operand, sizes: Sizes) -> str:
    of = type_of(operand)
    return text(of.dtype, None if of.axes is None else sizes.axes(of))


def axis_name(operand: Operand, axis: int) -> str:
    return f"axis {axis} of %{operand._name}"


def normal_axis(axis: int, rank: int) -> int:
    if -rank <= axis < rank:
        return axis + rank if axis < 0 else axis
    if rank == 0:
        raise InvalidArgument(f"axis {axis} of a tensor without axes")
    raise InvalidArgument(f"axis {axis} is not in [{-rank}, {rank - 1}]")


def normal_axes(axes: Sequence[int], rank: int) -> list[int]:
    """Ascending."""
    normal: list[int] = []
    for axis in axes:
        one = normal_axis(axis, rank)
        if one in normal:
            raise InvalidArgument(f"axis {one} is given twice")
        normal.append(one)
    return sorted(normal)


def check_count(operand: Operand, name: str, count: int, rank: int) -> None:
    if count != rank:
        raise InvalidArgument(f"{name} has {count} entries; %{operand._name} has {rank} axes")


def dtype_of(attrs: dict[str, Any], null_is: str = "") -> str:
    dtype = attrs["dtype"]
    if not isinstance(dtype, str):
        raise TypeError(dtype)
    return null_is if dtype == "null" and null_is else dtype


def extent_of(entry: Any, sizes: Sizes) -> Extent:
    """Of an attribute: a number, or the text of an expression. Raises ValueError for a text that is none."""
    return entry if isinstance(entry, int) else sizes.resolve(extent_text.parse(entry))


def extents_of(entries: Any, sizes: Sizes) -> list[Extent]:
    return [extent_of(entry, sizes) for entry in entries]


def _is_plain_size(e: Expr) -> bool:
    """Whether it is 0 or more for all sizes, as it is written."""
    if e.kind == extents.SYMBOL:
        return True
    if e.kind == extents.MAX:
        return any(_is_plain_size(arg) for arg in e.args)
    if not all(_is_plain_size(arg) for arg in e.args):
        return False
    if e.kind in (extents.FLOOR_DIV, extents.CEIL_DIV, extents.MOD):
        return e.args[1].kind == extents.CONST and e.args[1].value > 0
    return e.kind == extents.MIN or e.value >= 0


def require_extents(op: str, shape: Sequence[Extent], sizes: Sizes) -> None:
    """Guards that each is a size; constants are seen to by value_type.check."""
    for extent in shape:
        if not isinstance(extent, int) and not _is_plain_size(extent):
            sizes.at_most(0, extent, f"{op} to an extent of {extent_text.text(extent)}")


def _simpler(a: Extent, b: Extent) -> Extent:
    if isinstance(a, int) or isinstance(b, int):
        return a if isinstance(a, int) else b
    return min(a, b)


def broadcast_axes(operands: Sequence[tuple[Operand, Sequence[Axis]]], sizes: Sizes) -> list[Axis]:
    """As NumPy's: aligned at the last axis, extent 1 stretches; extents that must be equal become one."""
    rank = max(len(axes) for _, axes in operands)
    result: list[Axis] = []
    for i in range(rank):
        kind, extent = ONE
        name = ""
        for operand, axes in operands:
            k = i - rank + len(axes)
            if k < 0:
                continue
            given_kind, given = axes[k]
            if given == 1:
                # An iteration axis of extent 1 makes the result's one, unless another operand stretches it.
                if extent == 1 and given_kind == ITERATION:
                    kind = ITERATION
            elif extent == 1:
                kind, extent, name = given_kind, given, axis_name(operand, k)
            else:
                if extent != given:
                    sizes.unify(extent, given, name, axis_name(operand, k))
                    extent = _simpler(sizes.resolve(extent), sizes.resolve(given))
                if given_kind == ITERATION:
                    kind = ITERATION
        result.append((kind, sizes.resolve(extent)))
    return [(kind, sizes.resolve(extent)) for kind, extent in result]


def stored(axes: Sequence[Axis]) -> list[Axis]:
    return [(ITERATION, extent) for _, extent in axes]
