"""Runs that were written down: `hostir replay` carries them out again, elsewhere, and says what differs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hostir
from hostir import DataType, FusionDefinition


@pytest.fixture
def program() -> FusionDefinition:
    """Two ranks, a number, bfloat16, an output of its own name in a dict."""
    with FusionDefinition("scaled") as fd:
        x = fd.define_tensor(shape=[-1, 8], contiguity=True, dtype=DataType.BFloat16, name="x")
        s = fd.define_scalar(dtype=DataType.Double, name="s")
        fd.add_output({"sum": fd.ops.sum(x * s, dims=[0]), "twice": x + x})
        x.shard([0, 1], {0: "mesh_x"})
    return fd


def replay(daemon_program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(Path(daemon_program).resolve().with_name("hostir")), "replay", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_a_run_again(client: hostir.Client, daemon_program: str, program: FusionDefinition, tmp_path: Path) -> None:
    x = np.arange(48).reshape(6, 8).astype(ml_dtypes.bfloat16)
    folder = tmp_path / "run"
    outputs = client.run(program, {"x": client.put(x, program.fusion.inputs()[0]), "s": 0.5}, record=folder)
    assert np.array_equal(outputs["twice"].numpy(), x + x)
    again = replay(daemon_program, folder)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count(": equal") == 2
    assert "replayed on a daemon of its own on cpu:4" in again.stdout
    there = replay(daemon_program, folder, "--address", client.address, "--out", tmp_path / "out")
    assert there.returncode == 0, there.stderr
    assert len(list((tmp_path / "out").iterdir())) == 2

    (name,) = [path for path in (folder / "out").iterdir() if np.load(path).ndim == 2]
    values = np.load(name).view(ml_dtypes.bfloat16)
    values[1, 2] = 80
    np.save(name, values)
    other = replay(daemon_program, folder)
    assert other.returncode == 1
    assert "1 of 48 elements differ, by at most 60.0 where the largest is 94.0" in other.stdout
    assert "--tolerance 0.01" in other.stderr
    assert replay(daemon_program, folder, "--tolerance", 1).returncode == 0


def test_a_failure_again(client: hostir.Client, daemon_program: str, program: FusionDefinition, tmp_path: Path) -> None:
    """A run that was refused, and runs elsewhere: the recording says by what."""
    x = client.put(np.ones((4, 8), ml_dtypes.bfloat16))
    with pytest.raises(hostir.ResourceExhausted):
        client.run(program, [x, 1.0], record=tmp_path / "run", timeout=1e9)
    again = replay(daemon_program, tmp_path / "run")
    assert again.returncode == 0, again.stderr
    assert "where it failed: RESOURCE_EXHAUSTED: run_timeout_ms" in again.stdout
    assert again.stdout.count(": made") == 2


def test_what_is_no_recording(daemon_program: str, tmp_path: Path) -> None:
    (tmp_path / "run.pb").write_text("no")
    for arguments, said in (
        ([tmp_path], "no recording"),
        ([tmp_path / "none"], "cannot read"),
        ([], "FOLDER is missing"),
    ):
        refused = replay(daemon_program, *arguments)
        assert refused.returncode in (1, 2)
        assert said in refused.stderr
