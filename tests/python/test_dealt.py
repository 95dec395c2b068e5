"""Axes whose elements are dealt to the devices in turns, through a daemon with four CPU ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hostir
from hostir import DeviceMesh, FusionDefinition, ParallelType, Sharding

FOUR = DeviceMesh([2, 0, 3, 1])
SQUARE = DeviceMesh([[0, 1], [2, 3]])


def deal(tensor: Any, mesh: DeviceMesh, axis: int) -> None:
    tensor.set_device_mesh(mesh)
    tensor.inner_split(axis, mesh.size)
    tensor.axis(axis + 1).parallelize(ParallelType.mesh_x)


def array_of(rows: int, columns: int) -> np.ndarray:
    return np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)


@pytest.mark.parametrize("shape", [[-1, -1], [16, 8]])
@pytest.mark.parametrize("axis", [0, 1])
def test_dealt_in_and_out(client: hostir.Client, shape: list[int], axis: int) -> None:
    with FusionDefinition("dealt") as fd:
        x = fd.define_tensor(shape=shape, contiguity=True)
        y = x * 2.0
        total = fd.ops.sum(y, dims=[axis])
        behind = fd.ops.slice(y, [1, 1], [16, 8])
        for output in (y, total, behind):
            fd.add_output(output)
        deal(x, FOUR, axis)
        deal(y, FOUR, axis)
    values = array_of(16, 8)
    x_dev = client.put(values, x)
    y_dev, total_dev, behind_dev = client.run(fd, [x_dev])
    np.testing.assert_array_equal(x_dev.numpy(), values)
    np.testing.assert_array_equal(y_dev.numpy(), 2 * values)
    np.testing.assert_array_equal(total_dev.numpy(), 2 * values.sum(axis))
    np.testing.assert_array_equal(behind_dev.numpy(), 2 * values[1:, 1:])
    for device, (k, (rank, slices, shard)) in zip(FOUR.devices, enumerate(y_dev.shards), strict=True):
        assert rank == device
        np.testing.assert_array_equal(shard, 2 * (values[k::4] if axis == 0 else values[:, k::4]))
        np.testing.assert_array_equal(shard, 2 * values[slices])
    assert y_dev.sharding == Sharding(FOUR, {axis: "mesh_x"}, dealt=[axis])
    assert [c.type for c in client.explain(fd).communications] == ["Allreduce", "Allgather"]


SHARDINGS = {
    "dealt rows": Sharding(FOUR, {0: "mesh_x"}, dealt=[0]),
    "dealt columns": Sharding(FOUR, {1: "mesh_x"}, dealt=[1]),
    "dealt and blocks": Sharding(SQUARE, {0: "mesh_y", 1: "mesh_x"}, dealt=[0]),
    "both dealt": Sharding(SQUARE, {0: "mesh_x", 1: "mesh_y"}, dealt=[0, 1]),
    "blocks": Sharding(FOUR, {0: "mesh_x"}),
    "whole": Sharding(DeviceMesh([3])),
}


@pytest.mark.parametrize("target", SHARDINGS)
@pytest.mark.parametrize("source", SHARDINGS)
def test_reshard(client: hostir.Client, source: str, target: str) -> None:
    for rows, columns in [(16, 16), (4, 12), (0, 8)]:
        values = array_of(rows, columns)
        array = client.put(values, sharding=SHARDINGS[source])
        moved = client.reshard(array, SHARDINGS[target])
        for each in (array, moved):
            np.testing.assert_array_equal(each.numpy(), values)
            for position, (_, slices, shard) in enumerate(each.shards):
                np.testing.assert_array_equal(shard, values[slices])
                np.testing.assert_array_equal(shard, values[each.sharding.block(position, values.shape)])
        again = client.from_shards([shard for _, _, shard in moved.shards], SHARDINGS[target])
        np.testing.assert_array_equal(again.numpy(), values)


def test_one_element_each_is_dealt_and_in_blocks(client: hostir.Client) -> None:
    for shape in ([4, 2], [-1, -1]):
        with FusionDefinition("one_each") as fd:
            x = fd.define_tensor(shape=shape, contiguity=True)
            fd.add_output(x + 1.0)
            deal(x, FOUR, 0)
        for source in ("dealt rows", "blocks"):
            array = client.put(array_of(4, 2), sharding=SHARDINGS[source])
            np.testing.assert_array_equal(client.run(fd, [array])[0].numpy(), array_of(4, 2) + 1)


def test_what_is_no_whole_turns_is_refused(client: hostir.Client) -> None:
    remedy = "and elements are dealt in whole turns: make its extent a multiple of 4"
    with pytest.raises(hostir.InvalidArgument, match=f"axis 0 dealt 4 ways over mesh_x has 6 elements, {remedy}"):
        client.put(array_of(6, 2), sharding=SHARDINGS["dealt rows"])
    with FusionDefinition("rows") as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = x + 1.0
        fd.add_output(y)
        x.set_device_mesh(FOUR)
        deal(y, FOUR, 0)
    np.testing.assert_array_equal(client.run(fd, [array_of(8, 2)])[0].numpy(), array_of(8, 2) + 1)
    with pytest.raises(hostir.InvalidArgument, match=remedy):
        client.run(fd, [array_of(6, 2)])
    np.testing.assert_array_equal(client.run(fd, [array_of(16, 2)])[0].numpy(), array_of(16, 2) + 1)
