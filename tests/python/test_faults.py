"""What a client sees when processes of its daemon die: an error with the rank and the user's line, then service."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import numpy as np
import pytest

import hostir
from hostir import DeviceMesh, FusionDefinition

HERE = r" \(test_faults\.py:\d+: .*\)"


@pytest.fixture
def two(daemon_program: str) -> Iterator[hostir.Client]:
    with hostir.connect(devices="cpu:2", timeout=60) as client:
        yield client


def total() -> FusionDefinition:
    with FusionDefinition("total") as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        fd.add_output(fd.ops.sum(x))
        x.shard(DeviceMesh([0, 1]), {0: "mesh_x"})
    return fd


def worker(client: hostir.Client, rank: int) -> int:
    pid: int = client.status()["devices"][rank]["pid"]
    return pid


def test_a_rank_that_dies_in_a_run(two: hostir.Client) -> None:
    fd = total()
    x = two.put(np.ones(8, np.float32), fd.fusion.inputs()[0])
    (first,) = two.run(fd, [x])  # Kept: freeing it would be one more request that the rank can die in.
    assert first.numpy() == 8
    pid = worker(two, 1)
    os.kill(pid, signal.SIGSTOP)
    (y,) = two.run(fd, [x])
    (z,) = two.run(fd, [x])
    assert (y.state, z.state) == ("pending", "pending")
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(hostir.Unavailable) as caught:
        y.numpy()
    message = r"rank 1 died \(killed by signal 9\) during run 2 of total; the mesh is being restarted" + HERE
    assert re.fullmatch(message, str(caught.value)), str(caught.value)
    assert two.run(fd, [x])[0].numpy() == 8


def test_what_a_failed_run_leaves(two: hostir.Client) -> None:
    fd = total()
    x = two.put(np.ones(8, np.float32), fd.fusion.inputs()[0])
    (first,) = two.run(fd, [x], wait=True)  # Kept: freeing it would be one more request that the rank can die in.
    pid = worker(two, 0)
    os.kill(pid, signal.SIGSTOP)
    (y,) = two.run(fd, [x])
    (z,) = two.run(exponential(), [y])
    os.kill(pid, signal.SIGKILL)
    for array in (y, z, y):
        with pytest.raises(hostir.Unavailable):
            array.wait()
        assert array.state == "poisoned"
    with pytest.raises(hostir.Unavailable, match=r"^input 0 \(\w+\) is poisoned: rank 0 died \(killed by signal 9\)"):
        two.run(exponential(), [y])[0].numpy()
    assert two.run(fd, [x])[0].numpy() == 8, "what is on the devices outlives the workers"
    assert two.status()["generation"] == 2
    assert first.numpy() == 8


def exponential() -> FusionDefinition:
    with FusionDefinition("exponential") as fd:
        t = fd.define_tensor(shape=[], contiguity=[])
        fd.add_output(fd.ops.exp(t))
        t.set_device_mesh(DeviceMesh([0, 1]))
    return fd


def test_a_planner_that_dies(two: hostir.Client) -> None:
    pid = two.status()["planner_pid"]
    os.kill(pid, signal.SIGKILL)
    fd = total()
    for _ in range(2):  # The first request may have been for the dead one.
        try:
            (y,) = two.run(fd, [np.ones(8, np.float32)])
            break
        except hostir.Unavailable as error:
            assert "planner" in str(error)
    assert y.numpy() == 8
    assert two.status()["planner_pid"] != pid


def test_a_run_that_takes_too_long(two: hostir.Client) -> None:
    fd = total()
    x = two.put(np.ones(8, np.float32), fd.fusion.inputs()[0])
    os.kill(worker(two, 0), signal.SIGSTOP)
    with pytest.raises(hostir.DeadlineExceeded) as caught:
        two.run(fd, [x], timeout=0.2, wait=True)
    assert re.search(r"rank 0.*" + HERE, str(caught.value)), str(caught.value)
    assert two.run(fd, [x])[0].numpy() == 8
