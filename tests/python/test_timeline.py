"""Timelines of runs, through daemons with CPU ranks: what each rank's streams did when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hostir
from hostir import DeviceMesh, FusionDefinition

FOUR = DeviceMesh([0, 1, 2, 3])


def mlp() -> FusionDefinition:
    with FusionDefinition("mlp") as fd:
        x = fd.define_tensor(shape=[-1, 24], contiguity=True)
        up = fd.define_tensor(shape=[48, 24], contiguity=True)
        down = fd.define_tensor(shape=[24, 48], contiguity=True)
        y = fd.ops.linear(fd.ops.gelu(fd.ops.linear(x, up)), down)
        fd.add_output(y)
        for t in (x, y):
            t.set_device_mesh(FOUR)
        up.shard(FOUR, {0: "mesh_x"})
        down.shard(FOUR, {1: "mesh_x"})
    return fd


def arrays(seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(np.float32) for shape in ((6, 24), (48, 24), (24, 48))]


def test_every_rank_has_its_work_on_one_clock(client: hostir.Client, tmp_path: Path) -> None:
    fd, inputs = mlp(), arrays(7)
    (before,) = client.run(fd, inputs)
    path = tmp_path / "run.json"
    (after,) = client.run(fd, inputs, timeline=path)
    np.testing.assert_array_equal(after.numpy(), before.numpy())
    trace = json.loads(path.read_text())
    assert trace["otherData"] == {"program": "mlp"}
    events = trace["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {tracks[rank, 0] for rank in range(4)} == {"host"}
    spans = {
        rank: [e for e in events if e["ph"] == "X" and e["pid"] == rank and tracks[rank, e["tid"]] != "host"]
        for rank in range(4)
    }
    work = [s.name for s in client.explain(fd, sizes={"i0": 6}).segments if s.kind == "communication"]
    for rank in range(4):
        kinds = [span["cat"] for span in spans[rank]]
        assert kinds.count("library") == 2 and kinds.count("communication") == 1
        assert [span["name"] for span in spans[rank] if span["cat"] == "communication"] == work
        ends = [span["ts"] + span["dur"] for span in spans[rank]]
        assert all(span["ts"] >= end - 0.01 for span, end in zip(spans[rank][1:], ends, strict=False))
    # No rank is through with the all-reduce before the last has come to it: the clocks are one.
    sums = [span for rank in range(4) for span in spans[rank] if span["cat"] == "communication"]
    assert min(span["ts"] + span["dur"] for span in sums) >= max(span["ts"] for span in sums)


def test_where_the_file_cannot_be_made_nothing_runs(client: hostir.Client, tmp_path: Path) -> None:
    runs = client.status()["runs"]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        client.run(mlp(), arrays(8), timeline=tmp_path / "nowhere" / "run.json")
    assert client.status()["runs"] == runs


def test_a_run_is_profiled_or_has_a_timeline(client: hostir.Client) -> None:
    with pytest.raises(hostir.InvalidArgument, match=r"^profile and timeline: .*run once for each"):
        client._run(mlp(), arrays(9), True, False, None, None, profile=True, timeline=True)
    (y,) = client.run(mlp(), arrays(9))
    assert np.isfinite(y.numpy()).all()
