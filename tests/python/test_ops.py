"""Reductions, shapes and contractions against NumPy, through a daemon, on several shapes and types each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hostir
from hostir import FusionDefinition
from numpy_ops import ALL, BF16, BOOL, F16, F32, F64, FLOATS, I32, I64, rounded

Array = np.ndarray[Any, Any]


def random(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int = 0) -> Array:
    rng = np.random.default_rng([seed, *shape])
    if dtype == BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in FLOATS:
        return rounded(rng.standard_normal(shape), dtype)
    return rng.integers(-9, 10, shape).astype(dtype)


def input_of(fd: FusionDefinition, array: Array) -> hostir.Tensor:
    """With sizes that the run brings, but for axes of extent 1."""
    return fd.define_tensor(shape=[1 if n == 1 else -1 for n in array.shape], contiguity=True, dtype=array.dtype)


def run(client: hostir.Client, make: Callable[..., Any], *arrays: Array, static: bool = False) -> Any:
    with FusionDefinition("op") as fd:
        if static:
            inputs = [fd.define_tensor(shape=array.shape, contiguity=True, dtype=array.dtype) for array in arrays]
        else:
            inputs = [input_of(fd, array) for array in arrays]
        made = make(fd.ops, *inputs)
        for output in made if isinstance(made, list) else [made]:
            fd.add_output(output)
    outputs = [output.numpy() for output in client.run(fd, arrays)]
    return outputs if isinstance(made, list) else outputs[0]


def same(got: Array, want: Array) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if got.dtype == BF16:  # NumPy's comparison does not know its NaN.
        got, want = got.astype(F32), want.astype(F32)
    np.testing.assert_array_equal(got, want)


def near(got: Array, want64: Any, dtype: np.dtype[Any], terms: int) -> None:
    """As near as a sum of `terms` products of about 1 can be, accumulated in float32 or float64."""
    assert got.dtype == dtype
    assert got.shape == np.shape(want64)
    unit = {F64: 1e-15, F32: 1e-6, F16: 1e-3, BF16: 8e-3}[dtype]
    bound = 4 * (1e-15 if dtype == F64 else 2e-7) * max(terms, 1)
    np.testing.assert_allclose(got.astype(F64), want64, rtol=2 * unit, atol=bound)


# --- reductions ---

DIMS: list[Any] = [None, [0], [1], [-1], [0, 2], [0, 1, 2], 1]


@pytest.mark.parametrize("shape", [(3, 5, 130), (1, 4, 1), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_sums(client: hostir.Client, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    x = random(shape, dtype)
    outputs = run(client, lambda ops, t: [ops.sum(t, dims, keep) for dims in DIMS for keep in (False, True)], x)
    cases = [(dims, keep) for dims in DIMS for keep in (False, True)]
    for got, (dims, keep) in zip(outputs, cases, strict=True):
        axis = tuple(dims) if isinstance(dims, list) else dims
        if dtype in FLOATS:
            near(got, x.astype(F64).sum(axis, keepdims=keep), dtype, x.size)
        else:
            same(got, np.asarray(x.astype(I64).sum(axis, keepdims=keep)))


@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 1, 1), (2, 3, 1)], ids=str)
@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("op", ["max", "min"])
def test_extrema(client: hostir.Client, op: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    x = random(shape, dtype)
    if dtype in FLOATS:
        x.reshape(-1)[x.size // 2] = np.nan
    cases = [(dims, keep) for dims in DIMS for keep in (False, True)]
    outputs = run(client, lambda ops, t: [getattr(ops, op)(t, dims, keep) for dims, keep in cases], x)
    for got, (dims, keep) in zip(outputs, cases, strict=True):
        axis = tuple(dims) if isinstance(dims, list) else dims
        wide = x.astype(F64) if dtype in FLOATS else x
        same(got, np.asarray(getattr(np, op)(wide, axis=axis, keepdims=keep)).astype(dtype))


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_products(client: hostir.Client, dtype: np.dtype[Any]) -> None:
    x = random((4, 7), dtype)
    got, whole = run(client, lambda ops, t: [ops.prod(t, [1]), ops.prod(t)], x)
    wide = F64 if dtype in FLOATS else I64
    want, want_whole = x.astype(wide).prod(1), x.astype(wide).prod()
    if dtype in FLOATS:
        unit = {F64: 1e-14, F32: 1e-5, F16: 4e-3, BF16: 3e-2}[dtype]
        np.testing.assert_allclose(got.astype(F64), want, rtol=unit, atol=1e-6)
        np.testing.assert_allclose(whole.astype(F64), want_whole, rtol=unit, atol=1e-6)
    else:
        same(got, want)
        same(whole, np.asarray(want_whole))


def test_a_sum_of_another_type(client: hostir.Client) -> None:
    x = random((300, 40), BF16)
    single, double = run(client, lambda ops, t: [ops.sum(t, [0], dtype=F32), ops.sum(t, dtype=np.float64)], x)
    near(single, x.astype(F64).sum(0), F32, 300)
    near(double, x.astype(F64).sum(), F64, x.size)
    half = run(client, lambda ops, t: ops.sum(t, [1], dtype=I32), random((5, 6), I64))
    same(half, random((5, 6), I64).sum(1).astype(I32))


def test_reduce_then_use(client: hostir.Client) -> None:
    """A softmax: two reductions, each used by the elements it was made of."""
    for shape in ((4, 1000), (1000, 4), (1, 1)):
        x = random(shape, F32)

        def softmax(ops: Any, t: Any) -> Any:
            e = ops.exp(t - ops.max(t, [1], keepdim=True))
            return e / ops.sum(e, [1], keepdim=True)

        e = np.exp(x.astype(F64) - x.astype(F64).max(1, keepdims=True))
        np.testing.assert_allclose(run(client, softmax, x), e / e.sum(1, keepdims=True), rtol=1e-5)


# --- shapes ---

SHAPES: list[tuple[str, tuple[int, ...], Callable[..., Any], Callable[[Array], Any]]] = [
    ("broadcast", (3, 4), lambda ops, x: ops.broadcast(x, [False, True, False, True]), lambda a: a[:, None, :, None]),
    ("broadcast to the front", (3,), lambda ops, x: ops.broadcast(x, [True, False]), lambda a: a[None]),
    ("broadcast of nothing", (0, 2), lambda ops, x: ops.broadcast(x, [False, False, True]), lambda a: a[:, :, None]),
    (
        "broadcast_in_dim",
        (3, 1, 4),
        lambda ops, x: ops.broadcast_in_dim(x, [2, 3, 5, 4], [1, 2, 3]),
        lambda a: np.broadcast_to(a, (2, 3, 5, 4)),
    ),
    (
        "broadcast_in_dim apart",
        (3, 4),
        lambda ops, x: ops.broadcast_in_dim(x, [x.size(0), 2, x.size(1)], [0, -1]),
        lambda a: np.broadcast_to(a[:, None], (3, 2, 4)),
    ),
    (
        "broadcast_in_dim of a number",
        (),
        lambda ops, x: ops.broadcast_in_dim(x, [2, 3], []),
        lambda a: np.full((2, 3), a),
    ),
    ("expand", (3, 1, 1), lambda ops, x: ops.expand(x, [-1, 5, 2]), lambda a: np.broadcast_to(a, (3, 5, 2))),
    ("expand to nothing", (1, 3), lambda ops, x: ops.expand(x, [0, -1]), lambda a: np.broadcast_to(a, (0, 3))),
    ("expand no axis", (2, 3), lambda ops, x: ops.expand(x, [x.size(0), -1]), lambda a: a),
    ("squeeze", (1, 3, 1, 4), lambda ops, x: ops.squeeze(x, [0, -2]), lambda a: a.reshape(3, 4)),
    ("squeeze one", (3, 1), lambda ops, x: ops.squeeze(x, [1]), lambda a: a.reshape(3)),
    ("squeeze all", (1, 1), lambda ops, x: ops.squeeze(x, [0, 1]), lambda a: a.reshape(())),
    ("permute", (2, 3, 4), lambda ops, x: ops.permute(x, [2, 0, 1]), lambda a: a.transpose(2, 0, 1)),
    ("permute a large matrix", (70, 130), lambda ops, x: ops.permute(x, [-1, -2]), lambda a: a.T),
    ("permute nothing", (0, 3), lambda ops, x: ops.permute(x, [1, 0]), lambda a: a.T),
    ("pad", (3, 4), lambda ops, x: ops.pad(x, [1, 2, 0, 3]), lambda a: np.pad(a, ((0, 3), (1, 2)))),
    ("pad the last axis", (2, 3, 1), lambda ops, x: ops.pad(x, [2, 0]), lambda a: np.pad(a, ((0, 0), (0, 0), (2, 0)))),
    ("pad with 1", (3,), lambda ops, x: ops.pad(x, [1, 1], 1), lambda a: np.pad(a, 1, constant_values=1)),
    ("pad and crop", (5, 6), lambda ops, x: ops.pad(x, [-1, 2, 1, -2]), lambda a: np.pad(a[:3, 1:], ((1, 0), (0, 2)))),
    ("pad nothing", (0, 2), lambda ops, x: ops.pad(x, [0, 0, 1, 1]), lambda a: np.zeros((2, 2), a.dtype)),
    ("slice", (6, 7), lambda ops, x: ops.slice(x, [1, 2], [5, 7]), lambda a: a[1:5, 2:7]),
    ("slice with steps", (6, 7), lambda ops, x: ops.slice(x, [0, 1], [6, 6], [2, 3]), lambda a: a[::2, 1:6:3]),
    ("slice to an input's size", (6, 7), lambda ops, x: ops.slice(x, [2, 0], [x.size(0), 1]), lambda a: a[2:, :1]),
    ("slice to nothing", (6, 7), lambda ops, x: ops.slice(x, [3, 0], [3, 7]), lambda a: a[3:3]),
    ("cat", (3, 4), lambda ops, x: ops.cat([x, x * x, x], 0), lambda a: np.concatenate([a, a * a, a])),
    ("cat the last axis", (3, 4), lambda ops, x: ops.cat([x, x], -1), lambda a: np.concatenate([a, a], 1)),
    ("cat one", (3,), lambda ops, x: ops.cat([x]), lambda a: a),
    ("set", (3, 4), lambda ops, x: ops.set(x), lambda a: a),
    ("segment_set", (3, 4), lambda ops, x: ops.segment_set(x * x) * x, lambda a: a * a * a),
    ("reshape apart", (6, 4), lambda ops, x: ops.reshape(x, [2, 3, 4]), lambda a: a.reshape(2, 3, 4)),
    ("reshape together", (2, 3, 4), lambda ops, x: ops.reshape(x, [x.size(0), 12]), lambda a: a.reshape(2, 12)),
    ("reshape to one axis", (2, 3, 4), lambda ops, x: ops.reshape(x, [-1]), lambda a: a.reshape(-1)),
    ("reshape across", (6, 4), lambda ops, x: ops.reshape(x, [3, 8]), lambda a: a.reshape(3, 8)),
    ("reshape with axes of 1", (6, 1), lambda ops, x: ops.reshape(x, [1, 2, 3, 1]), lambda a: a.reshape(1, 2, 3, 1)),
    ("reshape nothing", (0, 4), lambda ops, x: ops.reshape(x, [2, 0]), lambda a: a.reshape(2, 0)),
]


@pytest.mark.parametrize(("name", "shape", "make", "numpy"), SHAPES, ids=[case[0] for case in SHAPES])
def test_shapes(
    client: hostir.Client,
    name: str,
    shape: tuple[int, ...],
    make: Callable[..., Any],
    numpy: Callable[[Array], Any],
) -> None:
    for dtype in (F32, BF16, I64, BOOL):
        x = random(shape, dtype)
        for static in (False, True):
            same(run(client, make, x, static=static), np.asarray(numpy(x)))


@pytest.mark.parametrize(("start", "end"), [(-3, 9), (0, -1), (-100, 100), (4, 2), (-2, 2**63 - 1)])
def test_slices_of_known_extents_are_clamped_as_in_numpy(client: hostir.Client, start: int, end: int) -> None:
    x = random((9,), F32)
    same(run(client, lambda ops, t: ops.slice(t, [start], [end]), x, static=True), x[start:end])


def test_cat_of_different_extents_and_types(client: hostir.Client) -> None:
    a, b, c = random((3, 2), BF16), random((3, 5), F32), random((3, 0), F32)
    got = run(client, lambda ops, *t: ops.cat(t, 1), a, b, c)
    same(got, np.concatenate([a.astype(F32), b, c], 1))


def test_cat_of_padded_tensors(client: hostir.Client) -> None:
    for dtype in (F32, BF16, I64):
        a, b, c = special((3, 2), dtype), special((3, 5), dtype, 1), special((3, 1), dtype, 2)

        def make(ops: Any, x: Any, y: Any, z: Any) -> Any:
            return ops.cat([ops.pad(x, [0, 6]), ops.pad(y, [2, 1]), ops.pad(z, [7, 0])], 1, manual_padding=True)

        identical(run(client, make, a, b, c), np.concatenate([a, b, c], 1))
        identical(
            run(client, lambda ops, x: ops.cat([ops.pad(x, [0, 0, 0, 3]), ops.pad(x, [0, 0, 3, 0])], -2, True), a),
            np.concatenate([a, a]),
        )


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_full(client: hostir.Client, dtype: np.dtype[Any]) -> None:
    """Beside an input, whose size it takes."""
    x = random((5, 3), dtype)
    outputs = run(
        client,
        lambda ops, t: [ops.full([2, 3], 1, dtype), ops.full([t.size(0)], 0, dtype), ops.full([], True, dtype)],
        x,
    )
    for got, want in zip(outputs, [np.ones((2, 3)), np.zeros(5), np.ones(())], strict=True):
        same(got, want.astype(dtype))


def test_shape_ops_in_a_row(client: hostir.Client) -> None:
    """Split, permute, slice, pad, cat and merge: folded into the indices of one kernel."""
    x = random((6, 10), F32)

    def make(ops: Any, t: Any) -> Any:
        split = ops.permute(ops.reshape(t, [2, 3, 10]), [2, 0, 1])
        half = ops.slice(split, [1, 0, 0], [9, 2, 3], [2, 1, 1])
        return ops.reshape(ops.cat([ops.neg(half), ops.pad(half, [0, 0, 0, 0, 0, 2])], 0), [-1])

    half = x.reshape(2, 3, 10).transpose(2, 0, 1)[1:9:2]
    want = np.concatenate([-half, np.pad(half, ((0, 2), (0, 0), (0, 0)))]).reshape(-1)
    same(run(client, make, x), want)


# --- contractions ---

MATMULS = [
    ((4, 5), (5, 6)),
    ((64, 96), (96, 33)),
    ((5,), (5,)),
    ((5,), (5, 6)),
    ((4, 5), (5,)),
    ((3, 4, 5), (3, 5, 2)),
    ((2, 1, 4, 5), (3, 5, 2)),
    ((3, 4, 5), (5, 2)),
    ((0, 5), (5, 6)),
    ((4, 0), (0, 6)),
    ((1, 5), (5, 1)),
]


@pytest.mark.parametrize(("left", "right"), MATMULS, ids=str)
def test_matmul(client: hostir.Client, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    for dtype in (F64, F32, BF16, F16):
        a, b = random(left, dtype, 1), random(right, dtype, 2)
        near(run(client, lambda ops, x, y: ops.matmul(x, y), a, b), a.astype(F64) @ b.astype(F64), dtype, left[-1])


@pytest.mark.parametrize("dtype", [I32, I64], ids=str)
def test_matmul_of_integers(client: hostir.Client, dtype: np.dtype[Any]) -> None:
    a, b = random((4, 5), dtype, 1), random((5, 6), dtype, 2)
    same(run(client, lambda ops, x, y: x @ y, a, b), a @ b)


@pytest.mark.parametrize("leading", [(4,), (), (2, 3), (0,)], ids=str)
def test_linear(client: hostir.Client, leading: tuple[int, ...]) -> None:
    for dtype in (F64, F32, BF16, F16):
        x, w, bias = random((*leading, 7), dtype, 1), random((5, 7), dtype, 2), random((5,), dtype, 3)
        want = x.astype(F64) @ w.astype(F64).T
        got, with_bias = run(client, lambda ops, *t: [ops.linear(*t[:2]), ops.linear(*t)], x, w, bias)
        near(got, want, dtype, 7)
        near(with_bias, want + bias.astype(F64), dtype, 8)


@pytest.mark.parametrize("activation", ["relu", "gelu", "tanh_gelu"])
def test_activations_behind_contractions(client: hostir.Client, activation: str) -> None:
    """The library's, where it has them: rounded once, as the explanation says."""
    for dtype in (F64, F32, BF16, F16):
        x, w, bias = random((9, 7), dtype, 1), random((5, 7), dtype, 2), random((5,), dtype, 3)
        x.reshape(-1)[3] = np.nan  # Of row 0: no activation hides it.

        def define(ops: Any, *t: hostir.Tensor) -> Any:
            return getattr(ops, activation)(ops.add(ops.matmul(t[0], ops.permute(t[1], [1, 0])), t[2]))

        got = run(client, define, x, w, bias)
        sums = x.astype(F64) @ w.astype(F64).T + bias.astype(F64)
        want = {
            "relu": np.where(sums <= 0, 0, sums),
            "gelu": 0.5 * sums * (1 + np.vectorize(math.erf)(sums / math.sqrt(2))),
            "tanh_gelu": 0.5 * sums * (1 + np.tanh(math.sqrt(2 / math.pi) * (sums + 0.044715 * sums**3))),
        }[activation]
        assert np.isnan(got[0].astype(F64)).all()
        near(got[1:], want[1:], dtype, 8)


