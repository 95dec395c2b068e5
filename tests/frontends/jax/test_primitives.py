"""Each primitive that hostir.jax lowers, beside JAX. A case is a function and what its arguments are like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax import lax

import hostir.jax
from hostir.jax.walk import RULES

F, H, B, I, P = "float32", "float16", "bfloat16", "int32", "bool"  # noqa: E741
SEED = 20
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3e38, 1e-30, 7.0], np.float32)


def of(dtype: str, *shape: int, low: float = -4, high: float = 4) -> Callable[[np.random.Generator], Any]:
    """Random elements; of floats in [low, high), of integers, too."""

    def draw(rng: np.random.Generator) -> np.ndarray[Any, Any]:
        if dtype == P:
            return rng.integers(0, 2, shape).astype(bool)
        if dtype == I:
            return rng.integers(int(low), int(high), shape).astype(np.int32)
        return rng.uniform(low, high, shape).astype(ml_dtypes.bfloat16 if dtype == B else dtype)

    return draw


def special(shape: tuple[int, ...] = (12,), dtype: str = F) -> Callable[[np.random.Generator], Any]:
    return lambda rng: np.resize(SPECIAL, shape).astype(dtype)


POSITIVE: dict[str, Any] = {"low": 0.1, "high": 4}
UNIT: dict[str, Any] = {"low": -0.95, "high": 0.95}
ADDED = lax.ScatterDimensionNumbers(
    update_window_dims=(1, 2), inserted_window_dims=(), scatter_dims_to_operand_dims=(1, 0)
)
NUMBERS = (
    lax.GatherDimensionNumbers(offset_dims=(0, 2), collapsed_slice_dims=(1,), start_index_map=(1,)),
    lax.GatherDimensionNumbers(offset_dims=(0, 2, 3), collapsed_slice_dims=(), start_index_map=(1,)),
    lax.GatherDimensionNumbers(offset_dims=(0, 2, 3), collapsed_slice_dims=(), start_index_map=(2, 0)),
    lax.GatherDimensionNumbers(offset_dims=(0, 1), collapsed_slice_dims=(1,), start_index_map=(2, 1)),
)

# By primitive; several of one have a letter behind a colon.
CASES: dict[str, tuple[Callable[..., Any], ...]] = {
    "abs": (lax.abs, of(F, 3, 4)),
    "abs:i": (lax.abs, of(I, 9)),
    "acos": (lax.acos, of(F, 9, **UNIT)),
    "acosh": (lax.acosh, of(F, 9, low=1.1)),
    "add": (lax.add, of(F, 3, 4), of(F, 3, 4)),
    "add:b": (lambda x: x + 2.5, of(B, 9)),
    "add:h": (lambda x, y: x + y, of(H, 9), of(H, 1)),
    "add:wraps": (lambda x: x + (2**31 - 1), of(I, 9)),
    "add_any": (jax.grad(lambda x: (jnp.sin(x) * x + x * x).sum()), of(F, 9)),
    "and": (lambda x, y: x & y, of(I, 9), of(I, 9)),
    "and:b": (lambda x, y: x & y, of(P, 9), of(P, 9)),
    "argmax": (lambda x: (jnp.argmax(x, 1), jnp.argmax(x, 0), jnp.argmax(x)), of(I, 5, 7)),
    "argmax:nan": (lambda x: (jnp.argmax(x, 1), jnp.argmax(x, 0)), special((3, 4))),
    "argmin": (lambda x: (jnp.argmin(x, 1), jnp.argmin(x, 0)), of(F, 5, 7)),
    "argmin:nan": (lambda x: jnp.argmin(x, 1), special((4, 3))),
    "asin": (lax.asin, of(F, 9, **UNIT)),
    "asinh": (lax.asinh, of(F, 9)),
    "atan": (lax.atan, of(F, 9)),
    "atan2": (lax.atan2, of(F, 9), of(F, 9)),
    "atanh": (lax.atanh, of(F, 9, **UNIT)),
    "broadcast_in_dim": (lambda x, y: jnp.broadcast_to(x[:, None], (2, 3, 4)) + y, of(F, 3), of(F, 1, 3, 1)),
    "cbrt": (lax.cbrt, of(F, 9)),
    "ceil": (lax.ceil, of(F, 9)),
    "clamp": (lambda x: lax.clamp(-1.0, x, 1.5), special()),
    "clamp:t": (lax.clamp, of(I, 9), of(I, 9), of(I, 9, low=5, high=6)),
    "concatenate": (lambda x, y: jnp.concatenate([x, jnp.ones((2, 2)), y, x[:, :0]], 1), of(F, 2, 3), of(F, 2, 1)),
    "cond": (lambda n, x: lax.cond(n > 0, jnp.sin, lambda y: y * 2, x), of(I), of(F, 4)),
    "cond:s": (lambda n, x: lax.switch(n, [jnp.sin, jnp.cos, lambda y: y], x), of(I, low=1, high=2), of(F, 4)),
    "cond:k": (
        lambda x: lax.cond(True, jnp.sin, lambda y: lax.while_loop(lambda z: z[0] < 1, jnp.exp, y), x),
        of(F, 4),
    ),
    "convert_element_type": (lambda x: [x.astype(t) for t in (F, H, B, I, P)], of(F, 9)),
    "convert_element_type:i": (lambda x: [x.astype(t) for t in (F, H, B, I, P)], of(I, 9)),
    "convert_element_type:b": (lambda x: [x.astype(t) for t in (F, H, B, I, P)], of(P, 9)),
    "convert_element_type:nan": (lambda x: (x.astype(I), x.astype(B), x.astype(P)), special()),
    "copy": (lambda x: jnp.array(x, copy=True) + lax.stop_gradient(x), of(F, 9)),
    "cos": (lax.cos, of(F, 9)),
    "cosh": (lax.cosh, of(F, 9)),
    "cummax": (lambda x: (lax.cummax(x, 0), lax.cummax(x, 1, reverse=True)), special((3, 4))),
    "cummin": (lambda x: (lax.cummin(x, 0), lax.cummin(x, 1, reverse=True)), special((3, 4))),
    "cumprod": (lambda x: (lax.cumprod(x, 0), lax.cumprod(x, 1, reverse=True)), of(F, 5, 7)),
    "cumsum": (lambda x: (jnp.cumsum(x, 0), lax.cumsum(x, 1, reverse=True), jnp.cumsum(x)), of(F, 5, 7)),
    "cumsum:i": (lambda x: jnp.cumsum(x), of(I, 17)),
    "cumsum:nan": (lambda x: jnp.cumsum(x), special()),
    "cumsum:grad": (jax.grad(lambda x: (jnp.cumsum(x, 1) ** 2).sum()), of(F, 3, 5)),
    "custom_jvp_call": (lambda x: (jax.nn.relu(x), jax.grad(lambda y: jax.nn.silu(jax.nn.relu(y)).sum())(x)), of(F, 9)),
    "div": (lax.div, of(F, 9), of(F, 9)),
    "div:i": (lax.div, of(I, 99), of(I, 99, low=-2, high=3)),
    "dot_general": (lambda x, y: x @ y, of(F, 3, 5), of(F, 5, 4)),
    "dot_general:vector": (lambda x, y, v: (x @ v, v @ y, v @ v), of(F, 3, 5), of(F, 5, 4), of(F, 5)),
    "dot_general:outer": (lambda x, y: jnp.einsum("a,bc->abc", x, y), of(F, 3), of(F, 2, 4)),
    "dot_general:heads": (lambda x, w: jnp.einsum("bsd,dhk->bhsk", x, w), of(F, 2, 3, 4), of(F, 4, 2, 5)),
    "dot_general:back": (lambda x, w: jnp.einsum("bshk,dhk->bsd", x, w), of(F, 2, 3, 2, 5), of(F, 4, 2, 5)),
    "dot_general:weight": (lambda x, w: jnp.einsum("bsd,fd->bsf", x, w), of(F, 2, 3, 4), of(F, 6, 4)),
    "dot_general:gradient": (lambda x, y: jnp.einsum("bsd,bsf->df", x, y), of(F, 2, 3, 4), of(F, 2, 3, 5)),
    "dot_general:rows": (lambda x, y: jnp.einsum("akb,kn->abn", x, y), of(F, 2, 4, 3), of(F, 4, 5)),
    "dot_general:no rows": (
        lambda x, y: (jnp.einsum("bk,bkn->bn", x, y), jnp.einsum("bk,bk->b", x, x), jax.vmap(jnp.dot)(x, x)),
        of(F, 3, 4),
        of(F, 3, 4, 5),
    ),
    "dot_general:batch": (lambda x, y: jnp.einsum("bshd,bthd->bhst", x, y), of(F, 2, 3, 4, 5), of(F, 2, 6, 4, 5)),
    "dot_general:grouped": (
        lambda q, k: jnp.einsum("bsghd,btgd->bghst", q, k),
        of(F, 2, 3, 2, 3, 4),
        of(F, 2, 5, 2, 4),
    ),
    "dot_general:i": (lambda x, y: x @ y, of(I, 3, 5), of(I, 5, 4)),
    "dot_general:mixed": (
        lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32),
        of(B, 3, 50),
        of(B, 50, 4),
    ),
    "dot_general:nothing": (lambda x, y: x @ y, of(F, 3, 0), of(F, 0, 4)),
    "dynamic_slice": (lambda x, i, j: lax.dynamic_slice(x, (i, j), (2, 3)), of(F, 5, 7), of(I, low=-9, high=9), of(I)),
    "dynamic_slice:k": (lambda x: lax.dynamic_slice(x, (9, 1), (2, 3)), of(F, 5, 7)),
    "dynamic_update_slice": (lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 2)), of(F, 5, 7), of(F, 2, 3), of(I)),
    "dynamic_update_slice:k": (lambda x, u: lax.dynamic_update_slice(x, u, (0, 3, 0)), of(F, 2, 5, 7), of(F, 2, 1, 7)),
    "eq": (lax.eq, of(I, 9, low=0, high=2), of(I, 9, low=0, high=2)),
    "erf": (lax.erf, of(F, 9)),
    "erf_inv": (lax.erf_inv, of(F, 9, **UNIT)),
    "erfc": (lax.erfc, of(F, 9)),
    "exp": (lax.exp, special()),
    "exp2": (lax.exp2, of(F, 9)),
    "expm1": (lax.expm1, of(F, 9)),
    "floor": (lax.floor, special()),
    "gather": (lambda t, i: (jnp.take(t, i, axis=0), t[i], t[:, i[0]]), of(F, 9, 9), of(I, 3, 2, low=-12, high=12)),
    "gather:axis": (lambda t, i: jnp.take(t, i, axis=1, mode="clip"), of(F, 2, 5, 3), of(I, 4, low=-9, high=9)),
    "gather:along": (lambda t, i: jnp.take_along_axis(t, i, 1), of(F, 3, 5), of(I, 3, 2, low=-7, high=7)),
    "gather:ints": (lambda t, i: jnp.take(t, i), of(I, 5), of(I, 9, low=-9, high=9)),
    "gather:pairs": (lambda t, i, j: t[i, j], of(F, 4, 5, 3), of(I, 6, low=0, high=4), of(I, 6, low=0, high=5)),
    "gather:apart": (lambda t, i, j: t[i, :, j], of(F, 4, 3, 5), of(I, 6, low=0, high=4), of(I, 6, low=0, high=5)),
    "gather:vmap": (lambda t, i: jax.vmap(lambda a, b: a[b])(t, i), of(F, 4, 5, 3), of(I, 4, 2, low=0, high=5)),
    "dynamic_slice:row": (lambda t, i: t[i], of(F, 4, 5), of(I, low=0, high=4)),
    "gather:kept": (
        lambda t, i: (
            lax.gather(t, i, NUMBERS[0], (3, 1, 2), mode="clip"),
            lax.gather(t, i, NUMBERS[1], (3, 1, 4), mode="fill"),
        ),
        of(F, 3, 5, 4),
        of(I, 6, 1, low=-2, high=7),
    ),
    "gather:slices": (
        lambda t, i: [lax.gather(t, i, NUMBERS[2], (2, 5, 3), mode=mode) for mode in ("clip", "fill")],
        of(F, 3, 5, 4),
        of(I, 6, 2, low=-2, high=4),
    ),
    "gather:slice": (
        lambda t, i: [lax.gather(t, i, NUMBERS[3], (3, 1, 2), mode=mode) for mode in ("clip", "fill")],
        of(F, 3, 5, 4),
        of(I, 2, low=0, high=4),
    ),
    "ge": (lax.ge, special(), of(F, 12)),
    "gt": (lax.gt, special(), of(F, 12)),
    "integer_pow": (lambda x: (x**2, x**3, x**7, x**-1, x**-4, x**0), of(F, 9)),
    "iota": (lambda x: x + jnp.arange(5) + lax.broadcasted_iota(F, (3, 5), 0), of(F, 3, 5)),
    "is_finite": (lax.is_finite, special()),
    "jit": (lambda x: jax.jit(lambda y: y * 2)(x), of(F, 3)),
    "lt_to": (
        lambda x, y: (jnp.searchsorted(x, y, side="right"), jnp.digitize(y, x)),
        of(F, 9, low=0, high=0.1),
        of(F, 12),
    ),
    "le_to": (lambda x, y: jnp.searchsorted(jnp.sort(x), y), special(), special()),
    "le": (lax.le, special(), of(F, 12)),
    "lgamma": (lax.lgamma, of(F, 9, **POSITIVE)),
    "log": (lax.log, special()),
    "log1p": (lax.log1p, of(F, 9, low=-0.9)),
    "logistic": (lax.logistic, special()),
    "lt": (lax.lt, special(), of(F, 12)),
    "max": (lax.max, special(), of(F, 12)),
    "max:i": (lambda x: jnp.maximum(x, 1), of(I, 9)),
    "min": (lax.min, special(), of(F, 12)),
    "mul": (lax.mul, special(), of(F, 12)),
    "ne": (lax.ne, special(), special()),
    "neg": (lax.neg, of(F, 9)),
    "nextafter": (lax.nextafter, of(F, 9), of(F, 9)),
    "not": (lambda x, y: (~x, ~y), of(P, 9), of(I, 9)),
    "optimization_barrier": (lambda x, y: lax.optimization_barrier((x, y)), of(F, 9), of(F, 2)),
    "or": (lambda x, y: x | y, of(I, 9), of(I, 9)),
    "pad": (
        lambda x: (jnp.pad(x, ((1, 2), (0, 3)), constant_values=7), lax.pad(x, 0.0, ((-1, 2, 0), (1, -2, 0)))),
        of(F, 3, 4),
    ),
    "pad:interior": (lambda x: lax.pad(x, 2.0, ((1, 0, 2), (-1, 1, 1))), of(F, 3, 4)),
    "pad:data": (lambda x, v: lax.pad(x, v, ((1, 2, 1), (0, 3, 0))), of(F, 3, 4), of(F)),
    "pad:grad": (jax.grad(lambda x: (x[1::2, ::3] ** 2).sum()), of(F, 6, 7)),
    "pow": (lax.pow, of(F, 9, **POSITIVE), of(F, 9)),
    "pow:i": (lambda x, n: lax.pow(x, n), of(F, 9, **POSITIVE), of(I, 9)),
    "ragged_dot_general": (
        lambda x, w: lax.ragged_dot(x, w, jnp.array([4, 0, 3], jnp.int32)),
        of(F, 9, 5),
        of(F, 3, 5, 4),
    ),
    "ragged_dot_general:gradients": (
        lambda x, w, y: jax.vjp(lambda x, w: lax.ragged_dot(x, w, jnp.array([4, 0, 5], jnp.int32)), x, w)[1](y),
        of(F, 9, 5),
        of(F, 3, 5, 4),
        of(F, 9, 4),
    ),
    "ragged_dot_general:mixed": (
        lambda x, w, n: lax.ragged_dot(x, w, n, preferred_element_type=jnp.float32),
        of(B, 9, 50),
        of(B, 2, 50, 4),
        of(I, 2, low=0, high=5),
    ),
    "reduce_and": (lambda x: (x.all(), x.all(1)), of(P, 3, 2)),
    "reduce_max": (lambda x: (x.max(), x.max(1), x.max((0, 2))), of(F, 3, 2, 4)),
    "reduce_max:nan": (lambda x: (x.max(), x.max(1), x.max(0)), special((3, 4))),
    "reduce_max:nothing": (lambda x: x.max(1, initial=-jnp.inf), of(F, 3, 0)),
    "reduce_min": (lambda x: (x.min(), x.min(1), x.min((0, 2))), of(I, 3, 2, 4)),
    "reduce_min:nan": (lambda x: (x.min(), x.min(1), x.min(0)), special((3, 4))),
    "reduce_or": (lambda x: (x.any(), x.any(1)), of(P, 3, 2)),
    "reduce_precision": (lambda x: lax.reduce_precision(x, 5, 10) + lax.reduce_precision(x, 8, 7), of(F, 9)),
    "reduce_prod": (lambda x: (x.prod(), x.prod(1)), of(F, 3, 4)),
    "reduce_prod:i": (lambda x: (x.prod(), x.prod(1)), of(I, 3, 4)),
    "reduce_sum": (lambda x: (x.sum(), x.sum(1), x.sum((0, 2)), x.mean(0), x.var(2)), of(F, 3, 2, 4)),
    "reduce_sum:b": (lambda x: (x.sum(), x.mean(1)), of(B, 3, 40)),
    "reduce_sum:i": (lambda x: (x.sum(), x.sum(1)), of(I, 3, 4)),
    "reduce_sum:nan": (lambda x: (x.sum(), x.sum(1)), special((3, 4))),
    "rem": (lax.rem, of(F, 9), of(F, 9)),
    "rem:i": (lax.rem, of(I, 99), of(I, 99, low=-2, high=3)),
    "remat2": (jax.grad(lambda x: jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x).sum()), of(F, 9)),
    "reshape": (lambda x: (x.reshape(6, 4), x.reshape(-1), x.reshape(2, 1, 12)), of(F, 2, 3, 4)),
    "rev": (lambda x: (x[::-1], jnp.flip(x), lax.rev(x, (1,))), of(F, 3, 4)),
    "round": (
        lambda x: (lax.round(x), jnp.round(x)),
        lambda rng: np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 0.49999997], F),
    ),
    "rsqrt": (lax.rsqrt, special()),
    "scan": (lambda c, x: lax.scan(lambda a, b: (a + b, a * b), c, x), of(F, 4), of(F, 5, 4)),
    "scan:reverse": (lambda c, x: lax.scan(lambda a, b: (a + b, a), c, x, reverse=True), of(F, 4), of(F, 5, 4)),
    "scan:fori": (lambda x: lax.fori_loop(0, 3, lambda k, y: y * 2 + k, x), of(F, 4)),
    "scan:grad": (jax.grad(lambda x: lax.scan(lambda a, b: (jnp.sin(a) * b, a), x[0], x)[0].sum()), of(F, 5, 4)),
    "scatter": (lambda x, i, u: x.at[i].set(u), of(F, 5, 3), of(I, 4, low=-7, high=7), of(F, 4, 3)),
    "scatter:pair": (
        lambda x, i, j: x.at[i, j].set(9.0),
        of(F, 5, 3),
        of(I, 4, low=0, high=5),
        of(I, 4, low=0, high=3),
    ),
    "scatter-add": (lambda x, i, u: x.at[i].add(u), of(F, 5, 3), of(I, 9, low=-7, high=7), of(F, 9, 3)),
    "scatter-add:embed": (
        jax.grad(lambda t, i: (jnp.take(t, i, axis=0) ** 3).sum()),
        of(F, 9, 4),
        of(I, 3, 5, low=-2, high=9),
    ),
    "scatter-add:along": (
        jax.grad(lambda t, i: (jnp.take_along_axis(t, i, 1) ** 3).sum()),
        of(F, 3, 5),
        of(I, 3, 4, low=0, high=5),
    ),
    "scatter-add:nan": (lambda x, i: jnp.zeros(4).at[i].add(x), special(), lambda rng: np.arange(12, dtype=I) % 4),
    "scatter-add:slices": (
        lambda x, i, u: [lax.scatter_add(x, i, u, ADDED, mode=mode) for mode in ("clip", "drop")],
        of(F, 5, 6),
        of(I, 3, 2, low=-1, high=5),
        of(F, 3, 2, 3),
    ),
    "scatter:slices": (
        lambda x, i, u: lax.scatter(x, i, u, ADDED),
        of(F, 5, 6),
        of(I, 1, 2, low=-1, high=5),
        of(F, 1, 2, 3),
    ),
    "scatter-add:product": (
        lambda x, i, u: x.at[i].add(u),
        of(F, 7, 3, 5),
        of(I, 4, 5, low=-9, high=7),
        of(F, 4, 5, 3, 5),
    ),
    "scatter-add:products": (
        jax.vmap(lambda x, i, u: x.at[i].add(u)),
        of(F, 2, 7, 9),
        of(I, 2, 9, low=0, high=7),
        special((2, 9, 9)),
    ),
    "scatter-add:many": (
        lambda x, i, u: x.at[i].add(u),
        of(F, 11, 8),
        of(I, 5000, low=0, high=11),
        lambda rng: np.where(rng.random((5000, 8)) < 2e-4, rng.choice(SPECIAL[:3], (5000, 8)), 1).astype(F),
    ),
    "scatter-add:none": (
        lambda x, i, u: lax.scatter_add(x, i, u, ADDED, mode="clip"),
        of(F, 5, 6),
        of(I, 0, 2),
        of(F, 0, 2, 3),
    ),
    "scatter-add:i": (lambda x, i, u: x.at[i].add(u * 2**29), of(I, 5, 3), of(I, 9, low=-7, high=7), of(I, 9, 3)),
    "scatter-add:infinite": (
        lambda x, i, u: x.at[i].add(u),
        of(F, 9, 12),
        lambda rng: np.array([4, 2, 4], I),
        lambda rng: np.stack([np.arange(12), np.resize(SPECIAL, 12), np.ones(12)]).astype(F),
    ),
    "scatter-add:bh": (lambda x, i, u: x.at[i].add(u), of(B, 7, 9), of(I, 9, low=0, high=7), of(B, 9, 9)),
    "scatter-add:middle": (lambda x, i, u: x.at[:, i].add(u), of(F, 2, 5, 3), of(I, 4, low=0, high=5), of(F, 2, 4, 3)),
    "scatter-add:pairs": (
        lambda x, i, j, u: x.at[i, :, j].add(u),
        of(F, 3, 2, 4),
        of(I, 5, low=0, high=3),
        of(I, 5, low=0, high=4),
        of(F, 5, 2),
    ),
    "scatter-max": (lambda x, i, u: x.at[i].max(u), of(F, 5, 3), of(I, 9, low=-7, high=7), of(F, 9, 3)),
    "scatter-min": (lambda x, i, u: x.at[i].min(u), of(I, 5), of(I, 9, low=-7, high=7), of(I, 9)),
    "scatter-mul": (lambda x, i, u: x.at[i].multiply(u), of(F, 5, 3), of(I, 9, low=-7, high=7), of(F, 9, 3)),
    "scatter-sub": (lambda x, i, u: x.at[i].subtract(u), of(F, 5, 9), of(I, 9, low=-7, high=7), of(F, 9, 9)),
    "select_n": (lambda p, x, y: jnp.where(p, x, y), of(P, 9), of(F, 9), of(F, 9)),
    "select_n:many": (
        lambda n, x, y, z: lax.select_n(n, x, y, z),
        of(I, 9, low=0, high=3),
        of(F, 9),
        of(F, 9),
        of(F, 9),
    ),
    "select_n:one": (lambda p, x: lax.select(p, x, jnp.zeros(9)), of(P), of(F, 9)),
    "shift_left": (lax.shift_left, of(I, 9), of(I, 9, low=0, high=40)),
    "shift_right_arithmetic": (lax.shift_right_arithmetic, of(I, 9), of(I, 9, low=0, high=40)),
    "shift_right_logical": (lax.shift_right_logical, of(I, 9), of(I, 9, low=0, high=40)),
    "sign": (lax.sign, special()),
    "sign:i": (lax.sign, of(I, 9)),
    "sin": (lax.sin, of(F, 9)),
    "sinh": (lax.sinh, of(F, 9)),
    "slice": (lambda x: (x[1:, ::2], x[-1], x[:, 2:2], x[..., None, 1]), of(F, 3, 5)),
    "sort": (lambda x: (jnp.sort(x, 0), jnp.sort(x, 1), jnp.argsort(x, 1), -jnp.sort(-x)), of(F, 3, 17)),
    "sort:nan": (lambda x: (jnp.sort(x), jnp.argsort(x)), special()),
    "sort:stable": (lambda x: (jnp.argsort(x), jnp.argsort(x, descending=True)), of(I, 17, low=0, high=3)),
    "sort:keys": (lambda x, y, z: lax.sort((x, y, z), num_keys=2), of(I, 17, low=0, high=3), of(I, 17), of(F, 17)),
    "split": (lambda x: jnp.split(x, (2, 3), axis=1), of(F, 3, 7)),
    "sqrt": (lax.sqrt, special()),
    "square": (lambda x: jnp.square(x), of(F, 9)),
    "squeeze": (lambda x: jnp.squeeze(x, (0, 2)), of(F, 1, 3, 1)),
    "stack": (
        lambda x, y: (jnp.stack([x, y, x]), jnp.stack([x, jnp.ones((3, 4))], 1), jnp.stack([y], -1)),
        of(F, 3, 4),
        of(F, 3, 4),
    ),
    "sub": (lax.sub, special(), of(F, 12)),
    "tan": (lax.tan, of(F, 9, **UNIT)),
    "tanh": (lax.tanh, special()),
    "tile": (lambda x: (jnp.tile(x, (2, 3)), jnp.tile(x, (2, 1, 1))), of(F, 2, 3)),
    "top_k": (lambda x: lax.top_k(x, 3), of(F, 3, 9)),
    "top_k:nan": (lambda x: lax.top_k(x, 12), special((2, 12))),
    "transpose": (lambda x: (x.T, jnp.moveaxis(x, 0, 1)), of(F, 2, 3, 4)),
    "unstack": (lambda x: (jnp.unstack(x), jnp.unstack(x, axis=1)), of(F, 2, 3)),
    "xor": (lambda x, y: x ^ y, of(I, 9), of(I, 9)),
}
# Other names of primitives in the table, here or in other versions of JAX, and those of other test files.
ELSEWHERE = {
    "bitcast_convert_type": "test_draws.py",
    "checkpoint": "remat2",
    "closed_call": "jit",
    "core_call": "jit",
    "copy_p": "copy",
    "custom_vjp_call": "test_a_rule_for_gradients",
    "custom_vjp_call_jaxpr": "custom_vjp_call",
    "cumlogsumexp": "test_refusals.py",
    "hostir_attention": "test_attention.py",
    "hostir_attention_grad": "test_attention.py",
    "iota_2x32_shape": "test_draws.py",
    "pjit": "jit",
    "pvary": "copy",
    "random_bits": "test_draws.py",
    "random_fold_in": "test_draws.py",
    "random_seed": "test_draws.py",
    "random_split": "test_draws.py",
    "random_unwrap": "test_draws.py",
    "random_wrap": "test_draws.py",
    "remat": "remat2",
    "scatter_add": "scatter-add",
    "sharding_constraint": "test_sharded.py",
    "scatter_max": "scatter-max",
    "scatter_min": "scatter-min",
    "scatter_mul": "scatter-mul",
    "scatter_sub": "scatter-sub",
    "stop_gradient": "copy",
    "threefry2x32": "test_draws.py",
    "while": "test_refusals.py",
}
# Where JAX rounds otherwise: 16-bit floats, and functions that it computes in another way.
TOLERANCES = {"b": 1e-2, "bh": 2e-2, "h": 2e-3, "cbrt": 1e-5, "erf_inv": 1e-5, "lgamma": 1e-5, "mixed": 1e-5}


@pytest.mark.parametrize("name", CASES)
def test_a_primitive_beside_jax(name: str, same: Callable[..., None]) -> None:
    function, *kinds = CASES[name]
    rng = np.random.default_rng([SEED, *name.encode()])
    primitive, _, form = name.partition(":")
    tolerance = TOLERANCES.get(primitive, TOLERANCES.get(form, 3e-6) if primitive != "convert_element_type" else 0)
    same(function, *[draw(rng) for draw in kinds], tolerance=tolerance)


def test_each_rule_has_a_case() -> None:
    assert {name.partition(":")[0] for name in CASES} | set(ELSEWHERE) == set(RULES)


def primitives(jaxpr: Any) -> set[str]:
    """Those of a jaxpr, and of jaxprs in it."""
    found = set()
    for equation in jaxpr.eqns:
        found.add(equation.primitive.name)
        for value in equation.params.values():
            for inner in value if isinstance(value, (list, tuple)) else [value]:
                if hasattr(inner, "jaxpr") or hasattr(inner, "eqns"):
                    found |= primitives(getattr(inner, "jaxpr", inner))
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_case_has_its_primitive(name: str) -> None:
    function, *kinds = CASES[name]
    rng = np.random.default_rng(SEED)
    found = primitives(jax.make_jaxpr(function)(*[draw(rng) for draw in kinds]).jaxpr)
    primitive = name.partition(":")[0]
    if jax.__version_info__ < (0, 10):
        pytest.skip("which primitives a function of jnp becomes is known of JAX 0.10")
    assert {primitive, *(other for other, of in ELSEWHERE.items() if of == primitive)} & found, found


def test_a_rule_for_gradients(same: Callable[..., None]) -> None:
    @jax.custom_vjp
    def clipped(x: Any) -> Any:
        return x

    clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1, 1),))
    x = np.linspace(-3, 3, 9, dtype=np.float32)
    same(clipped, x)
    same(jax.grad(lambda y: (clipped(y) ** 2).sum()), x)


def test_what_is_known_is_computed_while_the_program_is_made(same: Callable[..., None]) -> None:
    """Random numbers of a constant key, tables of sines, masks."""
    table = np.random.default_rng(SEED).standard_normal((3, 4)).astype(np.float32)

    def function(x: Any) -> Any:
        noise = jax.random.normal(jax.random.key(3), (3, 4)) + jax.random.uniform(jax.random.PRNGKey(1), (4,))
        mask = jnp.tril(jnp.ones((3, 4), bool))
        angles = jnp.sin(jnp.arange(3)[:, None] / 10.0 ** (jnp.arange(4) / 4))
        return jnp.where(mask, x + noise, -1.0) * angles + jnp.asarray(table), mask, angles

    same(function, np.ones((3, 4), np.float32))
    definition = hostir.jax.jit(function).definition(np.ones((3, 4), np.float32))
    assert (
        len(definition.fusion.inputs()) == 4
    )  # x, what was drawn, the table and that of sines; the mask is made anew.


@pytest.mark.parametrize("dtype", [F, H, B, I, P])
def test_types_stay(dtype: str, same: Callable[..., None]) -> None:
    x = of(dtype, 3, 4)(np.random.default_rng(SEED))
    same(lambda y: (y, y.T, jnp.where(y != 0, y, jnp.zeros_like(y)), y.max(1)), x, tolerance=0)
