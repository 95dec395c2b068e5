"""hostir.jax.dot_product_attention beside JAX's own: values and gradients, alone, mapped, and split over four ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

import hostir
import hostir.jax
from beside_jax import assert_close
from hostir import DeviceMesh

SEED = 8
ours, theirs = hostir.jax.dot_product_attention, jax.nn.dot_product_attention
Shapes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
CASES: dict[str, tuple[Shapes, dict[str, Any]]] = {
    "plain": (((2, 9, 4, 8), (2, 12, 4, 8), (2, 12, 4, 8)), {}),
    "no batch": (((9, 4, 8), (12, 4, 8), (12, 4, 8)), {"scale": 0.3}),
    "causal": (((2, 70, 4, 8), (2, 70, 4, 8), (2, 70, 4, 8)), {"is_causal": True}),
    "shared keys": (((2, 9, 6, 8), (2, 12, 2, 8), (2, 12, 2, 8)), {"is_causal": True}),
    "a mask": (((2, 9, 4, 8), (2, 12, 2, 8), (2, 12, 2, 8)), {"mask": (2, 4, 9, 12)}),
    "a mask of all heads": (((2, 9, 4, 8), (2, 12, 2, 8), (2, 12, 2, 8)), {"mask": (2, 1, 1, 12)}),
    "a mask of all batches": (((2, 9, 4, 8), (2, 12, 4, 8), (2, 12, 4, 8)), {"mask": (1, 4, 9, 12), "is_causal": True}),
}


def given(name: str, dtype: Any = np.float32) -> tuple[list[Any], dict[str, Any]]:
    shapes, options = CASES[name]
    rng = np.random.default_rng([SEED, *name.encode()])
    arrays = [jnp.asarray(rng.standard_normal(shape), dtype) for shape in shapes]
    if "mask" in options:
        mask = rng.random(options["mask"]) > 0.25
        mask[..., 0] = True
        options = {**options, "mask": mask}
    return arrays, options


def slopes(function: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    """The values' sum, weighed, and its gradients."""

    def loss(q: Any, k: Any, v: Any) -> Any:
        values = function(q, k, v, **options)
        return (values * jnp.cos(jnp.arange(values.size).reshape(values.shape))).sum()

    return jax.value_and_grad(loss, (0, 1, 2))


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(client: hostir.Client, name: str, dtype: Any) -> None:
    arrays, options = given(name, dtype)
    wide = [each.astype(np.float32) for each in arrays]
    tolerance = 2e-5 if dtype == np.float32 else 5e-2
    want = theirs(*wide, **options)
    made = hostir.jax.jit(lambda *of: ours(*of, **options), client=client)(*arrays)
    assert jnp.asarray(made).dtype == dtype
    assert_close(jnp.asarray(made).astype(np.float32), want, tolerance)
    _, gradients = hostir.jax.jit(slopes(ours, options), client=client)(*arrays)
    found = tuple(jnp.asarray(each).astype(np.float32) for each in gradients)
    assert_close(found, slopes(theirs, options)(*wide)[1], tolerance)


@pytest.mark.parametrize("name", CASES)
def test_jax_computes_the_same(name: str) -> None:
    arrays, options = given(name)
    for transform in (lambda f: f, jax.jit):
        assert_close(transform(slopes(ours, options))(*arrays), slopes(theirs, options)(*arrays), 2e-5)


@pytest.mark.parametrize("axes", [(0, 0, 0), (0, None, None), (None, 1, 1), (2, 0, None)])
def test_mapped(client: hostir.Client, axes: tuple[int | None, ...]) -> None:
    """An axis more, of some operands alone."""
    arrays, options = given("shared keys")
    rng = np.random.default_rng(SEED)
    more = [
        each if axis is None else np.stack([each, each * rng.standard_normal()], axis)
        for each, axis in zip(arrays, axes, strict=True)
    ]
    want = jax.vmap(slopes(theirs, options), axes)(*more)
    assert_close(jax.vmap(slopes(ours, options), axes)(*more), want, 2e-5)
    assert_close(hostir.jax.jit(jax.vmap(slopes(ours, options), axes), client=client)(*more), want, 2e-5)


@pytest.mark.parametrize("split", [P("r"), P(None, "r"), P(None, None, "r")])
def test_over_four_ranks(client: hostir.Client, split: Any) -> None:
    """The batch, queries and keys, or heads."""
    rng = np.random.default_rng(SEED)
    arrays = [rng.standard_normal((4, 8, 4, 8)).astype(np.float32) for _ in range(3)]
    options = {"is_causal": True}
    mesh = DeviceMesh([0, 1, 2, 3], names=("r",))
    step = hostir.jax.jit(slopes(ours, options), client=client, mesh=mesh, in_shardings=(split, split, split))
    assert_close(step(*arrays), slopes(theirs, options)(*arrays), 2e-5)


def test_one_call_forward_and_one_backward(client: hostir.Client) -> None:
    arrays, options = given("causal")
    plan = client.explain(hostir.jax.jit(slopes(ours, options), client=client).definition(*arrays))
    calls = [segment for segment in plan.segments if any("attention" in op for op in segment.ops)]
    assert [len(segment.ops) for segment in calls] == [2, 3]


def test_a_query_without_keys_is_zero(client: hostir.Client) -> None:
    arrays, _ = given("plain")
    mask = np.ones((1, 1, 9, 12), bool)
    mask[..., 3, :] = False
    for made in (ours(*arrays, mask=mask), hostir.jax.jit(lambda *of: ours(*of, mask=mask), client=client)(*arrays)):
        assert (np.asarray(made)[:, 3] == 0).all()


def test_a_bias_is_jaxs(same: Callable[..., None]) -> None:
    arrays, _ = given("plain")
    bias = np.random.default_rng(SEED).standard_normal((1, 4, 9, 12)).astype(np.float32)
    same(jax.grad(lambda bias, *of: ours(*of, bias).sum(), 0), bias, *arrays, tolerance=2e-5)


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="dot_product_attention of query"):
        ours(np.ones((2, 3, 4, 8)), np.ones((2, 3, 3, 8)), np.ones((2, 3, 3, 8)))
