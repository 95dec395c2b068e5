"""Every program of this folder and of models/ by `mpirun hostir-eval`, on as many ranks as its meshes name, or two:
its values are those of the same program without a mesh on one rank. On CPU ranks by UCX and by MPI, and on GPUs where
there are enough."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent
PROGRAMS = {path.stem: path for path in sorted(FOLDER.rglob("*.hir"))}
EVAL = Path(os.environ["HOSTIR_BUILD_DIR"]) / "hostir-eval"
MPIRUN = shutil.which("mpirun")
ENVIRONMENT = os.environ | {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


def ranks_of(text: str) -> int:
    devices = re.findall(r"\d+", " ".join(re.findall(r"^mesh @\w+ = (.*)$", text, re.MULTILINE)))
    return max(map(int, devices), default=0) + 1


def without_meshes(text: str) -> str:
    return re.sub(r" \{mesh=@[^}]*\}", "", re.sub(r"^mesh @.*\n", "", text, flags=re.MULTILINE))


@functools.cache
def num_gpus() -> int:
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return 0
    listed = subprocess.run([smi, "-L"], capture_output=True, text=True, timeout=60)
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def drawn(text: str, folder: Path) -> list[str]:
    """Flags of hostir-eval for its inputs: made up there, or here, where it would draw squares that are negative."""
    found = re.search(r"^// Sizes: (.*)$", text, re.MULTILINE)
    sizes = found[1].split() if found else []
    said = re.search(r"^// Not negative: (.*)$", text, re.MULTILINE)
    if said is None:
        return ["--random", "7", *(word for size in sizes for word in ("--size", size))]
    extents = dict(size.split("=") for size in sizes)
    rng = np.random.default_rng(7)
    header = re.search(r"^fusion @\w+\((.*?)\) \{$", text, re.MULTILINE | re.DOTALL)
    assert header is not None
    for name, dtype, shape in re.findall(r"%([\w.]+): (\w+)(?:\[([\w, ]*)\])?", header[1]):
        assert dtype in ("f32", "f64"), f"{name} is {dtype}"  # f64: numbers on the host.
        axes = [int(extents.get(axis, axis)) for axis in shape.split(", ") if axis]
        values = rng.uniform(0 if name in said[1].split() else -1, 1, axes)
        np.save(folder / f"{name}.npy", np.asarray(values, np.float32 if dtype == "f32" else np.float64))
    return ["--in", str(folder)]


def evaluate(text: str, folder: Path, comm: str, ranks: int) -> dict[str, np.ndarray]:
    """The outputs of the program on inputs that are the same for every number of ranks."""
    given, made = folder / "given", folder / "made"
    given.mkdir(parents=True)
    made.mkdir()
    program = folder / "program.hir"
    program.write_text(text)
    command = [str(EVAL), str(program), *drawn(text, given), "--comm", comm, "--out", str(made)]
    command += ["--device", "cuda" if comm == "nccl" else "cpu"]
    if ranks > 1:
        command = [str(MPIRUN), "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *command]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return {path.stem: np.load(path) for path in made.glob("*.npy")}


def as_float64(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "V":  # bfloat16: the upper half of a float32.
        return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def tolerance(array: np.ndarray) -> float:
    return {"V2": 1e-2, "f2": 2e-3, "f4": 1e-5}.get(array.dtype.str[1:], 0.0)


CASES = [(comm, name) for comm in ("ucx", "mpi", "nccl") for name in PROGRAMS]


@pytest.mark.parametrize(("comm", "name"), CASES)
def test_values_are_those_of_one_rank(tmp_path: Path, comm: str, name: str) -> None:
    text = PROGRAMS[name].read_text()
    # A program without a mesh is rank 0's: beside it goes a rank that has no part in it, where that takes no GPU.
    ranks = max(ranks_of(text), 1 if comm == "nccl" else 2)
    if comm == "nccl" and num_gpus() < ranks:
        pytest.skip(f"needs {ranks} GPUs; nvidia-smi lists {num_gpus()}")
    if ranks > 1 and MPIRUN is None:
        pytest.skip("no mpirun here")
    got = evaluate(text, tmp_path / "ranks", comm, ranks)
    want = evaluate(without_meshes(text), tmp_path / "one", "ucx", 1)
    assert got and got.keys() == want.keys()
    for output, expected in want.items():
        assert got[output].dtype == expected.dtype and got[output].shape == expected.shape
        error = np.linalg.norm(as_float64(got[output]) - as_float64(expected))
        assert error <= tolerance(expected) * np.linalg.norm(as_float64(expected)), output