def test_tf32_is_allowed_only_where_asked(client: hostir.Client) -> None:
    with FusionDefinition("products") as fd:
        x = fd.define_tensor(shape=[8, 8], contiguity=True, dtype=F32)
        fd.add_output(fd.ops.matmul(x, x))
        fd.add_output(fd.ops.linear(x, x, precision="tf32"))
    assert [segment.schedule for segment in client.explain(fd).segments] == ["", "tf32"]
    assert "linear, tf32" in str(client.explain(fd))
    with FusionDefinition("refused") as fd, pytest.raises(hostir.InvalidArgument, match="'full' or 'tf32'"):
        fd.ops.matmul(fd.define_tensor(shape=[8, 8]), fd.define_tensor(shape=[8, 8]), precision="bf16")
    a = random((8, 8), F32)
    near(run(client, lambda ops, t: ops.matmul(t, t, precision="tf32"), a), a.astype(F64) @ a.astype(F64), F32, 8)


def test_contractions_between_other_ops(client: hostir.Client) -> None:
    """The operands are made by kernels, one by a permutation; the result goes on."""
    a, b = random((6, 40), F32, 1), random((6, 50), F32, 2)
    got = run(client, lambda ops, x, y: ops.relu(ops.matmul(ops.permute(x, [1, 0]), ops.exp(y)) - 1.0), a, b)
    want = np.maximum(a.T.astype(F64) @ np.exp(b.astype(F64)) - 1, 0)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


