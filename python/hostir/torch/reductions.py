"""ATen's ops that combine elements: reductions and products of matrices."""

from __future__ import annotations

from typing import Any

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
        if name in ("sum", "prod"):
            made: Tensor = reduce(low.typed(x, out), _axes(x, axes), keepdim)
        else:
            made = reduce(x, _axes(x, axes), keepdim)
        return made


_register("sum", "sum.default", "sum.dim_IntList")
_register("prod", "prod.default", "prod.dim_int")
_register("mean", "mean.default", "mean.dim")
_register("max", "amax.default", "max.default")
_register("min", "amin.default", "min.default")


@lowers("var_mean.correction")
def _var_mean(
    low: Lowering, out: Any, x: Tensor, axes: Any = None, correction: Any = 1, keepdim: bool = False
) -> list[Tensor]:
    correction = 1 if correction is None else int(correction)
    return list(low.ops.var_mean(x, _axes(x, axes), correction=correction, keepdim=keepdim))


@lowers("var.correction")
def _var(low: Lowering, out: Any, x: Tensor, axes: Any = None, correction: Any = 1, keepdim: bool = False) -> Tensor:
    return low.ops.var(x, _axes(x, axes), 1 if correction is None else int(correction), keepdim)


@lowers("any.default", "any.dim", "any.dims")
def _any(low: Lowering, out: Any, x: Tensor, axes: Any = None, keepdim: bool = False) -> Tensor:
    return low.ops.max(low.ops.ne(x, 0), _axes(x, axes), keepdim)


@lowers("all.default", "all.dim", "all.dims")
def _all(low: Lowering, out: Any, x: Tensor, axes: Any = None, keepdim: bool = False) -> Tensor:
    return low.ops.min(low.ops.ne(x, 0), _axes(x, axes), keepdim)


@lowers("bmm.default")
def _bmm(low: Lowering, out: Any, x: Tensor, y: Tensor) -> Tensor:
    left, right = low.unmerged(x), low.unmerged(y)
    if left.shape[:-2] != right.shape[:-2]:
        return low.ops.matmul(x, y)
    return low.merged(low.ops.matmul(left, right))


@lowers("mm.default", "mv.default", "dot.default")
def _matmul(low: Lowering, out: Any, x: Tensor, y: Tensor) -> Tensor:
    return low.ops.matmul(x, y)


@lowers("addmm.default", "baddbmm.default")
def _addmm(low: Lowering, out: Any, bias: Tensor, x: Tensor, y: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    product = low.ops.matmul(x, y)
    if alpha != 1:
        product = low.ops.mul(product, alpha)
    return low.ops.add(bias if beta == 1 else low.ops.mul(bias, beta), product)
