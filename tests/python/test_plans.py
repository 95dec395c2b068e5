"""What explain says, through a daemon with four CPU ranks."""

from __future__ import annotations

import json

import numpy as np

import hostir
from hostir import DeviceMesh, FusionDefinition

FOUR = DeviceMesh([0, 1, 2, 3])


def row_parallel() -> FusionDefinition:
    with FusionDefinition("row_parallel") as fd:
        x = fd.define_tensor(shape=[-1, 64], contiguity=True)
        w = fd.define_tensor(shape=[16, 64], contiguity=True)
        y = fd.ops.relu(fd.ops.linear(x, w))
        fd.add_output(y)
        for t in (x, w):
            t.shard(FOUR, {1: "mesh_x"})
        y.set_device_mesh(FOUR)
    return fd


def test_explain(client: hostir.Client) -> None:
    plan = client.explain(row_parallel())
    assert [segment.kind for segment in plan.segments].count("library") == 1
    (communication,) = plan.communications
    assert (communication.type, communication.team) == ("Allreduce", [[0, 1, 2, 3]])
    assert isinstance(communication.bytes, str)
    assert "i0" in communication.bytes
    text = str(plan)
    assert text.splitlines()[0].split()[0] == "segment"
    assert "Allreduce" in text
    assert "linear" in plan.fusion
    assert "communication" in plan.host_ir
    decoded = json.loads(plan.json())
    assert decoded["communications"][0]["team"] == [[0, 1, 2, 3]]
    assert decoded["segments"][0].keys() == {
        *("name", "kind", "schedule", "ops", "launches", "inputs", "outputs", "bytes")
    }


def test_explain_with_sizes(client: hostir.Client) -> None:
    plan = client.explain(row_parallel(), sizes={"i0": 32})
    assert plan.communications[0].bytes == 32 * 16 * 4
    assert all(isinstance(segment.bytes, int) for segment in plan.segments)
    assert "2.0 KiB" in str(plan)


def test_the_plan_explained_is_the_plan_executed(client: hostir.Client) -> None:
    fd = row_parallel()
    plan = client.explain(fd)
    assert plan.program_id == client._compile(fd).program_id
    x, w = np.ones((8, 64), np.float32), np.ones((16, 64), np.float32)
    np.testing.assert_array_equal(client.run(fd, [x, w])[0].numpy(), np.full((8, 16), 64, np.float32))


def test_status(client: hostir.Client) -> None:
    status = client.status()
    assert status["serving"] is True
    assert [device["kind"] for device in status["devices"]] == ["cpu"] * 4
    assert client.num_devices == 4
    assert {limit["name"] for limit in status["limits"]} >= {"tensor_bytes_max", "programs_max"}


def test_guards_are_shown(client: hostir.Client) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        fd.add_output(fd.ops.exp(x))
        x.shard(FOUR, {0: "mesh_x"})
    plan = client.explain(fd)
    assert any("i0 mod 4 == 0" in guard for guard in plan.guards)
    assert "holds for sizes with: " in str(plan)
