"""Arrays, handles, shardings and plans through a daemon with four CPU ranks."""

from __future__ import annotations

import copy
import functools
import gc
import operator
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hostir
from hostir import DataType, DeviceMesh, FusionDefinition, Sharding
from hostir.inputs import VALUE_BYTES
from observed_daemon import ObservedDaemon

FOUR = DeviceMesh([0, 1, 2, 3])
SQUARE = DeviceMesh([[0, 1], [2, 3]])
DTYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.int32, np.bool_]


def scaled(
    number: float = 2.0, shape: list[int] | None = None, dtype: Any = np.float32, **kwargs: Any
) -> FusionDefinition:
    with FusionDefinition("scaled") as fd:
        x = fd.define_tensor(shape=shape or [-1, -1], contiguity=True, dtype=dtype)
        y = x * number
        fd.add_output(y)
        if kwargs:
            x.shard(**kwargs)
    return fd


# --- arrays ---


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: np.dtype(t).name)
def test_put_and_get(client: hostir.Client, dtype: Any) -> None:
    for shape in [(), (1,), (0,), (5,), (3, 4), (2, 0, 3), (1, 2, 3, 4, 5)]:
        values = (np.arange(np.prod(shape)) % 2).reshape(shape).astype(dtype)
        array = client.put(values)
        got = array.numpy()
        assert (got.shape, got.dtype) == (shape, np.dtype(dtype))
        assert (array.shape, array.dtype, array.ndim, array.size) == (shape, np.dtype(dtype), len(shape), values.size)
        np.testing.assert_array_equal(got, values)


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "transposed": lambda a: a.T,
    "Fortran order": lambda a: np.asfortranarray(a),
    "reversed": lambda a: a[::-1, ::-2],
    "a column": lambda a: a[:, 1],
    "stride 0": lambda a: np.broadcast_to(a[:1], (5, a.shape[1])),
    "stride 0 twice": lambda a: np.lib.stride_tricks.as_strided(a, (7, 3, a.shape[1]), (0, 0, a.itemsize)),
    "stride 0 everywhere": lambda a: np.broadcast_to(a[1, 1], (3, 4)),
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype),
    "misaligned": lambda a: np.frombuffer(b"." + a.tobytes(), a.dtype, offset=1),
    "stride 0 of nothing": lambda a: np.broadcast_to(a[:0, :1], (0, 9)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_put_takes_any_strides(client: hostir.Client, layout: str) -> None:
    for dtype in (np.float32, ml_dtypes.bfloat16, np.int64):
        values = LAYOUTS[layout](np.arange(24).reshape(4, 6).astype(dtype))
        np.testing.assert_array_equal(client.put(values).numpy(), values)


def test_of_an_axis_with_stride_0_one_element_moves(client: hostir.Client) -> None:
    before = client.status()["tensor_bytes"]
    array = client.put(np.broadcast_to(np.arange(8, dtype=np.float32), (1 << 20, 8)))
    assert client.status()["tensor_bytes"] - before == 32
    assert (array.nbytes, array.shape) == (32 << 20, (1 << 20, 8))


def test_put_copies_before_it_returns(client: hostir.Client) -> None:
    values = np.zeros(1000)
    array = client.put(values)
    values[:] = 1
    assert not array.numpy().any()


def test_more_bytes_than_a_message(client: hostir.Client) -> None:
    values = np.random.default_rng(1).standard_normal((1031, 1019))
    np.testing.assert_array_equal(client.put(values, sharding=Sharding(FOUR)).numpy(), values)


def test_an_axis_from_behind(client: hostir.Client) -> None:
    values = np.arange(6 * 8, dtype=np.float32).reshape(6, 8)
    array = client.put(values, sharding=Sharding(FOUR, {-1: "mesh_x"}))
    assert array.sharding == Sharding(FOUR, {1: "mesh_x"})
    np.testing.assert_array_equal(array.numpy(), values)


def test_arrays_go_out_as_numpy_and_dlpack(client: hostir.Client) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    array = client.put(values)
    np.testing.assert_array_equal(np.asarray(array), values)
    np.testing.assert_array_equal(np.from_dlpack(array), values)
    assert np.asarray(array, dtype=np.float64).dtype == np.float64
    assert len(array) == 2
    half = client.put(values.astype(ml_dtypes.bfloat16))
    assert np.asarray(half).dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(client.put(hostir.dlpack.as_numpy(half)).numpy(), values.astype(ml_dtypes.bfloat16))


def test_lists_and_numbers(client: hostir.Client) -> None:
    np.testing.assert_array_equal(client.put([[1.0, 2.0], [3.0, 4.0]]).numpy(), [[1.0, 2.0], [3.0, 4.0]])
    assert client.put(3).dtype == np.int64


# --- shardings ---

SHARDINGS = [
    Sharding(FOUR),
    Sharding(FOUR, {0: "mesh_x"}),
    Sharding(FOUR, {1: "mesh_x"}),
    Sharding([2], {}),
    Sharding([3, 1], {1: "mesh_x"}),
    Sharding(SQUARE, {0: "mesh_y", 1: "mesh_x"}),
    Sharding(SQUARE, {0: "mesh_x"}),
    Sharding(SQUARE, {1: ("mesh_y", "mesh_x")}),
    Sharding([[[1], [0]]], {0: "mesh_y"}),
]


@pytest.mark.parametrize("shape", [(8, 12), (5, 7), (1, 3), (0, 2)], ids=str)
@pytest.mark.parametrize("sharding", SHARDINGS, ids=repr)
def test_shards(client: hostir.Client, sharding: Sharding, shape: tuple[int, int]) -> None:
    values = np.arange(shape[0] * shape[1], dtype=np.int32).reshape(shape)
    array = client.put(values, sharding=sharding)
    assert array.sharding == sharding
    np.testing.assert_array_equal(array.numpy(), values)
    shards = array.shards
    assert [rank for rank, _, _ in shards] == list(sharding.mesh.devices)
    for position, (_, slices, shard) in enumerate(shards):
        np.testing.assert_array_equal(shard, values[slices])
        assert slices == sharding.block(position, shape)
    again = client.from_shards([shard for _, _, shard in shards], sharding)
    np.testing.assert_array_equal(again.numpy(), values)
    again = hostir.from_shards([shard for _, _, shard in shards], sharding, client)
    assert again.sharding == sharding


@pytest.mark.parametrize(
    "target", [Sharding(FOUR, {1: "mesh_x"}), Sharding(FOUR), Sharding(SQUARE, {0: "mesh_y"})], ids=repr
)
@pytest.mark.parametrize("source", [Sharding(FOUR, {0: "mesh_x"}), Sharding(FOUR)], ids=repr)
@pytest.mark.parametrize("shape", [(8, 12), (9, 3)], ids=str)
def test_reshard(client: hostir.Client, source: Sharding, target: Sharding, shape: tuple[int, int]) -> None:
    values = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    array = client.reshard(client.put(values, sharding=source), target)
    assert array.sharding == target
    np.testing.assert_array_equal(array.numpy(), values)


def test_reshard_of_an_array_that_is_stored_once(client: hostir.Client) -> None:
    values = np.broadcast_to(np.arange(8, dtype=np.float32), (4, 8))
    array = client.reshard(client.put(values, sharding=Sharding(FOUR)), Sharding(FOUR, {1: "mesh_x"}))
    np.testing.assert_array_equal(array.numpy(), values)


def test_a_split_axis_of_one_element(client: hostir.Client) -> None:
    """One column for all, though the axis is split: each device has it, whichever way it came."""
    x = np.arange(6, dtype=np.float32).reshape(6, 1) + 1
    w = np.zeros((6, 8), np.float32)
    with FusionDefinition("columns") as fd:
        column = fd.define_tensor(shape=[6, 1], contiguity=True, dtype=DataType.Float)
        columns = fd.define_tensor(shape=[6, 8], contiguity=True, dtype=DataType.Float)
        y = column + columns
        fd.add_output(y)
        for tensor in (column, columns, y):
            tensor.shard(FOUR, {1: "mesh_x"})
    for given in (x, client.put(x, column), client.put(x, sharding=Sharding(FOUR, {1: "mesh_x"}))):
        (out,) = client.run(fd, [given, w])
        np.testing.assert_array_equal(out.numpy(), x + w)
    moved = client.reshard(client.put(x, sharding=Sharding(FOUR, {1: "mesh_x"})), Sharding(FOUR, {0: "mesh_x"}))
    np.testing.assert_array_equal(moved.numpy(), x)


@pytest.mark.parametrize("rows", [3, 1, 0])
def test_any_number_of_rows_that_are_stored_once(client: hostir.Client, rows: int) -> None:
    with FusionDefinition("rows") as fd:
        row = fd.define_tensor(shape=[-1, 4], contiguity=[None, True], dtype=DataType.Float)
        count = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.Float)
        fd.add_output(-row)
        fd.add_output(fd.ops.expand(fd.ops.broadcast(count, [True, False]), [row.size(0), -1]))
    ones = np.broadcast_to(np.ones((1, 4), np.float32), (rows, 4))
    negative, expanded = client.run(fd, [ones, np.arange(5, dtype=np.float32)])
    np.testing.assert_array_equal(negative.numpy(), -ones)
    np.testing.assert_array_equal(expanded.numpy(), np.tile(np.arange(5, dtype=np.float32), (rows, 1)))


