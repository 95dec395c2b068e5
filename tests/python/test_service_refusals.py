"""What the service refuses: class and whole message, with the user's file and line; then the next request is served.

What the client can infer it refuses itself, in the same words: each program is also sent by one that infers nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hostir
from hostir import DataType, DeviceMesh, FusionDefinition
from hostir.record import OpRecord

FOUR = DeviceMesh([0, 1, 2, 3])
HERE = r" \(test_service_refusals\.py:\d+: .*\)"
Call = Callable[[FusionDefinition, hostir.Tensor, hostir.Tensor, hostir.Tensor], Any]


def compile_case(client: hostir.Client, call: Call) -> None:
    with FusionDefinition("case") as fd:
        x = fd.define_tensor(shape=[-1, 4], contiguity=True)
        w = fd.define_tensor(shape=[5, 3], contiguity=True)
        b = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.Bool)
        made = call(fd, x, w, b)
        fd.add_output(made if isinstance(made, hostir.Tensor) else w)
    client._compile(fd)


OPS: list[tuple[str, Call]] = [
    ("relux: no such op in the fusion op set; did you mean relu?", lambda fd, x, w, b: fd.ops._record("relux", [x])),
    ("add: takes 2 operands, got 1", lambda fd, x, w, b: fd.ops._record("add", [x])),
    ("sum: no attribute axis; did you mean axes?", lambda fd, x, w, b: fd.ops._record("sum", [x], {"axis": [0]})),
    ("cast: attribute dtype is a word, got an integer", lambda fd, x, w, b: fd.ops._record("cast", [x], {"dtype": 3})),
    ("linear: axis 1 of %x has extent 4, axis 1 of %w has extent 3", lambda fd, x, w, b: fd.ops.linear(x, w)),
    (
        "linear: the weight %t0 has 1 axes; it must be [out, in]",
        lambda fd, x, w, b: fd.ops.linear(x, fd.ops.sum(w, [0])),
    ),
    ("matmul: axis 1 of %x has extent 4, axis 0 of %w has extent 5", lambda fd, x, w, b: x @ w),
    (
        "matmul: %x is f32, %t0 is f64; operands have one element type",
        lambda fd, x, w, b: fd.ops.matmul(x, fd.ops.cast(w, np.float64)),
    ),
    ("add: axis 1 of %x has extent 4, axis 1 of %w has extent 3", lambda fd, x, w, b: x + w),
    ("neg: %b is bool; numbers are needed: cast it first", lambda fd, x, w, b: -b),
    ("where: the condition %x is f32; it must be bool", lambda fd, x, w, b: fd.ops.where(x, x, x)),
    ("bitwise_and: %x is f32; bools or integers are needed", lambda fd, x, w, b: x & x),
    ("sum: axis 2 is not in [-2, 1]", lambda fd, x, w, b: fd.ops.sum(x, dims=[2])),
    ("max: axis 0 is given twice", lambda fd, x, w, b: fd.ops.max(x, dims=[0, -2])),
    (
        "max: axis 0 of %t0 has extent 0: of nothing there is no max",
        lambda fd, x, w, b: fd.ops.max(fd.ops.full([0, 2], 1, np.float32), [0]),
    ),
    ("reshape: %w has 15 elements, shape [4, 4] has 16", lambda fd, x, w, b: fd.ops.reshape(w, [4, 4])),
    ("permute: axis 0 is given twice", lambda fd, x, w, b: fd.ops.permute(w, [0, 0])),
    ("squeeze: axis 0 of %w has extent 5; only axes of extent 1 can go", lambda fd, x, w, b: fd.ops.squeeze(w, [0])),
    ("cat: axis 1 of %x has extent 4, axis 1 of %w has extent 3", lambda fd, x, w, b: fd.ops.cat([x, w], 0)),
    ("slice: start has 1 entries; %w has 2 axes", lambda fd, x, w, b: fd.ops.slice(w, [0], [1])),
    (
        "broadcast_in_dim: axis 0 of %w has extent 5, entry 0 of shape has extent 2",
        lambda fd, x, w, b: fd.ops.broadcast_in_dim(w, [2, 2], [0, 1]),
    ),
    ("expand: axis 1 of %w has extent 3, entry 1 of shape has extent 4", lambda fd, x, w, b: fd.ops.expand(w, [5, 4])),
    ("pad: widths has 1 entries; %w has 2 axes, so it holds at most 2 pairs", lambda fd, x, w, b: fd.ops.pad(w, [1])),
    (
        "full: f32[4611686018427387904, 4] has more than 2^60 - 1 elements",
        lambda fd, x, w, b: fd.ops.full([2**62, 4], 1, np.float32),
    ),
    (
        "scatter: i64[4294967296, 4294967296] has more than 2^60 - 1 elements",
        lambda fd, x, w, b: fd.ops.scatter(
            *[fd.ops.full([2**32], 1, t) for t in (np.float32, np.int64, np.float32)], 0
        ),
    ),
    (
        "full: attribute shape: expected an extent, got the end of the text",
        lambda fd, x, w, b: fd.ops.full(["i0 +"], 1, np.float32),
    ),
    (
        "full: %made: extent i9 is not the extent of an axis of any input",
        lambda fd, x, w, b: fd.ops.full(["i9"], 1, np.float32),
    ),
    ("x: parallelize: the value has no mesh yet; set it first", lambda fd, x, w, b: x.axis(0).parallelize("mesh_x")),
    ("x: shard: axis 2 is out of range: the value has 2 axes", lambda fd, x, w, b: x.shard(FOUR, {2: "mesh_x"})),
    ("x: shard: @m = [0, 1, 2, 3] has no mesh_y", lambda fd, x, w, b: x.shard(FOUR, {0: "mesh_y"})),
    ("x: shard: axis 0: serial is no mesh dimension", lambda fd, x, w, b: x.shard(FOUR, {0: "serial"})),
    (
        "x: outer_split: axis 3 is out of range: the loop domain [i0, 4] has 2 axes",
        lambda fd, x, w, b: (x.set_device_mesh(FOUR), x.outer_split(3, 2)),
    ),
    (
        "x: outer_split: factor 0; it must be at least 1",
        lambda fd, x, w, b: (x.set_device_mesh(FOUR), x.outer_split(0, 0)),
    ),
    (
        "x: merge: axis 1 is the last of [i0, 4]; there is none to merge it with",
        lambda fd, x, w, b: (x.set_device_mesh(FOUR), x.merge(1)),
    ),
    (
        "x: parallelize: axis 0 of [2, ceildiv(i0, 2), 4] has extent 2, but mesh_x of @m has 4 devices",
        lambda fd, x, w, b: (x.set_device_mesh(FOUR), x.outer_split(0, 2), x.axis(0).parallelize("mesh_x")),
    ),
    (
        "x: mesh: the value is on @m = [0, 1, 2, 3] already, got @m1 = [0]",
        lambda fd, x, w, b: (x.set_device_mesh(FOUR), x.set_device_mesh([0])),
    ),
    (
        "x: shard: mesh_x is on axis 0 already",
        lambda fd, x, w, b: (x.shard(FOUR, {0: "mesh_x"}), x.shard(FOUR, {1: "mesh_x"})),
    ),
    (
        "x: stride_order: [0, 0] is not a permutation of the 2 axes",
        lambda fd, x, w, b: x._annotate("stride_order", order=(0, 0)),
    ),
    (
        "mesh @m = [0, 4] names device 4; this daemon has devices 0 to 3",
        lambda fd, x, w, b: x.set_device_mesh([0, 4]),
    ),
]


@pytest.mark.parametrize("infers", [True, False], ids=["client", "service"])
@pytest.mark.parametrize(("message", "call"), OPS, ids=[message for message, _ in OPS])
def test_programs(
    client: hostir.Client, monkeypatch: pytest.MonkeyPatch, message: str, call: Call, infers: bool
) -> None:
    if not infers:
        monkeypatch.setattr(FusionDefinition, "_infer", lambda *_: None)
    with pytest.raises(hostir.InvalidArgument) as caught:
        compile_case(client, call)
    assert re.fullmatch(re.escape(message) + HERE, str(caught.value)), str(caught.value)
    assert client.put(np.ones(2)).numpy().sum() == 2


def sliced(fd: FusionDefinition, x: Any, w: Any, b: Any) -> None:
    y = fd.ops.slice(x, [0, 1], [1, 3])
    y.axis(1).parallelize("stream")
    fd.add_output(y)


def inside_of_a_serial_part(fd: FusionDefinition, x: Any, w: Any, b: Any) -> None:
    y = fd.ops.relu(x)
    y.outer_split(0, 2)
    y.outer_split(1, 2)
    y.axis(1).parallelize("stream")
    fd.add_output(y)


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("a loop over axis 1, element by element cannot make it: slice needs more than one chunk", sliced),
        ("a part is parallel on stream that is no row of chunks", inside_of_a_serial_part),
    ],
)
def test_what_no_loop_can_make_names_axis_and_remedy(client: hostir.Client, message: str, call: Call) -> None:
    with pytest.raises(hostir.Unimplemented) as caught:
        compile_case(client, call)
    assert message in str(caught.value)
    assert "annotate a set of it" in str(caught.value) or "use outer_split" in str(caught.value)


def test_a_mesh_dimension_is_no_stream(client: hostir.Client) -> None:
    with pytest.raises(hostir.InvalidArgument) as caught:
        compile_case(client, lambda fd, x, w, b: x.shard(FOUR, {1: "stream"}))
    message = "x: shard: axis 1: stream is no mesh dimension; use outer_split and parallelize"
    assert re.fullmatch(re.escape(message) + HERE, str(caught.value)), str(caught.value)


def with_ops(count: int, name: str = "neg") -> Call:
    def call(fd: FusionDefinition, x: hostir.Tensor, w: hostir.Tensor, b: hostir.Tensor) -> None:
        fd._record.ops += [OpRecord(name, ("x",), f"n{i}", {}, "") for i in range(count)]

    return call


def test_too_many_ops(client: hostir.Client) -> None:
    with pytest.raises(hostir.ResourceExhausted) as caught:
        compile_case(client, with_ops(65_537))
    assert re.fullmatch("the program has more than 65536 ops" + HERE, str(caught.value)), str(caught.value)


def test_a_program_of_too_many_bytes(client: hostir.Client) -> None:
    with pytest.raises(hostir.ResourceExhausted) as caught:
        compile_case(client, with_ops(1, "n" * 16_777_216))
    pattern = r"program_bytes_max = 16777216: the program has \d{8} bytes; split it" + HERE
    assert re.fullmatch(pattern, str(caught.value)), str(caught.value)


def test_a_message_of_too_many_bytes(client: hostir.Client) -> None:
    with pytest.raises(hostir.ResourceExhausted) as caught:
        compile_case(client, with_ops(1, "n" * 20_971_520))
    pattern = r"message_bytes_max = 20971520: the request has 209\d{5} bytes; split it" + HERE
    assert re.fullmatch(pattern, str(caught.value)), str(caught.value)
    assert client.put(np.ones(2)).numpy().sum() == 2


@pytest.mark.parametrize(
    ("message", "sizes"),
    [
        ("affine has no size i9; its sizes are i0", {"i9": 1}),
        ("i0 = -1; a size is 0 or more", {"i0": -1}),
        ("explain: i0 = 9223372036854775808; a size is an integer of 64 bits", {"i0": 2**63}),
        ("explain: i0 = '4'; a size is an integer of 64 bits", {"i0": "4"}),
    ],
)
def test_sizes(client: hostir.Client, message: str, sizes: dict[str, Any]) -> None:
    with pytest.raises(hostir.InvalidArgument) as caught:
        client.explain(affine(mesh=FOUR, axes={0: "mesh_x"}), sizes=sizes)
    assert re.fullmatch(re.escape(message) + HERE, str(caught.value)), str(caught.value)


# --- runs ---


def affine(**layout: Any) -> FusionDefinition:
    with FusionDefinition("affine") as fd:
        x = fd.define_tensor(shape=[-1, 3], contiguity=True)
        w = fd.define_tensor(shape=[-1], contiguity=True)
        s = fd.define_scalar()
        fd.add_output(x * s + w)
        if layout:
            x.shard(**layout)
    return fd


X, W = np.ones((4, 3), np.float32), np.ones(3, np.float32)
RUNS: list[tuple[type[hostir.HostirError], str, list[Any]]] = [
    (hostir.InvalidArgument, "affine has 3 inputs, 2 were given", [X, W]),
    (hostir.InvalidArgument, "affine has 3 inputs, 4 were given", [X, W, 1.0, 2.0]),
    (hostir.InvalidArgument, "input 2 (s): a number is wanted, not a ndarray", [X, W, np.ones(3)]),
    (hostir.InvalidArgument, "input 2 (s): 9223372036854775808 does not fit 64 bits", [X, W, 2**63]),
    (
        hostir.InvalidArgument,
        "input 0 (x): the array is float64, the program wants float32; only what can change no value is converted for "
        "you: x.astype(np.float32)",
        [X.astype(np.float64), W, 1.0],
    ),
]


@pytest.mark.parametrize(("kind", "message", "inputs"), RUNS, ids=[run[1] for run in RUNS])
def test_inputs(client: hostir.Client, kind: type[hostir.HostirError], message: str, inputs: list[Any]) -> None:
    with pytest.raises(kind) as caught:
        client.run(affine(), inputs)
    assert re.fullmatch(re.escape(message) + HERE, str(caught.value)), str(caught.value)
    assert client.run(affine(), [X, W, 1.0])[0].numpy()[0, 0] == 2


INT64 = "i64: an integer from -9223372036854775808 to 9223372036854775807"
INT32 = "i32: an integer from -2147483648 to 2147483647"
BOOL = "bool: true or false, 0 or 1"
SCALARS: list[tuple[hostir.DataType, Any, str]] = [
    (hostir.DataType.Int, 2.5, f"2.5 is no {INT64}"),
    (hostir.DataType.Int, 1e30, f"1e+30 is no {INT64}"),
    (hostir.DataType.Int, 2.0**63, f"9223372036854775808.0 is no {INT64}"),
    (hostir.DataType.Int, float("nan"), f"nan is no {INT64}"),
    (hostir.DataType.Int32, float("inf"), f"inf is no {INT32}"),
    (hostir.DataType.Int32, 2**31, f"2147483648 is no {INT32}"),
    (hostir.DataType.Int32, 2**32 + 5, f"4294967301 is no {INT32}"),
    (hostir.DataType.Int32, -(2.0**31) - 1, f"-2147483649.0 is no {INT32}"),
    (hostir.DataType.Int32, 1.9, f"1.9 is no {INT32}"),
    (hostir.DataType.Bool, 0.5, f"0.5 is no {BOOL}"),
    (hostir.DataType.Bool, 2, f"2 is no {BOOL}"),
]


def scalar_of(dtype: hostir.DataType) -> FusionDefinition:
    with FusionDefinition() as fd:
        n = fd.define_scalar(dtype=dtype)
        fd.add_output(fd.ops.where(fd.define_tensor(shape=[1], contiguity=True, dtype=hostir.DataType.Bool), n, n))
    return fd


@pytest.mark.parametrize(("dtype", "value", "message"), SCALARS, ids=[scalar[2] for scalar in SCALARS])
def test_a_number_that_a_scalar_does_not_hold(
    client: hostir.Client, dtype: hostir.DataType, value: Any, message: str
) -> None:
    with pytest.raises(hostir.InvalidArgument) as caught:
        client.run(scalar_of(dtype), [value, np.ones(1, np.bool_)])
    assert re.fullmatch(re.escape(f"input 0 (n): {message}") + HERE, str(caught.value)), str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (hostir.DataType.Int, [2**63 - 1, -(2**63), 2**53 + 1, -(2.0**63), 3.0, True]),
        (hostir.DataType.Int32, [2**31 - 1, -(2**31), 2.0**31 - 1, -0.0, False]),
        (hostir.DataType.Bool, [0, 1, True, 1.0]),
        (hostir.DataType.Float, [2**24 + 1, 1e-60, float("inf"), True]),
    ],
)
def test_numbers_that_a_scalar_holds(client: hostir.Client, dtype: hostir.DataType, values: list[Any]) -> None:
    """Integers and bools exactly, floats rounded."""
    for value in values:
        (y,) = client.run(scalar_of(dtype), [value, np.ones(1, np.bool_)])
        np.testing.assert_array_equal(y.numpy(), np.array([value], y.dtype))


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), float("inf"), 1e30])
def test_timeouts(client: hostir.Client, timeout: float) -> None:
    with pytest.raises(hostir.InvalidArgument) as caught:
        client.run(affine(), [X, W, 1.0], timeout=timeout)
    message = f"run: timeout {timeout}; it is a number of seconds above 0"
    assert re.fullmatch(re.escape(message) + HERE, str(caught.value)), str(caught.value)


def test_a_timeout_beyond_the_limit(client: hostir.Client) -> None:
    assert client.run(affine(), [X, W, 1.0], timeout=600)[0].numpy()[0, 0] == 2
    with pytest.raises(hostir.ResourceExhausted) as caught:
        client.run(affine(), [X, W, 1.0], timeout=600.001)
    message = (
        "run_timeout_ms = 600000: the run asks for 600001 ms; ask for less, or start the daemon with a higher limit"
    )
    assert re.fullmatch(re.escape(message) + HERE, str(caught.value)), str(caught.value)
