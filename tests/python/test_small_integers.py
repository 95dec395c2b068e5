"""uint8 and int8 from NumPy through programs and back: wrapping, promotion, casts at their ends, sums, two ranks."""

from __future__ import annotations

import numpy as np
import pytest

import hostir
from hostir import DataType, FusionDefinition

ENDS = {np.uint8: [0, 1, 127, 128, 254, 255], np.int8: [-128, -127, -1, 0, 1, 127]}


@pytest.mark.parametrize("dtype", ENDS)
def test_wraps_and_sums(client: hostir.Client, dtype: type) -> None:
    x = np.array(ENDS[dtype], dtype)
    with FusionDefinition("wraps") as fd:
        a = fd.define_tensor(shape=[-1], contiguity=True, dtype=dtype)
        outputs = [a + a, a * a, -a, a + 1, fd.ops.sum(a, [0]), fd.ops.max(a, [0]), fd.ops.min(a, [0]), a > 100]
        for output in outputs:
            fd.add_output(output)
    wanted = [x + x, x * x, -x, x + dtype(1), x.sum(dtype=np.int64), x.max(), x.min(), x > 100]
    for got, want in zip(client.run(fd, [x]), wanted, strict=True):
        assert got.numpy().dtype == want.dtype
        np.testing.assert_array_equal(got.numpy(), want)


def test_casts_saturate_from_floats_and_wrap_from_integers(client: hostir.Client) -> None:
    x = np.array([300.0, -1.0, np.nan, 127.9, -129.0, -0.5], np.float32)
    with FusionDefinition("casts") as fd:
        a = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.Float)
        whole = fd.ops.cast(a, np.int32)
        for output in (fd.ops.cast(y, t) for y in (a, whole) for t in (np.uint8, np.int8)):
            fd.add_output(output)
        # By way of a float that holds each int8: -1 is 0 then, and 255 without.
        fd.add_output(fd.ops.cast(fd.ops.cast(fd.ops.cast(whole, np.int8), np.float32), np.uint8))
    outputs = [output.numpy().tolist() for output in client.run(fd, [x])]
    assert outputs == [
        [255, 0, 0, 127, 0, 0],
        [127, -1, 0, 127, -128, 0],
        [44, 255, 0, 127, 127, 0],
        [44, -1, 0, 127, 127, 0],
        [44, 0, 0, 127, 127, 0],
    ]


@pytest.mark.parametrize("dtype", ENDS)
def test_promotes_as_numpy_but_for_halves(dtype: type) -> None:
    with FusionDefinition("promotes") as fd:
        a = fd.define_tensor(shape=[-1], contiguity=True, dtype=dtype)
        for other in (np.bool_, dtype, np.int32, np.int64, np.float16, np.float32, np.float64):
            b = fd.define_tensor(shape=[-1], contiguity=True, dtype=other)
            wanted = other if np.dtype(other).kind == "f" else np.result_type(dtype, other)
            assert fd.ops.add(a, b).dtype == wanted
        assert (a + 3).dtype == dtype
        assert (a + 0.5).dtype == np.float32
        fd.add_output(a)


def test_refuses_what_would_be_int16_and_indices_of_8_bits() -> None:
    with FusionDefinition("refused") as fd:
        a = fd.define_tensor(shape=[4], contiguity=True, dtype=np.uint8)
        b = fd.define_tensor(shape=[4], contiguity=True, dtype=np.int8)
        with pytest.raises(hostir.InvalidArgument, match="u8 and i8 together need i16"):
            fd.ops.add(a, b)
        with pytest.raises(hostir.InvalidArgument, match=r"300.*u8.*does not hold"):
            fd.ops.add(a, 300)
        with pytest.raises(hostir.InvalidArgument, match="indices are i32 or i64"):
            fd.ops.index_select(a, b, 0)
        fd.add_output(a)