@pytest.mark.parametrize("rows", [8, 9, 10, 3, 0])
def test_uneven_shards(client: hostir.Client, rows: int) -> None:
    """One definition, whatever the number of rows: blocks that are short or empty, reduced, and multiplied."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 3], contiguity=True, dtype=DataType.Float)
        w = fd.define_tensor(shape=[3, 5], contiguity=True, dtype=DataType.Float)
        half = fd.ops.mul(x, 0.5)
        fd.add_output(fd.ops.exp(half))
        fd.add_output(fd.ops.sum(half, dims=[0]))
        fd.add_output(fd.ops.matmul(half, w))
        fd.add_output(fd.ops.matmul(fd.ops.permute(x, [1, 0]), half))  # Contracted over the rows.
        x.shard(FOUR, {0: "mesh_x"})
    rng = np.random.default_rng(rows)
    a, b = rng.standard_normal((rows, 3), np.float32), rng.standard_normal((3, 5), np.float32)
    outputs = client.run(fd, [a, b])
    assert outputs[0].sharding == Sharding(FOUR, {0: "mesh_x"})
    for output, wanted in zip(outputs, [np.exp(a / 2), a.sum(0) / 2, a / 2 @ b, a.T @ a / 2], strict=True):
        np.testing.assert_allclose(output.numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_put_as_an_input(client: hostir.Client) -> None:
    fd = scaled(mesh=FOUR, axes={0: "mesh_x"})
    array = client.put(np.ones((8, 3), np.float32), fd.fusion.inputs()[0])
    assert array.sharding == Sharding(FOUR, {0: "mesh_x"})
    (y,) = client.run(fd, [array])
    assert y.sharding == array.sharding


# --- runs ---


def test_a_run_with_host_arrays_numbers_and_handles(client: hostir.Client) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.Double)
        a = fd.define_scalar(dtype=DataType.Double)
        n = fd.define_scalar(dtype=DataType.Int)
        flag = fd.define_scalar(dtype=DataType.Bool)
        fd.add_output(fd.ops.where(flag, x * a + n, x))
    values = np.arange(5.0)
    for arguments in ([values, 0.5, 3, True], [client.put(values), np.float32(0.5), np.int64(3), np.True_]):
        (y,) = client.run(fd, arguments)
        np.testing.assert_array_equal(y.numpy(), values * 0.5 + 3)
    (y,) = client.run(fd, [values, np.array(0.5), 2**53 + 1, False])
    np.testing.assert_array_equal(y.numpy(), values)


def test_small_host_arrays_go_along(client: hostir.Client) -> None:
    """One request for any number of inputs, of which nothing is left. Large ones are put, and what is too much."""
    with FusionDefinition() as fd:
        inputs = [fd.define_tensor(shape=[-1], contiguity=True) for _ in range(8)]
        fd.add_output(functools.reduce(operator.add, inputs))
    repeated = np.broadcast_to(np.float32(3), (1000,))
    half = np.ones(VALUE_BYTES // 8, np.float32)

    def asked(given: list[np.ndarray[Any, Any]]) -> int:
        before = client.status()
        (y,) = client.run(fd, given, wait=True)
        after = client.status()
        np.testing.assert_array_equal(y.numpy(), sum(given))
        assert after["tensors"] == before["tensors"] + 1
        return int(after["requests"] - before["requests"]) - 1  # The look.

    small = [np.full(1000, float(k), np.float32) for k in range(8)]
    asked(small)  # Compiles.
    assert asked(small) == 1
    assert asked([repeated, *small[1:]]) == 1
    assert asked([half] * 8) == 1
    large = np.ones(VALUE_BYTES // 4, np.float32)
    assert asked([large] * 8) == 1 + 4 + 1  # Four are put, and given back.
    assert asked([np.ones(VALUE_BYTES // 4 + 1, np.float32)] * 8) == 1 + 8 + 1


def test_nothing_goes_along_to_an_older_daemon(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_value_bytes", 0)
    for rows in (4, 0):
        x = np.ones((8, 3), np.float32)[:rows]
        before = client.status()["requests"]
        (y,) = client.run(scaled(), [x], wait=True)
        assert client.status()["requests"] - before > 2
        np.testing.assert_array_equal(y.numpy(), x * 2)


def test_inputs_that_are_too_much_for_a_request(daemon_program: str, tmp_path: Path) -> None:
    daemon = ObservedDaemon(daemon_program, tmp_path, devices="cpu:1", message_bytes_max=131072, chunk_bytes_max=65536)
    try:
        with hostir.connect(daemon.address) as client:
            with FusionDefinition() as fd:
                inputs = [fd.define_tensor(shape=[-1], contiguity=True) for _ in range(6)]
                fd.add_output(functools.reduce(operator.add, inputs))
            (y,) = client.run(fd, [np.ones(10000, np.float32)] * 6)
            np.testing.assert_array_equal(y.numpy(), np.full(10000, 6, np.float32))
    finally:
        daemon.stop()


def test_one_element_that_is_many(client: hostir.Client) -> None:
    """It is stored on another thread than the daemon hears requests on."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 8], contiguity=True)
        fd.add_output(x.sum())
    many = np.broadcast_to(np.float32(1), (1 << 20, 8))
    (y,) = client.run(fd, [many])
    assert y.item() == 8 << 20


