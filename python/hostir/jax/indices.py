"""Rules of primitives whose indices are data: gather, scatter, slices that begin where data says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode

from ..values import Tensor
from .known import Known
from .pointwise import greatest, least
from .refusals import refused
from .shapes import part
from .walk import Value, Walk, extents, rule


@rule("dynamic_slice")
def _dynamic_slice(walk: Walk, equation: Any, values: list[Value]) -> Any:
    x, *starts = walk.tensor(values[0]), *values[1:]
    for axis, (start, size) in enumerate(zip(starts, equation.params["slice_sizes"], strict=True)):
        x = _from(walk, x, axis, start, size)
    return x


def _from(walk: Walk, x: Tensor, axis: int, start: Value, size: int) -> Tensor:
    """``size`` elements from ``start``, which is moved so that all are there."""
    count = int(x.shape[axis])
    if size == count:
        return x
    if isinstance(start, Known):
        return part(walk, x, axis, min(max(int(start.array), 0), count - size), size)
    first = walk.ops.clamp(start, 0, count - size)
    return walk.ops.index_select(x, walk.ops.iota(size, dtype=np.int32) + first, axis)


@rule("dynamic_update_slice")
def _dynamic_update_slice(walk: Walk, equation: Any, values: list[Value]) -> Any:
    x, update = walk.tensor(values[0]), walk.tensor(values[1])
    inside: Tensor | None = None
    shape = extents(x)
    for axis, start in enumerate(values[2:]):
        size, count = int(update.shape[axis]), shape[axis]
        if size == count:
            continue
        place = walk.ops.iota(count, dtype=np.int32)
        first: Any = walk.ops.clamp(start, 0, count - size) if isinstance(start, Tensor) else None
        if isinstance(start, Known):
            first = min(max(int(start.array), 0), count - size)
        offset = place - first
        is_here = walk.ops.logical_and(walk.ops.ge(offset, 0), walk.ops.lt(offset, size))
        is_here = walk.ops.broadcast_in_dim(is_here, shape, [axis])
        inside = is_here if inside is None else walk.ops.logical_and(inside, is_here)
        update = walk.ops.index_select(update, walk.ops.clamp(offset, 0, size - 1), axis)
    return update if inside is None else walk.ops.where(inside, update, x)


class _Places:
    """Where a gather reads or a scatter adds: ``operand`` is seen as [batch..., place, window...], and ``index`` is
    [batch..., k], the k-th place of each, of which ``inside`` says whether it is one; None: all are.

    ``sizes``: of ``axes``, the indexed ones, how many elements are taken from the index on. Where it is more than one,
    they are counted as places of their own, along further axes of the indices."""

    def __init__(
        self,
        walk: Walk,
        equation: Any,
        shape: list[int],
        indices: Tensor,
        axes: tuple[int, ...],
        sizes: dict[int, int],
        batching: tuple[int, ...],
        indices_batching: tuple[int, ...],
    ) -> None:
        ops = walk.ops
        self.walk, self.shape, self.axes, self.batching = walk, shape, list(axes), list(batching)
        self.window = [k for k in range(len(shape)) if k not in axes and k not in batching]
        self.places = math.prod(shape[k] for k in axes)
        lead = [int(n) for n in indices.shape[:-1]]
        self.longer = [axis for axis in axes if sizes[axis] > 1]
        self.lead = [*lead, *(sizes[axis] for axis in self.longer)]
        self.others = [k for k in range(len(self.lead)) if k not in indices_batching]  # Axes of the indices.
        self.indices_batching = list(indices_batching)
        mode = equation.params["mode"]
        index: Any = None
        inside: Any = None
        for k, axis in enumerate(axes):
            at = ops.squeeze(part(walk, indices, len(lead), k, 1), [len(lead)])
            count, last = shape[axis], shape[axis] - sizes[axis]
            if mode == GatherScatterMode.FILL_OR_DROP:
                is_one = ops.logical_and(ops.ge(at, 0), ops.le(at, last))
                inside = is_one if inside is None else ops.logical_and(inside, is_one)
            at = ops.clamp(at, 0, last)  # As a negative one hostir would count from the end.
            if self.longer:
                at = ops.broadcast_in_dim(at, self.lead, list(range(len(lead))))
            if axis in self.longer:
                at = at + walk.iota(self.lead, len(lead) + self.longer.index(axis), at.dtype)
            index = at if index is None else index * count + at
        if index is None:
            raise refused(equation, "it has no index", "take the array as it is")
        self.index = self._in_order(index)
        if inside is not None and self.longer:
            inside = ops.broadcast_in_dim(inside, self.lead, list(range(len(lead))))
        self.inside = None if inside is None else self._in_order(inside)

    def _in_order(self, x: Tensor) -> Tensor:
        """[batch..., k] of what has the leading axes of the indices."""
        order = [*self.indices_batching, *self.others]
        if order != list(range(len(order))):
            x = self.walk.ops.permute(x, order)
        shape = [*(self.lead[k] for k in self.indices_batching), math.prod(self.lead[k] for k in self.others)]
        return x if x.shape == tuple(shape) else self.walk.ops.reshape(x, shape)

    def seen(self, x: Tensor) -> Tensor:
        """The operand as [batch..., place, window...]."""
        order = [*self.batching, *self.axes, *self.window]
        if order != list(range(len(order))):
            x = self.walk.ops.permute(x, order)
        shape = extents(x)
        begin, end = len(self.batching), len(self.batching) + len(self.axes)
        return x if len(self.axes) == 1 else self.walk.ops.reshape(x, [*shape[:begin], self.places, *shape[end:]])

    def unseen(self, x: Tensor) -> Tensor:
        """As the operand, from the form that ``seen`` makes."""
        order = [*self.batching, *self.axes, *self.window]
        if len(self.axes) != 1:
            x = self.walk.ops.reshape(x, [self.shape[k] for k in order])
        back = [order.index(k) for k in range(len(order))]
        return x if back == list(range(len(back))) else self.walk.ops.permute(x, back)

    def beside(self, x: Tensor, window: int) -> Tensor:
        """[batch..., k] with ``window`` axes of 1 behind."""
        shape = extents(x)
        return self.walk.ops.broadcast_in_dim(x, [*shape, *[1] * window], list(range(len(shape)))) if window else x


@rule("gather")
def _gather(walk: Walk, equation: Any, values: list[Value]) -> Any:
    numbers, sizes = equation.params["dimension_numbers"], list(equation.params["slice_sizes"])
    x, indices = walk.tensor(values[0]), walk.tensor(values[1])
    out = equation.outvars[0].aval
    axes = tuple(numbers.start_index_map)
    batching = tuple(getattr(numbers, "operand_batching_dims", ()))
    for axis, size in enumerate(sizes):
        if axis not in axes and axis not in batching:
            x = x if size == x.shape[axis] else part(walk, x, axis, 0, size)
    shape = extents(x)
    indices_batching = tuple(getattr(numbers, "start_indices_batching_dims", ()))
    places = _Places(walk, equation, shape, indices, axes, dict(enumerate(sizes)), batching, indices_batching)
    seen = places.seen(x)
    window = seen.ndim - len(batching) - 1
    taken = walk.ops.take_along_axis(seen, places.beside(places.index, window), len(batching))
    if places.inside is not None:
        fill = equation.params["fill_value"]
        if fill is None:
            fill = float("nan") if out.dtype.kind not in "iub" else least(out.dtype)
            fill = int(np.iinfo(out.dtype).max) if out.dtype.kind == "u" else fill
        taken = walk.ops.where(places.beside(places.inside, window), taken, fill)
    # [batch..., k, window...]: k becomes its axes, which go to their places, axes of 1 among them.
    lead, here = places.lead, [*places.indices_batching, *places.others]
    rest = [shape[k] for k in places.window]
    taken = walk.ops.reshape(taken, [*(lead[k] for k in here), *rest])
    offsets = list(numbers.offset_dims)
    kept = [k for k in range(len(shape)) if k not in numbers.collapsed_slice_dims and k not in batching]
    of_window = [offsets[kept.index(k)] for k in places.window]
    of_lead = [k for k in range(len(out.shape)) if k not in offsets]
    of_lead += [offsets[kept.index(axis)] for axis in places.longer]
    targets = [*(of_lead[k] for k in here), *of_window]  # For each axis that of the result.
    order = sorted(range(len(targets)), key=lambda k: targets[k])
    if order != list(range(len(order))):
        taken = walk.ops.permute(taken, order)
    return taken if taken.shape == out.shape else walk.ops.reshape(taken, list(out.shape))


@rule("scatter", *(f"scatter{dash}{kind}" for kind in ("add", "sub", "mul", "max", "min") for dash in "-_"))
def _scatter(walk: Walk, equation: Any, values: list[Value]) -> Any:
    """For each place the sum of the updates that go there; or the greatest of them, the last, and so on, which takes
    places times updates in work."""
    numbers, kind = equation.params["dimension_numbers"], equation.primitive.name[len("scatter-") :]
    x, indices, updates = (walk.tensor(value) for value in values)
    ops, axes = walk.ops, tuple(numbers.scatter_dims_to_operand_dims)
    batching = tuple(getattr(numbers, "operand_batching_dims", ()))
    shape = extents(x)
    inserted = tuple(numbers.inserted_window_dims)
    kept = [k for k in range(len(shape)) if k not in inserted and k not in batching]
    at_window = list(numbers.update_window_dims)
    sizes = {axis: int(updates.shape[at]) for axis, at in zip(kept, at_window, strict=True)}
    if any(size != shape[axis] for axis, size in sizes.items() if axis not in axes):
        raise refused(equation, "it changes a part of an axis without an index", "use lax.dynamic_update_slice")
    indices_batching = tuple(getattr(numbers, "scatter_indices_batching_dims", ()))
    sizes |= {axis: 1 for axis in inserted}
    places = _Places(walk, equation, shape, indices, axes, sizes, batching, indices_batching)
    # The updates as [batch..., k, window...].
    at_lead = [k for k in range(updates.ndim) if k not in at_window]
    at_lead += [at_window[kept.index(axis)] for axis in places.longer]
    of_window = [at_window[kept.index(k)] for k in places.window]
    dropped = [at_window[kept.index(k)] for k in kept if k in axes and k not in places.longer]
    order = [*(at_lead[k] for k in (*places.indices_batching, *places.others)), *of_window, *dropped]
    if order != list(range(len(order))):
        updates = ops.permute(updates, order)
    index = places.index
    updates = ops.reshape(updates, [*extents(index), *(shape[k] for k in places.window)])
    seen = places.seen(x)
    return places.unseen(_together(walk, places, seen, updates, kind) if kind else _lasts(walk, places, seen, updates))


def _hits(walk: Walk, places: _Places) -> Tensor:
    """[batch..., place, k]: whether the k-th update goes to the place."""
    batch = len(places.batching)
    index = places.index
    wide = [*(int(n) for n in index.shape[:batch]), places.places, int(index.shape[batch])]
    axes = [*range(batch), batch + 1]
    hits: Tensor = walk.ops.eq(walk.ops.broadcast_in_dim(index, wide, axes), walk.iota(wide, batch))
    if places.inside is not None:
        hits = walk.ops.logical_and(hits, walk.ops.broadcast_in_dim(places.inside, wide, axes))
    return hits


def _together(walk: Walk, places: _Places, x: Tensor, updates: Tensor, kind: str) -> Any:
    """The operand and all updates that go to a place, added up and so on."""
    ops, batch = walk.ops, len(places.batching)
    if kind == "sub":
        kind, updates = "add", -updates
    if kind == "add" and x.dtype.kind != "b":
        return x + _sums(walk, places, updates)
    hits = _hits(walk, places)
    wide = [*extents(hits), *(int(n) for n in x.shape[batch + 1 :])]
    chosen = ops.broadcast_in_dim(hits, wide, list(range(batch + 2)))
    spread = ops.broadcast_in_dim(updates, wide, [k for k in range(len(wide)) if k != batch])
    if kind in ("max", "min"):
        nothing = least(x.dtype) if kind == "max" else greatest(x.dtype)
        of_all = getattr(ops, kind)(ops.where(chosen, spread, nothing), [batch + 1])
        return ops.maximum(x, of_all) if kind == "max" else ops.minimum(x, of_all)
    if kind == "mul":
        return x * ops.prod(ops.where(chosen, spread, 1), [batch + 1], dtype=x.dtype)
    return x + ops.sum(ops.where(chosen, spread, 0), [batch + 1], dtype=x.dtype)


def _sums(walk: Walk, places: _Places, updates: Tensor) -> Tensor:
    """[batch..., place, window...]: for each place the sum of the updates that go there. The places of all batches are
    one list; where each batch has one update, as a loss has of its labels, that is chosen."""
    ops, batch, shape, index = walk.ops, len(places.batching), extents(updates), places.index
    lead, count, window = shape[:batch], shape[batch], shape[batch + 1 :]
    if batch and count == 1:
        wide = [*lead, places.places, *window]
        hits = ops.broadcast_in_dim(ops.squeeze(_hits(walk, places), [batch + 1]), wide, list(range(batch + 1)))
        chosen: Tensor = ops.where(hits, ops.broadcast_in_dim(updates, wide, list(range(len(wide)))), 0)
        return chosen
    if places.inside is not None:
        updates = ops.where(places.beside(places.inside, len(window)), updates, 0)
    if not batch:
        return ops.index_sum(updates, index, places.places)
    number = math.prod(lead)
    first = ops.reshape(ops.iota(number, 0, places.places), [*lead, 1])
    index = ops.reshape(ops.add(ops.cast(index, np.int64), first), [number * count])
    sums = ops.index_sum(ops.reshape(updates, [number * count, *window]), index, number * places.places)
    return ops.reshape(sums, [*lead, places.places, *window])


def _lasts(walk: Walk, places: _Places, x: Tensor, updates: Tensor) -> Tensor:
    ops, batch = walk.ops, len(places.batching)
    hits = _hits(walk, places)
    window = x.ndim - batch - 1
    which = ops.where(hits, walk.iota(extents(hits), batch + 1), -1)
    last = places.beside(ops.max(which, [batch + 1]), window)
    taken = ops.take_along_axis(updates, ops.maximum(last, 0), batch)
    made: Tensor = ops.where(ops.ge(last, 0), taken, x)
    return made
