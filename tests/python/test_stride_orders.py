"""Inputs and outputs that lie in memory as their stride order says: where they come from, where they go, what refuses
them. Through a daemon with four CPU ranks."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import hostir
from hostir import FusionDefinition, Sharding, wire
from hostir.layouts import memory_order_of, stride_order_of
from hostir.wire import service_pb2 as pb

SMALL, LARGE = (3, 4, 5), (30, 64, 70)  # A run brings one along; the other goes through memory that both sides have.


def random(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.random.default_rng(7).standard_normal(shape, np.float32)


def laid_out(x: np.ndarray[Any, Any], memory_order: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The same elements with other strides."""
    inverse = [memory_order.index(axis) for axis in range(x.ndim)]
    return np.ascontiguousarray(x.transpose(memory_order)).transpose(inverse)


def scaled(
    order: tuple[int, ...] | None, result_order: tuple[int, ...] | None, ndim: int = 3
) -> tuple[FusionDefinition, Any]:
    """2 x, whose axes lie in memory in one order, in another."""
    with FusionDefinition("scaled") as fd:
        x = fd.define_tensor(shape=[-1] * ndim, stride_order=None if order is None else stride_order_of(order))
        y = x * 2
        fd.add_output(y if result_order is None else fd.ops.stride_order(y, stride_order_of(result_order)))
    return fd, x


ORDERS = list(itertools.permutations(range(3)))


@pytest.mark.parametrize("shape", [SMALL, LARGE], ids=str)
@pytest.mark.parametrize("order", [None, *ORDERS], ids=str)
def test_any_array_goes_to_any_order(
    client: hostir.Client, order: tuple[int, ...] | None, shape: tuple[int, ...]
) -> None:
    fd, parameter = scaled(order, (2, 0, 1))
    x = random(shape)
    for lies in ORDERS:
        given = laid_out(x, lies)
        for value in (given, client.put(given, parameter)):
            (y,) = client.run(fd, [value])
            result = y.numpy()
            np.testing.assert_array_equal(result, 2 * x)
            assert memory_order_of(result.shape, result.strides) == (2, 0, 1)
            assert (y.shape, y[1, 2, 3]) == (shape, 2 * x[1, 2, 3])


