"""Norms: layer, RMS, batch, instance and group norm, forward and backward."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from drawing import Draw, Drawn
from workloads import Array, Shape

EPSILON = 1e-5
FEWEST = 5  # Elements of a mean and variance: of two, all that is left of a gradient is rounding.
KINDS = {"layer": 4, "RMS": 3, "batch": 2, "group": 2, "instance": 1}


@dataclass(frozen=True)
class Form:
    """Which elements one mean and variance are of. Groups: channels, axis 1, are seen as two axes."""

    kind: str
    shape: Shape  # Of x.
    groups: int  # 0: no groups.
    normed: tuple[int, ...]  # Axes of x as seen.
    affine: tuple[int, ...]  # Axes of x as seen that weight and bias have.

    @property
    def seen_shape(self) -> Shape:
        if not self.groups:
            return self.shape
        return (self.shape[0], self.groups, self.shape[1] // self.groups, *self.shape[2:])

    @property
    def statistics(self) -> Shape:
        return tuple(1 if k in self.normed else extent for k, extent in enumerate(self.seen_shape))

    @property
    def weights(self) -> Shape:
        extents = tuple(self.seen_shape[k] for k in self.affine)
        return (math.prod(extents),) if self.groups else extents

    @property
    def summed(self) -> list[int]:
        """The axes that the gradients of weight and bias are sums over."""
        return [k for k in range(len(self.seen_shape)) if k not in self.affine]

    def seen(self, ops: Any, x: Any) -> Any:
        if not self.groups:
            return x
        return ops.reshape(x, [x.shape[0], self.groups, x.shape[1] // self.groups, *x.shape[2:]])

    def beside(self, ops: Any, weight: Any) -> Any:
        """A weight as a factor of x as seen."""
        if self.groups:
            weight = ops.reshape(weight, [self.groups, weight.shape[0] // self.groups])
        return weight[tuple(slice(None) if k in self.affine else None for k in range(len(self.seen_shape)))]

    def gradient(self, ops: Any, terms: Any, weight: Any) -> Any:
        total = ops.sum(terms, self.summed)
        return ops.reshape(total, list(weight.shape)) if self.groups else total

    def __str__(self) -> str:
        groups = f", {self.groups} groups" if self.groups else ""
        return f"{'x'.join(map(str, self.shape))} over {','.join(map(str, self.normed))}{groups}"


def form(d: Draw, arrays: int) -> Form:
    kind = d.weighed(KINDS)
    if kind in ("layer", "RMS"):
        shape = d.shape(d.rank(2, 4), arrays)
        last = (len(shape) - 1,)
        normed = last if d.chance(0.6) and shape[-1] > 1 else d.axes(shape, len(shape) - 1)
        if len(normed) == sum(extent > 1 for extent in shape):  # At least one axis has more than one mean.
            normed = normed[-1:]
        return Form(kind, enough(shape, normed), 0, normed, normed)
    if kind == "group":
        n, channels, *rest = d.shape(d.rank(3, 4), arrays)
        groups = d.pick([count for count in (2, 4, 8, 16, 32) if count == 2 or 2 * count <= channels])
        seen = enough((n, groups, max(2, round(channels / groups)), *rest), tuple(range(2, 3 + len(rest))))
        return Form(kind, (n, groups * seen[2], *seen[3:]), groups, tuple(range(2, len(seen))), (1, 2))
    shape = d.shape(d.rank(2 if kind == "batch" else 3, 4), arrays)
    channel = 1 if d.chance(0.6) else len(shape) - 1
    normed = tuple(k for k in range(len(shape)) if k != channel and (k or kind == "batch"))
    return Form(kind, enough(shape, normed), 0, normed, (channel,))


def enough(shape: Shape, normed: tuple[int, ...]) -> Shape:
    """With FEWEST elements along the axes that are normed."""
    if math.prod(shape[k] for k in normed) >= FEWEST:
        return shape
    return tuple(FEWEST if k == normed[-1] else extent for k, extent in enumerate(shape))


def norm(d: Draw) -> Drawn:
    residual, affine, by_var = d.chance(0.25), d.chance(0.75), d.chance(0.5)
    f = form(d, 4 if residual else 2)
    inputs = [Array(name, d.dtype, f.shape) for name in (["x", "residual"] if residual else ["x"])]
    names = (["weight"] if f.kind == "RMS" else ["weight", "bias"]) if affine else []
    inputs += [Array(name, d.dtype, f.weights) for name in names]

    def formula(ops: Any, x: Any, *others: Any) -> list[Any]:
        rest = list(others)
        if residual:
            x = x + rest.pop(0)
        t = f.seen(ops, x)
        if f.kind == "RMS":
            y = t * ops.rsqrt(ops.mean(t * t, f.normed, keep=True) + EPSILON)
        else:
            centered = t - ops.mean(t, f.normed, keep=True)
            squares = ops.var(t, f.normed, keep=True) if by_var else ops.mean(centered * centered, f.normed, keep=True)
            y = centered * ops.rsqrt(squares + EPSILON)
        if rest:
            y = y * f.beside(ops, rest[0])
        if len(rest) > 1:
            y = y + f.beside(ops, rest[1])
        y = ops.reshape(y, list(x.shape)) if f.groups else y
        return [y, x] if residual else [y]

    details = f"{f}{', residual' if residual else ''}{', affine' if affine else ''}"
    return Drawn(d.index, f"{f.kind} norm", details, inputs, [d.dtype] * (1 + residual), formula, d.symbolic)


def norm_backward(d: Draw) -> Drawn:
    affine, saved = d.chance(0.75), d.chance(0.6)
    f = form(d, 3)
    rms = f.kind == "RMS"
    inputs = [Array(name, d.dtype, f.shape) for name in ("grad", "x")]
    if saved:
        inputs += [] if rms else [Array("mean", "f32", f.statistics)]
        inputs.append(Array("rstd", "f32", f.statistics, "positive"))
    if affine:
        inputs.append(Array("weight", d.dtype, f.weights))

    def statistics(ops: Any, t: Any, rest: list[Any]) -> tuple[Any, Any]:
        """What is subtracted from x, and what the difference is multiplied by."""
        if saved:
            return (None if rms else rest.pop(0)), rest.pop(0)
        if rms:
            return None, ops.rsqrt(ops.mean(t * t, f.normed, keep=True) + EPSILON)
        mean = ops.mean(t, f.normed, keep=True)
        return mean, ops.rsqrt(ops.mean((t - mean) * (t - mean), f.normed, keep=True) + EPSILON)

    def formula(ops: Any, grad: Any, x: Any, *others: Any) -> list[Any]:
        rest = list(others)
        g, t = f.seen(ops, grad), f.seen(ops, x)
        mean, rstd = statistics(ops, t, rest)
        xhat = (t if rms else t - mean) * rstd
        inner = g * f.beside(ops, rest[0]) if affine else g
        along = xhat * ops.mean(inner * xhat, f.normed, keep=True)
        to_x = rstd * (inner - along if rms else inner - ops.mean(inner, f.normed, keep=True) - along)
        results = [ops.reshape(to_x, list(x.shape)) if f.groups else to_x]
        if affine:
            results.append(f.gradient(ops, g * xhat, rest[0]))
            results += [] if rms else [f.gradient(ops, g, rest[0])]
        return results

    details = f"{f}{', affine' if affine else ''}{'' if saved else ', statistics again'}"
    count = 1 + affine * (1 if rms else 2)
    return Drawn(d.index, f"{f.kind} norm backward", details, inputs, [d.dtype] * count, formula, d.symbolic)
