"""Attributes, indices and methods of tensors: types without a daemon, values against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hostir
from hostir import DataType, FusionDefinition

X = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4) - 7.5
Call = Callable[[Any], Any]


def shape_of(tensor: hostir.Tensor) -> tuple[int | str, ...]:
    return tuple(extent if isinstance(extent, int) else str(extent) for extent in tensor.shape)


def test_attributes() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 4, -1], dtype=DataType.BFloat16)
        y = x.sum(1) > 0
        assert shape_of(x) == ("i0", 4, "i1") and x.shape == x.size() and x.ndim == 3
        assert (x.dtype, x.data_type) == (DataType.BFloat16.numpy, DataType.BFloat16)
        assert shape_of(y) == ("i0", "i1") and y.dtype == np.bool_
        assert shape_of(x.T) == ("i1", 4, "i0") and shape_of(x.mT) == ("i0", "i1", 4)
        assert len(fd.define_tensor(shape=[5, -1])) == 5
        with pytest.raises(TypeError, match=r"the length of %x is not known .*; its shape: \(i0, 4, i1\)"):
            len(x)
        with pytest.raises(TypeError):
            iter(x)
        s = fd.define_scalar(dtype=np.float32)
        assert (s.dtype, (s * 2).dtype, (s < 1).data_type) == (np.float32, np.float32, DataType.Bool)


def test_sizes_that_become_one() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1])
        y = fd.define_tensor(shape=[-1, 16])
        z = x + y
        assert shape_of(z) == shape_of(x) == shape_of(y) == ("i0", 16)
        eight = fd.ops.full([1, 8], 0, np.float32)
        with pytest.raises(hostir.InvalidArgument, match="axis 1 of %x has extent 16, axis 1 of %eight has extent 8"):
            x + eight
        w = fd.define_tensor(shape=[-1, 3])
        with pytest.raises(hostir.InvalidArgument, match="axis 1 of %x has extent 16, axis 1 of %w has extent 3"):
            x + w
        assert shape_of(w) == ("i3", 3)  # What failed has left nothing behind: i3 is not i0.


def test_sizes_are_calculated_with() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 8])
        n: Any = x.shape[0]
        assert [str(s) for s in (n, n * 2, 2 * n, n + n, n - 1, 1 - n, n // 4, n % 4, (4 * n) // 4)] == [
            *("i0", "2*i0", "2*i0", "2*i0", "i0 - 1", "-1*i0 + 1", "i0 / 4", "i0 mod 4", "i0")
        ]
        assert n - n == 0 and n == "i0" and f"{n}" == "i0"
        y = x.reshape(n // 2, 2, 8)
        z = fd.ops.full([n * 2, *y.shape[1:]], 1, np.float32)
        with pytest.raises(TypeError):
            n / 2
    assert shape_of(y) == ("i0 / 2", 2, 8) and shape_of(z) == ("2*i0", 2, 8)
    assert "shape=[i0 / 2, 2, 8]" in str(fd) and "shape=[2*i0, 2, 8]" in str(fd)


INDICES: list[Any] = [
    *(
        0,
        -1,
        (1, 2),
        (0, -1, 3),
        ...,
        (..., 0),
        (0, ...),
        None,
        (None, 0),
        (slice(None), None, 1),
        (0, None, ..., None),
    ),
    *(slice(1, None), slice(None, -1), (slice(0, 2), slice(1, 3)), (..., slice(None, None, 2)), (0, slice(1, 3), -2)),
    *((slice(-1, None), 1), (), (np.int64(1), ..., np.array(2))),
]
METHODS: dict[str, Call] = {
    "sum": lambda x: x.sum(),
    "sum_axes": lambda x: x.sum((0, -1), keepdims=True),
    "sum_dtype": lambda x: x.sum(1, np.float64),
    "prod": lambda x: (x * 0.25).prod(-1),
    "max": lambda x: x.max(0),
    "min": lambda x: x.min(axis=(1, 2)),
    "mean": lambda x: x.mean(axis=1, keepdims=True),
    "var": lambda x: x.var(axis=1),
    "std": lambda x: x.std(-1, ddof=1),
    "any": lambda x: (x > 10).any(1),
    "all": lambda x: x.all(axis=2),
    "reshape": lambda x: x.reshape(3, -1),
    "reshape_list": lambda x: x.reshape([6, 4]),
    "flatten": lambda x: x.flatten(),
    "transpose": lambda x: x.transpose(),
    "transpose_axes": lambda x: x.transpose(1, 0, 2),
    "transpose_list": lambda x: x.transpose((2, 0, 1)),
    "T": lambda x: x.T,
    "swapaxes": lambda x: x.swapaxes(0, -1),
    "squeeze": lambda x: x[:1, :, 1:2].squeeze(),
    "squeeze_axis": lambda x: x[:1, :, 1:2].squeeze(0),
    "astype": lambda x: x.astype(np.int32),
    "copy": lambda x: x.copy(),
    "clip": lambda x: x.clip(-2, 3.5),
    "clip_above": lambda x: x.clip(max=0),
    "round": lambda x: x.round(),
    "dot": lambda x: x[0].dot(x[1].T),
}


def run_all(client: hostir.Client, calls: list[Call]) -> None:
    """Each call of a tensor and of an array: shape, type and values, and again where sizes are not known."""
    for shape in (X.shape, (-1,) * 3):
        with FusionDefinition() as fd:
            x = fd.define_tensor(shape=list(shape), dtype=DataType.Float)
            made = [fd.ops.set(call(x)) for call in calls]
            for tensor in made:
                fd.add_output(tensor)
        wants = [np.asarray(call(X)) for call in calls]
        for tensor, want in zip(made, wants, strict=True):
            if shape == X.shape:
                assert tensor.shape == want.shape
            assert (tensor.ndim, tensor.dtype) == (want.ndim, want.dtype)
        for array, want in zip(client.run(fd, [X]), wants, strict=True):
            np.testing.assert_allclose(array.numpy(), want, rtol=1e-6)


def test_indices(client: hostir.Client) -> None:
    run_all(client, [lambda x, key=key: x[key] for key in INDICES])


def test_methods(client: hostir.Client) -> None:
    run_all(client, [*METHODS.values()])


def test_indices_that_are_values(client: hostir.Client) -> None:
    rows, at = np.array([2, 0, 2, 1]), 2
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=list(X.shape))
        picked = fd.define_tensor(shape=[-1], dtype=DataType.Int)
        k = fd.define_scalar(dtype=DataType.Int)
        fd.add_output(x[:, picked])
        fd.add_output(x[0, picked, ::2])
        fd.add_output(x[..., k])
    for array, want in zip(client.run(fd, [X, rows, at]), (X[:, rows], X[0, rows, ::2], X[..., at]), strict=True):
        np.testing.assert_array_equal(array.numpy(), want)


def test_what_a_method_records_is_named_after_it() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[4, 4])
        y = x.std(1)
        z = x[1, None]
        fd.add_output(y + z)
    assert [line.split(" = ")[0].strip() for line in str(fd).splitlines()[1:-2]] == [
        *("%std", "%y", "%t0", "%index", "%z", "%t1")
    ]


def test_a_tensor_is_no_array() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[2, 2])
        with pytest.raises(hostir.FailedPrecondition, match="%x has no elements while a program is defined"):
            np.asarray(x)
    assert fd._record.ops == []
