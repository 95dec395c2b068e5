"""Calls of a jitted function: what it takes, what comes back, and when it is traced anew."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.experimental
import jax.numpy as jnp

import hostir
import hostir.jax
from hostir.inputs import VALUE_BYTES


def test_arguments_and_results_are_trees(client: hostir.Client) -> None:
    def function(x: Any, *, more: Any) -> Any:
        return {"sum": x["a"][0] + x["a"][1] * more, "pair": (x["b"], None)}

    jitted = hostir.jax.jit(function, client=client)
    x = {"a": [np.ones(3, np.float32), jnp.full(3, 2.0)], "b": np.arange(4, dtype=np.int32)}
    found = jitted(x, more=3)
    assert found["sum"].tolist() == [7, 7, 7]
    assert (found["pair"][0].tolist(), found["pair"][1]) == ([0, 1, 2, 3], None)
    names = [value.name for value in jitted.definition(x, more=3).fusion.inputs()]
    assert names == ["x.a.0", "x.a.1", "x.b", "more"]


def test_nothing_and_little(client: hostir.Client) -> None:
    """No arguments, no results, no elements; a method."""
    x = np.arange(3, dtype=np.float32)
    assert hostir.jax.jit(lambda: jnp.arange(3) + 1, client=client)().tolist() == [1, 2, 3]
    assert hostir.jax.jit(lambda x: {"a": None}, client=client)(x) == {"a": None}
    empty, total = hostir.jax.jit(lambda x: (x[:0] * 2, x[:0].sum()), client=client)(x)
    assert (empty.shape, total.item()) == ((0,), 0)
    assert hostir.jax.jit(Scaled(3.0).applied, client=client)(x).tolist() == [0, 3, 6]


class Scaled:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def applied(self, x: Any) -> Any:
        return x * self.factor


def test_names_that_are_alike(client: hostir.Client) -> None:
    """Values in trees, and what the program brings, have names of their own."""
    table = jnp.sin(jnp.arange(3.0))
    jitted = hostir.jax.jit(lambda x, constant: x["a.b"] + x["a"]["b"] * constant[0] + table, client=client)
    ones = np.ones(3, np.float32)
    x, constant = {"a.b": ones, "a": {"b": ones}}, [2 * ones]
    assert jitted(x, constant).tolist() == (3 + np.asarray(table)).tolist()
    names = [value.name for value in jitted.definition(x, constant).fusion.inputs()]
    assert names == ["x.a.b", "x.a.b_1", "constant.0", "constant.0_1"]


def test_a_definition_needs_no_elements(client: hostir.Client) -> None:
    jitted = hostir.jax.jit(lambda x: x @ x, client=client)
    x = np.ones((3, 3), np.float32)
    assert jitted.definition(jax.ShapeDtypeStruct((3, 3), np.float32)) is jitted.definition(x)


def test_results_are_arrays_of_jax_where_it_wants_them(client: hostir.Client) -> None:
    (y,) = [hostir.jax.jit(lambda x: x * 2, client=client)(np.arange(6, dtype=np.float32).reshape(2, 3))]
    assert isinstance(y, hostir.Array)
    for found in (jnp.asarray(y), jax.dlpack.from_dlpack(y), jnp.from_dlpack(y)):
        assert isinstance(found, jax.Array)
        np.testing.assert_array_equal(found, y.numpy())


def test_results_are_arguments_without_a_copy(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    jitted = hostir.jax.jit(lambda x: (x + 1, jnp.float32(2)), client=client)
    x, _ = jitted(np.zeros(3, np.float32))
    monkeypatch.setattr(client, "_upload", lambda *_: pytest.fail("something was copied"))
    for _ in range(3):
        x, _ = jitted(x)
    monkeypatch.undo()
    assert x.tolist() == [4, 4, 4]


def test_arrays_of_jax_are_read_where_they_lie(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    upload = client._upload
    monkeypatch.setattr(client, "_upload", lambda array, *rest: (seen.append(array), upload(array, *rest))[1])
    for dtype in (jnp.float32, jnp.bfloat16, jnp.int32):
        x = jnp.arange(2 * VALUE_BYTES, dtype=jnp.int32).astype(dtype)  # Small ones go along with the run.
        made = hostir.jax.jit(lambda x: x + 1, client=client)(x)
        np.testing.assert_array_equal(made.numpy(), np.asarray(x + 1))
        assert seen.pop().ctypes.data == x.unsafe_buffer_pointer()


def test_numbers_are_given_with_the_request(client: hostir.Client) -> None:
    jitted = hostir.jax.jit(lambda x, rate, turn, on: jnp.where(on, x * rate + turn, x), client=client)
    x = client.put(np.ones(2, np.float32))
    assert jitted(x, 0.5, 3, True).tolist() == [3.5, 3.5]
    assert jitted(x, 0.25, 1, True).tolist() == [1.25, 1.25]
    assert jitted(x, np.float32(0.25), np.int32(1), np.bool_(False)).tolist() == [1, 1]
    assert len(jitted._traced) == 2  # One for Python's numbers, whose types are weak, one for NumPy's.
    assert hostir.jax.jit(lambda x, h: x * h, client=client)(x, ml_dtypes.bfloat16(1.5)).tolist() == [1.5, 1.5]
    with pytest.raises(OverflowError) as caught:
        jitted(x, 0.5, 2**31, True)
    assert str(caught.value) == "argument turn: 2147483648 does not fit int32"


def test_types_are_those_of_jax(client: hostir.Client) -> None:
    """Without jax_enable_x64 64 bits are cut to 32, of Arrays on the devices, too."""
    jitted = hostir.jax.jit(lambda x: x * 2, client=client)
    for x in (np.arange(3.0), np.arange(3), client.put(np.arange(3)), client.put(np.arange(3.0))):
        wanted = jax.jit(lambda x: x * 2)(np.asarray(x))
        found = jitted(x)
        assert (found.dtype, found.tolist()) == (wanted.dtype, wanted.tolist())
    for weak in (1, 1.5, True):
        assert jitted(weak).dtype == jax.jit(lambda x: x * 2)(weak).dtype
    half = np.ones(3, np.float16)
    assert hostir.jax.jit(lambda x, y: x * y, client=client)(half, 2.5).dtype == np.float16


def test_types_of_64_bits(client: hostir.Client) -> None:
    enabled = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    with enabled(True):
        jitted = hostir.jax.jit(lambda x, n: (x.sum(), jnp.cumsum(n), x.astype(jnp.float32)), client=client)
        found = jitted(np.arange(3.0), np.arange(3) + 2**40)
        assert [each.dtype for each in found] == [np.float64, np.int64, np.float32]
        assert found[1].tolist() == [2**40, 2**41 + 1, 3 * 2**40 + 3]


def test_each_shape_and_static_value_is_traced_once(client: hostir.Client) -> None:
    traced = []

    def function(x: Any, power: int, kind: str) -> Any:
        traced.append((x.shape, power, kind))
        return x**power if kind == "power" else x + power

    jitted = hostir.jax.jit(function, client=client, static_argnums=(1, 2))
    x = np.full(3, 2, np.float32)
    for _ in range(2):
        assert jitted(x, 3, "power").tolist() == [8, 8, 8]
        assert jitted(x, 3, "sum").tolist() == [5, 5, 5]
        assert jitted(x[:2], 3, "sum").tolist() == [5, 5]
    assert traced == [((3,), 3, "power"), ((3,), 3, "sum"), ((2,), 3, "sum")]
    assert repr(jitted) == "<hostir.jax.jit of function: 3 programs>"


def test_threads_share_a_program(client: hostir.Client) -> None:
    traced = []

    def function(x: Any) -> Any:
        traced.append(x.shape)
        return x + 1

    jitted = hostir.jax.jit(function, client=client)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda k: jitted(np.full(3, k, np.float32)).tolist(), range(8)))
    assert found == [[k + 1.0] * 3 for k in range(8)]
    assert traced == [(3,)]


def test_a_function_may_call_itself_with_what_is_known(client: hostir.Client) -> None:
    def function(x: Any) -> Any:
        return x + (jnp.asarray(jitted(np.ones(2, np.float32)))[0] if x.shape == (3,) else 1)

    jitted = hostir.jax.jit(function, client=client)
    assert jitted(np.zeros(3, np.float32)).tolist() == [2, 2, 2]


def test_what_a_function_closes_over_is_brought_once(client: hostir.Client) -> None:
    table = np.random.default_rng(1).standard_normal((40, 40)).astype(np.float32)
    weight = jnp.asarray(table)
    jitted = hostir.jax.jit(lambda x: x @ weight + jnp.sum(weight), client=client)
    x = np.ones((2, 40), np.float32)
    puts = []
    with pytest.MonkeyPatch.context() as patch:
        put = client.put
        patch.setattr(client, "put", lambda array, *rest: (puts.append(array.shape), put(array, *rest))[1])
        first, second = jitted(x), jitted(x + 1)
    assert puts == [(40, 40), ()][: len(puts)] and (40, 40) in puts
    np.testing.assert_allclose(first.numpy(), x @ table + table.sum(), rtol=1e-4)
    np.testing.assert_allclose(second.numpy(), (x + 1) @ table + table.sum(), rtol=1e-4)


def test_it_decorates_a_function(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """With neither client nor Arrays it runs where ``fd.execute`` does."""
    monkeypatch.setenv("HOSTIR_ADDRESS", client.address)
    monkeypatch.setattr("hostir.connecting._default", None)

    @hostir.jax.jit
    def double(x: Any) -> Any:
        """Twice."""
        return 2 * x

    assert (double.__name__, double.__doc__) == ("double", "Twice.")
    assert double(np.ones(2, np.float32)).tolist() == [2, 2]
    hostir.connecting.default_client().close()


def test_locations_and_names_are_the_users(client: hostir.Client) -> None:
    def function(x: Any) -> Any:
        y = jnp.exp(x)  # This line.
        return jnp.sum(y, 0)

    definition = hostir.jax.jit(function, client=client).definition(np.ones((2, 3), np.float32))
    by_name = {op.result: op.location for op in definition._record.ops}
    number = function.__code__.co_firstlineno
    assert by_name["exp"] == f"test_calls.py:{number + 1}: y = jnp.exp(x)  # This line."
    assert by_name["reduce_sum"].startswith(f"test_calls.py:{number + 2}: return jnp.sum(y, 0)")


def test_hostir_does_without_jax() -> None:
    """The package imports JAX where hostir.jax is imported, and not before."""
    import subprocess

    code = "import sys, hostir; assert 'jax' not in sys.modules, 'jax'"
    subprocess.run([sys.executable, "-B", "-c", code], check=True, timeout=60)