def test_an_array_of_that_order_goes_as_it_is(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    fd, parameter = scaled((1, 2, 0), None)
    x = laid_out(random(LARGE), (1, 2, 0))
    sent: list[np.ndarray[Any, Any]] = []
    upload = client._transfers.upload
    monkeypatch.setattr(
        client._transfers, "upload", lambda stored, header: sent.append(stored) or upload(stored, header)
    )
    np.testing.assert_array_equal(client.run(fd, [client.put(x, parameter)])[0].numpy(), 2 * x)
    assert sent[0].flags.c_contiguous and np.shares_memory(sent[0], x)


def test_a_stream_has_the_elements_in_that_order(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client._transfers, "_shares", False)
    fd, parameter = scaled((2, 1, 0), (1, 0, 2))
    x = random(LARGE)
    np.testing.assert_array_equal(client.run(fd, [client.put(x, parameter)])[0].numpy(), 2 * x)


@pytest.mark.parametrize("shape", [(4, 6, 8), (32, 48, 40)], ids=str)
def test_parts_on_several_devices(client: hostir.Client, shape: tuple[int, ...]) -> None:
    with FusionDefinition("sharded") as fd:
        x = fd.define_tensor(shape=[-1, -1, -1], stride_order=stride_order_of((2, 0, 1)))
        y = x + 1
        total = fd.ops.sum(x, dims=[1])
        fd.add_output([fd.ops.stride_order(y, stride_order_of((1, 2, 0))), total])
        x.shard([0, 1, 2, 3], {0: "mesh_x"})
    values = random(shape)
    placed = client.put(values, x)
    y_dev, total_dev = client.run(fd, [placed])
    np.testing.assert_array_equal(placed.numpy(), values)
    np.testing.assert_array_equal(y_dev.numpy(), values + 1)
    np.testing.assert_allclose(total_dev.numpy(), values.sum(1), rtol=1e-5, atol=1e-4)
    for (_, slices, part), (_, own_slices, own) in zip(y_dev.shards, placed.shards, strict=True):
        np.testing.assert_array_equal(part, values[slices] + 1)
        np.testing.assert_array_equal(own, values[own_slices])
        assert own.shape == (shape[0] // 4, *shape[1:])
    halves = client.reshard(placed, Sharding([0, 1], {2: "mesh_x"}))
    np.testing.assert_array_equal(halves.numpy(), values)
    assert halves._memory_order == (2, 0, 1)


def test_an_axis_that_is_stored_once(client: hostir.Client) -> None:
    with FusionDefinition("once") as fd:
        x = fd.define_tensor(shape=[-1, -1, -1], contiguity=[True, None, True], stride_order=stride_order_of((2, 1, 0)))
        fd.add_output(x * 2)
    row = random((3, 1, 5))
    x_wide = np.broadcast_to(row, (3, 4, 5))
    np.testing.assert_array_equal(client.run(fd, [x_wide])[0].numpy(), 2 * x_wide)
    placed = client.put(x_wide, x)
    np.testing.assert_array_equal(placed.numpy(), x_wide)
    np.testing.assert_array_equal(client.run(fd, [placed])[0].numpy(), 2 * x_wide)


def test_what_replaces_an_input_lies_as_that(client: hostir.Client) -> None:
    with FusionDefinition("step") as fd:
        w = fd.define_tensor(shape=[-1, -1], stride_order=[0, 1])
        fd.add_output(w - 1, alias_input=w)
    values = np.round(random((6, 9)) * 8)
    placed = client.put(values, w)
    for step in range(1, 4):
        (placed,) = client.run(fd, [placed])
        np.testing.assert_array_equal(placed.numpy(), values - step, strict=True)
        assert placed._memory_order == (1, 0)


def test_a_permute_that_lies_as_its_input(client: hostir.Client) -> None:
    with FusionDefinition("permuted") as fd:
        x = fd.define_tensor(shape=[-1, -1])
        y = fd.define_tensor(shape=[-1, -1], stride_order=[0, 1])
        copies = [fd.ops.set(y), fd.ops.stride_order(y, [1, 0]), fd.ops.stride_order(x, [0, 1])]
        fd.add_output([fd.ops.stride_order(x.T, [0, 1]), y.T, fd.ops.stride_order(y, [0, 1]), y, *copies, x])
    a, b = random((3, 4)), random((5, 2))
    results = client.run(fd, [a, b])
    for result, want in zip(results, [a.T, b.T, b, b, b, b, a, a], strict=True):
        assert result.shape == want.shape
        np.testing.assert_array_equal(result.numpy(), want)
    assert [each._memory_order for each in results] == [(1, 0), (), (1, 0), (1, 0), (), (), (1, 0), ()]


def test_an_array_of_another_order_is_refused(client: hostir.Client) -> None:
    fd, _ = scaled((1, 0), None, 2)
    plain, _ = scaled(None, (1, 0), 2)
    x = client.put(random((3, 4)))
    wrong = (
        r"input 0 \(x\): the tensor lies row-major in memory; the program wants it with its axes in the order 1, 0, as "
        "its stride_order says; put it as this input"
    )
    with pytest.raises(hostir.InvalidArgument, match=wrong):
        client.run(fd, [x], wait=True)
    (y,) = client.run(plain, [x])
    with pytest.raises(
        hostir.InvalidArgument, match="with its axes in the order 1, 0 in memory; the program wants it row"
    ):
        client.run(plain, [y], wait=True)
    np.testing.assert_array_equal(client.run(fd, [y])[0].numpy(), 4 * x.numpy())


def test_one_row_lies_both_ways(client: hostir.Client) -> None:
    fd, _ = scaled((1, 0), None, 2)
    x = random((1, 8))
    np.testing.assert_array_equal(client.run(fd, [client.put(x)])[0].numpy(), 2 * x)


def test_elements_that_come_in_another_order_are_refused(client: hostir.Client) -> None:
    """Those of a client that knows no orders, and of one that names axes that are not there."""
    fd, _ = scaled((1, 0), None, 2)
    x = random((3, 4))
    (first,) = client.run(fd, [x])
    for order, wrong in [
        ([], r"input 0 \(x\): the elements come row-major; the program wants them with its axes in the order 1, 0"),
        ([0, 2], r"memory_order \[0, 2\] is not a permutation of the 2 axes"),
        ([1], r"memory_order \[1\] is not a permutation of the 2 axes"),
    ]:
        header = pb.UploadHeader(session_id=client._session, shape=x.shape, memory_order=order)
        header.dtype = wire.dtype_number(hostir.DataType.Float)
        header.input.program_id = client._compile(fd).program_id
        with pytest.raises(hostir.InvalidArgument, match=wrong):
            client._transfers.upload(x, header)
    np.testing.assert_array_equal(first.numpy(), 2 * x)


def test_strides_of_an_array_are_an_order(client: hostir.Client) -> None:
    x = laid_out(random((3, 4, 5)), (2, 0, 1))
    with FusionDefinition("strides") as fd:
        of_array = fd.define_tensor(sizes=x.shape, strides=[stride // 4 for stride in x.strides])
        row_major = fd.define_tensor(sizes=[3, 1, 5], strides=[5, 5, 1])
        fd.add_output(of_array + row_major)
    assert "{stride_order(1, 0, 2)}" in str(fd) and str(fd).count("stride_order") == 1
    (y,) = client.run(fd, [x, x[:, :1]])
    np.testing.assert_array_equal(y.numpy(), x + x[:, :1])
    (placed,) = client.run(scaled((2, 0, 1), (2, 0, 1))[0], [x])
    np.testing.assert_array_equal(client.run(fd, [placed, x[:, :1]])[0].numpy(), 2 * x + x[:, :1])


def test_arrays_of_other_axes_are_refused(client: hostir.Client) -> None:
    fd, parameter = scaled((1, 0), None, 2)
    for wrong in (random((3, 4, 5)), random((3,)), np.float32(1)):
        with pytest.raises(hostir.InvalidArgument, match="axes; the program wants"):
            client.run(fd, [wrong], wait=True)
        with pytest.raises(hostir.InvalidArgument, match="axes; the program wants"):
            client.put(wrong, parameter)
    assert client.run(fd, [np.zeros((0, 4), np.float32)])[0].shape == (0, 4)


@pytest.mark.parametrize("rule", ["fusing", "reshardings", "one_op"])
def test_an_input_that_nothing_reads(client: hostir.Client, rule: str) -> None:
    with FusionDefinition("unread") as fd:
        fd.segmentation = rule
        fd.define_tensor(shape=[-1, -1], stride_order=[0, 1])
        y, z = fd.define_tensor(shape=[-1, -1], stride_order=[0, 1]), fd.define_tensor(shape=[-1])
        fd.add_output([y, z + 1])
    values = (random((3, 4)), random((5, 2)), random((3,)))
    y_back, z_more = client.run(fd, values)
    np.testing.assert_array_equal(y_back.numpy(), values[1])
    np.testing.assert_array_equal(z_more.numpy(), values[2] + 1)


def test_names_keep_the_order(client: hostir.Client) -> None:
    fd, _ = scaled((1, 0), (1, 0), 2)
    x = random((3, 4))
    (y,) = client.run(fd, [x])
    client.publish(y, "y")
    client.publish(fd, "scaled")
    try:
        (z,) = client.run(client.program("scaled"), [client.attach("y")])
        np.testing.assert_array_equal(z.numpy(), 4 * x)
        np.testing.assert_array_equal(client.run(client.program("scaled"), [x])[0].numpy(), 2 * x)
    finally:
        client.withdraw("y")
        client.withdraw("scaled")
