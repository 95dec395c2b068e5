"""What the client itself refuses: the whole message, with the user's file and line. No daemon is needed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hostir
from hostir import DataType, DeviceMesh, FusionDefinition, Sharding
from hostir.address import target
from hostir.dtypes import as_data_type
from hostir.sharding import assemble

Call = Callable[[FusionDefinition, hostir.Tensor], Any]
HERE = r" \(test_refusals\.py:\d+: .*\)"

INVALID: list[tuple[str, Call]] = [
    ("add: an operand is a str; operands are tensors, scalars and numbers", lambda fd, x: fd.ops.add(x, "2")),
    (
        "add: an operand is a ndarray; operands are tensors, scalars and numbers",
        lambda fd, x: fd.ops.add(x, np.ones(2)),
    ),
    ("exp: Tensor(%x) is a value of another definition", lambda fd, x: FusionDefinition().ops.exp(x)),
    ("sum: dims is empty; None means all axes", lambda fd, x: fd.ops.sum(x, dims=[])),
    ("sum: axis 0.5 is not an integer", lambda fd, x: fd.ops.sum(x, dims=[0.5])),
    ("reshape: 4 is no list of sizes", lambda fd, x: fd.ops.reshape(x, 4)),
    (
        "reshape: %s is not known yet; a size is a number, a constant scalar, Tensor.size or define_size",
        lambda fd, x: fd.ops.reshape(x, [fd.fusion.inputs()[1]]),
    ),
    (
        "full: Scalar(%s) is no number and no constant scalar",
        lambda fd, x: fd.ops.full([2], fd.fusion.inputs()[1], int),
    ),
    (
        "cat: manual_padding=True, and Tensor(%x) is no result of pad",
        lambda fd, x: fd.ops.cat([x], 0, manual_padding=True),
    ),
    (
        "cat: manual_padding=True, and %t0 is padded by [0, 1, 0, 1], not along 0 alone",
        lambda fd, x: fd.ops.cat([fd.ops.pad(x, [0, 1, 0, 1])], 0, manual_padding=True),
    ),
    (
        "cat: manual_padding=True, with [0, 2] in front and [1, 1] behind; the parts must meet",
        lambda fd, x: fd.ops.cat([fd.ops.pad(x, [0, 1]), fd.ops.pad(x, [2, 1])], -1, manual_padding=True),
    ),
    (
        "cat: manual_padding=True, and %t1 does not meet its neighbours",
        lambda fd, x: fd.ops.cat([fd.ops.pad(x, w) for w in ([0, 7], [4, 2], [8, 0])], -1, manual_padding=True),
    ),
    ("sum: axis array([0]) is not an integer", lambda fd, x: fd.ops.sum(x, np.array([0]))),
    ("slice: axis None is not an integer", lambda fd, x: fd.ops.slice(x, [0], [None])),
    ("reshape: axis None is not an integer", lambda fd, x: fd.ops.reshape(x, [None])),
    ("cat: Tensor(%x) is no list of tensors", lambda fd, x: fd.ops.cat(x, 0)),  # type: ignore[arg-type]
    ("broadcast: True is no list of bools", lambda fd, x: fd.ops.broadcast(x, True)),  # type: ignore[arg-type]
    (
        "full: 9007199254740993 is beyond 2^53, where constants are rounded; write a float where that is meant",
        lambda fd, x: fd.ops.full([2], 2**53 + 1, DataType.Int),
    ),
    (
        "pad: -9007199254740993 is beyond 2^53, where constants are rounded; write a float where that is meant",
        lambda fd, x: fd.ops.pad(x, [1, 1], np.int64(-(2**53) - 1)),
    ),
    ("cat: axis 'x' is not an integer", lambda fd, x: fd.ops.cat([x, x], dim="x")),  # type: ignore[arg-type]
    (
        "complex64 is no element type; there are float64, float32, float16, bfloat16, int64, int32, int8, uint8, bool",
        lambda fd, x: fd.ops.cast(x, np.complex64),
    ),
    (
        "'floot' is no element type; there are float64, float32, float16, bfloat16, int64, int32, int8, uint8, bool",
        lambda fd, x: as_data_type("floot"),
    ),
    (">f4 is big-endian; convert it first: array.astype(np.float32)", lambda fd, x: as_data_type(np.dtype(">f4"))),
    (
        "DataType.Null says that an operation decides; here an element type is needed",
        lambda fd, x: fd.define_tensor(shape=[2], dtype=DataType.Null),
    ),
    ("define_tensor: shape has 2 entries, contiguity 1", lambda fd, x: fd.define_tensor([2, 3], contiguity=[True])),
    ("define_tensor: sizes has 2 entries, strides 1", lambda fd, x: fd.define_tensor(sizes=[2, 3], strides=[1])),
    (
        "None is no element type; there are float64, float32, float16, bfloat16, int64, int32, int8, uint8, bool",
        lambda fd, x: fd.define_tensor(shape=[2], dtype=None),
    ),
    ("define_tensor: 9223372036854775808 does not fit 64 bits", lambda fd, x: fd.define_tensor(shape=[2**63])),
    ("full: 18446744073709551616 does not fit 64 bits", lambda fd, x: fd.ops.full([2**64], 1, DataType.Float)),
    ("pad: -9223372036854775809 does not fit 64 bits", lambda fd, x: fd.ops.pad(x, [0, -(2**63) - 1])),
    ("sum: 9223372036854775808 does not fit 64 bits", lambda fd, x: fd.ops.sum(x, 2**63)),
    ("outer_split: 9223372036854775808 does not fit 64 bits", lambda fd, x: x.outer_split(0, 2**63)),
    (
        "mesh [9223372036854775808] holds device 9223372036854775808, which no daemon has",
        lambda fd, x: DeviceMesh([2**63]),
    ),
    ("shard: [0] does not map axes to mesh dimensions", lambda fd, x: x.shard([0], [0])),  # type: ignore[arg-type]
    ("define_tensor: extent -2; it is -1 (any size) or at least 0", lambda fd, x: fd.define_tensor(shape=[-2])),
    ("define_tensor: is_cpu=True is for tensors without axes", lambda fd, x: fd.define_tensor(shape=[2], is_cpu=True)),
    ("0.5 is not an integer; the scalar has type i64", lambda fd, x: fd.define_scalar(0.5, DataType.Int)),
    ("nan is not an integer; the scalar has type i32", lambda fd, x: fd.define_scalar(float("nan"), DataType.Int32)),
    ("'2' is not a number", lambda fd, x: fd.define_scalar("2")),
    (
        "9007199254740993 is beyond 2^53, the limit of constant scalars; make it an input, or write a float",
        lambda fd, x: fd.define_scalar(2**53 + 1),
    ),
    (
        "an integer of 16610 bits is beyond 2^53, the limit of constant scalars; make it an input, or write a float",
        lambda fd, x: x + 10**5000,
    ),
    (
        "full: an integer of 16610 bits is beyond 2^53, where constants are rounded; write a float where that is meant",
        lambda fd, x: fd.ops.full([2], 10**5000, DataType.Int),
    ),
    (
        "an integer of 1329 bits is beyond f64, the scalar's type",
        lambda fd, x: fd.define_scalar(10**400, DataType.Double),
    ),
    ("add_output: 3 is no value of this definition", lambda fd, x: fd.add_output(3)),  # type: ignore[arg-type]
    ("add_output: %s is a host scalar; outputs are tensors", lambda fd, x: fd.add_output(fd.fusion.inputs()[1])),
    ("add_output: Tensor(%t0) is no input of this definition", lambda fd, x: fd.add_output(x, fd.ops.exp(x))),
    ("size: axis 2 of %x, which has 2 axes", lambda fd, x: x.size(2)),
    ("swapaxes: axis 2 of %x, which has 2 axes", lambda fd, x: x.swapaxes(0, 2)),
    ("index: 3 indices; %x has 2 axes", lambda fd, x: x[0, 0, 0]),
    ("index: ... stands for all other axes; it is written once", lambda fd, x: x[..., 0, ...]),
    ("select: axis 1 of %x has extent 4; it has no element 4", lambda fd, x: x[:, 4]),
    (
        "'mesh_w' is no parallel type; there are serial, mesh_x, mesh_y, mesh_z, stream",
        lambda fd, x: x.shard([0], {0: "mesh_w"}),
    ),
    ("mesh 3 has 0 dimensions; it has 1 to 3", lambda fd, x: DeviceMesh(3)),
    ("mesh [] is not made of device numbers", lambda fd, x: DeviceMesh([])),
    ("mesh [0.5] is not made of device numbers", lambda fd, x: x.set_device_mesh([0.5])),
    ("mesh [[0, 1], [2]]: the nested lists have different lengths", lambda fd, x: DeviceMesh([[0, 1], [2]])),
    ("mesh [0, 1, 0] holds device 0 twice", lambda fd, x: DeviceMesh([0, 1, 0])),
    ("mesh [-1] holds device -1; devices are numbered from 0", lambda fd, x: DeviceMesh([-1])),
    (
        "axis 0 is split over mesh_y; DeviceMesh([0, 1]) has mesh_x",
        lambda fd, x: Sharding(DeviceMesh([0, 1]), {0: "mesh_y"}),
    ),
    ("mesh_x splits axis 0 and axis 1", lambda fd, x: Sharding([0, 1], {0: "mesh_x", 1: "mesh_x"})),
    (
        "axis 0 is split over mesh_x, mesh_y; the outer one is first: mesh_z, mesh_y, mesh_x",
        lambda fd, x: Sharding([[0, 1]], {0: ("mesh_x", "mesh_y")}),
    ),
    (
        "1 shards for DeviceMesh([0, 1]), which has 2 devices",
        lambda fd, x: assemble([np.ones(2)], Sharding([0, 1], {0: "mesh_x"})),
    ),
    (
        "shard 0 is float64[2]; of float64[5] it is float64[3]",
        lambda fd, x: assemble([np.ones(2), np.ones(3)], Sharding([0, 1], {0: "mesh_x"})),
    ),
    (
        "axis 1 is split over mesh_x, but the array has 1 axes",
        lambda fd, x: assemble([np.ones(2), np.ones(2)], Sharding([0, 1], {1: "mesh_x"})),
    ),
]


@pytest.mark.parametrize(("message", "call"), INVALID, ids=[message for message, _ in INVALID])
def test_invalid_argument(message: str, call: Call) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 4])
        s = fd.define_scalar()
        with pytest.raises(hostir.InvalidArgument) as caught:
            call(fd, x)
    assert s.value is None
    assert re.fullmatch(re.escape(message) + HERE, str(caught.value)), str(caught.value)
    source, first = inspect.getsourcelines(call)
    line = int(re.findall(r"py:(\d+):", str(caught.value))[-1])
    assert first <= line < first + len(source) + 1, "the line is that of the call"


@pytest.mark.parametrize(
    ("message", "call"),
    [
        (
            "shape: only the service knows the type of %t1",
            lambda fd, x: fd.ops._record("relux", [x]).shape,
        ),
        ("index: step -1; steps are at least 1 (nothing runs backwards)", lambda fd, x: x[::-1]),
        (
            "index: [0, 1] is no index of axis 1 of %t0; there are integers, slices, None, ... and tensors of integers "
            "with one axis; fd.ops.take_along_axis and fd.ops.where do what others do",
            lambda fd, x: x[:, [0, 1]],
        ),
        ("define_vector: a list of sizes, not 3; a vector cannot be an input", lambda fd, x: fd.define_vector(3)),
    ],
)
def test_unimplemented(message: str, call: Call) -> None:
    with FusionDefinition() as fd, pytest.raises(hostir.Unimplemented) as caught:
        call(fd, fd.define_tensor(shape=[-1, 4]))
    assert re.fullmatch(re.escape(message) + HERE, str(caught.value)), str(caught.value)


def test_a_frozen_definition() -> None:
    with FusionDefinition("done") as fd:
        x = fd.define_tensor(shape=[2])
        s = fd.define_scalar(2.0)
    frozen = "done is frozen since its `with` block ended; define another" + HERE
    for call in (
        lambda: x + 1,
        lambda: fd.ops.reciprocal(s),
        lambda: fd.define_tensor(shape=[1]),
        lambda: fd.define_scalar(1),
        lambda: fd.add_output(x),
        lambda: x.set_device_mesh([0]),
        lambda: x.axis(0).parallelize("mesh_x"),
        lambda: fd.__enter__(),
    ):
        with pytest.raises(hostir.FailedPrecondition) as caught:
            call()
        assert re.fullmatch(frozen, str(caught.value)), str(caught.value)


def test_values_have_no_truth() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[2])
        with pytest.raises(hostir.FailedPrecondition) as caught:
            bool(x < 1)
    message = "%t1 has no value while a program is being defined; fd.ops.where chooses by it" + HERE
    assert re.fullmatch(message, str(caught.value))


def test_arithmetic_with_something_else_is_pythons_error() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[2])
        with pytest.raises(TypeError):
            x + "2"
        with pytest.raises(TypeError):
            x @ 2
        with pytest.raises(TypeError):
            fd.ops.add(x)
        with pytest.raises(AttributeError, match="no attribute 'relux'"):
            fd.ops.relux(x)


def test_error_classes() -> None:
    assert issubclass(hostir.InvalidArgument, ValueError)
    assert issubclass(hostir.Unimplemented, NotImplementedError)
    assert hostir.InvalidArgument.__module__ == "hostir"  # As a traceback shows it.
    error = hostir.errors.from_code(14, "gone")
    assert (type(error), error.code, str(error)) == (hostir.Unavailable, "UNAVAILABLE", "gone")
    assert hostir.errors.from_code("OUT_OF_RANGE", "x").code == "OUT_OF_RANGE"


# --- connecting ---

ADDRESSES: list[tuple[Any, str]] = [
    ("foo", "want unix:/path or tcp:host:port"),
    ("", "want unix:/path or tcp:host:port"),
    ("127.0.0.1:1", "want unix:/path or tcp:host:port"),
    ("/run/socket", "want unix:/path or tcp:host:port"),
    (5, "want unix:/path or tcp:host:port"),
    (b"unix:/run/socket", "want unix:/path or tcp:host:port"),
    ("unix:socket", "want unix:/path, with an absolute path"),
    ("unix:", "want unix:/path, with an absolute path"),
    ("unix:/a?b", 'the path has "?", which gRPC reads as no part of a path: name another'),
    ("unix:/" + 107 * "a", "a socket's path has at most 107 bytes, this one has 108"),
    ("unix:/" + 53 * "ä" + "a", "a socket's path has at most 107 bytes, this one has 108"),
    ("tcp:host", "want tcp:host:port with a port from 1 to 65535"),
    ("tcp::80", "want tcp:host:port with a port from 1 to 65535"),
    ("tcp:host:", "want tcp:host:port with a port from 1 to 65535"),
    ("tcp:host:http", "want tcp:host:port with a port from 1 to 65535"),
    ("tcp:host:0", "want tcp:host:port with a port from 1 to 65535"),
    ("tcp:host:65536", "want tcp:host:port with a port from 1 to 65535"),
    ("tcp:host:" + 5000 * "9", "want tcp:host:port with a port from 1 to 65535"),
]


@pytest.mark.parametrize(("address", "want"), ADDRESSES, ids=[repr(address)[:20] for address, _ in ADDRESSES])
def test_what_is_no_address(address: Any, want: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given to connect, to Client, or by the environment."""
    ways: list[tuple[str, Callable[[], Any]]] = [
        ("address", lambda: hostir.connect(address)),
        ("address", lambda: hostir.Client(address)),
    ]
    if isinstance(address, str) and address:
        monkeypatch.setenv("HOSTIR_ADDRESS", address)
        ways.append(("$HOSTIR_ADDRESS", hostir.connect))
    for named, call in ways:
        with pytest.raises(hostir.InvalidArgument) as caught:
            call()
        expected = re.escape(f"{named} = {address!r}: {want}")
        assert re.fullmatch(expected + HERE, str(caught.value)), str(caught.value)


@pytest.mark.parametrize(
    ("address", "gives"),
    [
        ("unix:/" + 106 * "a", "unix:/" + 106 * "a"),
        ("tcp:127.0.0.1:65535", "127.0.0.1:65535"),
        ("tcp:[::1]:1", "[::1]:1"),
    ],
)
def test_what_is_an_address(address: str, gives: str) -> None:
    assert target(address) == gives


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        (
            "address and devices: a daemon that runs, or one that is started, not both",
            {"address": "unix:/a", "devices": "cpu:1"},
        ),
        ("devices = '': want cpu:N, cuda:all, or GPUs by number such as cuda:0,2", {"devices": ""}),
        ("devices = 4: want cpu:N, cuda:all, or GPUs by number such as cuda:0,2", {"devices": 4}),
    ],
)
def test_devices_that_cannot_be_asked_for(message: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(hostir.InvalidArgument) as caught:
        hostir.connect(**arguments)
    assert re.fullmatch(re.escape(message) + HERE, str(caught.value)), str(caught.value)