def test_a_small_host_array_that_an_output_takes_over(client: hostir.Client) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        fd.add_output(x + 1.0, x)
    for _ in range(2):
        (y,) = client.run(fd, [np.arange(4, dtype=np.float32)])
        np.testing.assert_array_equal(y.numpy(), [1, 2, 3, 4])


def test_results_stay_on_the_devices(client: hostir.Client) -> None:
    fd = scaled(mesh=FOUR, axes={0: "mesh_x"})
    x = client.put(np.ones((8, 3), np.float32), fd.fusion.inputs()[0])
    for _ in range(10):
        (x,) = client.run(fd, [x])
    np.testing.assert_array_equal(x.numpy(), np.full((8, 3), 1024, np.float32))


def test_one_program_many_sizes(client: hostir.Client) -> None:
    fd = scaled()
    for shape in [(1, 1), (3, 1000), (0, 5), (257, 3)]:
        values = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
        np.testing.assert_array_equal(client.run(fd, [values])[0].numpy(), values * 2)


def test_outputs_twice_and_inputs_as_outputs(client: hostir.Client) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = x + 1.0
        for value in (y, x, y):
            fd.add_output(value)
    values = np.arange(4, dtype=np.float32)
    x_dev = client.put(values)
    first, given, second = client.run(fd, [x_dev])
    client.free(x_dev, first)
    np.testing.assert_array_equal(given.numpy(), values)
    np.testing.assert_array_equal(second.numpy(), values + 1)


