"""``scaled_dot_product_attention`` as one op, forward and backward, whose scores are never all in memory."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional
from torch.utils.flop_counter import register_flop_formula

from ..values import Tensor
from .lowering import Lowering, lowers

_LOW = (torch.float32, torch.bfloat16, torch.float16)


def attend(module: torch.fx.GraphModule) -> None:
    """Puts that op in the place of PyTorch's in a graph of Dynamo's."""
    for each in module.modules():  # Of checkpoints, too.
        if isinstance(each, torch.fx.GraphModule):
            for node in each.graph.nodes:
                if node.target is functional.scaled_dot_product_attention:
                    node.target = _attend
            each.recompile()


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """PyTorch's own with dropout, with masks that learn, under its function transforms, and where it raises."""
    query, key, value, attn_mask = (_autocast(each) for each in (query, key, value, attn_mask))
    learns = attn_mask is not None and attn_mask.requires_grad
    alike = query.is_floating_point() and query.dtype == key.dtype == value.dtype
    tensors = [query, key, value, *([] if attn_mask is None else [attn_mask])]
    is_plain = alike and not learns and not dropout_p and not torch._C._are_functorch_transforms_active()
    is_plain = is_plain and min(each.ndim for each in tensors) >= 2 and query.shape[-1] > 0
    if not is_plain or (enable_gqa and key.shape[-3] != value.shape[-3]):
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    heads = query.shape[-3] if enable_gqa else 0
    shared = enable_gqa and heads != key.shape[-3]
    if shared:  # Each head of keys is that of as many neighbours.
        query = query.unflatten(-3, (key.shape[-3], -1))
        key, value = key.unsqueeze(-3), value.unsqueeze(-3)
        if attn_mask is not None and attn_mask.ndim > 2:
            own = attn_mask.shape[-3] == heads
            attn_mask = attn_mask.unflatten(-3, (key.shape[-4], -1)) if own else attn_mask.unsqueeze(-3)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    made: torch.Tensor = _attention(query, key, value, attn_mask, bool(is_causal), float(factor))[0]
    return made.flatten(-4, -3) if shared else made


def _autocast(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """In the type that autocast would give PyTorch's own."""
    if tensor is None or tensor.dtype not in _LOW or not torch.is_autocast_enabled(tensor.device.type):
        return tensor
    return tensor.to(torch.get_autocast_dtype(tensor.device.type))


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _scores(q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor | None, causal: bool, scale: float) -> torch.Tensor:
    wide = _wide(q.dtype)
    scores = (q.to(wide) @ k.to(wide).mT) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~seen, -math.inf)
    return scores


@torch.library.custom_op("hostir::attention", mutates_args=())
def _attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and the logarithms of the softmax's sums; here by PyTorch, where the graph around it fell back."""
    scores = _scores(q, k, mask, causal, scale)
    lse = scores.logsumexp(-1)
    weights = (scores - lse.masked_fill(lse.isneginf(), 0)[..., None]).exp()
    values = (weights @ v.to(lse.dtype)).to(q.dtype)
    return values, lse.expand(values.shape[:-1]).contiguous()


@torch.library.custom_op("hostir::attention_grad", mutates_args=())
def _attention_grad(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    gradient: torch.Tensor,
    lse: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of q, k and v, each with all leading axes."""
    wide = lse.dtype
    scores = _scores(q, k, mask, causal, scale)
    weights = (scores - lse.masked_fill(lse.isneginf(), 0)[..., None]).exp()
    mean = (gradient.to(wide) * values.to(wide)).sum(-1, keepdim=True)
    of_scores = weights * (gradient.to(wide) @ v.to(wide).mT - mean) * scale
    made = (of_scores @ k.to(wide), of_scores.mT @ q.to(wide), weights.mT @ gradient.to(wide))
    q_grad, k_grad, v_grad = (each.to(q.dtype).contiguous() for each in made)
    return q_grad, k_grad, v_grad


def _shapes(q: Any, k: Any, v: Any, mask: Any) -> tuple[list[Any], Any, Any, Any, Any]:
    """The leading axes of the results, and m, n, d, e."""
    own = [q.shape[:-2], k.shape[:-2], v.shape[:-2], *([] if mask is None else [mask.shape[:-2]])]
    return list(torch.broadcast_shapes(*own)), q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1]


@_attention.register_fake
def _(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float) -> Any:
    leading, m, _, _, e = _shapes(q, k, v, mask)
    return q.new_empty([*leading, m, e]), q.new_empty([*leading, m], dtype=_wide(q.dtype))


@_attention_grad.register_fake
def _(q: Any, k: Any, v: Any, gradient: Any, lse: Any, values: Any, mask: Any, causal: bool, scale: float) -> Any:
    leading, m, n, d, e = _shapes(q, k, v, mask)
    return q.new_empty([*leading, m, d]), q.new_empty([*leading, n, d]), q.new_empty([*leading, n, e])


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    q, k, v, mask, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, mask, *output)


def _backward(ctx: Any, gradient: torch.Tensor, _: Any) -> Any:
    q, k, v, mask, values, lse = ctx.saved_tensors
    made = _attention_grad(q, k, v, gradient, lse, values, mask, ctx.causal, ctx.scale)
    return *(_summed(each, of) for each, of in zip(made, (q, k, v), strict=True)), None, None, None


def _summed(gradient: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    """Over the leading axes that ``of`` lacks, or along which it has one element."""
    missing = gradient.ndim - of.ndim
    axes = [*range(missing)]
    axes += [missing + k for k in range(of.ndim - 2) if of.shape[k] == 1 and gradient.shape[missing + k] != 1]
    return gradient.sum(axes, keepdim=True).reshape(of.shape) if axes else gradient


_attention.register_autograd(_backward, setup_context=_keep)


def _product(shapes: Any) -> int:
    q, k, v = shapes
    return 2 * math.prod(torch.broadcast_shapes(q[:-2], k[:-2], v[:-2])) * q[-2] * k[-2]


@register_flop_formula(torch.ops.hostir.attention)
def _flops(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    return int(_product((q, k, v)) * (q[-1] + v[-1]))


@register_flop_formula(torch.ops.hostir.attention_grad)
def _grad_flops(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    return int(_product((q, k, v)) * (3 * q[-1] + 2 * v[-1]))


@lowers("hostir.attention.default")
def _lower(
    low: Lowering, out: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> list[Tensor]:
    return [low.ops.attention(q, k, v, mask, result=result, causal=causal, scale=scale) for result in ("values", "lse")]


@lowers("hostir.attention_grad.default")
def _lower_grad(
    low: Lowering,
    out: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gradient: Tensor,
    lse: Tensor,
    values: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
) -> list[Tensor]:
    return [
        low.ops.attention_grad(result, q, k, v, gradient, lse, values, mask, causal=causal, scale=scale)
        for result in ("q", "k", "v")
    ]
