"""Reshaping: axes matched in the shortest groups of equally many elements. Follows csrc/fusion/ops/reshape.cc."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import InvalidArgument
from . import extents
from .extent_text import text
from .extents import CONST, MUL, Expr, Extent
from .operand import Operand, extents_of, require_extents, tensor_axes, type_of
from .sizes import Sizes
from .value_type import AXES_MAX, BROADCAST, ITERATION, Axis, ValueType, tensor


def _shape_text(shape: Sequence[Extent]) -> str:
    return f"[{', '.join(map(text, shape))}]"


def _products(shape: Sequence[Extent]) -> list[Extent]:
    products: list[Extent] = [1]
    for extent in shape:
        products.append(extents.mul(products[-1], extent))
    return products


def _shortest_match(before: Sequence[Extent], after: Sequence[Extent]) -> tuple[int, int]:
    """The shortest (a, b) such that the first a of one and the first b of the other hold equally many elements,
    whatever the symbols are; when there is none, what is left before the extents that both end with."""
    ins, outs = _products(before), _products(after)
    for total in range(2, len(before) + len(after) + 1):
        for a in range(1, min(total, len(before) + 1)):
            if total - a <= len(after) and ins[a] == outs[total - a]:
                return a, total - a
    same = 0
    if ins[-1] == outs[-1]:
        return len(before), len(after)
    while same + 1 < min(len(before), len(after)) and before[-1 - same] == after[-1 - same]:
        same += 1
    is_one_each = len(before) - same == 1 and len(after) - same == 1
    return (len(before), len(after)) if is_one_each else (len(before) - same, len(after) - same)


def _groups(before: Sequence[Extent], after: Sequence[Extent]) -> Iterator[tuple[range, range]]:
    """Consecutive axes that become consecutive axes, with equally many elements."""
    i = j = 0
    while i < len(before) or j < len(after):
        a, b = int(before[i : i + 1] == [1]), int(after[j : j + 1] == [1])
        if not a and not b:
            a, b = _shortest_match(before[i:], after[j:])
        yield range(i, i + a), range(j, j + b)
        i, j = i + a, j + b


def _factors(extent: Extent) -> tuple[int, list[Expr]]:
    if isinstance(extent, int):
        return extent, []
    return (extent.value, list(extent.args)) if extent.kind == MUL else (1, [extent])


def _divide(total: Extent, known: Extent) -> Extent | None:
    """total / known where both are products and the division is exact."""
    coefficient, atoms = _factors(total)
    by, others = _factors(known)
    if by < 1 or coefficient % by:
        return None
    for atom in others:
        if atom not in atoms:
            return None
        atoms.remove(atom)
    assert all(atom.kind != CONST for atom in atoms)
    return extents.mul(coefficient // by, extents.product([*atoms]))


def _complete(operand: Operand, axes: Sequence[Axis], shape: list[Extent], sizes: Sizes) -> None:
    """Replaces the -1, if there is one, and demands that the shape holds as many elements as there are."""
    given, name = _shape_text(shape), operand._name
    total = extents.product([extent for _, extent in axes])
    if shape.count(-1) > 1:
        raise InvalidArgument(f"shape {given} holds -1 more than once")
    if -1 in shape:
        at = shape.index(-1)
        shape[at] = 1
        known = extents.product(shape)
        if known == 0:
            raise InvalidArgument(f"shape {given} holds 0, so -1 can be any extent")
        missing = _divide(total, known)
        if missing is None and isinstance(total, int) and isinstance(known, int):
            raise InvalidArgument(
                f"%{name} has {total} elements, not a multiple of the {known} of shape {given}",
            )
        shape[at] = extents.floor_div(total, known) if missing is None else missing
    made = extents.product(shape)
    if isinstance(total, int) and isinstance(made, int) and total != made:
        raise InvalidArgument(f"%{name} has {total} elements, shape {given} has {made}")
    sizes.equal(total, made, f"reshape of %{name} to {given}")


def _reshape(op: str, operands: Sequence[Operand], attrs: dict[str, Any], sizes: Sizes) -> ValueType:
    axes = tensor_axes(operands[0], sizes)
    shape = extents_of(attrs["shape"], sizes)
    if len(shape) > AXES_MAX:
        raise InvalidArgument(f"shape has {len(shape)} entries; the limit is {AXES_MAX}")
    for extent in shape:
        if isinstance(extent, int) and extent < -1:
            raise InvalidArgument(f"shape {_shape_text(shape)} holds {extent}")
    _complete(operands[0], axes, shape, sizes)
    require_extents(op, shape, sizes)
    result: list[Axis] = []
    for before, after in _groups([extent for _, extent in axes], shape):
        once = all(axes[i][0] == BROADCAST for i in before)  # A part of a tensor that is stored once stays so.
        result += [(BROADCAST if once else ITERATION, shape[j]) for j in after]
    return tensor(type_of(operands[0]).dtype, result)


INFER = {"reshape": _reshape}
