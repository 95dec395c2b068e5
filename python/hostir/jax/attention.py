"""Attention of JAX programs as one operation, whose scores are never all in memory on a CPU."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from .walk import Value, Walk, rule


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    **others: Any,
) -> Any:
    """As the function of that name in jax.nn, with its arguments: query [batch, T, N, H], key [batch, S, K, H] and
    value [batch, S, K, E], perhaps without the batch, N a multiple of K; a mask of bools broadcasts to
    [batch, N, T, S].

    In a program of hostir.jax.jit it is one operation, forward and backward, and takes memory linear in T and S on
    CPUs; elsewhere JAX computes the same. A query that sees no key has values of 0, where JAX has the mean of all. With
    a bias, or arguments that are not named here, it is JAX's own function. Raises ValueError for shapes that do not
    fit.

    >>> q = np.ones((2, 16, 4, 8), np.float32)
    >>> attended = hostir.jax.jit(lambda q: hostir.jax.dot_product_attention(q, q, q, is_causal=True))
    >>> attended(q).shape
    (2, 16, 4, 8)
    """
    if bias is not None or others:
        return jax.nn.dot_product_attention(query, key, value, bias, mask, scale=scale, is_causal=is_causal, **others)
    q, k, v = (jnp.asarray(each) for each in (query, key, value))
    heads, shared = q.shape[-2], q.shape[-2] // k.shape[-2]
    if q.ndim != k.ndim or q.ndim != v.ndim or q.ndim not in (3, 4) or heads != shared * k.shape[-2]:
        raise ValueError(f"dot_product_attention of query {q.shape}, key {k.shape}, value {v.shape}")
    # Heads in front; each of keys is that of as many neighbours.
    q, k, v = (jnp.moveaxis(each, -2, -3) for each in (q, k, v))
    q = q.reshape(*q.shape[:-3], k.shape[-3], shared, *q.shape[-2:])
    k, v = k[..., None, :, :], v[..., None, :, :]
    if mask is not None:
        seen = jnp.asarray(mask, bool)
        seen = seen.reshape((1,) * (query.ndim - seen.ndim) + seen.shape)
        own = (k.shape[-4], shared) if seen.shape[-3] == heads else (1, 1)
        mask = seen.reshape(*seen.shape[:-3], *own, *seen.shape[-2:])
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    made = _attention(bool(is_causal), factor, q, k, v, mask)
    return jnp.moveaxis(made.reshape(*made.shape[:-4], heads, *made.shape[-2:]), -3, -2)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attention(causal: bool, scale: float, q: Any, k: Any, v: Any, mask: Any) -> Any:
    return _forward(causal, scale, q, k, v, mask)[0]


def _forward(causal: bool, scale: float, q: Any, k: Any, v: Any, mask: Any) -> Any:
    operands = [q, k, v] if mask is None else [q, k, v, mask]
    values, lse = _values.bind(*operands, causal=causal, scale=scale)
    return values, (q, k, v, mask, values, lse)


def _backward(causal: bool, scale: float, saved: Any, gradient: Any) -> Any:
    q, k, v, mask, values, lse = saved
    operands = [q, k, v, gradient, lse, values, *([] if mask is None else [mask])]
    made = _gradients.bind(*operands, causal=causal, scale=scale)
    return *(_summed(each, of.shape) for each, of in zip(made, (q, k, v), strict=True)), None


def _summed(gradient: Any, shape: tuple[int, ...]) -> Any:
    """Over the leading axes along which an operand has one element."""
    missing = gradient.ndim - len(shape)
    axes = [*range(missing)]
    axes += [missing + k for k, n in enumerate(shape[:-2]) if n == 1 and gradient.shape[missing + k] != 1]
    return gradient.sum(axes).reshape(shape) if axes else gradient


_attention.defvjp(_forward, _backward)

# --- the primitives ---

_values = Primitive("hostir_attention")  # q, k, v, perhaps a mask: values, lse.
_gradients = Primitive("hostir_attention_grad")  # q, k, v, gradient, lse, values, perhaps a mask: of q, k, v.
_OWN = (2, 2, 2, 2, 1, 2, 2)  # Axes behind the leading ones, which broadcast.


def _own(operands: Any) -> tuple[int, ...]:
    return _OWN if len(operands) > 4 else (2, 2, 2, 2)


def _leading(operands: Any) -> tuple[int, ...]:
    return np.broadcast_shapes(*(x.shape[: x.ndim - n] for x, n in zip(operands, _own(operands), strict=False)))


def _scores(operands: Any, causal: bool, scale: float) -> Any:
    q, k = operands[:2]
    wide = jnp.promote_types(q.dtype, np.float32)
    scores = (q.astype(wide) @ jnp.swapaxes(k.astype(wide), -1, -2)) * scale
    if len(operands) in (4, 7):
        scores = jnp.where(operands[-1], scores, -jnp.inf)
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    return scores


def _weights(scores: Any, lse: Any) -> Any:
    return jnp.exp(scores - jnp.where(jnp.isneginf(lse), 0, lse)[..., None])


def _values_in_jax(*operands: Any, causal: bool, scale: float) -> Any:
    q, v = operands[0], operands[2]
    scores = _scores(operands, causal, scale)
    lse = jax.nn.logsumexp(scores, axis=-1)
    rows = (*_leading(operands), q.shape[-2])
    values = _weights(scores, lse) @ v.astype(scores.dtype)
    return [jnp.broadcast_to(values, (*rows, v.shape[-1])).astype(q.dtype), jnp.broadcast_to(lse, rows)]


def _gradients_in_jax(*operands: Any, causal: bool, scale: float) -> Any:
    q, k, v, gradient, lse, values = operands[:6]
    wide = lse.dtype
    weights = _weights(_scores(operands, causal, scale), lse)
    of_weights = gradient.astype(wide) @ jnp.swapaxes(v.astype(wide), -1, -2)
    mean = (gradient.astype(wide) * values.astype(wide)).sum(-1, keepdims=True)
    of_scores = scale * weights * (of_weights - mean)
    turned = jnp.swapaxes(of_scores, -1, -2)
    made = (of_scores @ k.astype(wide), turned @ q.astype(wide), jnp.swapaxes(weights, -1, -2) @ gradient.astype(wide))
    leading = _leading(operands)
    return [jnp.broadcast_to(each, (*leading, *each.shape[-2:])).astype(q.dtype) for each in made]


def _batched(primitive: Any, operands: Any, axes: Any, **params: Any) -> Any:
    """The axis of a vmap becomes the first of the leading ones, in front of all that any operand has."""
    own = _own(operands)
    most = max(x.ndim - n - (axis is not None) for x, n, axis in zip(operands, own, axes, strict=False))
    given = []
    for x, n, axis in zip(operands, own, axes, strict=False):
        if axis is None:
            given.append(x)
            continue
        moved = jnp.moveaxis(x, axis, 0)
        given.append(moved.reshape(moved.shape[0], *[1] * (most - (x.ndim - 1 - n)), *moved.shape[1:]))
    made = primitive.bind(*given, **params)
    return made, [0] * len(made)


for _primitive, _in_jax in ((_values, _values_in_jax), (_gradients, _gradients_in_jax)):
    _primitive.multiple_results = True
    _primitive.def_impl(jax.jit(_in_jax, static_argnames=("causal", "scale")))
    mlir.register_lowering(_primitive, mlir.lower_fun(_in_jax, multiple_results=True))
    batching.primitive_batchers[_primitive] = functools.partial(_batched, _primitive)


def _abstract(in_jax: Any, *operands: Any, **params: Any) -> Any:
    made = jax.eval_shape(functools.partial(in_jax, **params), *operands)
    return [jax.core.ShapedArray(each.shape, each.dtype) for each in made]


_values.def_abstract_eval(functools.partial(_abstract, _values_in_jax))
_gradients.def_abstract_eval(functools.partial(_abstract, _gradients_in_jax))


@rule("hostir_attention")
def _lower(walk: Walk, equation: Any, values: list[Value]) -> Any:
    q, k, v, *mask = (walk.tensor(each) for each in values)
    return [walk.ops.attention(q, k, v, *mask, result=result, **equation.params) for result in ("values", "lse")]


@rule("hostir_attention_grad")
def _lower_gradients(walk: Walk, equation: Any, values: list[Value]) -> Any:
    operands = [walk.tensor(each) for each in values]
    return [walk.ops.attention_grad(result, *operands, **equation.params) for result in ("q", "k", "v")]
