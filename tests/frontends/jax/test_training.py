"""Training steps beside JAX: losses, parameters and states over several steps, whose results are the next arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp

import hostir
import hostir.jax
from beside_jax import assert_close
from models import (
    Sizes,
    adam,
    adam_state,
    batch,
    loss,
    parameters,
    sgd,
    transformer,
    vision_loss,
    vision_parameters,
)

SEED = 5
STEPS = 5
SIZES = Sizes()


def test_a_block_with_grouped_queries_and_rotary_places(client: hostir.Client) -> None:
    p, (words, _) = parameters(SIZES, SEED), batch(SIZES, SEED)
    assert_close(hostir.jax.jit(transformer, client=client)(p, words), jax.jit(transformer)(p, words), 1e-5)


def test_gradients_of_a_block(client: hostir.Client) -> None:
    p, data = parameters(SIZES, SEED), batch(SIZES, SEED)
    of = jax.value_and_grad(loss)
    assert_close(hostir.jax.jit(of, client=client)(p, *data), jax.jit(of)(p, *data), 1e-5)


def test_steps_of_gradient_descent(client: hostir.Client) -> None:
    step = sgd(loss)
    ours, theirs = hostir.jax.jit(step, client=client, donate_argnums=0), jax.jit(step)
    p = of_jax = parameters(SIZES, SEED)
    losses = []
    for turn in range(STEPS):
        data = batch(SIZES, SEED + turn % 2)
        p, value = ours(p, *data)
        of_jax, wanted = theirs(of_jax, *data)
        assert_close(value, wanted, 1e-5)
        losses.append(value.item())
    assert_close(p, of_jax, 1e-5)
    assert losses[4] < losses[2] < losses[0]
    assert len(ours._traced) == 1  # For host arrays as for Arrays.


def test_steps_of_adam(client: hostir.Client) -> None:
    step = adam(loss)
    ours, theirs = hostir.jax.jit(step, client=client, donate_argnums=(0, 1)), jax.jit(step)
    p = of_jax = parameters(SIZES, SEED)
    state = of_jax_state = adam_state(p)
    data = batch(SIZES, SEED)
    for _ in range(STEPS):
        p, state, value = ours(p, state, *data)
        of_jax, of_jax_state, wanted = theirs(of_jax, of_jax_state, *data)
        assert_close(value, wanted, 1e-5)
    assert_close((p, state), (of_jax, of_jax_state), 1e-5)
    assert len(ours._traced) == 1


def test_steps_of_a_vision_transformer(client: hostir.Client) -> None:
    rng = np.random.default_rng(SEED)
    images, classes = rng.standard_normal((8, 16, 16, 3)).astype(np.float32), rng.integers(0, 10, 8).astype(np.int32)
    step = sgd(vision_loss)
    ours, theirs = hostir.jax.jit(step, client=client, donate_argnums=0), jax.jit(step)
    p = of_jax = vision_parameters(SEED)
    for _ in range(STEPS):
        p, value = ours(p, images, classes)
        of_jax, wanted = theirs(of_jax, images, classes)
        assert_close(value, wanted, 1e-5)
    assert_close(p, of_jax, 1e-5)


def test_steps_of_an_mlp_in_bfloat16(client: hostir.Client) -> None:
    """Rounded to 8 bits in other places than by JAX: the losses are near each other."""
    rng = np.random.default_rng(SEED)
    x, wanted = (jnp.asarray(rng.standard_normal((32, n)), jnp.bfloat16) for n in (16, 4))
    p: Any = [jnp.asarray(rng.standard_normal(shape) / 4, jnp.bfloat16) for shape in ((16, 32), (32, 4))]

    def of(p: Any, x: Any, wanted: Any) -> Any:
        return jnp.mean(jnp.square((jax.nn.relu(x @ p[0]) @ p[1] - wanted).astype(jnp.float32)))

    ours, theirs = hostir.jax.jit(sgd(of), client=client), jax.jit(sgd(of))
    of_jax = p
    for _ in range(STEPS):
        p, value = ours(p, x, wanted)
        of_jax, other = theirs(of_jax, x, wanted)
        assert value.item() == pytest.approx(float(other), rel=2e-2)
