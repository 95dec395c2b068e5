"""How ATen's norms are taken apart where hostir holds more in a kernel than PyTorch's own decompositions let it."""

from __future__ import annotations

import torch
from torch._prims_common import suggest_memory_format

Sums = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]


class _Groups:
    """Axes of ``x`` with its channels apart: images, groups, channels of a group, and places as they are, so that no
    reshape stands between a kernel and what it writes."""

    def __init__(self, x: torch.Tensor, groups: int) -> None:
        images, channels, *places = x.shape
        self.wide = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
        self.shape = (images, groups, channels // groups, *places)
        ones = [1] * len(places)
        self.per_group = (images, groups, 1, *ones)
        self.per_channel = (1, groups, channels // groups, *ones)
        self.of_group = tuple(range(2, len(self.shape)))
        self.of_channel = (0, *range(3, len(self.shape)))

    def apart(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.wide).reshape(self.shape)

    def along_channels(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.wide).reshape(self.per_channel)

    def along_groups(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.wide).reshape(self.per_group)


def _as(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y.to(x.dtype).reshape(x.shape).contiguous(memory_format=suggest_memory_format(x))


def group_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    images: int,
    channels: int,
    places: int,
    groups: int,
    epsilon: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One program: PyTorch's asks for the strides of a product on the way, which is a node between two."""
    axes = _Groups(x, groups)
    apart = axes.apart(x)
    variance, mean = torch.var_mean(apart, axes.of_group, correction=0, keepdim=True)
    rstd = torch.rsqrt(variance + epsilon)
    y = (apart - mean) * rstd
    if weight is not None:
        y = y * axes.along_channels(weight)
    if bias is not None:
        y = y + axes.along_channels(bias)
    return _as(x, y), *(each.to(x.dtype).reshape(images, groups) for each in (mean, rstd))


def group_norm_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    images: int,
    channels: int,
    places: int,
    groups: int,
    wanted: list[bool],
) -> Sums:
    """PyTorch sums each channel first, then the channels' sums by groups, and reads both tensors again behind them.
    Here all sums are of elements, so that one kernel has them: a group's for its gradient, and its channels' beside."""
    axes = _Groups(x, groups)
    dy, rstd = axes.apart(grad), axes.along_groups(rstd)
    xhat = (axes.apart(x) - axes.along_groups(mean)) * rstd
    dx = dweight = dbias = None
    if wanted[0]:
        g = dy if weight is None else dy * axes.along_channels(weight)
        share = 1.0 / max(channels // groups * places, 1)
        along = (g * xhat).sum(axes.of_group, keepdim=True) * share
        dx = _as(x, (g - g.sum(axes.of_group, keepdim=True) * share - xhat * along) * rstd)
    dtype = x.dtype if weight is None else weight.dtype
    if wanted[1]:
        dweight = (dy * xhat).sum(axes.of_channel).reshape(channels).to(dtype)
    if wanted[2]:
        dbias = dy.sum(axes.of_channel).reshape(channels).to(dtype)
    return dx, dweight, dbias