# --- indices that are data ---

TAKES: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
    ((7,), (20,), 0),
    ((5, 9), (5, 3), 1),
    ((5, 9), (40, 9), -2),
    ((5, 9), (1, 4), 1),
    ((1, 9), (6, 4), 1),
    ((3, 1, 5), (3, 6, 1), 2),
    ((4, 130), (4, 0), 1),
    ((33, 70), (33, 70), 0),
]


def taken(x: Array, index: Array, axis: int) -> Array:
    """NumPy's, with indices outside of x moved to its nearer end."""
    extent = x.shape[axis]
    inside = np.clip(np.where(index < 0, index.astype(I64) + extent, index), 0, extent - 1)
    return np.take_along_axis(x, inside, axis)


@pytest.mark.parametrize(("shape", "indices", "axis"), TAKES, ids=str)
def test_take_along_axis(client: hostir.Client, shape: tuple[int, ...], indices: tuple[int, ...], axis: int) -> None:
    for dtype, index_dtype in ((F32, I64), (BF16, I32), (I64, I32), (BOOL, I64)):
        x = random(shape, dtype)
        rng = np.random.default_rng([1, *indices])
        index = rng.integers(-shape[axis] - 3, shape[axis] + 3, indices).astype(index_dtype)
        for static in (False, True):
            got = run(client, lambda ops, t, k: ops.take_along_axis(t, k, axis), x, index, static=static)
            same(got, taken(x, index, axis))