def test_an_alias_consumes_its_input(client: hostir.Client) -> None:
    with FusionDefinition("step") as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        fd.add_output(x + 1.0, x)
    x_dev = client.put(np.zeros(1000, np.float32))
    before = client.status()["tensor_bytes"]
    (y,) = client.run(fd, [x_dev], wait=True)
    while client.status()["tensor_bytes"] != before:
        pass  # The run lets go of what it used.
    assert x_dev.state == "freed"
    with pytest.raises(hostir.FailedPrecondition) as caught:
        client.run(fd, [x_dev])
    assert str(caught.value).startswith("the array of shape (1000,) was consumed by a run of step (test_client.py:")
    (z,) = client.run(fd, [y])
    np.testing.assert_array_equal(z.numpy(), np.full(1000, 2, np.float32))
    (w,) = client.run(fd, [np.zeros(3, np.float32)])  # What was put for the run is consumed, too.
    np.testing.assert_array_equal(w.numpy(), np.ones(3, np.float32))


def test_states_and_waiting(client: hostir.Client) -> None:
    fd = scaled()
    (y,) = client.run(fd, [np.ones((4, 4), np.float32)], wait=True)
    assert y.state == "ready"
    (z,) = client.run(fd, [y])
    assert z.state in ("pending", "ready")
    assert z.wait() is z
    assert z.state == "ready"


