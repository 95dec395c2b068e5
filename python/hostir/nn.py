"""Functions of neural networks, made of operations: softmax and its kin, norms, losses, attention.

Each takes and makes tensors of a definition. 16-bit floats are computed in float32 and rounded once, at the end, but
for the two products of attention, which round what they make. In the examples x is of shape [-1, 64], and q, k, v are
of shape [2, 4, -1, 32]: batch, heads, tokens, elements of a head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .compose import composed
from .dtypes import DataType
from .location import invalid
from .tensor import Tensor

__all__ = [
    "cross_entropy",
    "dropout",
    "gelu",
    "layer_norm",
    "log_softmax",
    "rms_norm",
    "scaled_dot_product_attention",
    "silu",
    "softmax",
]

_Axes = int | Sequence[int]


@composed
def softmax(x: Tensor, axis: _Axes = -1) -> Tensor:
    """``exp(x)`` over its sum along ``axis``, from the greatest element on, so that nothing overflows.

    >>> nn.softmax(x).shape
    (i0, 64)
    """
    exponential, total = _exponentials(_wide(x), axis)
    return _like(x, exponential / total)


@composed
def log_softmax(x: Tensor, axis: _Axes = -1) -> Tensor:
    """The logarithm of ``softmax``, without computing that.

    >>> nn.log_softmax(x, axis=0).dtype
    dtype('float32')
    """
    wide = _wide(x)
    below = wide - wide.max(axis, keepdims=True)
    total = _exp(below).sum(axis, keepdims=True)
    return _like(x, below - _log(total))


@composed
def layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, axis: _Axes = -1, eps: float = 1e-5
) -> Tensor:
    """``(x - mean) / sqrt(variance + eps) * weight + bias``, mean and variance along ``axis``; weight and bias
    broadcast against x from the last axis.

    >>> w, b = fd.define_tensor(shape=[64]), fd.define_tensor(shape=[64])
    >>> nn.layer_norm(x, w, b).shape
    (i0, 64)
    """
    wide = _wide(x)
    centered = wide - wide.mean(axis, keepdims=True)
    variance = (centered * centered).mean(axis, keepdims=True)
    return _like(x, _affine(centered * _rsqrt(variance + eps), weight, bias))


@composed
def rms_norm(x: Tensor, weight: Tensor | None = None, axis: _Axes = -1, eps: float = 1e-6) -> Tensor:
    """``x / sqrt(mean(x^2) + eps) * weight``, the mean along ``axis``; weight broadcasts against x from the last axis.

    >>> w = fd.define_tensor(shape=[64])
    >>> nn.rms_norm(x, w).shape
    (i0, 64)
    """
    wide = _wide(x)
    square = (wide * wide).mean(axis, keepdims=True)
    return _like(x, _affine(wide * _rsqrt(square + eps), weight, None))


@composed
def cross_entropy(
    logits: Tensor, targets: Tensor, axis: int = -1, reduction: str = "mean", ignore_index: int | None = None
) -> Tensor:
    """``-log_softmax(logits)`` at the class that ``targets`` names: integers, of logits' shape without ``axis``.

    reduction: "mean", "sum" or "none". Targets that are ``ignore_index`` count for nothing. One that is no class has no
    logit: its loss is the logarithm of the sum of all. The classes may be split over devices. Of 16-bit floats the loss
    is float32.

    >>> t = fd.define_tensor(shape=[-1], dtype=np.int64)
    >>> nn.cross_entropy(x, t).shape
    ()
    """
    if reduction not in ("mean", "sum", "none"):
        raise invalid(f"cross_entropy: reduction={reduction!r}; it is mean, sum or none")
    if targets.dtype.kind != "i":
        raise invalid(f"cross_entropy: %{targets.name} is {targets.dtype}; targets are int32 or int64")
    ops, wide = logits._definition.ops, _wide(logits)
    place = axis % wide.ndim if -wide.ndim <= axis < wide.ndim else axis
    top = wide.max(axis, keepdims=True)
    total = _exp(wide - top).sum(axis)
    column = targets[(*[slice(None)] * place, None)]
    classes = ops.iota(wide.size(axis), dtype=targets.dtype)
    classes = classes[(slice(None), *[None] * (wide.ndim - 1 - place))]
    # A sum over all classes of which one is not 0: it is split as the other sums are, where a gather would want all.
    logit = ops.where(column == classes, wide, 0.0).sum(axis)
    loss: Tensor = _log(total) + top.squeeze(axis) - logit
    if ignore_index is not None:
        counts = targets != ignore_index
        loss = ops.where(counts, loss, 0.0)
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    return loss.mean() if ignore_index is None else loss.sum() / counts.sum()


@composed
def scaled_dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """``softmax(scale * q @ k.T + mask) @ v`` for q [..., queries, size], k [..., keys, size], v [..., keys, out].

    The leading axes (batch, heads) broadcast and may be split over devices. mask: bools, true where a key takes part,
    or numbers that are added; it broadcasts to [..., queries, keys]. causal: query i sees keys 0 to i. scale: 1 /
    sqrt(size) where it is left out. k and v may have fewer heads (axis -3) than q: each is that of as many neighbours.
    A query that sees no key has values of 0. On CPUs the scores are never all in memory (``fd.ops.attention``).

    >>> nn.scaled_dot_product_attention(q, k, v, causal=True).shape
    (2, 4, i1, 32)
    """
    ops = q._definition.ops
    if scale is None:
        size = q.shape[-1]
        if not isinstance(size, int):
            raise invalid(f"scaled_dot_product_attention: the last extent of %{q.name} is {size}; give scale=")
        scale = 1.0 / math.sqrt(size)
    shared = _heads_that_share(q, k)
    if shared > 1:
        q, k, v = _in_groups(q, shared), k[..., None, :, :], v[..., None, :, :]
        mask = mask if mask is None or mask.ndim < 3 else _in_groups(mask, shared if mask.shape[-3] != 1 else 1)
    if mask is not None and mask.ndim < 2:
        mask = mask[(*[None] * (2 - mask.ndim), ...)]
    if mask is not None and mask.data_type in (DataType.Int, DataType.Int32):
        mask = ops.cast(mask, DataType.Float)
    made = _like(v, ops.attention(q, k, _like(q, v), mask, causal=causal, scale=scale))
    return made if shared == 1 else made.reshape(*made.shape[:-4], made.shape[-4] * shared, *made.shape[-2:])


@composed
def dropout(x: Tensor, p: float, seed: Any, offset: Any) -> Tensor:
    """x, each element of it 0 with probability ``p`` and else over 1 - p, so that the mean stays. Which ones go depends
    on seed and offset, as of ``fd.ops.uniform``, and their places: a backward pass that is given both drops the same.

    >>> step = fd.define_scalar(dtype=np.int64)
    >>> nn.dropout(x, 0.1, 7, step).shape
    (i0, 64)
    """
    if not 0 <= p <= 1:
        raise invalid(f"dropout: p={p!r}; it is a probability, from 0 to 1")
    ops = x._definition.ops
    kept = ops.uniform(0, 1, list(x.shape), seed, offset) >= p
    made: Tensor = ops.where(kept, _like(x, _wide(x) * (0.0 if p == 1 else 1 / (1 - p))), 0.0)
    return made


@composed
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution at x; ``approximate="tanh"`` computes that by a hyperbolic tangent.

    >>> nn.gelu(x, approximate="tanh").shape
    (i0, 64)
    """
    if approximate not in ("none", "tanh"):
        raise invalid(f"gelu: approximate={approximate!r}; it is none or tanh")
    ops = x._definition.ops
    made: Tensor = ops.gelu(x) if approximate == "none" else ops.tanh_gelu(x)
    return made