def test_extreme_indices_are_clamped(client: hostir.Client) -> None:
    x = random((4,), F32)
    index = np.array([np.iinfo(I64).min, np.iinfo(I64).max, -5, 4, -4, 3], I64)
    same(run(client, lambda ops, t, k: ops.take_along_axis(t, k, 0), x, index), x[[0, 3, 0, 3, 0, 3]])


def cross_entropy(ops: Any, logits: Any, targets: Any) -> Any:
    x = ops.cast(logits, hostir.DataType.Float)
    shifted = x - ops.max(x, [1], keepdim=True)
    log_softmax = shifted - ops.log(ops.sum(ops.exp(shifted), [1], keepdim=True))
    own = ops.take_along_axis(log_softmax, ops.broadcast(targets, [False, True]), 1)
    return ops.neg(ops.squeeze(own, [1]))


@pytest.mark.parametrize("shape", [(6, 10), (64, 1000), (3, 5003)], ids=str)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_cross_entropy_is_one_kernel(client: hostir.Client, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
    """Log-softmax and each row's own element of it: maximum, sum, logarithm and gather go over a row in one kernel."""
    logits, targets = random(shape, dtype), np.random.default_rng(3).integers(0, shape[1], shape[0]).astype(I64)
    wide = logits.astype(F64)
    largest = wide.max(1)
    want = np.log(np.exp(wide - largest[:, None]).sum(1)) + largest - wide[np.arange(shape[0]), targets]
    np.testing.assert_allclose(run(client, cross_entropy, logits, targets), want, rtol=1e-5, atol=1e-6)
    with FusionDefinition("cross_entropy") as fd:
        fd.add_output(cross_entropy(fd.ops, input_of(fd, logits), input_of(fd, targets)))
    (segment,) = [s for s in client.explain(fd).segments if s.kind != "view"]
    assert (segment.kind, segment.schedule, segment.launches) == ("kernel", "normalization", 1)
    assert any("take_along_axis" in op for op in segment.ops)


# --- moments, sequences, sizes ---


def special(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int = 0) -> Array:
    """Random, with NaN, infinities and -0 where the type has them."""
    x = random(shape, dtype, seed)
    if dtype in FLOATS:
        flat = x.reshape(-1)
        for i, value in enumerate([np.nan, np.inf, -np.inf, -0.0][: flat.size // 2]):
            flat[(5 * i + 1) % flat.size] = value
    return x


def bits(x: Array) -> Array:
    """So that -0 differs from 0; NaNs are one."""
    if x.dtype not in FLOATS:
        return x
    wide = x.astype(F64)
    return np.where(np.isnan(wide), 1, np.where(wide == 0, np.copysign(0.5, wide), wide))


def identical(got: Array, want: Array) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(bits(got), bits(want))


@pytest.mark.parametrize("shape", [(3, 5, 130), (4, 1, 3), (2, 3, 1)], ids=str)
@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize(("dims", "keep"), [([0, 1], False), ([-1, 0], True), (None, False)], ids=str)
def test_moments(client: hostir.Client, shape: tuple[int, ...], dtype: np.dtype[Any], dims: Any, keep: bool) -> None:
    x = random(shape, dtype)
    result = dtype if dtype in FLOATS else F32
    axis = None if dims is None else tuple(dims)
    got = run(
        client,
        lambda ops, t: [*ops.var_mean(t, dims, 1, keep), ops.var(t, dims, 0, keep), ops.var_sum(t, dims, keep)],
        x,
    )
    wide = x.astype(F64)
    count = x.size // wide.sum(axis).size
    variance = wide.var(axis, keepdims=keep)
    want = [wide.var(axis, ddof=1, keepdims=keep), wide.mean(axis, keepdims=keep), variance, variance * count]
    for output, expected in zip(got, want, strict=True):
        near(output, expected, result, 2 * count)


def test_moments_of_special_values(client: hostir.Client) -> None:
    for dtype in FLOATS:
        x = np.array([[1, 2, np.nan], [1, np.inf, 2], [-0.0, -0.0, -0.0]], dtype)
        variance, mean = run(client, lambda ops, t: list(ops.var_mean(t, [1])), x)
        same(mean, np.array([np.nan, np.inf, 0], dtype))
        same(variance, np.array([np.nan, np.nan, 0], dtype))
    nothing = np.zeros((2, 0), F32)
    mean, variance = run(client, lambda ops, t: [ops.mean(t, [1]), ops.var(t, [1])], nothing)
    same(mean, np.full(2, np.nan, F32))
    same(variance, np.full(2, np.nan, F32))


def test_welford(client: hostir.Client) -> None:
    def standardized(ops: Any, t: Any) -> Any:
        mean, squares, count = ops.welford(t, [1])
        deviation = ops.sqrt(squares / count)
        return (t - ops.broadcast(mean, [False, True])) / ops.broadcast(deviation, [False, True])

    x = random((6, 50), F32)
    wide = x.astype(F64)
    want = (wide - wide.mean(1, keepdims=True)) / wide.std(1, keepdims=True)
    np.testing.assert_allclose(run(client, standardized, x), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [t for t in ALL if t != BOOL], ids=str)
@pytest.mark.parametrize("length", [1, 7, 300])
def test_iota(client: hostir.Client, length: int, dtype: np.dtype[Any]) -> None:
    x = np.zeros(length, dtype)
    whole, steps, scalars = run(
        client,
        lambda ops, t: [
            ops.iota(length, dtype=dtype),
            ops.iota(t.size(0), 5, -2, dtype),
            ops.iota(ops.size(t, 0), ops.size(t, 0), 3, dtype),
        ],
        x,
    )
    k = np.arange(length, dtype=F64)
    same(whole, k.astype(dtype))
    same(steps, (5 - 2 * k).astype(dtype))
    same(scalars, (length + 3 * k).astype(dtype))


def test_sizes(client: hostir.Client) -> None:
    def sizes(ops: Any, t: Any) -> Any:
        rows, columns = ops.shape(t)
        both = ops.reshape(t, [ops.size(t, -1), rows])
        half = ops.slice(t, [0, 0], [2, 3])
        return [t * rows + columns, both, half + ops.size(half, 1)]

    for dtype in (F32, I64, BF16):
        x = random((4, 6), dtype)
        scaled, reshaped, half = run(client, sizes, x)
        same(scaled, (x.astype(F32).astype(dtype) * np.array(4, dtype) + np.array(6, dtype)).astype(dtype))
        same(reshaped, x.reshape(6, 4))
        same(half, (x[:2, :3] + np.array(3, dtype)).astype(dtype))


def test_stride_order_copies(client: hostir.Client) -> None:
    x = random((3, 4), F32)
    same(run(client, lambda ops, t: ops.stride_order(t, [0, 1]), x), x)


# --- order ---


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("shape, axis", [((5, 7), -1), ((6, 2), 0), ((2, 9, 3), 1), ((2, 0), 1)], ids=str)
@pytest.mark.parametrize("dtype", [F32, BF16, I64, np.dtype(bool)], ids=str)
def test_sort_and_topk(
    client: hostir.Client, shape: tuple[int, ...], axis: int, dtype: np.dtype[Any], static: bool
) -> None:
    x = special(shape, dtype)
    count = min(2, shape[axis])

    def of(ops: Any, t: Any) -> list[Any]:
        return [ops.sort(t, axis), ops.sort(t, axis, True), *ops.topk(t, count, axis), *ops.topk(t, count, axis, False)]

    up, down, most, at_most, least, at_least = run(client, of, x, static=static)
    wide = x.astype(F64) if x.dtype.kind not in "ib" else x
    ascending = np.argsort(wide, axis=axis, kind="stable")
    turned = np.argsort(np.flip(wide, axis), axis=axis, kind="stable")
    descending = x.shape[axis] - 1 - np.flip(turned, axis)
    first = [slice(None)] * x.ndim
    first[axis] = slice(count)
    identical(up, np.take_along_axis(x, ascending, axis))
    identical(down, np.take_along_axis(x, descending, axis))
    identical(most, np.take_along_axis(x, descending, axis)[tuple(first)])
    identical(least, np.take_along_axis(x, ascending, axis)[tuple(first)])
    same(at_most, descending[tuple(first)])
    same(at_least, ascending[tuple(first)])


def test_topk_of_more_than_there_is_is_refused(client: hostir.Client) -> None:
    with (
        pytest.raises(hostir.InvalidArgument, match=r"topk: k=4, and axis -1 of %x has extent 3"),
        FusionDefinition() as fd,
    ):
        x = fd.define_tensor(shape=[2, 3])
        fd.ops.topk(x, 4)
    with pytest.raises(hostir.InvalidArgument, match="4"):
        run(client, lambda ops, t: list(ops.topk(t, 4)), random((2, 3), F32))


# --- indices and triangles ---


@pytest.mark.parametrize("shape", [(5, 7), (3, 1), (2, 4, 6), (0, 3)], ids=str)
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_triu(client: hostir.Client, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    x = special(shape, dtype)
    outputs = run(client, lambda ops, t: [ops.triu(t, k) for k in (0, 1, -2, 9)], x)
    rows, columns = np.indices(shape[-2:])
    for got, diagonal in zip(outputs, (0, 1, -2, 9), strict=True):
        identical(got, np.where(columns - rows >= diagonal, x, np.zeros((), dtype)))


def inside(index: Array, extent: int) -> Array:
    """NumPy's indices of ours: from the end, then the nearer end."""
    wide = index.astype(I64)
    return np.clip(np.where(wide < 0, wide + extent, wide), 0, extent - 1)


@pytest.mark.parametrize("shape", [(5, 7), (3, 1), (4, 2, 130)], ids=str)
@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("axis", [-1, 0])
def test_select_and_index_select(
    client: hostir.Client, shape: tuple[int, ...], dtype: np.dtype[Any], axis: int
) -> None:
    x, n = special(shape, dtype), shape[axis]
    for index_dtype in (I32, I64):
        index = np.array([0, -1, n - 1, -n, n + 3, -n - 3], index_dtype)
        for static in (False, True):
            got = run(client, lambda ops, t, k: ops.index_select(t, k, axis), x, index, static=static)
            identical(got, np.take(x, inside(index, n), axis))
    first, last = run(client, lambda ops, t: [ops.select(t, 0, axis), ops.select(t, -1, axis)], x)
    identical(first, np.take(x, 0, axis))
    identical(last, np.take(x, n - 1, axis))
    with FusionDefinition("select") as fd:
        t, place = input_of(fd, x), fd.define_scalar(dtype=hostir.DataType.Int)
        fd.add_output(fd.ops.select(t, place, axis))
    for number in (0, n - 1, -n, n + 5, -n - 5):
        (output,) = client.run(fd, [x, number])
        identical(output.numpy(), np.take(x, inside(np.array(number), n), axis))


GATHERS: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
    ((5, 7), (5, 3), 1),
    ((5, 7), (2, 9), 1),
    ((5, 7), (20, 4), 0),
    ((3, 4, 6), (1, 4, 2), -1),
    ((4, 130), (4, 0), 1),
]


@pytest.mark.parametrize(("shape", "indices", "axis"), GATHERS, ids=str)
def test_gather(client: hostir.Client, shape: tuple[int, ...], indices: tuple[int, ...], axis: int) -> None:
    for dtype in ALL:
        x = special(shape, dtype)
        rng = np.random.default_rng([2, *indices])
        index = rng.integers(-shape[axis] - 3, shape[axis] + 3, indices).astype(I32 if dtype == F16 else I64)
        own = tuple(slice(None) if k == axis % len(shape) else slice(n) for k, n in enumerate(indices))
        want = np.take_along_axis(x[own], inside(index, shape[axis]), axis)
        for static in (False, True):
            got = run(client, lambda ops, t, k: ops.gather(t, k, axis), x, index, static=static)
            identical(got, want)


@pytest.mark.parametrize(("shape", "count", "axis"), [((5, 7), 9, 1), ((40,), 3, 0), ((3, 4, 6), 5, -2)], ids=str)
def test_scatter(client: hostir.Client, shape: tuple[int, ...], count: int, axis: int) -> None:
    """Equal indices often: the last one counts. Some are outside, and put nothing."""
    for dtype in ALL:
        x = special(shape, dtype)
        put = list(shape)
        put[axis] = count
        z, n = special(tuple(put), dtype, 3), shape[axis]
        index = np.random.default_rng([4, *put]).integers(-n - 2, n + 2, put).astype(I32 if dtype == F16 else I64)
        want = x.copy()
        for at in np.ndindex(*put):
            place = index[at] + (n if index[at] < 0 else 0)
            if 0 <= place < n:
                to = list(at)
                to[axis] = place
                want[tuple(to)] = z[at]
        for static in (False, True):
            got = run(client, lambda ops, t, k, u: ops.scatter(t, k, u, axis), x, index, z, static=static)
            identical(got, want)


def test_squeeze_expanded(client: hostir.Client) -> None:
    for dtype in ALL:
        x = special((3, 1, 4), dtype)
        got = run(client, lambda ops, t: ops.squeeze(ops.expand(t, [-1, 5, -1]), [1], True), x)
        identical(got, x[:, 0])
