"""Rules of primitives that move elements or make new ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..values import Tensor
from .known import Known, stored_type
from .refusals import refused
from .walk import Value, Walk, extents, rule


@rule("broadcast_in_dim")
def _broadcast_in_dim(walk: Walk, equation: Any, values: list[Value]) -> Any:
    x = walk.tensor(values[0])
    shape = equation.outvars[0].aval.shape
    return (
        x
        if x.shape == shape
        else walk.ops.broadcast_in_dim(x, list(shape), list(equation.params["broadcast_dimensions"]))
    )


@rule("reshape")
def _reshape(walk: Walk, equation: Any, values: list[Value]) -> Any:
    if equation.params.get("dimensions") is not None:
        raise refused(equation, "it permutes axes, too", "transpose before it")
    return walk.ops.reshape(walk.tensor(values[0]), list(equation.outvars[0].aval.shape))


@rule("squeeze")
def _squeeze(walk: Walk, equation: Any, values: list[Value]) -> Any:
    x, axes = walk.tensor(values[0]), list(equation.params["dimensions"])
    return walk.ops.squeeze(x, axes) if axes else x


@rule("transpose")
def _transpose(walk: Walk, equation: Any, values: list[Value]) -> Any:
    return walk.ops.permute(walk.tensor(values[0]), list(equation.params["permutation"]))


@rule("iota")
def _iota(walk: Walk, equation: Any, values: list[Value]) -> Any:
    return walk.iota(equation.params["shape"], equation.params["dimension"], stored_type(equation.params["dtype"]))


@rule("concatenate")
def _concatenate(walk: Walk, equation: Any, values: list[Value]) -> Any:
    axis = equation.params["dimension"]
    parts = [walk.tensor(v) for v, atom in zip(values, equation.invars, strict=True) if atom.aval.shape[axis]]
    return walk.ops.cat(parts, axis) if len(parts) > 1 else parts[0]


@rule("tile")
def _tile(walk: Walk, equation: Any, values: list[Value]) -> Any:
    x = walk.tensor(values[0])
    for axis, count in enumerate(equation.params["reps"]):
        x = walk.ops.cat([x] * count, axis) if count != 1 else x
    return x


@rule("unstack")
def _unstack(walk: Walk, equation: Any, values: list[Value]) -> Any:
    x, axis = walk.tensor(values[0]), equation.params["axis"]
    return [walk.ops.squeeze(part(walk, x, axis, place, 1), [axis]) for place in range(extents(x)[axis])]


@rule("stack")
def _stack(walk: Walk, equation: Any, values: list[Value]) -> Any:
    return stacked(walk, values, equation.params["axis"])


def stacked(walk: Walk, values: list[Value], axis: int) -> Tensor:
    """The values along a new axis."""
    parts = [walk.tensor(value) for value in values]
    shape = extents(parts[0])
    axes = [k for k in range(len(shape) + 1) if k != axis]
    wide = [walk.ops.broadcast_in_dim(x, [*shape[:axis], 1, *shape[axis:]], axes) for x in parts]
    return walk.ops.cat(wide, axis) if len(wide) > 1 else wide[0]


@rule("slice")
def _slice(walk: Walk, equation: Any, values: list[Value]) -> Any:
    start, end, steps = (equation.params[k] for k in ("start_indices", "limit_indices", "strides"))
    return walk.ops.slice(walk.tensor(values[0]), list(start), list(end), None if steps is None else list(steps))


@rule("split")
def _split(walk: Walk, equation: Any, values: list[Value]) -> Any:
    x, axis = walk.tensor(values[0]), equation.params["axis"]
    parts, at = [], 0
    for size in map(int, equation.params["sizes"]):
        parts.append(part(walk, x, axis, at, size))
        at += size
    return parts


def part(walk: Walk, x: Tensor, axis: int, start: int, size: int) -> Tensor:
    """``size`` elements of an axis."""
    begin, end = [0] * x.ndim, extents(x)
    begin[axis], end[axis] = start, start + size
    if size == 0:
        return walk.full([e - b for b, e in zip(begin, end, strict=True)], 0, x.dtype)
    return walk.ops.slice(x, begin, end)


@rule("pad")
def _pad(walk: Walk, equation: Any, values: list[Value]) -> Any:
    x, shape = walk.tensor(values[0]), equation.outvars[0].aval.shape
    config = equation.params["padding_config"]
    if 0 in x.shape:
        return walk.stretched(walk.tensor(values[1]), shape)
    number = values[1].number if isinstance(values[1], Known) else None
    if number is not None:
        return _padded(walk, x, config, number)
    inside = _padded(walk, walk.full(extents(x), True, np.bool_), config, False)
    return walk.ops.where(inside, _padded(walk, x, config, np.zeros((), x.dtype)), walk.tensor(values[1]))


def _padded(walk: Walk, x: Tensor, config: Any, number: Any) -> Tensor:
    for axis, (_, _, between) in enumerate(config):
        if between and extents(x)[axis] > 1:
            x = _spread(walk, x, axis, between, number)
    widths = [width for low, high, _ in reversed(config) for width in (low, high)]
    if not any(widths):
        return x
    value = number.item() if hasattr(number, "item") else number
    return walk.ops.pad(x, widths, float(value))


def _spread(walk: Walk, x: Tensor, axis: int, between: int, number: Any) -> Tensor:
    """With ``between`` numbers behind each element of an axis but the last."""
    shape = extents(x)
    column = walk.ops.reshape(x, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
    behind = 2 * (len(shape) - axis - 1)
    value = number.item() if hasattr(number, "item") else number
    wide = walk.ops.pad(column, [*[0] * behind, 0, between], float(value))
    line = walk.ops.reshape(wide, [*shape[:axis], shape[axis] * (between + 1), *shape[axis + 1 :]])
    return part(walk, line, axis, 0, shape[axis] * (between + 1) - between)


@rule("rev")
def _rev(walk: Walk, equation: Any, values: list[Value]) -> Any:
    return walk.ops.flip(walk.tensor(values[0]), list(equation.params["dimensions"]))


@rule("dot_general")
def _dot_general(walk: Walk, equation: Any, values: list[Value]) -> Any:
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    out = equation.outvars[0].aval
    left, right = _factors(walk, equation, values)
    pairs = sorted(zip(left_sum, right_sum, strict=True), key=lambda pair: pair[1])  # As the right one has them.
    left_sum, right_sum = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    left_free = [k for k in range(left.ndim) if k not in left_sum and k not in left_batch]
    right_free = [k for k in range(right.ndim) if k not in right_sum and k not in right_batch]
    summed = math.prod(int(left.shape[k]) for k in left_sum)
    if summed == 0:
        return walk.full(out.shape, 0, out.dtype)
    batch = [int(left.shape[k]) for k in left_batch]
    rows = [int(left.shape[k]) for k in left_free]
    columns = [int(right.shape[k]) for k in right_free]
    order = [*left_batch, *left_free, *left_sum]
    a = _permuted(walk, left, order)
    apart = not batch and order == list(range(left.ndim))  # Rows that stay where they are may be split over a mesh.
    a = _reshaped(walk, a, [*rows, summed] if apart or not (rows or batch) else [*batch, math.prod(rows), summed])
    if rows and right_free and not batch and [*right_free, *right_sum] == list(range(right.ndim)):
        weight = _reshaped(walk, right, [math.prod(columns), summed])
        product = walk.ops.linear(a, weight)  # It is stored the other way round.
    else:
        b = _permuted(walk, right, [*right_batch, *right_sum, *right_free])
        ends = [math.prod(columns)] if batch or right_free else []
        product = walk.ops.matmul(a, _reshaped(walk, b, [*batch, summed, *ends]))
    return _reshaped(walk, product, [*batch, *rows, *columns])


def _factors(walk: Walk, equation: Any, values: list[Value]) -> tuple[Tensor, Tensor]:
    """Of a product, in the type in which it adds."""
    left, right = (walk.tensor(value) for value in values)
    if np.dtype(bool) in (left.dtype, right.dtype):
        raise refused(equation, "bools are not multiplied", "convert them before: x.astype(jnp.float32)")
    wanted = equation.params.get("preferred_element_type")
    common = np.promote_types(left.dtype, right.dtype)
    if wanted is not None and np.dtype(wanted).itemsize > common.itemsize:
        common = np.dtype(wanted)  # Products are exact, and sums are of the type.
    left, right = (x if x.dtype == common else walk.ops.cast(x, common) for x in (left, right))
    return left, right


@rule("ragged_dot_general")
def _ragged_dot(walk: Walk, equation: Any, values: list[Value]) -> Any:
    """Of rows in groups, or of sums in groups, which is its gradient."""
    numbers = equation.params["ragged_dot_dimension_numbers"]
    (left_sum, right_sum), (left_batch, _) = numbers.dot_dimension_numbers
    (ragged,), groups = numbers.lhs_ragged_dimensions, list(numbers.rhs_group_dimensions)
    left, right = _factors(walk, equation, values[:2])
    is_plain = left.ndim == 2 and len(left_sum) == 1 and not left_batch and equation.params["group_offset"] is None
    if not is_plain or (left.ndim, right.ndim, len(groups)) not in ((2, 3, 1), (2, 2, 0)):
        raise refused(equation, "it has batches, several axes that are summed, or an offset", "use lax.ragged_dot")
    if (ragged in left_sum) == bool(groups):
        raise refused(equation, "groups of sums and of matrices at once", "use lax.ragged_dot")
    free = [k for k in range(right.ndim) if k not in right_sum and k not in groups]
    x = _permuted(walk, left, [ragged, 1 - ragged])
    y = _permuted(walk, right, [*groups, *right_sum, *free])
    ends = walk.ops.cumsum(walk.tensor(values[2]), 0)
    return walk.ops.grouped_matmul(x, y, ends) if groups else walk.ops.grouped_outer(x, y, ends)


def _permuted(walk: Walk, x: Tensor, order: list[int]) -> Tensor:
    return x if order == list(range(x.ndim)) else walk.ops.permute(x, order)


def _reshaped(walk: Walk, x: Tensor, shape: list[int]) -> Tensor:
    return x if x.shape == tuple(shape) else walk.ops.reshape(x, shape)
