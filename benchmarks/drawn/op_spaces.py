"""The ops that formulas are written in, by NumPy, JAX, PyTorch and hostir.

Arithmetic, comparisons with numbers, slices, new axes and `shape` are the arrays' own: all four spell them alike.
What is here they spell differently. `keep` leaves a reduced axis with extent 1. `result` is what an output becomes:
of the element type that is wanted, in row-major order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from frameworks import erf

from hostir import DataType, FusionDefinition

Axes = Sequence[int]
SAME_NAMES = ("abs", "exp", "log", "sqrt", "tanh", "where")


class Ops:
    """`space` has the ops that all call alike: the module, or a definition's `ops`."""

    abs: Callable[..., Any]
    exp: Callable[..., Any]
    log: Callable[..., Any]
    sqrt: Callable[..., Any]
    tanh: Callable[..., Any]
    where: Callable[..., Any]

    def __init__(self, space: Any) -> None:
        for name in SAME_NAMES:
            setattr(self, name, getattr(space, name))

    def wide(self, x: Any, dtype: str) -> Any:
        """What is computed with in the place of an input of `dtype`."""
        raise NotImplementedError

    def result(self, x: Any, dtype: str) -> Any:
        raise NotImplementedError


class ArrayOps(Ops):
    """Of NumPy, which computes references in float64, or of jax.numpy."""

    def __init__(self, xp: ModuleType) -> None:
        super().__init__(xp)
        self.xp = xp

    def wide(self, x: Any, dtype: str) -> Any:
        return x.astype(self.xp.float32) if dtype == "bf16" else x

    def result(self, x: Any, dtype: str) -> Any:
        return x.astype(self.xp.bfloat16) if dtype == "bf16" else x

    def erf(self, x: Any) -> Any:
        return erf(self.xp, x)

    def sigmoid(self, x: Any) -> Any:
        return 1 / (1 + self.xp.exp(-x))

    def rsqrt(self, x: Any) -> Any:
        if self.xp.__name__ == "numpy":
            return 1 / self.xp.sqrt(x)
        import jax

        return jax.lax.rsqrt(x)

    def sum(self, x: Any, axes: Axes, keep: bool = False) -> Any:
        return self.xp.sum(x, axis=tuple(axes), keepdims=keep)

    def mean(self, x: Any, axes: Axes, keep: bool = False) -> Any:
        return self.xp.mean(x, axis=tuple(axes), keepdims=keep)

    def max(self, x: Any, axes: Axes, keep: bool = False) -> Any:
        return self.xp.amax(x, axis=tuple(axes), keepdims=keep)

    def var(self, x: Any, axes: Axes, keep: bool = False) -> Any:
        return self.xp.var(x, axis=tuple(axes), keepdims=keep)

    def permute(self, x: Any, order: Axes) -> Any:
        return self.xp.transpose(x, tuple(order))

    def reshape(self, x: Any, shape: Sequence[Any]) -> Any:
        return self.xp.reshape(x, tuple(shape))

    def cat(self, parts: Sequence[Any], axis: int) -> Any:
        return self.xp.concatenate(list(parts), axis)

    def pad(self, x: Any, widths: Sequence[tuple[int, int]], value: float) -> Any:
        """`widths`: before and after, an entry an axis."""
        return self.xp.pad(x, list(widths), constant_values=value)

    def is_class(self, target: Any, classes: Any, axis: int) -> Any:
        """Whether an element's place along `axis`, of `classes` elements, is what `target`, 1 there, says."""
        places = self.xp.arange(classes, dtype=target.dtype)
        return target == places[along(axis, target.ndim)]

    def at(self, x: Any, places: Any, axis: int) -> Any:
        return self.xp.take_along_axis(x, places, axis)


