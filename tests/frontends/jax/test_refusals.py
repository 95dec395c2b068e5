"""Refusals, each with its whole message: primitive, types, why, what to write instead, and the user's line."""

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
from hostir.jax import control

X = np.ones((3, 4), np.float32)
ELSEWHERE = "compute it outside of the function and pass it as an argument"


def loops(x: Any) -> Any:
    return lax.while_loop(lambda y: y.sum() < 99, lambda y: y * 2, x)


def scans(x: Any) -> Any:
    return lax.scan(lambda c, _: (c + 1, None), x, None, length=65)[0]


def convolves(x: Any) -> Any:
    return lax.conv(x[None, None], x[None, None], (1, 1), "SAME")


def draws(x: Any) -> Any:
    return jax.random.uniform(jax.random.key(x[0, 0].astype(jnp.int32), impl="rbg"), (3, 4))


def draws_16_bits(x: Any) -> Any:
    return jax.random.uniform(jax.random.key(x[0, 0].astype(jnp.int32)), (3,), jnp.bfloat16)


def adds_up(x: Any) -> Any:
    return jnp.sum(x.astype(jnp.uint32)).astype(jnp.float32)


def narrows(x: Any) -> Any:
    return (x * 2).astype(jnp.uint16)


def factors(x: Any) -> Any:
    return jnp.linalg.cholesky(x[:, :3])


def calls_back(x: Any) -> Any:
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((3, 4), np.float32), x)


def sums_logarithms(x: Any) -> Any:
    return lax.cumlogsumexp(x)


def branches(x: Any) -> Any:
    def long(y: Any) -> Any:
        for _ in range(control.BRANCH_EQUATIONS_MAX + 1):
            y = y + 1
        return y

    return lax.cond(x[0, 0] > 0, long, lambda y: y, x)


CASES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "while": (
        loops,
        "hostir.jax: while of float32[3,4] -> float32[3,4]: how often it turns is not known while a program is made; "
        "write a Python loop, or lax.scan or lax.fori_loop with constant bounds",
    ),
    "scan": (
        scans,
        "hostir.jax: scan of float32[3,4] -> float32[3,4]: its length is 65, and at most 64 turns are unrolled; "
        "call a function that is jitted in a Python loop, with Arrays in between",
    ),
    "conv": (
        convolves,
        "hostir.jax: conv_general_dilated of (float32[1,1,3,4], float32[1,1,3,4]) -> float32[1,1,3,4]: there is no "
        "such operation in hostir; cut patches by reshape and transpose and multiply matrices",
    ),
    "random": (
        draws,
        "hostir.jax: random_seed of int32[] -> key<rbg>[]: a random key of another generator than JAX's default one; "
        "draw outside and pass the numbers, or make the key inside from a constant seed: jax.random.key(0)",
    ),
    "bits": (
        draws_16_bits,
        "hostir.jax: random_bits of key<fry>[] -> uint8[3]: bits are drawn 32 at a time; draw float32 and convert it: "
        "jax.random.uniform(key, shape).astype(jnp.bfloat16)",
    ),
    "uint32": (
        adds_up,
        "hostir.jax: reduce_sum of uint32[3,4] -> uint32[]: hostir has no uint32 here, only float32, float64, float16, "
        "bfloat16, uint8, int8, int32, int64 and bool; convert it to one of these before: "
        "x.astype(jnp.int32)",
    ),
    "uint16": (
        narrows,
        "hostir.jax: convert_element_type of float32[3,4] -> uint16[3,4]: hostir has no uint16, only float32, "
        "float64, float16, bfloat16, uint8, int8, int32, int64 and bool; convert it to one of these before: "
        "x.astype(jnp.int32)",
    ),
    "cholesky": (
        factors,
        "hostir.jax: cholesky of float32[3,3] -> float32[3,3]: there is no such operation in hostir; " + ELSEWHERE,
    ),
    "callback": (
        calls_back,
        "hostir.jax: pure_callback of float32[3,4] -> float32[3,4]: there is no such operation in hostir; " + ELSEWHERE,
    ),
    "cumlogsumexp": (
        sums_logarithms,
        "hostir.jax: cumlogsumexp of float32[3,4] -> float32[3,4]: there is no such operation in hostir; take "
        "jnp.log(jnp.cumsum(jnp.exp(x - x.max())))",
    ),
    "cond": (
        branches,
        "hostir.jax: cond of (int32[], float32[3,4]) -> float32[3,4]: both branches are computed, and one has 257 "
        "equations, above 256; choose in Python, by an argument in static_argnums",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_primitive_is_refused_by_name(name: str, client: hostir.Client) -> None:
    function, message = CASES[name]
    with pytest.raises(hostir.Unimplemented) as caught:
        hostir.jax.jit(function, client=client)(np.eye(3, 4, dtype=np.float32))
    text, _, line = str(caught.value).rpartition(" (test_refusals.py:")
    assert text == message
    first = function.__code__.co_firstlineno
    assert first < int(line.partition(":")[0]) <= first + 12


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            np.ones((2, 3), np.uint16),
            "hostir.jax: argument x is uint16[2,3]; hostir has float64, float32, float16, bfloat16, int64, int32, "
            "int8, uint8, bool: convert it before, x.astype(jnp.int32)",
        ),
        (
            np.ones(2, np.complex64),
            "hostir.jax: argument x is complex64[2]; hostir has float64, float32, float16, bfloat16, int64, int32, "
            "int8, uint8, bool: convert it before, x.astype(jnp.float32)",
        ),
        (
            jax.random.key(0, impl="rbg"),
            "hostir.jax: argument x is a key<rbg>; hostir has keys of JAX's default generator alone: jax.random.key(0)",
        ),
    ],
    ids=["uint16", "complex64", "key"],
)
def test_an_argument_is_refused_by_name(argument: Any, message: str, client: hostir.Client) -> None:
    with pytest.raises(hostir.Unimplemented) as caught:
        hostir.jax.jit(lambda x: x + 1, client=client)(argument)
    assert str(caught.value) == message


