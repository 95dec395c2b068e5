"""What a profile says of a run, through daemons with CPU ranks."""

from __future__ import annotations

import os
import re
import signal
import threading
from typing import Any

import numpy as np
import pytest

import hostir
from hostir import DeviceMesh, FusionDefinition

FOUR = DeviceMesh([0, 1, 2, 3])


def mlp() -> FusionDefinition:
    """Tensor parallel: the first weight by rows, the second by columns, one all-reduce."""
    with FusionDefinition("mlp") as fd:
        x = fd.define_tensor(shape=[-1, 24], contiguity=True)
        up = fd.define_tensor(shape=[48, 24], contiguity=True)
        down = fd.define_tensor(shape=[24, 48], contiguity=True)
        y = fd.ops.linear(fd.ops.gelu(fd.ops.linear(x, up)), down)
        fd.add_output({"y": y, "more": [y + 1]})
        for t in (x, y):
            t.set_device_mesh(FOUR)
        up.shard(FOUR, {0: "mesh_x"})
        down.shard(FOUR, {1: "mesh_x"})
    return fd


def arrays(seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(np.float32) for shape in ((6, 24), (48, 24), (24, 48))]


@pytest.mark.parametrize("repeat", [1, 3])
def test_every_segment_has_its_time(client: hostir.Client, repeat: int) -> None:
    fd = mlp()
    inputs = arrays(7)
    before = client.run(fd, inputs, wait=True)
    runs = client.status()["runs"]
    profile = client.profile(fd, inputs, repeat=repeat)
    assert client.status()["runs"] == runs + repeat
    plan = client.explain(fd, sizes={"i0": 6})
    wanted = [(s.name, s.kind, s.bytes) for s in plan.segments if s.kind != "view"]
    assert {kind for _, kind, _ in wanted} == {"library", "communication", "kernel"}
    assert [(s.name, s.kind, s.bytes) for s in profile.segments] == wanted
    for segment in profile.segments:
        assert len(segment.rank_us) == 4 and min(segment.rank_us) > 0, segment
        assert min(segment.rank_us) <= segment.median_us <= segment.max_us
    assert profile.repeat == repeat
    if repeat == 1:  # What a rank does is a part of the run; medians of several need not add up.
        sums = [sum(segment.rank_us[rank] for segment in profile.segments) for rank in range(4)]
        assert max(sums) <= profile.run_us + 1
    np.testing.assert_array_equal(profile.outputs["y"].numpy(), before["y"].numpy())
    np.testing.assert_array_equal(profile.outputs["more"][0].numpy(), before["more"][0].numpy())
    after = client.run(fd, inputs)
    np.testing.assert_array_equal(after["y"].numpy(), before["y"].numpy())


def test_the_table(client: hostir.Client) -> None:
    profile = client.profile(mlp(), arrays(8), repeat=2)
    lines = str(profile).splitlines()
    assert lines[0].split() == ["segment", "kind", "bytes", "a", "rank", "slowest", "us", "median", "us", "share"]
    assert [line.split("  ")[0] for line in lines[2:-2]] == [s.name for s in profile.segments]
    shares = [float(line.split()[-2]) for line in lines[2:-2]]
    assert abs(sum(shares) - 100) < 1
    assert re.fullmatch(r"sum [\d.]+ us, the median of 2 runs of mlp \d+ us", lines[-1])
    assert repr(profile).startswith(f"<hostir.Profile of mlp: {len(profile.segments)} segments, ")


def test_a_rank_without_a_part(client: hostir.Client) -> None:
    """Between meshes some ranks only send, and one has nothing to do."""
    with FusionDefinition("moved") as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = fd.ops.set(x * 2)
        z = y + 1
        fd.add_output(z)
        x.set_device_mesh(DeviceMesh([1]))
        for t in (y, z):
            t.set_device_mesh(DeviceMesh([3]))
    profile = client.profile(fd, [np.arange(5, dtype=np.float32)])
    np.testing.assert_array_equal(profile.outputs[0].numpy(), np.arange(5) * 2 + 1)
    (sent,) = (s for s in profile.segments if s.kind == "communication")
    assert [us > 0 for us in sent.rank_us] == [False, True, False, True]
    assert all(s.rank_us[0] == s.rank_us[2] == 0 for s in profile.segments)
    assert sent.median_us > 0


def test_a_consumed_input(client: hostir.Client) -> None:
    with FusionDefinition("step") as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        fd.add_output(x + 1, x)
    x_dev = client.put(np.zeros(4, np.float32), x)
    with pytest.raises(hostir.InvalidArgument, match=r"^profile: repeat = 2: a run of step consumes \w+; leave .*\("):
        client.profile(fd, [x_dev], repeat=2)
    profile = client.profile(fd, [x_dev])
    np.testing.assert_array_equal(profile.outputs[0].numpy(), np.ones(4))
    with pytest.raises(hostir.FailedPrecondition, match="was consumed by a run of step"):
        x_dev.numpy()


@pytest.mark.parametrize("repeat", [0, -1, 1.5, True])
def test_repeat_is_a_number_of_runs(client: hostir.Client, repeat: Any) -> None:
    with pytest.raises(hostir.InvalidArgument, match=rf"^profile: repeat = {repeat}; it is .*\(test_profile\.py:"):
        client.profile(mlp(), arrays(9), repeat=repeat)


def test_a_run_that_fails(daemon_program: str) -> None:
    """A rank that is stopped holds the others up; another dies."""
    with hostir.connect(devices="cpu:4", timeout=60) as client:
        fd = mlp()
        inputs = [client.put(array, x) for array, x in zip(arrays(10), fd.fusion.inputs(), strict=True)]
        first = client.profile(fd, inputs)  # Kept: what is freed is one more request that the rank does not answer.
        os.kill(client.status()["devices"][2]["pid"], signal.SIGSTOP)
        with pytest.raises(hostir.DeadlineExceeded, match=r"^run 2 of mlp took longer .*rank 2.*\(test_profile"):
            client.profile(fd, inputs, timeout=0.5)
        again = client.profile(fd, inputs)
        np.testing.assert_array_equal(again.outputs["y"].numpy(), first.outputs["y"].numpy())
        pid = client.status()["devices"][1]["pid"]
        os.kill(pid, signal.SIGSTOP)
        timer = threading.Timer(0.1, os.kill, (pid, signal.SIGKILL))
        timer.start()
        with pytest.raises(hostir.Unavailable, match=r"^rank 1 died .* during run 4 of mlp.*\(test_profile"):
            client.profile(fd, inputs)
        timer.join()
        assert min(client.profile(fd, inputs).segments[0].rank_us) > 0