class TorchOps(Ops):
    def __init__(self, torch: ModuleType) -> None:
        super().__init__(torch)
        self.torch = torch
        self.erf, self.sigmoid, self.rsqrt = torch.erf, torch.sigmoid, torch.rsqrt

    def wide(self, x: Any, dtype: str) -> Any:
        return x.float() if dtype == "bf16" else x

    def result(self, x: Any, dtype: str) -> Any:
        # Else a permuted output is left in the order of what it was made of, and nothing is transposed.
        return (x.to(self.torch.bfloat16) if dtype == "bf16" else x).contiguous()

    def sum(self, x: Any, axes: Axes, keep: bool = False) -> Any:
        return self.torch.sum(x, dim=tuple(axes), keepdim=keep)

    def mean(self, x: Any, axes: Axes, keep: bool = False) -> Any:
        return self.torch.mean(x, dim=tuple(axes), keepdim=keep)

    def max(self, x: Any, axes: Axes, keep: bool = False) -> Any:
        return self.torch.amax(x, dim=tuple(axes), keepdim=keep)

    def var(self, x: Any, axes: Axes, keep: bool = False) -> Any:
        return self.torch.var(x, dim=tuple(axes), correction=0, keepdim=keep)

    def permute(self, x: Any, order: Axes) -> Any:
        return self.torch.permute(x, tuple(order))

    def reshape(self, x: Any, shape: Sequence[Any]) -> Any:
        return self.torch.reshape(x, tuple(shape))

    def cat(self, parts: Sequence[Any], axis: int) -> Any:
        return self.torch.cat(list(parts), axis)

    def pad(self, x: Any, widths: Sequence[tuple[int, int]], value: float) -> Any:
        return self.torch.nn.functional.pad(x, last_axis_first(widths), value=value)

    def is_class(self, target: Any, classes: Any, axis: int) -> Any:
        places = self.torch.arange(classes, device=target.device)
        return target == places[along(axis, target.ndim)]

    def at(self, x: Any, places: Any, axis: int) -> Any:
        return self.torch.take_along_dim(x, places, axis)


class HostirOps(Ops):
    def __init__(self, fd: FusionDefinition) -> None:
        super().__init__(fd.ops)
        self.ops = fd.ops
        self.erf, self.sigmoid, self.rsqrt = fd.ops.erf, fd.ops.sigmoid, fd.ops.rsqrt

    def wide(self, x: Any, dtype: str) -> Any:
        return self.ops.cast(x, DataType.Float) if dtype == "bf16" else x

    def result(self, x: Any, dtype: str) -> Any:
        return self.ops.cast(x, DataType.BFloat16) if dtype == "bf16" else x

    def sum(self, x: Any, axes: Axes, keep: bool = False) -> Any:
        return self.ops.sum(x, list(axes), keep)

    def mean(self, x: Any, axes: Axes, keep: bool = False) -> Any:
        return self.ops.mean(x, list(axes), keep)

    def max(self, x: Any, axes: Axes, keep: bool = False) -> Any:
        return self.ops.max(x, list(axes), keep)

    def var(self, x: Any, axes: Axes, keep: bool = False) -> Any:
        return self.ops.var(x, list(axes), correction=0, keepdim=keep)

    def permute(self, x: Any, order: Axes) -> Any:
        return self.ops.permute(x, list(order))

    def reshape(self, x: Any, shape: Sequence[Any]) -> Any:
        return self.ops.reshape(x, list(shape))

    def cat(self, parts: Sequence[Any], axis: int) -> Any:
        return self.ops.cat(list(parts), axis)

    def pad(self, x: Any, widths: Sequence[tuple[int, int]], value: float) -> Any:
        return self.ops.pad(x, last_axis_first(widths), value)

    def is_class(self, target: Any, classes: Any, axis: int) -> Any:
        places = self.ops.iota(classes)
        return self.ops.eq(target, places[along(axis, target.ndim)])

    def at(self, x: Any, places: Any, axis: int) -> Any:
        return self.ops.take_along_axis(x, places, axis)


def along(axis: int, rank: int) -> tuple[slice | None, ...]:
    """The index that makes an array of one axis one of `rank` axes, its own at `axis`."""
    return tuple(slice(None) if k == axis else None for k in range(rank))


def last_axis_first(widths: Sequence[tuple[int, int]]) -> list[int]:
    return [width for pair in reversed(widths) for width in pair]
