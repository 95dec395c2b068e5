"""The programs of benchmarks/gpu compute what their references say: on a CPU rank, at small sizes, against NumPy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks" / "gpu"))

from workloads import BY_NAME, TOLERANCES, WORKLOADS, Array, Workload

EVAL = Path(os.environ["HOSTIR_BUILD_DIR"]) / "hostir-eval"
# Of other sizes than one letter of the program can stand for; rope_llama3 differs from rope_small in its numbers alone.
SIZES: dict[str, list[tuple[int, ...]]] = {
    "adaptive_layer_norm_backward": [(3, 24)],
    "rope_small": [BY_NAME["rope_small"].sizes],
    "rope_llama3": [],
    # The last: in parts, also on CPUs.
    "softmax_one_axis": [(40,), (1,), (300_001,)],
    "divided_by_its_norm": [(7, 40), (1, 1), (600, 513)],
    "adamw_clipped": [(7, 40), (600, 513)],
}
CASES = [(w.name, sizes) for w in WORKLOADS for sizes in SIZES.get(w.name, [(7, 40), (33, 129), (1, 1)])]


def draw(array: Array, rng: np.random.Generator) -> np.ndarray:
    if array.drawn.startswith("index:"):
        return rng.integers(0, int(array.drawn[6:]), array.shape, dtype=np.int64)
    values = rng.standard_normal(array.shape) if array.drawn == "normal" else rng.random(array.shape) + 0.5
    return values.astype(ml_dtypes.bfloat16 if array.dtype == "bf16" else np.float32)


def run(workload: Workload, sizes: tuple[int, ...], folder: Path, inputs: list[np.ndarray]) -> None:
    (folder / "program.hir").write_text(workload.text(sizes))
    for array, values in zip(workload.arrays(sizes)[0], inputs, strict=True):
        np.save(folder / f"{array.name}.npy", values)
    command = [EVAL, folder / "program.hir", "--in", folder, "--out", folder]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("name", "sizes"), CASES, ids=[f"{name}-{'x'.join(map(str, s))}" for name, s in CASES])
def test_against_numpy(tmp_path: Path, name: str, sizes: tuple[int, ...]) -> None:
    workload = BY_NAME[name]
    rng = np.random.default_rng(1234)
    inputs = [draw(array, rng) for array in workload.arrays(sizes)[0]]
    run(workload, sizes, tmp_path, inputs)
    wide = [values.astype(np.float64) if values.dtype != np.int64 else values for values in inputs]
    for array, want in zip(workload.arrays(sizes)[1], workload.reference(np, *wide), strict=True):
        got = np.load(tmp_path / f"{array.name}.npy")
        got = got.view(ml_dtypes.bfloat16) if array.dtype == "bf16" else got
        assert got.shape == array.shape == want.shape
        error = np.linalg.norm((got.astype(np.float64) - want).ravel())
        # One element alone may have all of its rounding error: the norm of many has their mean.
        assert error <= 2 * TOLERANCES[array.dtype] * np.linalg.norm(np.asarray(want).ravel()), array.name