@composed
def silu(x: Tensor) -> Tensor:
    """``x * sigmoid(x)``.

    >>> nn.silu(x).shape
    (i0, 64)
    """
    made: Tensor = x._definition.ops.silu(x)
    return made


def _wide(x: Tensor) -> Tensor:
    """In the type that is computed in: float32 but for float64."""
    return x if x.data_type in (DataType.Float, DataType.Double) else x.astype(DataType.Float)


def _like(x: Tensor, made: Tensor) -> Tensor:
    """Rounded to x's type, where that is a float."""
    is_float = x.data_type in (DataType.Half, DataType.BFloat16, DataType.Float, DataType.Double)
    return made if not is_float or made.data_type is x.data_type else made.astype(x.data_type)


def _exponentials(x: Tensor, axis: Any) -> tuple[Tensor, Tensor]:
    """Of the distance to the greatest, and their sum along ``axis``."""
    exponential = _exp(x - x.max(axis, keepdims=True))
    return exponential, exponential.sum(axis, keepdims=True)


def _heads_that_share(q: Tensor, k: Tensor) -> int:
    """How many heads of q there are for one of k."""
    if q.ndim < 3 or k.ndim < 3:
        return 1
    queries, keys = q.shape[-3], k.shape[-3]
    if not isinstance(queries, int) or not isinstance(keys, int):
        return 1
    return queries // keys if keys > 1 and queries % keys == 0 else 1


def _in_groups(x: Tensor, shared: int) -> Tensor:
    """Its heads as [groups, shared]."""
    return x.reshape(*x.shape[:-3], x.shape[-3] // shared, shared, *x.shape[-2:])


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        x = x * _wide(weight)
    return x if bias is None else x + _wide(bias)


def _exp(x: Tensor) -> Tensor:
    made: Tensor = x._definition.ops.exp(x)
    return made


def _log(x: Tensor) -> Tensor:
    made: Tensor = x._definition.ops.log(x)
    return made


def _rsqrt(x: Tensor) -> Tensor:
    made: Tensor = x._definition.ops.rsqrt(x)
    return made
