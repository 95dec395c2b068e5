"""ATen's ops that move elements: views, parts, joins, new values."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import InvalidArgument
from ..values import Tensor
from .lowering import Lowering, lowers


def axis_of(axis: int, value: Tensor) -> int:
    return axis % max(1, value.ndim)


@lowers("view.default", "_unsafe_view.default", "reshape.default", "unsqueeze.default", "view_copy.default")
@lowers("squeeze.default", "squeeze.dim", "squeeze.dims")
def _reshape(low: Lowering, out: Any, x: Tensor, *_: Any) -> Tensor:
    return low.reshaped(x, low.shape(out))


@lowers("expand.default")
def _expand(low: Lowering, out: Any, x: Tensor, *_: Any, **__: Any) -> Tensor:
    return low.expanded(x, low.shape(out))


@lowers("permute.default")
def _permute(low: Lowering, out: Any, x: Tensor, axes: list[int]) -> Tensor:
    order = [axis_of(axis, x) for axis in axes]
    wide = low.unmerged(x)
    if order == [0, 2, 1] and wide.ndim > 3:
        count = wide.ndim
        return low.merged(low.ops.permute(wide, [*range(count - 2), count - 1, count - 2]))
    return x if order == list(range(x.ndim)) else low.ops.permute(x, order)


@lowers("t.default")
def _t(low: Lowering, out: Any, x: Tensor) -> Tensor:
    return low.ops.permute(x, [1, 0]) if x.ndim == 2 else x


@lowers("transpose.int")
def _transpose(low: Lowering, out: Any, x: Tensor, first: int, second: int) -> Tensor:
    order = list(range(x.ndim))
    first, second = axis_of(first, x), axis_of(second, x)
    order[first], order[second] = second, first
    return low.ops.permute(x, order)


def _place(index: Any, size: int) -> int:
    """An index of Python's slices, within an axis."""
    return min(max(index + size if index < 0 else index, 0), size)


@lowers("slice.Tensor")
def _slice(
    low: Lowering, out: Any, x: Tensor, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    axis = axis_of(axis, x)
    size = int(x.shape[axis])
    first = 0 if start is None else _place(start, size)
    return low.part(x, axis, first, max(first, size if end is None else _place(end, size)), step)


@lowers("select.int")
def _select(low: Lowering, out: Any, x: Tensor, axis: int, index: int) -> Tensor:
    axis = axis_of(axis, x)
    index = index % int(x.shape[axis])
    return low.reshaped(low.part(x, axis, index, index + 1), low.shape(out))


@lowers("split_with_sizes.default", "split.Tensor", "unbind.int")
def _split(low: Lowering, out: Any, x: Tensor, how: Any = 0, axis: int | None = None) -> list[Tensor]:
    sizes = how if isinstance(how, list) else None
    if axis is None:
        axis = 0 if sizes is not None or out[0].dim() == x.ndim else int(how)
    axis = axis_of(axis, x)
    parts, start = [], 0
    for each in out:
        shape = low.shape(each)
        end = start + (shape[axis] if len(shape) == x.ndim else 1)
        parts.append(low.reshaped(low.part(x, axis, start, end), shape))
        start = end
    return parts


@lowers("cat.default")
def _cat(low: Lowering, out: Any, tensors: list[Tensor], axis: int = 0) -> Tensor:
    axis = axis % out.dim()
    parts = [low.typed(each, out) for each in tensors if each.ndim == out.dim() and each.shape[axis] != 0]
    if not parts:
        return low.ops.full(low.shape(out), 0, low.data_type(out))
    return low.ops.cat(parts, axis) if len(parts) > 1 else parts[0]


@lowers("stack.default")
def _stack(low: Lowering, out: Any, tensors: list[Tensor], axis: int = 0) -> Tensor:
    shape = low.shape(out)
    axis = axis % len(shape)
    shape[axis] = 1
    return low.ops.cat([low.reshaped(each, shape) for each in tensors], axis)


@lowers("repeat.default")
def _repeat(low: Lowering, out: Any, x: Tensor, times: list[int]) -> Tensor:
    missing = len(times) - x.ndim
    shape = [1] * missing + [int(size) for size in x.shape]
    pairs = [part for size in shape for part in (1, size)]
    wide = [part for size, count in zip(shape, times, strict=True) for part in (count, size)]
    return low.reshaped(low.expanded(low.reshaped(x, pairs), wide), low.shape(out))


@lowers("flip.default")
def _flip(low: Lowering, out: Any, x: Tensor, axes: list[int]) -> Tensor:
    return low.ops.flip(x, [axis_of(axis, x) for axis in axes])


@lowers("constant_pad_nd.default")
def _pad(low: Lowering, out: Any, x: Tensor, widths: list[int], value: Any = 0) -> Tensor:
    if low.held(value, low.data_type(out)) != value:
        raise InvalidArgument(f"{value!r} is no {out.dtype}")
    return low.ops.pad(x, widths, value)


def _strided(node: torch.fx.Node) -> str:
    step = node.args[5] if len(node.args) > 5 else 1
    return "" if step == 1 else "a stride"


@lowers("slice_scatter.default", unless=_strided)
def _slice_scatter(
    low: Lowering, out: Any, x: Tensor, part: Tensor, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    axis = axis_of(axis, x)
    size = int(x.shape[axis])
    first = 0 if start is None else _place(start, size)
    last = max(first, size if end is None else _place(end, size))
    return _joined(low, x, low.typed(part, out), axis, first, last)


@lowers("select_scatter.default")
def _select_scatter(low: Lowering, out: Any, x: Tensor, part: Tensor, axis: int, index: int) -> Tensor:
    axis = axis_of(axis, x)
    shape = [int(size) for size in x.shape]
    index = index % shape[axis]
    shape[axis] = 1
    return _joined(low, x, low.reshaped(low.typed(part, out), shape), axis, index, index + 1)


def _joined(low: Lowering, x: Tensor, part: Tensor, axis: int, first: int, last: int) -> Tensor:
    size = int(x.shape[axis])
    pieces = [low.part(x, axis, 0, first)] if first else []
    pieces += [part] if last > first else []
    pieces += [low.part(x, axis, last, size)] if last < size else []
    return low.ops.cat(pieces, axis) if len(pieces) > 1 else pieces[0]


@lowers("full.default", "full_like.default", "scalar_tensor.default", "new_full.default")
def _full(low: Lowering, out: Any, *arguments: Any, fill_value: Any = None, **_: Any) -> Tensor:
    value = arguments[-1] if fill_value is None else fill_value
    return low.tensor(value, low.data_type(out), low.shape(out))


@lowers("zeros.default", "zeros_like.default", "new_zeros.default")
@lowers("empty.memory_format", "empty_like.default", "empty_permuted.default", "empty_strided.default")
def _zeros(low: Lowering, out: Any, *_: Any, **__: Any) -> Tensor:
    return low.ops.full(low.shape(out), 0, low.data_type(out))


@lowers("ones.default", "ones_like.default", "new_ones.default")
def _ones(low: Lowering, out: Any, *_: Any, **__: Any) -> Tensor:
    return low.ops.full(low.shape(out), 1, low.data_type(out))


@lowers("arange.start_step", "arange.default", "arange.start")
def _arange(low: Lowering, out: Any, *bounds: Any, **_: Any) -> Tensor:
    start, step = (0, 1) if len(bounds) == 1 else (bounds[0], bounds[2] if len(bounds) > 2 else 1)
    return low.ops.iota(low.shape(out)[0], start, step, low.data_type(out))
