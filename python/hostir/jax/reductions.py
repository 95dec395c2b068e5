"""Rules of reductions, and of what counts places along an axis: argmax, cumulative sums, sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..values import Tensor
from .pointwise import greatest, least
from .refusals import refused
from .walk import Value, Walk, extents, rule


@rule("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or")
def _reduce(walk: Walk, equation: Any, values: list[Value]) -> Any:
    x, name, axes = walk.tensor(values[0]), equation.primitive.name[len("reduce_") :], list(equation.params["axes"])
    if name in ("and", "or"):
        if x.dtype != np.bool_:
            raise refused(equation, "bits of integers are not reduced", "reduce a bool: x != 0")
        name = {"and": "min", "or": "max"}[name]
    out = equation.outvars[0].aval
    if not axes:
        return x
    if any(x.shape[axis] == 0 for axis in axes):
        of_nothing = {"sum": 0, "prod": 1, "max": least(out.dtype), "min": greatest(out.dtype)}
        return walk.full(out.shape, of_nothing[name], out.dtype)
    dtype = out.dtype if name in ("sum", "prod") else None
    return getattr(walk.ops, name)(x, axes, dtype=dtype)


@rule("argmax", "argmin")
def _argmax(walk: Walk, equation: Any, values: list[Value]) -> Any:
    """The first of the places of what is greatest; the first NaN, where there is one."""
    (axis,) = equation.params["axes"]
    place = getattr(walk.ops, equation.primitive.name)(walk.tensor(values[0]), axis)
    return walk.ops.cast(place, equation.params["index_dtype"])


@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def _cumulative(walk: Walk, equation: Any, values: list[Value]) -> Any:
    """For each place what is up to there, combined; of the greatest and least the square of the axis, in work."""
    x, axis, kind = walk.tensor(values[0]), equation.params["axis"], equation.primitive.name[3:]
    if kind == "logsumexp":
        raise refused(
            equation, "there is no such operation in hostir", "take jnp.log(jnp.cumsum(jnp.exp(x - x.max())))"
        )
    if kind in ("sum", "prod"):
        forwards = walk.ops.flip(x, [axis]) if equation.params["reverse"] else x
        made = getattr(walk.ops, equation.primitive.name)(forwards, axis, x.dtype)
        return walk.ops.flip(made, [axis]) if equation.params["reverse"] else made
    shape = extents(x)
    wide = [*shape[: axis + 1], shape[axis], *shape[axis + 1 :]]  # [..., place of the result, place of x, ...]
    others = [k for k in range(len(wide)) if k != axis]
    spread = walk.ops.broadcast_in_dim(x, wide, others)
    ahead = walk.ops.ge if equation.params["reverse"] else walk.ops.le
    counted = ahead(walk.iota(wide, axis + 1), walk.iota(wide, axis))
    kept = walk.ops.where(counted, spread, {"max": least(x.dtype), "min": greatest(x.dtype)}[kind])
    return getattr(walk.ops, kind)(kept, [axis + 1])


@rule("sort")
def _sort(walk: Walk, equation: Any, values: list[Value]) -> Any:
    """The first `num_keys` operands say the order, NaN last. It is stable."""
    axis = equation.params["dimension"]
    arrays = [walk.tensor(value) for value in values]
    order = _order(walk, arrays[: equation.params["num_keys"]], axis, descending=False)
    return [walk.ops.take_along_axis(array, order, axis) for array in arrays]


@rule("top_k")
def _top_k(walk: Walk, equation: Any, values: list[Value]) -> Any:
    x = walk.tensor(values[0])
    axis, k = equation.params.get("axis", -1) % x.ndim, equation.params["k"]
    order = _order(walk, [x], axis, descending=True)
    first = walk.ops.slice(order, [0] * x.ndim, [k if a == axis else n for a, n in enumerate(x.shape)])
    return [walk.ops.take_along_axis(x, first, axis), first]


def _order(walk: Walk, keys: list[Tensor], axis: int, descending: bool) -> Tensor:
    """For each place the index of what belongs there: whoever has k ahead of it is the k-th. The square of the axis."""
    if len(keys) == 1:
        return walk.ops.cast(walk.ops.argsort(keys[0], axis, descending), np.int32)
    ops, shape = walk.ops, extents(keys[0])
    wide = [*shape[: axis + 1], shape[axis], *shape[axis + 1 :]]  # [..., whose place, who may be ahead, ...]
    mine = [k for k in range(len(wide)) if k != axis + 1]
    theirs = [k for k in range(len(wide)) if k != axis]
    number, other = walk.iota(wide, axis), walk.iota(wide, axis + 1)
    ahead: Tensor = ops.lt(other, number)  # Among equals the first.
    for key in reversed(keys):
        a, b = ops.broadcast_in_dim(key, wide, theirs), ops.broadcast_in_dim(key, wide, mine)
        before, equal = (ops.gt(a, b) if descending else ops.lt(a, b)), ops.eq(a, b)
        if key.dtype.kind not in "ib":  # NaN is above all.
            no_a, no_b = ops.isnan(a), ops.isnan(b)
            one, both = (no_a, no_b) if descending else (no_b, no_a)
            before = ops.logical_or(before, ops.logical_and(one, ops.logical_not(both)))
            equal = ops.logical_or(equal, ops.logical_and(no_a, no_b))
        ahead = ops.logical_or(before, ops.logical_and(equal, ahead))
    place = ops.sum(ahead, [axis + 1], dtype=np.int32)
    is_there = ops.eq(ops.broadcast_in_dim(place, wide, theirs), number)
    return ops.sum(ops.where(is_there, other, 0), [axis + 1], dtype=np.int32)
