"""hostir.nn against NumPy in float64: on one device, and with batch, heads or classes split over ranks."""

from __future__ import annotations

import doctest
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hostir
import numpy_random
from hostir import DeviceMesh, FusionDefinition, nn

Array = np.ndarray[Any, Any]
BF16, F32, F64 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32), np.dtype(np.float64)
# Relative to the greatest element of the result; products of bfloat16 round in between.
TOLERANCE = {F64: 1e-14, F32: 3e-6, BF16: 8e-3}
RNG = np.random.default_rng(24)


def softmax(x: Array, axis: Any = -1) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def layer_norm(x: Array, w: Array, b: Array, axis: Any = -1, eps: float = 1e-5) -> Array:
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + eps) * w + b


def rms_norm(x: Array, w: Array, eps: float = 1e-6) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def losses(x: Array, t: Array, axis: int = -1) -> Array:
    log = x - x.max(axis, keepdims=True)
    log = log - np.log(np.exp(log).sum(axis, keepdims=True))
    return -np.take_along_axis(log, np.expand_dims(t, axis), axis).squeeze(axis)


def attention(q: Array, k: Array, v: Array, keep: Any = True, bias: Any = 0.0, scale: float | None = None) -> Array:
    scores = q @ k.swapaxes(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale) + bias
    return softmax(np.where(keep, scores, -np.inf)) @ v


X, W, B = RNG.standard_normal((8, 6, 40)) * 4, RNG.standard_normal(40), RNG.standard_normal(40)
T = RNG.integers(0, 40, (8, 6))
Q, K = RNG.standard_normal((4, 8, 12, 16)), RNG.standard_normal((4, 8, 20, 16))
V = RNG.standard_normal((4, 8, 20, 24))
CAUSAL = np.arange(20) <= np.arange(12)[:, None]
MASK = RNG.random((12, 20)) < 0.7
BIAS = RNG.standard_normal((8, 12, 20))
erf = np.vectorize(math.erf)

