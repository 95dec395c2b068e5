"""Drawn workloads of benchmarks/drawn.py, small: hostir's values through a daemon against NumPy in float64, those of
the peers' forms where they are installed, and what is made of samples."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hostir

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import drawn
from drawing import Drawn
from op_spaces import ArrayOps, TorchOps
from patterns import PATTERNS
from patterns import drawn as draw

SEED, COUNT, PEERS = 2024, 96, 32
WORKLOADS = [draw(SEED, index, (60, 6000), 0.3) for index in range(COUNT)]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: str(workload.index))
def test_hostir_against_numpy(client: hostir.Client, workload: Drawn) -> None:
    values = workload.values()
    results = client.run(workload.program(), values)
    assert [tuple(array.shape) for array in results] == [array.shape for array in workload.output_arrays()]
    workload.check("hostir", [array.numpy().astype(np.float64) for array in results], workload.reference(values))


def test_jax_against_numpy() -> None:
    jax = pytest.importorskip("jax")
    for workload in WORKLOADS[:PEERS]:
        values = workload.values()
        results = jax.jit(lambda *arrays, w=workload: w.compute(ArrayOps(jax.numpy), *arrays))(*values)
        workload.check("JAX", [np.asarray(y).astype(np.float64) for y in results], workload.reference(values))


def test_torch_against_numpy() -> None:
    torch = pytest.importorskip("torch")
    for workload in WORKLOADS[:PEERS]:
        values = workload.values()
        tensors = [
            torch.from_numpy(value.astype(np.float32)).bfloat16() if array.dtype == "bf16" else torch.from_numpy(value)
            for array, value in zip(workload.inputs, values, strict=True)
        ]
        results = workload.compute(TorchOps(torch), *tensors)
        assert all(y.is_contiguous() for y in results), workload.name
        workload.check("PyTorch", [y.double().numpy() for y in results], workload.reference(values))


def test_a_workload_of_a_seed_is_always_the_same() -> None:
    again = [draw(SEED, index, (60, 6000), 0.3) for index in (0, 7, 40)]
    assert [w.name for w in again] == [WORKLOADS[index].name for index in (0, 7, 40)]
    assert [w.inputs for w in again] == [WORKLOADS[index].inputs for index in (0, 7, 40)]
    assert [str(w.program()) for w in again] == [str(WORKLOADS[index].program()) for index in (0, 7, 40)]
    assert draw(SEED + 1, 0, (60, 6000), 0.3).name != again[0].name


def test_all_patterns_are_drawn_of_several_ranks_types_and_sizes() -> None:
    assert len({workload.pattern.removesuffix(" backward") for workload in WORKLOADS}) >= len(PATTERNS)
    shapes = [workload.inputs[0].shape for workload in WORKLOADS]
    assert {len(shape) for shape in shapes} == {1, 2, 3, 4}
    assert {array.dtype for workload in WORKLOADS for array in workload.inputs} == {"f32", "bf16", "i64"}
    assert {extent % 2 for shape in shapes for extent in shape} == {0, 1}
    assert {workload.symbolic for workload in WORKLOADS} == {True, False}
    without = [draw(SEED, index, (60, 6000), 0.0) for index in range(COUNT)]
    assert [w.pattern for w in without] == [w.pattern for w in WORKLOADS]
    assert {array.dtype for workload in without for array in workload.inputs} == {"f32", "i64"}


def test_sizes_are_within_what_is_asked() -> None:
    for index in range(COUNT):
        workload = draw(SEED, index, (1e5, 1e6), 0.0)
        if not workload.details.endswith(", summed"):  # There the elements are those that are computed and added.
            arrays = [*workload.inputs, *workload.output_arrays()]
            assert 5e4 < sum(int(np.prod(array.shape)) for array in arrays) < 3e6, workload.name


@pytest.mark.parametrize("wrong", [1.01, np.nan])
def test_one_wrong_element_is_seen(wrong: float) -> None:
    workload = next(w for w in WORKLOADS if w.outputs == ["f32"])
    want = workload.reference(workload.values())
    workload.check("right", want, want)
    (got,) = (np.array(y) for y in want)
    got.flat[np.argmax(np.abs(got))] *= wrong
    with pytest.raises(ValueError, match=r"^wrong: output 0 is off by "):
        workload.check("wrong", [got], want)


SAMPLES = {
    "hostir": [2.0, 2.0, 2.5],
    "JAX": [4.0, 5.0, 4.0],
    "PyTorch": [1.0, 3.0, 2.0],
    "kernels": [1.0, 1.0, 1.0],
}


def test_a_row_is_beside_the_better_peer_of_the_same_rounds() -> None:
    row = drawn.row_of(WORKLOADS[0], SAMPLES, {})
    assert row["better_peer"] == "PyTorch"
    assert row["ratio"] == [0.5, 1.5, 0.8] and row["kernels_ratio"] == [1.0, 3.0, 2.0]
    assert row["noisy"] and not drawn.row_of(WORKLOADS[0], SAMPLES | {"PyTorch": [1.9, 2.0, 2.1]}, {})["noisy"]
    assert row["GBps"] == pytest.approx(WORKLOADS[0].bytes() / 2e-3 / 1e9)
    kept: dict[str, Any] = drawn.kept(row)
    assert kept["pairs"] == 3 and kept["ratio_quartiles"] == pytest.approx((0.65, 0.8, 1.15))
    assert kept["hostir_ms_quartiles"] == (2.0, 2.0, 2.25) and "ratio" not in kept and "hostir_ms" not in kept
    json.dumps(kept)


def test_without_peers_there_are_no_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    row = drawn.row_of(WORKLOADS[0], {"hostir": [2.0], "kernels": [1.0]}, {"JAX": "not installed"})
    assert "ratio" not in row and drawn.line(row).split()[0] == "-"
    assert drawn.summary([row], "ratio", "ratios") == {}
    assert capsys.readouterr().out == ""


def test_the_summary_names_what_is_behind(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        drawn.row_of(workload, {"hostir": [1.0] * 3, "JAX": [time] * 3}, {})
        for workload, time in zip(WORKLOADS, (0.5, 2.0, 1.0, 1.0), strict=False)
    ]
    found = drawn.summary(rows, "ratio", "ratios")
    assert found == {"rows": 4, "noisy": 0, "geometric_mean": pytest.approx(1.0), "least": 0.5, "below": [0]}
    assert f"  0.50  0 {WORKLOADS[0].name}, beside JAX" in capsys.readouterr().out


def test_what_fails_is_a_row_and_the_others_go_on() -> None:
    def measure(workload: Drawn, rounds: int) -> Any:
        if workload.index == 1:
            raise ValueError("hostir: output 0 is off by 1")
        return {"hostir": [1.0] * rounds}, {}

    first, second, third = drawn.rows_of(WORKLOADS[:3], measure, 2, float("inf"))
    assert second["failure"] == "hostir: output 0 is off by 1" and drawn.kept(second) is second
    assert "failure" not in first and "failure" not in third
    assert list(drawn.rows_of(WORKLOADS[:3], measure, 2, 0.0)) == []
