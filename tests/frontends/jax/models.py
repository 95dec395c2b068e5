"""Models as people write them in JAX, and their training steps: what the tests and benchmarks/frontends train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Sizes(NamedTuple):
    """A transformer's: grouped queries have ``heads`` heads, keys and values ``groups``."""

    batch: int = 4
    tokens: int = 16
    model: int = 32
    heads: int = 4
    groups: int = 2
    hidden: int = 64
    words: int = 50


def parameters(sizes: Sizes, seed: int) -> dict[str, Any]:
    """Those of a transformer block with an embedding and a head."""
    rng = np.random.default_rng(seed)
    wide = sizes.model // sizes.heads

    def matrix(*shape: int) -> np.ndarray[Any, Any]:
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    return {
        "embedding": matrix(sizes.words, sizes.model) * 3,
        "attention": {
            "norm": np.ones(sizes.model, np.float32),
            "q": matrix(sizes.model, sizes.heads, wide),
            "k": matrix(sizes.model, sizes.groups, wide),
            "v": matrix(sizes.model, sizes.groups, wide),
            "o": matrix(sizes.model, sizes.model).reshape(sizes.heads, wide, sizes.model),
        },
        "mlp": {
            "norm": np.ones(sizes.model, np.float32),
            "gate": matrix(sizes.model, sizes.hidden),
            "up": matrix(sizes.model, sizes.hidden),
            "down": matrix(sizes.hidden, sizes.model),
        },
        "norm": np.ones(sizes.model, np.float32),
        "head": matrix(sizes.model, sizes.words),
    }


def batch(sizes: Sizes, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Words and the words after them."""
    words = np.random.default_rng(seed).integers(0, sizes.words, (sizes.batch, sizes.tokens + 1)).astype(np.int32)
    return words[:, :-1], words[:, 1:]


def rms_norm(x: Any, weight: Any) -> Any:
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6) * weight


def rotated(x: Any) -> Any:
    """By the place of its token: [batch, tokens, heads, width]."""
    tokens, width = x.shape[1], x.shape[-1]
    frequencies = 10000.0 ** (-jnp.arange(0, width, 2) / width)
    angles = jnp.arange(tokens)[:, None] * frequencies
    cos, sin = jnp.cos(angles)[:, None, :].astype(x.dtype), jnp.sin(angles)[:, None, :].astype(x.dtype)
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attention(p: Any, x: Any) -> Any:
    """Causal, of grouped queries."""
    q, k, v = (jnp.einsum("bsd,dhw->bshw", x, p[name]) for name in "qkv")
    q, k = rotated(q), rotated(k)
    batch, tokens, heads, wide = q.shape
    groups = k.shape[2]
    q = q.reshape(batch, tokens, groups, heads // groups, wide)
    scores = jnp.einsum("bsgrw,btgw->bgrst", q, k) / jnp.sqrt(wide).astype(x.dtype)
    scores = jnp.where(jnp.tril(jnp.ones((tokens, tokens), bool)), scores, -jnp.inf)
    mixed = jnp.einsum("bgrst,btgw->bsgrw", jax.nn.softmax(scores, -1), v).reshape(batch, tokens, heads, wide)
    return jnp.einsum("bshw,hwd->bsd", mixed, p["o"])


def mlp(p: Any, x: Any) -> Any:
    return (jax.nn.silu(x @ p["gate"]) * (x @ p["up"])) @ p["down"]


def transformer(p: Any, words: Any) -> Any:
    """The logits of the words after ``words``."""
    x = jnp.take(p["embedding"], words, axis=0)
    x = x + attention(p["attention"], rms_norm(x, p["attention"]["norm"]))
    x = x + mlp(p["mlp"], rms_norm(x, p["mlp"]["norm"]))
    return rms_norm(x, p["norm"]) @ p["head"]


def cross_entropy(logits: Any, targets: Any) -> Any:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1)
    return -jnp.mean(chosen)


def loss(p: Any, words: Any, targets: Any) -> Any:
    return cross_entropy(transformer(p, words), targets)


def vision_parameters(seed: int, patch: int = 4, model: int = 32, classes: int = 10) -> dict[str, Any]:
    rng = np.random.default_rng(seed)

    def matrix(*shape: int) -> np.ndarray[Any, Any]:
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    return {
        "patch": matrix(patch * patch * 3, model),
        "place": matrix(16, model),
        "qkv": matrix(model, 3 * model),
        "out": matrix(model, model),
        "up": matrix(model, 4 * model),
        "down": matrix(4 * model, model),
        "head": matrix(model, classes),
        "scale": np.ones(model, np.float32),
        "bias": np.zeros(model, np.float32),
    }


def layer_norm(p: Any, x: Any) -> Any:
    mean, variance = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-5) * p["scale"] + p["bias"]


def vision_loss(p: Any, images: Any, classes: Any) -> Any:
    """A vision transformer's block on patches of 4 x 4 of images of 16 x 16, two heads, their mean classified."""
    count = images.shape[0]
    patches = images.reshape(count, 4, 4, 4, 4, 3).transpose(0, 1, 3, 2, 4, 5).reshape(count, 16, 48)
    x = patches @ p["patch"] + p["place"]
    q, k, v = jnp.split((layer_norm(p, x) @ p["qkv"]).reshape(count, 16, 2, -1), 3, axis=-1)
    weights = jax.nn.softmax(jnp.einsum("bshd,bthd->bhst", q, k) / 4.0)
    x = x + jnp.einsum("bhst,bthd->bshd", weights, v).reshape(count, 16, -1) @ p["out"]
    x = x + jax.nn.gelu(layer_norm(p, x) @ p["up"], approximate=False) @ p["down"]
    logits = jnp.mean(layer_norm(p, x), 1) @ p["head"]
    return -jnp.mean(jnp.sum(jax.nn.one_hot(classes, logits.shape[-1]) * jax.nn.log_softmax(logits), -1))


def sgd(of: Callable[..., Any], rate: float = 0.1) -> Callable[..., Any]:
    """A step of (parameters, *batch) to (parameters, loss)."""

    def step(p: Any, *data: Any) -> Any:
        value, slopes = jax.value_and_grad(of)(p, *data)
        return jax.tree.map(lambda w, g: w - rate * g, p, slopes), value

    return step


def adam_state(p: Any) -> Any:
    zeros = jax.tree.map(np.zeros_like, p)
    return {"step": np.zeros((), np.int32), "mean": zeros, "square": zeros}


def adam(of: Callable[..., Any], rate: float = 3e-3) -> Callable[..., Any]:
    """A step of AdamW with clipped gradients: (parameters, state, *batch) to (parameters, state, loss)."""

    def step(p: Any, state: Any, *data: Any) -> Any:
        value, slopes = jax.value_and_grad(of)(p, *data)
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(slopes)))
        slopes = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / (norm + 1e-6)), slopes)
        turn = state["step"] + 1
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], slopes)
        square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, state["square"], slopes)
        of_mean, of_square = 1 / (1 - 0.9**turn), 1 / (1 - 0.99**turn)

        def moved(w: Any, m: Any, s: Any) -> Any:
            return w - rate * (m * of_mean / (jnp.sqrt(s * of_square) + 1e-8) + 0.01 * w)

        return jax.tree.map(moved, p, mean, square), {"step": turn, "mean": mean, "square": square}, value

    return step
