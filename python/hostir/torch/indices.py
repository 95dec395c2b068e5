"""ATen's ops whose indices are data: rows of tables, elements at places, and sums of what goes to one."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..dtypes import DataType
from ..values import Tensor
from .lowering import Lowering, lowers
from .shapes import axis_of


@lowers("embedding.default")
def _embedding(low: Lowering, out: Any, table: Tensor, index: Tensor, *_: Any) -> Tensor:
    return low.rows(table, index)


@lowers("embedding_dense_backward.default")
def _embedding_backward(
    low: Lowering, out: Any, gradient: Tensor, index: Tensor, num_rows: int, padding: int = -1, by_count: bool = False
) -> Tensor:
    ops, width = low.ops, int(gradient.shape[-1])
    count = math.prod(int(size) for size in index.shape)
    rows, sources = low.reshaped(index, [count]), low.reshaped(gradient, [count, width])
    if by_count:
        counts = ops.index_sum(ops.full([count], 1, DataType.Float), rows, num_rows)
        if num_rows:
            sources = ops.div(sources, ops.reshape(ops.index_select(counts, rows, 0), [count, 1]))
    if padding >= 0:
        sources = ops.where(ops.reshape(ops.eq(rows, padding), [count, 1]), 0, sources)
    return ops.index_sum(low.typed(sources, out), rows, num_rows)


@lowers("gather.default")
def _gather(low: Lowering, out: Any, x: Tensor, axis: int, index: Tensor, **_: Any) -> Tensor:
    return low.ops.gather(x, index, axis_of(axis, x))


@lowers("index_select.default")
def _index_select(low: Lowering, out: Any, x: Tensor, axis: int, index: Tensor) -> Tensor:
    return low.ops.index_select(x, index, axis_of(axis, x))


def _meta(node: Any) -> Any:
    return node.meta["val"]


def _index_refusal(node: torch.fx.Node) -> str:
    indices = [each for each in node.args[1] if each is not None]
    if any(_meta(each).dtype == torch.bool for each in indices):
        return "a mask as an index: the size of the result is data"
    places = [k for k, each in enumerate(node.args[1]) if each is not None]
    return "" if places == list(range(places[0], places[-1] + 1)) else "indices with axes between them"


@lowers("index.Tensor", "_unsafe_index.Tensor", unless=_index_refusal)
def _index(low: Lowering, out: Any, x: Tensor, indices: list[Tensor | None]) -> Tensor:
    first = next(k for k, each in enumerate(indices) if each is not None)
    given = [each for each in indices if each is not None]
    return low.rows(_flat(low, x, first, len(given)), _flat_index(low, x, first, given), first)


def _flat(low: Lowering, x: Tensor, first: int, count: int) -> Tensor:
    shape = [int(size) for size in x.shape]
    return low.reshaped(x, [*shape[:first], math.prod(shape[first : first + count]), *shape[first + count :]])


def _flat_index(low: Lowering, x: Tensor, first: int, given: list[Tensor]) -> Tensor:
    """One index in the place of several, of the axis that theirs make."""
    ops = low.ops
    flat: Any = None
    for k, each in enumerate(given):
        size = int(x.shape[first + k])
        own = ops.where(ops.lt(each, 0), ops.add(each, size), each)
        flat = own if flat is None else ops.add(ops.mul(flat, size), own)
    return flat


def _index_put_refusal(node: torch.fx.Node) -> str:
    accumulates = len(node.args) > 3 and node.args[3]
    if why := _index_refusal(node):
        return why
    if node.args[1][0] is None and not accumulates:
        return "an index behind the first axis"
    return ""


@lowers("index_put.default", "_unsafe_index_put.default", unless=_index_put_refusal)
def _index_put(
    low: Lowering, out: Any, x: Tensor, indices: list[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    shape = [int(size) for size in x.shape]
    first = next(k for k, each in enumerate(indices) if each is not None)
    given = [each for each in indices if each is not None]
    index = _flat_index(low, x, first, given)
    before, rest = shape[:first], shape[first + len(given) :]
    count = math.prod(int(size) for size in index.shape)
    num_rows, width = math.prod(shape[first : first + len(given)]), math.prod(rest)
    wide = low.expanded(low.typed(values, out), [*before, *map(int, index.shape), *rest])
    rows, sources = low.reshaped(index, [count]), low.reshaped(wide, [*before, count, width])
    if accumulate:
        return low.ops.add(x, low.reshaped(low.ops.index_sum(sources, rows, num_rows, first), shape))
    table = low.ops.reshape(x, [num_rows, width])
    return low.reshaped(low.ops.scatter(table, low.ops.reshape(rows, [count, 1]), sources, 0), shape)


def _scatter_refusal(node: torch.fx.Node) -> str:
    x, axis, index = _meta(node.args[0]), node.args[1], _meta(node.args[2])
    others = [k for k in range(x.dim()) if k != axis % max(1, x.dim())]
    return "" if all(x.shape[k] == index.shape[k] for k in others) else "an index that is shorter than the tensor"


@lowers("scatter.src", "scatter.value", unless=_scatter_refusal)
def _scatter(low: Lowering, out: Any, x: Tensor, axis: int, index: Tensor, source: Any) -> Tensor:
    axis = axis_of(axis, x)
    ops = low.ops
    if not isinstance(source, Tensor) and int(index.shape[axis]) == 1:
        size = int(x.shape[axis])
        line = ops.reshape(ops.iota(size, dtype=index.dtype), [size if k == axis else 1 for k in range(x.ndim)])
        return ops.where(ops.eq(line, index), low.tensor(source, low.data_type(out)), x)
    shape = [int(size) for size in index.shape]
    source = low.tensor(source, low.data_type(out), shape)
    for k, size in enumerate(shape):
        source = low.part(source, k, 0, size)
    return ops.scatter(x, index, low.typed(source, out), axis)


def _reduce_refusal(node: torch.fx.Node) -> str:
    keeps = node.kwargs.get("include_self", node.args[5] if len(node.args) > 5 else True)
    return "" if node.args[4] == "sum" and keeps else "no sum, or one without what was there"


@lowers("scatter_add.default")
@lowers("scatter_reduce.two", unless=_reduce_refusal)
def _scatter_add(
    low: Lowering, out: Any, x: Tensor, axis: int, index: Tensor, source: Tensor, *_: Any, **__: Any
) -> Tensor:
    """Elements are rows of one: their places in ``x`` as one line are the indices."""
    ops = low.ops
    index, source = (each if each.ndim else low.reshaped(each, [1]) for each in (index, source))
    shape, own = [int(size) for size in x.shape] or [1], [int(size) for size in index.shape]
    axis %= len(shape)
    place = ops.mul(ops.cast(index, DataType.Int), math.prod(shape[axis + 1 :]))
    for k in range(len(shape)):
        source = low.part(source, k, 0, own[k])
        if k != axis:
            line = ops.iota(own[k], 0, math.prod(shape[k + 1 :]))
            place = ops.add(place, ops.reshape(line, [size if j == k else 1 for j, size in enumerate(own)]))
    count = math.prod(own)
    sums = ops.index_sum(low.reshaped(low.typed(source, out), [count]), low.reshaped(place, [count]), math.prod(shape))
    return ops.add(x, low.reshaped(sums, low.shape(out)))