def test_execute_runs_on_a_default_client(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTIR_ADDRESS", client.address)
    fd, ones = scaled(), np.ones((2, 2), np.float32)
    try:
        for options in ({}, {"device": 0}, {"device": "cpu"}, {"device": "cpu:0", "wait": True, "timeout": 60}):
            (y,) = fd.execute([ones], **options)
            np.testing.assert_array_equal(y.numpy(), np.full((2, 2), 2, np.float32))
        (y,) = fd.execute({"x": ones})
        np.testing.assert_array_equal(y.numpy(), np.full((2, 2), 2, np.float32))
        for device in ("cuda:0", 1, "cpu:1"):
            with pytest.raises(hostir.InvalidArgument, match=rf"^execute: device='{device}': a program without a mesh"):
                fd.execute([ones], device=device)
    finally:
        hostir.connecting.default_client().close()


@pytest.mark.parametrize(
    ("keyword", "remedy"),
    [
        ("devcie", "did you mean 'device'?"),
        ("timeuot", "did you mean 'timeout'?"),
        ("profile", "it takes device, wait, nowait, timeout, deadline"),
    ],
)
def test_execute_refuses_keywords_that_it_has_not(keyword: str, remedy: str) -> None:
    with pytest.raises(TypeError) as caught:
        scaled().execute([np.ones((2, 2), np.float32)], **{keyword: 1})
    assert str(caught.value).startswith(
        f"execute() got an unexpected keyword argument '{keyword}'; {remedy} (test_clie"
    )


def test_a_program_that_the_daemon_forgot_is_compiled_again(client: hostir.Client) -> None:
    fd = scaled(7.0)
    client.run(fd, [np.ones((2, 2), np.float32)])
    (reply,) = [client._programs[hostir.program.key(fd)]]
    reply.program_id = "0" * 32
    (y,) = client.run(fd, [client.put(np.ones((2, 2), np.float32))])
    assert y.numpy()[0, 0] == 7
    client._programs[hostir.program.key(fd)].program_id = "0" * 32
    array = client.put(np.ones((2, 2), np.float32), fd.fusion.inputs()[0])
    assert array.shape == (2, 2)


def test_definitions_of_one_text_are_one_program(client: hostir.Client) -> None:
    programs = client.status()["programs"]
    for _ in range(3):
        client.run(scaled(11.0), [np.ones((2, 2), np.float32)])
    assert client.status()["programs"] == programs + 1


def test_threads_share_a_client(client: hostir.Client) -> None:
    fd = scaled()
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for i in range(10):
                values = np.full((3, 4), seed * 100 + i, np.float32)
                np.testing.assert_array_equal(client.run(fd, [values])[0].numpy(), values * 2)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# --- freeing ---


def test_freed_memory_comes_back(client: hostir.Client) -> None:
    gc.collect()
    client.status()
    client._free_collected()
    before = {k: client.status()[k] for k in ("tensor_bytes", "tensors")}
    arrays = [client.put(np.zeros(1000)) for _ in range(5)]
    client.free(*arrays[:2])
    del arrays
    gc.collect()
    after = client.status()  # The request takes what was collected with it.
    assert {k: after[k] for k in before} == before


def test_more_handles_than_a_request_has(daemon_program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTIR_REQUEST_HANDLES_MAX", "2")
    with hostir.connect(devices="cpu:1", timeout=60) as client:
        fd = scaled(2.0, [-1])
        x = client.put(np.ones(4, np.float32))
        client.free(*[client.put(np.zeros(1)) for _ in range(5)])
        assert client.status()["tensors"] == 1
        for _ in range(2):  # What was collected goes with a run, as far as it may, and before another request.
            arrays = [client.put(np.zeros(1)) for _ in range(5)]
            del arrays
            gc.collect()
            assert client.run(fd, [x], wait=True)[0].numpy()[0] == 2
        client.free(x)
        client.status()
        assert client.status()["tensors"] == 0


def test_a_run_frees_what_was_collected(client: hostir.Client) -> None:
    x, fd = client.put(np.arange(4, dtype=np.float32)), scaled(2.0, [-1])
    (y,) = client.run(fd, [x], wait=True)
    gc.collect()
    before = client.status()
    for _ in range(5):
        (y,) = client.run(fd, [x], wait=True)
    after = client.status()
    assert after["requests"] == before["requests"] + 7  # The runs; the second question, which frees the last one first.
    assert after["tensors"] == before["tensors"]
    np.testing.assert_array_equal(y.numpy(), [0, 2, 4, 6])


def test_a_freed_array(client: hostir.Client) -> None:
    array = client.put(np.zeros(3))
    client.free(array)
    assert array.state == "freed"
    assert "was freed" in repr(array)
    for use in (array.numpy, array.wait, lambda: array.shards, lambda: client.free(array)):
        with pytest.raises(hostir.FailedPrecondition) as caught:
            use()
        assert str(caught.value).startswith("the array of shape (3,) was freed (test_client.py:")


def test_queued_runs_keep_what_they_use(client: hostir.Client) -> None:
    fd = scaled()
    x = client.put(np.ones((300, 300), np.float32))
    results = [client.run(fd, [x])[0] for _ in range(20)]
    client.free(x)
    assert all(result.numpy()[0, 0] == 2 for result in results)


def test_arrays_belong_to_their_client(client: hostir.Client) -> None:
    array = client.put(np.zeros(3))
    with hostir.Client(client.address) as other:
        with pytest.raises(
            hostir.FailedPrecondition, match=r"belongs to another client; download it there and put it her"
        ):
            other.free(array)
        stolen = hostir.Array(other, array._handle, array.shape, array.data_type, array.sharding)
        with pytest.raises(hostir.NotFound, match=f'^no handle "{array._handle}" in this session'):
            stolen.numpy()
    np.testing.assert_array_equal(array.numpy(), np.zeros(3))


def test_a_closed_client(client: hostir.Client) -> None:
    other = hostir.Client(client.address)
    array = other.put(np.zeros(3))
    sessions = client.status()["sessions"]
    other.close()
    other.close()
    with pytest.raises(hostir.FailedPrecondition, match=r"^this client is closed$"):
        array.numpy()
    with pytest.raises(hostir.FailedPrecondition, match=r"^this client is closed$"):
        other.put(np.zeros(3))
    assert "closed" in repr(other)
    for _ in range(1000):
        if client.status()["sessions"] == sessions - 1:
            break
    assert client.status()["sessions"] == sessions - 1


def test_a_client_that_is_closed_at_once(client: hostir.Client) -> None:
    """What looks for a connection every 200 ms would hold each of these up for as long."""

    def close() -> float:
        other = hostir.Client(client.address)
        begin = time.monotonic()
        other.close()
        return time.monotonic() - begin

    assert min(close() for _ in range(10)) < 0.1


def test_a_copy_of_an_array_is_it(client: hostir.Client) -> None:
    x = client.put(np.ones(4, np.float32))
    y = copy.copy(x)
    del y
    client._free_collected()
    assert (x.numpy() == 1).all()
    hostir.Array.__new__(hostir.Array).__del__()  # As where __init__ raised.