Case = tuple[Callable[..., hostir.Tensor], Callable[..., Array], list[Array]]
CASES: dict[str, Case] = {
    "softmax": (nn.softmax, softmax, [X]),
    "softmax_axes": (lambda x: nn.softmax(x, (0, 1)), lambda x: softmax(x, (0, 1)), [X]),
    "softmax_large": (nn.softmax, softmax, [X * 100 + 500]),
    "log_softmax": (lambda x: nn.log_softmax(x, 1), lambda x: np.log(softmax(x, 1)), [X]),
    "layer_norm": (nn.layer_norm, layer_norm, [X, W, B]),
    "layer_norm_axes": (lambda x: nn.layer_norm(x, axis=(1, 2)), lambda x: layer_norm(x, 1, 0, (1, 2)), [X]),
    "layer_norm_offset": (nn.layer_norm, layer_norm, [X + 30, W, B]),
    "rms_norm": (nn.rms_norm, rms_norm, [X, W]),
    "cross_entropy": (nn.cross_entropy, lambda x, t: losses(x, t).mean(), [X, T]),
    "cross_entropy_none": (lambda x, t: nn.cross_entropy(x, t, reduction="none"), losses, [X, T]),
    "cross_entropy_axis": (
        lambda x, t: nn.cross_entropy(x, t, axis=1, reduction="sum"),
        lambda x, t: losses(x, t, 1).sum(),
        [X, RNG.integers(0, 6, (8, 40))],
    ),
    "cross_entropy_ignore": (
        lambda x, t: nn.cross_entropy(x, t, ignore_index=3),
        lambda x, t: losses(x, t)[t != 3].mean(),
        [X, T % 5],
    ),
    "attention": (nn.scaled_dot_product_attention, attention, [Q, K, V]),
    "attention_causal": (
        lambda q, k, v: nn.scaled_dot_product_attention(q, k, v, causal=True, scale=0.5),
        lambda q, k, v: attention(q, k, v, CAUSAL, scale=0.5),
        [Q, K, V],
    ),
    "attention_mask": (nn.scaled_dot_product_attention, attention, [Q, K, V, MASK]),
    "attention_bias": (
        nn.scaled_dot_product_attention,
        lambda q, k, v, bias: attention(q, k, v, bias=bias),
        [Q, K, V, BIAS],
    ),
    "attention_grouped": (
        lambda q, k, v: nn.scaled_dot_product_attention(q, k, v, causal=True),
        lambda q, k, v: attention(q, np.repeat(k, 2, 1), np.repeat(v, 2, 1), CAUSAL),
        [Q, K[:, ::2], V[:, ::2]],
    ),
    "attention_grouped_bias": (
        nn.scaled_dot_product_attention,
        lambda q, k, v, bias: attention(q, np.repeat(k, 4, 1), np.repeat(v, 4, 1), bias=bias),
        [Q, K[:, ::4], V[:, ::4], BIAS],
    ),
    "gelu": (nn.gelu, lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))), [X]),
    "gelu_tanh": (
        lambda x: nn.gelu(x, "tanh"),
        lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        [X],
    ),
    "silu": (nn.silu, lambda x: x / (1 + np.exp(-x)), [X]),
}
# The axis of each input that is split, and whether ranks must then speak with each other.
SPLITS: dict[str, tuple[list[int | None], bool]] = {
    "softmax": ([0], False),
    "log_softmax": ([0], False),
    "layer_norm": ([0, None, None], False),
    "rms_norm": ([1, None], False),
    "cross_entropy_none": ([0, 0], False),
    "cross_entropy": ([0, 0], True),
    "cross_entropy_classes": ([2, None], True),
    "softmax_classes": ([2], True),
    "attention": ([0, 0, 0], False),
    "attention_causal": ([1, 1, 1], False),
    "attention_mask": ([1, 1, 1, None], False),
    "attention_bias": ([1, 1, 1, 0], False),
    "attention_grouped": ([1, 1, 1], False),
    "attention_grouped_bias": ([0, 0, 0, None], False),
}


def check(client: hostir.Client, name: str, dtype: np.dtype[Any], symbols: bool, ranks: int = 1) -> None:
    splits, communicates = SPLITS.get(name, ([], False)) if ranks > 1 else ([], False)
    made, want, given = CASES[name.removesuffix("_classes")]
    arrays = [a.astype(dtype) if a.dtype == F64 else a for a in given]
    with FusionDefinition() as fd:
        inputs = []
        for array in arrays:
            # Attention's scale comes from the last axis, and who shares a head from the second of four.
            fixed = (array.ndim - 1, array.ndim - 3) if "attention" in name else (array.ndim - 1,)
            shape = [-1 if symbols and k not in fixed else n for k, n in enumerate(array.shape)]
            inputs.append(fd.define_tensor(shape=shape, dtype=array.dtype))
        y = made(*inputs)
        fd.add_output(y)
        for x, axis in zip(inputs, splits, strict=False):
            mesh = DeviceMesh(range(ranks))
            x.shard(mesh, {} if axis is None else {axis: "mesh_x"})
    if ranks > 1:
        assert bool(client.explain(fd).communications) == communicates
    (result,) = client.run(fd, [client.put(a, x) for a, x in zip(arrays, inputs, strict=True)])
    wanted = np.asarray(want(*(a.astype(F64) if a.dtype == dtype else a for a in arrays)))
    assert y.ndim == wanted.ndim
    got = result.numpy()
    assert (y.dtype, got.shape) == (got.dtype, wanted.shape)
    np.testing.assert_allclose(got.astype(F64), wanted, rtol=0, atol=TOLERANCE[dtype] * max(np.abs(wanted).max(), 1))