def test_a_result_is_refused_by_name(client: hostir.Client) -> None:
    with pytest.raises(hostir.Unimplemented) as caught:
        hostir.jax.jit(lambda key: (1.0, jax.random.split(key)), client=client)(jax.random.key(0))
    assert str(caught.value) == (
        "hostir.jax: result 1 is key<fry>[2], which no Array is; keep keys on the host, and split them there or fold "
        "the number of the turn into one, jax.random.fold_in(key, turn); of other types return x.astype(jnp.int32)"
    )


def refusal(call: Callable[[], Any], kind: type[Exception] = hostir.InvalidArgument) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value).partition(" (test_refusals.py")[0]


def test_what_jit_is_given(client: hostir.Client) -> None:
    jit, f = hostir.jax.jit, lambda x: x + 1
    mesh = hostir.DeviceMesh([0, 1], names=("x",))
    assert refusal(lambda: jit(3)) == "jit: 3 is no function"
    assert (
        refusal(lambda: jit(f, donate_argnums=-1))
        == "jit: donate_argnums=-1; it names arguments by place, counted from 0"
    )
    both = "jit: argument 0 is donated and static; a static one has no memory"
    assert refusal(lambda: jit(f, donate_argnums=0, static_argnums=0)) == both
    assert (
        refusal(lambda: jit(f, mesh=3))
        == "mesh=3: it is a hostir.DeviceMesh, or an AbstractMesh or Mesh of jax.sharding"
    )
    assert refusal(lambda: jit(f, in_shardings=P("x"))(X)) == (
        f"argument x: {P('x')} needs a mesh: hostir.jax.jit(f, mesh=hostir.DeviceMesh([0, 1], names=('x',)))"
    )
    assert refusal(lambda: jit(f, mesh=mesh, in_shardings="x")(X)) == (
        "argument x: 'x' is no sharding; it is a PartitionSpec, NamedSharding or hostir.Sharding"
    )
    assert refusal(lambda: jit(f, mesh=mesh, in_shardings=P(None, None, "x"))(X)) == (
        f"argument x: {P(None, None, 'x')} has 3 entries, the array 2 axes"
    )
    assert refusal(lambda: jit(f, mesh=mesh, out_shardings=P(P.UNCONSTRAINED))(X)) == (
        f"result 0: {P(P.UNCONSTRAINED)} leaves axis 0 open; say None, or how it is split"
    )
    assert refusal(lambda: jit(f, mesh=mesh, in_shardings=(P(), P()))(X)).startswith(
        "in_shardings is not nested as what it is for: "
    )


def test_what_a_call_is_given(client: hostir.Client) -> None:
    jitted = hostir.jax.jit(lambda x, n=1: x + 1, client=client, static_argnums=1)
    assert refusal(lambda: jitted("text"), TypeError) == (
        "hostir.jax.jit: an argument is a str; arguments are trees of arrays and numbers, others are static "
        "(static_argnums)"
    )
    assert refusal(lambda: jitted(X, [])) == "jit: a static argument is not hashable: unhashable type: 'list'"
    inside = (
        "hostir.jax.jit is called inside of a transformation of JAX (grad, vmap, jit); transform what is inside of it: "
        "hostir.jax.jit(jax.grad(f))"
    )
    assert refusal(lambda: jax.grad(lambda x: jitted(x).sum())(X)) == inside
    assert refusal(lambda: jax.jit(jitted)(X)) == inside
