"""Random numbers whose key is an argument: the bits are those that JAX draws, on one rank and on four."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

import hostir
import hostir.jax
from beside_jax import assert_close
from hostir import DeviceMesh

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
U = np.array([0, 1, 2, 3, 2**31 - 1, 2**31, 2**32 - 1, 0x3F800000], np.uint32)

EXACT: dict[str, Callable[..., Any]] = {
    "bits": lambda key: jax.random.bits(key, (3, 5)).astype(jnp.int32),
    "uniform": lambda key: jax.random.uniform(key, (3, 5), minval=-1.0, maxval=3.0),
    "bernoulli": lambda key: jax.random.bernoulli(key, 0.3, (7,)),
    "randint": lambda key: jax.random.randint(key, (9,), -3, 11),
    "permutation": lambda key: jax.random.permutation(key, 9),
    "split": lambda key: [jax.random.uniform(k, (2,)) for k in jax.random.split(key, 3)],
    "split, many": lambda key: jax.vmap(lambda k: jax.random.uniform(k, (2,)))(
        jax.random.split(key, (2, 2)).reshape(4)
    ),
    "fold_in": lambda key: jax.random.uniform(jax.random.fold_in(key, 7), (3,)),
    "scan": lambda key: lax.scan(lambda c, k: (c + jax.random.uniform(k), c), 0.0, jax.random.split(key, 3)),
    "raw": lambda key: jax.random.uniform(jax.random.wrap_key_data(jax.random.key_data(key)), (3,)),
}


@pytest.mark.parametrize("name", EXACT)
def test_draws_are_those_of_jax(name: str, same: Callable[..., None]) -> None:
    for seed in (0, 2**32 - 1):
        same(EXACT[name], jax.random.key(seed), tolerance=0)


@pytest.mark.parametrize("name", ["uniform", "split", "fold_in"])
def test_draws_of_keys_without_a_type(name: str, same: Callable[..., None]) -> None:
    same(EXACT[name], jax.random.PRNGKey(3), tolerance=0)


def test_draws_that_are_computed_from_others(same: Callable[..., None]) -> None:
    same(lambda key: jax.random.normal(key, (3, 5)), jax.random.key(1), tolerance=1e-6)
    same(lambda key: jax.random.gumbel(key, (3, 5)), jax.random.key(1), tolerance=1e-6)
    same(lambda key, x: jax.random.categorical(key, x), jax.random.key(1), X, tolerance=0)


def test_a_seed_is_data(same: Callable[..., None]) -> None:
    def function(turn: Any) -> Any:
        of_turn = jax.random.fold_in(jax.random.key(5), turn)
        return jax.random.uniform(of_turn, (3,)), jax.random.uniform(jax.random.key(turn), (3,))

    for turn in (0, 1, 2**31 - 1, -1):
        same(function, np.int32(turn), tolerance=0)


def test_dropout_over_four_ranks(client: hostir.Client) -> None:
    """A step draws what JAX draws on one device, however the batch is split; keys are split on the host."""

    def step(w: Any, x: Any, key: Any) -> Any:
        def loss(w: Any) -> Any:
            hidden = jax.nn.relu(x @ w)
            kept = jax.random.bernoulli(key, 0.8, hidden.shape)
            return jnp.mean(jnp.square(jnp.where(kept, hidden / 0.8, 0.0)))

        value, slope = jax.value_and_grad(loss)(w)
        return w - 0.1 * slope, value

    mesh = DeviceMesh([0, 1, 2, 3], names=("dp",))
    ours = hostir.jax.jit(step, client=client, mesh=mesh, in_shardings=(P(), P("dp"), P()), donate_argnums=0)
    theirs = jax.jit(step)
    rng = np.random.default_rng(4)
    w = of_jax = rng.standard_normal((6, 16)).astype(np.float32)
    x = rng.standard_normal((8, 6)).astype(np.float32)
    for key in jax.random.split(jax.random.key(2), 4):
        w, value = ours(w, x, key)
        of_jax, wanted = theirs(of_jax, x, key)
        assert_close(value, wanted, 1e-5)
    assert_close(w, of_jax, 1e-5)
    assert len(ours._traced) == 1


UNSIGNED: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "neg": lambda x, y: -x,
    "not": lambda x, y: ~x,
    "div": lambda x, y: x // y,
    "rem": lax.rem,
    "shift_left": lambda x, y: x << (y & 63),
    "shift_right_logical": lambda x, y: x >> (y & 63),
    "max": jnp.maximum,
    "sort": lambda x, y: jnp.sort(x ^ y),
    "iota": lambda x, y: x + jnp.arange(8, dtype=jnp.uint32),
    "known": lambda x, y: x * jnp.asarray(U[::-1]),
    "int32": lambda x, y: lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.int32) + 1, jnp.uint32),
    "float32": lambda x, y: x.astype(jnp.float32).astype(jnp.uint32),
}


@pytest.mark.parametrize("name", UNSIGNED)
def test_uint32_wraps(name: str, same: Callable[..., None]) -> None:
    """Halves of it leave the program, which int32 holds."""

    def halves(x: Any, y: Any) -> Any:
        z = UNSIGNED[name](x, y)
        return (z & 0xFFFF).astype(jnp.int32), (z >> 16).astype(jnp.int32)

    same(halves, U, np.roll(U, 3), tolerance=0)


def test_comparisons_of_uint32(same: Callable[..., None]) -> None:
    same(lambda x, y: (x < y, x >= y, x == y, jnp.where(x > y, 1, 0)), U, np.roll(U, 3), tolerance=0)


def test_bits_as_floats(same: Callable[..., None]) -> None:
    """Also those of infinities, NaN, subnormal numbers and -0."""
    bits = np.array([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0x3F800001, 0x00800000, 0xC2F6E979], np.uint32)
    same(lambda x: lax.bitcast_convert_type(x, jnp.float32), bits, tolerance=0)