@pytest.mark.parametrize("symbols", [False, True], ids=["known", "any_size"])
@pytest.mark.parametrize("dtype", [F64, F32, BF16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_values(client: hostir.Client, name: str, dtype: np.dtype[Any], symbols: bool) -> None:
    check(client, name, dtype, symbols)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", SPLITS)
def test_split_over_ranks(client: hostir.Client, name: str, ranks: int) -> None:
    check(client, name, F32, symbols=False, ranks=ranks)


@pytest.mark.parametrize("name", nn.__all__)
def test_examples(name: str) -> None:
    """The example of each docstring."""
    function = getattr(nn, name)
    with FusionDefinition() as fd:
        names = {"fd": fd, "nn": nn, "np": np, "x": fd.define_tensor(shape=[-1, 64])}
        names |= {k: fd.define_tensor(shape=[2, 4, -1, 32]) for k in "qkv"}
        (test,) = (t for t in doctest.DocTestFinder().find(function, name, globs=names) if t.examples)
        failures, _ = doctest.DocTestRunner().run(test)
    assert failures == 0


def test_the_result_has_the_users_name() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[4, 4])
        probabilities = nn.softmax(x)
    assert [op.result for op in fd._record.ops] == ["softmax", "softmax.1", "softmax.2", "softmax.3", "probabilities"]
    assert probabilities.name == "probabilities"


def test_refusals() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[4, -1])
        for call, message in (
            (lambda: nn.softmax(X), "softmax: a ndarray is no tensor of a definition"),  # type: ignore[arg-type]
            (lambda: nn.cross_entropy(x, x), "cross_entropy: %x is float32; targets are int32 or int64"),
            (
                lambda: nn.cross_entropy(x, x, reduction="max"),
                "reduction='max'; it is mean, sum or none",
            ),
            (lambda: nn.scaled_dot_product_attention(x, x, x), "the last extent of %x is i0; give scale="),
            (lambda: nn.gelu(x, "erf"), "gelu: approximate='erf'; it is none or tanh"),
            (lambda: nn.layer_norm(x, axis=2), "axis 2 is not in [-2, 1] (test_nn.py"),
        ):
            with pytest.raises(hostir.InvalidArgument) as caught:
                call()
            assert message in str(caught.value)


@pytest.mark.parametrize("dtype", [F32, BF16, F64], ids=str)
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_dropout_drops_the_same_wherever_it_runs(client: hostir.Client, dtype: np.dtype[Any], axis: int | None) -> None:
    x = RNG.standard_normal((8, 40)).astype(dtype)
    with FusionDefinition("dropout") as fd:
        t = fd.define_tensor(shape=[-1, 40], contiguity=True, dtype=dtype)
        step = fd.define_scalar(dtype=np.int64)
        fd.add_output(nn.dropout(t, 0.25, 11, step))
        if axis is not None:
            t.shard(DeviceMesh([0, 1]), {axis: "mesh_x"})
    for number in (0, 2**33 + 1):
        (y,) = client.run(fd, [x, number])
        kept = numpy_random.uniform(11, number, x.shape, F32) >= 0.25
        want = np.where(kept, (x.astype(F64 if dtype == F64 else F32) / 0.75).astype(dtype), 0)
        np.testing.assert_allclose(y.numpy().astype(F64), want.astype(F64), rtol=TOLERANCE[dtype])
        assert 0.1 < 1 - kept.mean() < 0.4


def test_dropout_of_nothing_and_of_all(client: hostir.Client) -> None:
    x = np.array([1, np.inf, np.nan, -2], F32)
    with FusionDefinition("dropout") as fd:
        t = fd.define_tensor(shape=[4], contiguity=True)
        fd.add_output(nn.dropout(t, 0, 1, 2))
        fd.add_output(nn.dropout(t, 1, 1, 2))
    same, none = client.run(fd, [x])
    np.testing.assert_array_equal(same.numpy(), x)
    np.testing.assert_array_equal(none.numpy(), np.zeros(4, F32))
    with pytest.raises(hostir.InvalidArgument, match=r"p=1\.5; it is a probability"), FusionDefinition() as fd:
        nn.dropout(fd.define_tensor(shape=[4]), 1.5, 1, 2)
