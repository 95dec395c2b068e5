"""Inputs of runs: by place, by name, nested; and host values of another type than the program's."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import hostir
from hostir import DataType, FusionDefinition
from hostir.inputs import bind, host_array, is_exact

HERE = r" \(test_inputs\.py:\d+: .*\)"
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TARGETS = [np.dtype(t) for t in (np.bool_, np.int32, np.int64, np.float16, BFLOAT16, np.float32, np.float64)]
SMALL = [np.dtype(t) for t in (np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.float16, BFLOAT16)]


def layer() -> FusionDefinition:
    with FusionDefinition("layer") as fd:
        x = fd.define_tensor(shape=[-1, 2])
        w = fd.define_tensor(shape=[2, 2])
        s = fd.define_scalar()
        fd.add_output(x * s + fd.ops.sum(w))
    return fd


class Weights(NamedTuple):
    w: Any
    s: Any


@pytest.mark.parametrize(
    "inputs",
    [
        ["X", "W", 2.0],
        ("X", "W", 2.0),
        {"s": 2.0, "w": "W", "x": "X"},
        ["X", {"s": 2.0, "w": "W"}],
        [{"w": "W"}, "X", 2.0],
        ("X", Weights(s=2.0, w="W")),
        [["X", ("W",)], 2.0],
        Weights("W", 2.0)._asdict() | {"x": "X"},
    ],
    ids=repr,
)
def test_by_place_and_by_name(inputs: Any) -> None:
    assert list(bind(layer(), inputs)) == ["X", "W", 2.0]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (["X", "W"], "layer has 3 inputs, 2 were given"),
        (["X", {"w": "W", "s": 1.0}, 2.0], "layer has 3 inputs, 4 were given"),
        ({"x": "X", "W": "W", "s": 1.0}, "layer has no input W; it has inputs x, w, s"),
        ({"x": "X"}, "layer misses inputs w, s"),
        (["X", {"w": "W"}], "layer misses input s"),
        ([{"w": "W"}, {"w": "W"}, "X"], "input w of layer is given twice"),
        ({"x": "X", "w": {"a": "W"}, "s": 1.0}, "layer has no input w.a; it has inputs x, w, s"),
    ],
)
def test_names_that_do_not_fit(inputs: Any, message: str) -> None:
    with pytest.raises(hostir.InvalidArgument) as caught:
        bind(layer(), inputs)
    assert re.fullmatch(re.escape(message) + HERE, str(caught.value)), str(caught.value)


def test_a_misspelt_name() -> None:
    with FusionDefinition("one") as fd:
        weight = fd.define_tensor(shape=[2])
        fd.add_output(-weight)
    with pytest.raises(hostir.InvalidArgument, match=r"^one has no input wieght; did you mean weight\?"):
        bind(fd, {"wieght": 1})


def test_lists_of_numbers_are_arrays() -> None:
    assert list(bind(layer(), [[[1.0, 2.0]], ((1, 2), (3, 4)), 2.0])) == [[[1.0, 2.0]], ((1, 2), (3, 4)), 2.0]
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1])
        fd.add_output(-x)
    assert list(bind(fd, [[]])) == [[]]


def test_names_in_a_run(client: hostir.Client) -> None:
    with FusionDefinition("step") as fd:
        x = fd.define_tensor(shape=[-1])
        y = x + 1.0
        fd.add_output({"next": y, "all": [x * 2.0, (y,)]}, {"next": x, "all": [None, (None,)]})
    result = client.run(fd, {"x": [1, 2]})
    assert sorted(result) == ["all", "next"] and isinstance(result["all"][1], tuple)
    np.testing.assert_array_equal(result["next"], [2, 3])
    np.testing.assert_array_equal(result["all"][0], [2, 4])
    np.testing.assert_array_equal(client.run(fd, {"x": result["next"]})["next"], [3, 4])
    assert result["next"].state == "freed", "the run consumed it"


# --- conversions ---


@pytest.mark.parametrize("source", SMALL, ids=str)
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_exact_is_that_every_value_comes_back(source: np.dtype[Any], target: np.dtype[Any]) -> None:
    bits = np.arange(2 ** (8 * source.itemsize), dtype=f"u{source.itemsize}")
    values = np.array([False, True]) if source == np.bool_ else bits.view(source)
    with np.errstate(all="ignore"):
        back = values.astype(target).astype(source)
        same = np.array_equal(back, values, equal_nan=source.kind in "fV")
    assert is_exact(source, target) == same


@pytest.mark.parametrize(
    ("source", "targets"),
    [
        ("int32", "int32 int64 float64"),
        ("uint32", "int64 float64"),
        ("int64", "int64"),
        ("uint64", ""),
        ("float32", "float32 float64"),
        (">f4", "float32 float64"),
        ("float64", "float64"),
        ("complex64", ""),
    ],
)
def test_exact_conversions_of_wide_types(source: str, targets: str) -> None:
    assert [str(t) for t in TARGETS if is_exact(np.dtype(source), t)] == targets.split()


def test_float8_is_exact_in_float16() -> None:
    assert is_exact(np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(np.float16))


@pytest.mark.parametrize("data_type", [t for t in DataType if t is not DataType.Null])
def test_numbers_have_no_type_of_their_own(data_type: DataType) -> None:
    got = host_array([[0, 1], [True, False]], data_type, "input 0 (x)", "x")
    assert got.dtype == data_type.numpy
    np.testing.assert_array_equal(got.astype(int), [[0, 1], [1, 0]])
    if np.issubdtype(got.dtype, np.floating):
        assert host_array(0.1, data_type, "", "") == got.dtype.type(0.1)


@pytest.mark.parametrize(
    ("value", "data_type", "message"),
    [
        ([0, 2.5], DataType.Int, "input 0 (x): 2.5 is no int64, which the program wants"),
        ([2**31], DataType.Int32, "input 0 (x): 2147483648 is no int32, which the program wants"),
        ([[2]], DataType.Bool, "input 0 (x): 2 is no bool, which the program wants"),
        ([float("nan")], DataType.Int, "input 0 (x): nan is no int64, which the program wants"),
        (["a"], DataType.Float, "input 0 (x): an array of <U1 holds no numbers"),
        (
            np.arange(3),
            DataType.Int32,
            "input 0 (x): the array is int64, the program wants int32; only what can change no value is converted for "
            "you: x.astype(np.int32)",
        ),
        (
            np.ones(3),
            DataType.BFloat16,
            "input 0 (x): the array is float64, the program wants bfloat16; only what can change no value is converted "
            "for you: x.astype(ml_dtypes.bfloat16)",
        ),
    ],
)
def test_values_that_would_change(value: Any, data_type: DataType, message: str) -> None:
    with pytest.raises(hostir.InvalidArgument) as caught:
        host_array(value, data_type, "input 0 (x)", "x")
    assert re.fullmatch(re.escape(message) + HERE, str(caught.value)), str(caught.value)


def test_a_conversion_keeps_axes_of_stride_0() -> None:
    got = host_array(np.broadcast_to(np.arange(3, dtype=np.int16), (1 << 30, 3)), DataType.Float, "", "")
    assert (got.shape, got.strides, got.dtype) == ((1 << 30, 3), (0, 4), np.dtype(np.float32))


@pytest.mark.parametrize(
    "given", [np.arange(4, dtype=np.int16), np.arange(4, dtype=">f4"), np.arange(4, dtype=np.float16), range(4)]
)
def test_a_run_converts(client: hostir.Client, given: Any) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1])
        fd.add_output(x * 2.0)
    given = list(given) if isinstance(given, range) else given
    for value in (given, client.put(given, x)):
        np.testing.assert_array_equal(client.run(fd, [value])[0].numpy(), [0, 2, 4, 6])


def test_big_endian_arrays_without_a_program(client: hostir.Client) -> None:
    array = client.put(np.arange(3, dtype=">i4"))
    assert array.dtype == np.dtype(np.int32)
    np.testing.assert_array_equal(array.numpy(), [0, 1, 2])


def test_an_array_of_a_client_as_a_number(client: hostir.Client) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[2])
        fd.add_output(x * fd.define_scalar())
    np.testing.assert_array_equal(client.run(fd, [[1, 2], client.put(np.float64(0.5))])[0].numpy(), [0.5, 1])
