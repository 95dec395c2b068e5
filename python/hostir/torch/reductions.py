"""ATen's ops that combine elements: reductions and products of matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ..values import Tensor
from .lowering import Lowering, lowers


def _axes(x: Tensor, axes: Any) -> list[int] | None:
    if axes is None or axes == []:
        return None
    listed = axes if isinstance(axes, (list, tuple)) else [axes]
    return [axis % max(1, x.ndim) for axis in listed]


def _register(name: str, *overloads: str) -> None:
    @lowers(*overloads)
    def lower(low: Lowering, out: Any, x: Tensor, axes: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
        if x.ndim == 0:
            return x
        reduce = getattr(low.ops, name)
        if name in ("sum", "prod", "mean"):  # In the type that is asked for, not rounded before.
            x = low.typed(x, out)
        made: Tensor = reduce(x, _axes(x, axes), keepdim)
        return made


_register("sum", "sum.default", "sum.dim_IntList")
_register("prod", "prod.default", "prod.dim_int")
_register("mean", "mean.default", "mean.dim")
_register("max", "amax.default", "max.default")
_register("min", "amin.default", "min.default")


def _whole(node: torch.fx.Node) -> str:
    return "" if node.args[0].meta["val"].is_floating_point() else "integers"  # Of which PyTorch has none.


@lowers("var_mean.correction", unless=_whole)
def _var_mean(
    low: Lowering, out: Any, x: Tensor, axes: Any = None, correction: Any = 1, keepdim: bool = False
) -> list[Tensor]:
    correction = 1 if correction is None else int(correction)
    return list(low.ops.var_mean(x, _axes(x, axes), correction=correction, keepdim=keepdim))


@lowers("var.correction", unless=_whole)
def _var(low: Lowering, out: Any, x: Tensor, axes: Any = None, correction: Any = 1, keepdim: bool = False) -> Tensor:
    return low.ops.var(x, _axes(x, axes), 1 if correction is None else int(correction), keepdim)


@lowers("any.default", "any.dim", "any.dims")
def _any(low: Lowering, out: Any, x: Tensor, axes: Any = None, keepdim: bool = False) -> Tensor:
    return low.ops.any(x, _axes(x, axes), keepdim)


@lowers("all.default", "all.dim", "all.dims")
def _all(low: Lowering, out: Any, x: Tensor, axes: Any = None, keepdim: bool = False) -> Tensor:
    return low.ops.all(x, _axes(x, axes), keepdim)


def _register_place(name: str) -> None:
    @lowers(f"{name}.default")
    def lower(low: Lowering, out: Any, x: Tensor, axis: int | None = None, keepdim: bool = False) -> Tensor:
        place = getattr(low.ops, name)
        if axis is None:  # Of all elements in a row.
            return low.reshaped(place(low.reshaped(x, [math.prod(map(int, x.shape))]), 0), low.shape(out))
        made: Tensor = place(x, axis % max(1, x.ndim), keepdim)
        return made


for _name in ("argmax", "argmin"):
    _register_place(_name)


@lowers("cumsum.default")
def _cumsum(low: Lowering, out: Any, x: Tensor, axis: int, **_: Any) -> Tensor:
    return low.ops.cumsum(low.typed(x, out), axis % max(1, x.ndim)) if x.ndim else x


_SORTED_MAX = 1024  # Places are found by counting, which takes the square of the length.


def _long(place: int) -> Callable[[torch.fx.Node], str]:
    """``place``: of the axis among the arguments."""

    def why(node: torch.fx.Node) -> str:
        x, axis = node.args[0].meta["val"], node.args[place] if len(node.args) > place else -1
        size = x.shape[axis] if x.dim() else 1
        return "" if isinstance(size, int) and size <= _SORTED_MAX else f"more than {_SORTED_MAX} elements to sort"

    return why


@lowers("sort.default", unless=_long(1))
def _sort(low: Lowering, out: Any, x: Tensor, axis: int = -1, descending: bool = False) -> list[Tensor]:
    axis = axis % max(1, x.ndim)
    order = low.ops.argsort(x, axis, descending)
    return [low.ops.take_along_axis(x, order, axis), order]


@lowers("topk.default", unless=_long(2))
def _topk(
    low: Lowering, out: Any, x: Tensor, count: int, axis: int = -1, largest: bool = True, ordered: bool = True
) -> list[Tensor]:
    return list(low.ops.topk(x, count, axis % max(1, x.ndim), largest))


@lowers("bmm.default")
def _bmm(low: Lowering, out: Any, x: Tensor, y: Tensor) -> Tensor:
    left, right = low.unmerged(x), low.unmerged(y)
    if left.shape[:-2] != right.shape[:-2]:
        return low.ops.matmul(x, y)
    return low.merged(low.ops.matmul(left, right))


def _product(low: Lowering, x: Tensor, y: Tensor) -> Tensor:
    rows = low.unmerged(x)
    return low.ops.matmul(rows if x.ndim == 2 else x, y)


@lowers("mm.default", "mv.default", "dot.default")
def _matmul(low: Lowering, out: Any, x: Tensor, y: Tensor) -> Tensor:
    return low.reshaped(_product(low, x, y), low.shape(out))


@lowers("addmm.default", "baddbmm.default")
def _addmm(low: Lowering, out: Any, bias: Tensor, x: Tensor, y: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    product = _product(low, x, y)
    if alpha != 1:
        product = low.ops.mul(product, alpha)
    if beta == 0:  # A bias that is no number is none, too.
        return low.reshaped(product, low.shape(out))
    return low.reshaped(low.ops.add(bias if beta == 1 else low.ops.mul(bias, beta), product), low.shape(out))
