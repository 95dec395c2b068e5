"""hostir-eval on CPU ranks: the examples as program files under mpirun against NumPy in float64; what it refuses."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

import adaptive_layernorm_backward
import rope
import tensor_parallel_mlp
from example import Example, relative_error

EVAL = Path(os.environ["HOSTIR_BUILD_DIR"]) / "hostir-eval"
MPIRUN = shutil.which("mpirun")
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}

# Open MPI 4.1 says so, and fails, when a rank that has finalized ends before mpirun has noted it (open-mpi/ompi issues
# 7833, 9389 and 12607); also of a rank that ends without MPI_Finalize. Ours does that behind an error that it says, or
# when it has waited longer for others than a run has here: neither is run again.
LOST_RACE = "with PID 0 on"

SMALL = {"batch": 12, "tokens": 40, "features": 64}
LAYER_NORM = dataclasses.replace(
    adaptive_layernorm_backward.EXAMPLE,
    define=functools.partial(adaptive_layernorm_backward.define, **SMALL),
    make_inputs=functools.partial(adaptive_layernorm_backward.make_inputs, **SMALL),
)
EXAMPLES: list[Example] = [LAYER_NORM, rope.EXAMPLE, tensor_parallel_mlp.EXAMPLE]

ADD = """fusion @add(%x: f32[i0, 4], %s: f64) {
  %y: f32[i0, 4] = add(%x, %s)
  return %y
}
"""


def evaluate(*arguments: object, ranks: int = 0) -> subprocess.CompletedProcess[str]:
    """hostir-eval with `arguments`; under mpirun when `ranks` says how many."""
    command = [str(EVAL), *map(str, arguments)]
    return launch([ranks], [command]) if ranks else launch([], [command])


def launch(ranks: list[int], commands: list[list[str]]) -> subprocess.CompletedProcess[str]:
    """The commands as parts of one mpirun, each on so many ranks; the only one by itself when `ranks` is empty."""
    whole = commands[0]
    if ranks:
        if MPIRUN is None:
            pytest.skip("no mpirun here")
        parts = [["-n", str(n), *command] for n, command in zip(ranks, commands, strict=True)]
        whole = [MPIRUN, "--oversubscribe", "--bind-to", "none", *parts[0]]
        for part in parts[1:]:
            whole += [":", *part]

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(whole, env=os.environ | MPI_ENVIRONMENT, capture_output=True, text=True, timeout=100)

    done = run()
    if ranks and LOST_RACE in done.stderr and "hostir-eval:" not in done.stderr:
        print("mpirun lost track of a rank that had finished; once more")
        done = run()
    return done


def save(folder: Path, name: str, array: np.ndarray) -> None:
    np.save(folder / f"{name}.npy", np.ascontiguousarray(array) if array.ndim else array)


@functools.cache
def data(index: int) -> tuple[Any, Any]:
    inputs = EXAMPLES[index].make_inputs()
    return inputs, EXAMPLES[index].reference(inputs)


def load(path: Path, dtype: np.dtype) -> np.ndarray:
    array = np.load(path)
    return array.view(dtype) if array.dtype.kind == "V" else array


@functools.cache
def num_gpus() -> int:
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return 0
    listed = subprocess.run([smi, "-L"], capture_output=True, text=True, timeout=60)
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("index", range(len(EXAMPLES)), ids=["layer_norm_backward", "rope", "mlp"])
@pytest.mark.parametrize("device, comm", [("cpu", "ucx"), ("cpu", "mpi"), ("cuda", "nccl")])
def test_examples_under_mpirun(tmp_path: Path, device: str, comm: str, index: int, ranks: int) -> None:
    if device == "cuda" and num_gpus() < ranks:
        pytest.skip(f"needs {ranks} GPUs; nvidia-smi lists {num_gpus()}")
    inputs, expected = data(index)
    fd = EXAMPLES[index].define(ranks)
    program = tmp_path / "program.hir"
    program.write_text(str(fd))
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    target.mkdir()
    for position, (array, tensor) in enumerate(zip(inputs, fd.fusion.inputs(), strict=True)):
        if position == 0 and 0 in array.strides:  # One element for all, in the file too; input 1 comes in full.
            array = array[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in array.strides)]
        save(source, tensor.name, array)
    report = tmp_path / "report.json"
    options = ["--device", device, "--comm", comm, "--repeat", 3, "--json", report]
    done = evaluate(program, "--in", source, "--out", target, *options, ranks=ranks)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(report.read_text())["samples_ms"]) == 3
    for output, want in zip(fd.fusion.outputs(), expected, strict=True):
        got = load(target / f"{output.name}.npy", inputs[-1].dtype)
        assert got.shape == want.shape
        assert relative_error(got, want) <= EXAMPLES[index].tolerance, output.name


ITEM_BYTES = {"bool": 1, "i32": 4, "i64": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}
TEMPORARY = re.compile(r"(%\S+): (\w+)\[(.*)\] = alloc\(\)")
INPUT = re.compile(r"%(\S+): (\w+)\[(.*?)\] \{mesh=@m(?:, shard\((\d+), mesh_x\))?\}")
# Of up to four ranks: segments in flight, and the slots of a team (multidevice/comm).
COMMUNICATION_BYTES = 5 << 19
# The axis that each output is split along, as the examples say, or as follows from what they are made of.
OUTPUT_AXES = [
    {"grad_shift": 0, "grad_gain": 0, "grad_bias": None, "grad_weight": None, "grad_x": 0},
    {"q": 1, "k": 1, "v": 1},
    {"y": None},
]


def part_bytes(shape: tuple[int, ...], item: int, axis: int | None, ranks: int) -> int:
    """Of one rank's block; blocks are equal, the last ones padded."""
    extents = [-(-extent // ranks) if position == axis else extent for position, extent in enumerate(shape)]
    return item * math.prod(extents)


def shard_bytes(program: str, inputs: list[np.ndarray], out: Path, axes: dict[str, int | None], ranks: int) -> int:
    """What a rank must hold of inputs and outputs: by the arrays' shapes and the program's shardings."""
    total = 0
    for array, (_, dtype, extents, axis) in zip(inputs, INPUT.findall(program), strict=True):
        stored = [  # One element along axes that are stored once.
            1 if extent.startswith("b") else n for extent, n in zip(extents.split(", "), array.shape, strict=True)
        ]
        total += part_bytes(tuple(stored), ITEM_BYTES[dtype], int(axis) if axis else None, ranks)
    for name, axis in axes.items():
        array = np.load(out / f"{name}.npy", mmap_mode="r")
        total += part_bytes(array.shape, array.itemsize, axis, ranks)
    return total


def most_alive(dump: str, sizes: dict[str, int]) -> int:
    """The most bytes of temporaries that are needed at once: each from the first op that uses it to the last one. Where
    the compiler allocates and deallocates them counts for nothing."""
    sizes_and_functions = {**sizes, "ceildiv": lambda a, b: -(-a // b), "min": min, "max": max}
    lines = dump[dump.rindex("host @") :].splitlines()
    assert not any("for(" in line or "view(" in line for line in lines), "uses by loops and views are not followed here"
    bytes_of: dict[str, int] = {}
    for name, dtype, extents in TEMPORARY.findall("\n".join(lines)):
        bytes_of[name] = ITEM_BYTES[dtype]
        for extent in re.split(r", (?![^(]*\))", extents) if extents else []:
            if not extent.startswith("b"):
                bytes_of[name] *= eval(extent.replace("/", "//"), {}, sizes_and_functions)
    used: dict[str, list[int]] = {name: [] for name in bytes_of}
    for number, line in enumerate(lines):
        if "alloc(" in line:  # dealloc, too
            continue
        for name in re.findall(r"%[\w.]+", line):
            if name in used:
                used[name].append(number)
    assert all(used.values()), "a temporary that nothing uses"
    return max(
        (sum(n for name, n in bytes_of.items() if used[name][0] <= at <= used[name][-1]) for at in range(len(lines))),
        default=0,
    )


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("index", range(3), ids=["layer_norm_backward", "rope", "mlp"])
@pytest.mark.parametrize("comm", ["ucx", "mpi"])
def test_peak_memory(tmp_path: Path, comm: str, index: int, ranks: int) -> None:
    """Each rank holds its shards, and not more than 1.1 times what must be alive beside them. What its communications
    hold is in a tenth of both, or, where these are small, in COMMUNICATION_BYTES."""
    example = [adaptive_layernorm_backward.EXAMPLE, rope.EXAMPLE, tensor_parallel_mlp.EXAMPLE][index]
    inputs = example.make_inputs()
    fd = example.define(ranks)
    program, out, report = tmp_path / "program.hir", tmp_path / "out", tmp_path / "report.json"
    program.write_text(str(fd))
    out.mkdir()
    for array, tensor in zip(inputs, fd.fusion.inputs(), strict=True):
        save(tmp_path, tensor.name, array)
    os.environ["HOSTIR_DUMP"] = "host_ir"
    try:
        done = evaluate(program, "--in", tmp_path, "--out", out, "--json", report, "--comm", comm, ranks=ranks)
    finally:
        del os.environ["HOSTIR_DUMP"]
    errors = [line for line in done.stderr.splitlines() if "hostir-eval" in line]  # Among dumps of each rank.
    assert done.returncode == 0, "\n".join(errors) or done.stderr
    memory = json.loads(report.read_text())
    sizes: dict[str, int] = {}
    for array, (_, _, extents, _) in zip(inputs, INPUT.findall(str(fd)), strict=True):
        sizes |= {name: n for name, n in zip(extents.replace("b:", "").split(", "), array.shape, strict=True)}
    shards = shard_bytes(str(fd), inputs, out, OUTPUT_AXES[index], ranks)
    alive = most_alive(done.stderr, sizes)
    print(f"{ranks} ranks: shards {shards}, must be alive {alive}; {memory}")
    assert memory["shard_bytes"] == [shards] * ranks
    assert len(memory["pool_bytes"]) == ranks
    assert max(memory["pool_bytes"]) <= 1.1 * alive
    assert len(memory["communication_bytes"]) == ranks
    assert max(memory["communication_bytes"]) <= max(0.1 * (shards + alive), COMMUNICATION_BYTES)


SUM_OF_RANKS = """mesh @m = [0, 1]
host @f(%x: f32[n], %y: f32[m]) {
  communication(%x, %y) {type=TYPE, reduce=sum, mesh=@m, dim=DIM, to=@m, stream=0, seq=0}
  return %y
}
"""


@pytest.mark.parametrize("comm", ["ucx", "mpi"])
@pytest.mark.parametrize("kind", ["allreduce", "reduce_scatter", "reduce"])
def test_reductions_hold_a_part(folder: Path, kind: str, comm: str) -> None:
    """Of 16 MiB that are reduced."""
    text = SUM_OF_RANKS.replace("TYPE", kind).replace("DIM", "none" if kind == "reduce" else "mesh_x")
    count = 1 << 22
    text = text.replace("[n]", f"[{count}]").replace("[m]", f"[{count // (2 if kind == 'reduce_scatter' else 1)}]")
    (folder / "sum.hir").write_text(text)
    report = folder / "report.json"
    done = evaluate(folder / "sum.hir", "--random", 1, "--comm", comm, "--json", report, ranks=2)
    assert done.returncode == 0, done.stderr
    held = json.loads(report.read_text())["communication_bytes"]
    assert len(held) == 2 and 0 < max(held) <= COMMUNICATION_BYTES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the program ADD, its inputs, and a folder for its output."""
    (tmp_path / "add.hir").write_text(ADD)
    save(tmp_path, "x", np.arange(12, dtype=np.float32).reshape(3, 4))
    save(tmp_path, "s", np.array(2.5))
    (tmp_path / "out").mkdir()
    return tmp_path


def test_alone_without_mpirun(folder: Path) -> None:
    done = evaluate(folder / "add.hir", "--in", folder, "--out", folder / "out", "--explain", "--repeat=2", "--cold-l2")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(folder / "out/y.npy"), np.load(folder / "x.npy") + np.float32(2.5))
    assert "k0: kernel pointwise: y = add" in done.stdout
    assert "2 samples of 1 run, caches cold: median " in done.stdout


def test_files_are_row_major_whatever_lies_in_memory(tmp_path: Path) -> None:
    (tmp_path / "p.hir").write_text(
        "mesh @m = [0, 1]\n"
        "fusion @f(%x: f32[i0, 4, 3] {mesh=@m, shard(1, mesh_x), stride_order(0, 2, 1)}) {\n"
        "  %y: f32[i0, 4, 3] {mesh=@m, stride_order(1, 0, 2)} = add(%x, %x)\n"
        "  return %y\n}\n"
    )
    (tmp_path / "out").mkdir()
    x = np.arange(60, dtype=np.float32).reshape(5, 4, 3)
    save(tmp_path, "x", x)
    done = evaluate(tmp_path / "p.hir", "--in", tmp_path, "--out", tmp_path / "out", ranks=2)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "out/y.npy"), 2 * x)


ODDITIES = """fusion @f(%x: f32[i0, 4], %z: f32[0, 3], %b: bool[3], %e: f16[b:5, 2]) {
  %y = add(%x, %x)
  %w = neg(%z)
  %n = logical_not(%b)
  %v = neg(%z)
  %c = cast(%b) {dtype=bool}
  return %x, %y alias %x, %y, %w, %n, %e, %v, %c
}
"""


def test_inputs_given_back_values_twice_nothing_and_one_for_all(tmp_path: Path) -> None:
    (tmp_path / "p.hir").write_text(ODDITIES)
    out = tmp_path / "out"
    out.mkdir()
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    once = np.array([[1, 2]], np.float16)
    for name, array in (("x", x), ("z", np.zeros((0, 3), np.float32)), ("b", np.arange(3) > 0), ("e", once)):
        save(tmp_path, name, array)
    done = evaluate(tmp_path / "p.hir", "--in", tmp_path, "--out", out, "--repeat", 2)
    assert done.returncode == 0, done.stderr
    wanted = {"x": x, "y": x + x, "w": np.zeros((0, 3), np.float32), "n": np.arange(3) == 0, "e": once.repeat(5, 0)}
    wanted |= {"v": wanted["w"], "c": np.arange(3) > 0}  # Equal to others, and named as they are written.
    assert {path.stem for path in out.iterdir()} == wanted.keys()
    for name, want in wanted.items():
        got = np.load(out / f"{name}.npy")
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def test_inputs_made_up_are_the_same_on_any_ranks(tmp_path: Path) -> None:
    program = "mesh @m = {mesh}\nfusion @twice(%x: f32[i0, 4] {{mesh=@m, shard(0, mesh_x)}}) {{\n"
    program += "  %y = add(%x, %x)\n  return %y\n}}\n"
    outputs = []
    for ranks in (1, 2):
        out = tmp_path / str(ranks)
        out.mkdir()
        (out / "p.hir").write_text(program.format(mesh=list(range(ranks))))
        done = evaluate(out / "p.hir", "--random", 7, "--size", "i0=6", "--out", out, ranks=ranks)
        assert done.returncode == 0, done.stderr
        outputs.append(np.load(out / "y.npy"))
    np.testing.assert_array_equal(*outputs)
    assert 0.3 < np.abs(outputs[0]).mean() < 3.5 and len(np.unique(outputs[0])) == 24


HOST = """mesh @m = [0, 1]
host @exchange(%x: f32[2, 1000], %y: f32[2, 1000]) {
  communication(%x, %y) {type=all_to_all, reduce=none, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=0}
  return %y
}
"""


def test_a_host_program_is_timed(tmp_path: Path) -> None:
    (tmp_path / "p.hir").write_text(HOST)
    done = evaluate(tmp_path / "p.hir", "--random", 1, "--repeat", 2, "--batch", 3, ranks=2)
    assert done.returncode == 0, done.stderr
    assert "@exchange on 2 cpu ranks: 0 kernel launches, 0 library calls, 1 communication\n" in done.stdout
    assert "2 samples of 3 runs: median " in done.stdout
    assert "arrays are each rank's own" in refusal(1, tmp_path / "p.hir", "--in", tmp_path, ranks=2)
    assert "mesh [0, 1] names device 1; this run has 1 rank" in refusal(1, tmp_path / "p.hir", "--random", 1)


def refusal(code: int, *arguments: object, ranks: int = 0) -> str:
    done = evaluate(*arguments, ranks=ranks)
    assert done.returncode == code, (done.returncode, done.stderr)
    return done.stderr


def test_files_that_do_not_fit_are_refused(folder: Path) -> None:
    run = functools.partial(refusal, 1, folder / "add.hir", "--in", folder, "--out", folder / "out")
    save(folder, "x", np.zeros((3, 5), np.float32))
    assert f"input %x: axis 1 of {folder}/x.npy has extent 5; the program wants 4" in run()
    save(folder, "x", np.zeros((3, 4, 1), np.float32))
    assert f"input %x: {folder}/x.npy has 3 axes; the program wants f32[i0, 4]" in run()
    save(folder, "x", np.zeros((3, 4), np.float64))
    assert f"input %x: {folder}/x.npy holds <f8; the program wants f32" in run()
    np.save(folder / "x.npy", np.asfortranarray(np.zeros((3, 4), np.float32)))
    assert "x.npy is column-major" in run()
    save(folder, "x", np.zeros((3, 4), np.float32))
    save(folder, "s", np.zeros(1))
    assert "has 1 axis; the program wants a number, an array without axes" in run()
    (folder / "add.hir").write_text(ADD.replace("add(%x, %s)", "ad(%x, %s)"))
    assert "add.hir: line 2: " in run()


def test_files_that_are_missing(folder: Path) -> None:
    assert "cannot read nowhere.hir" in refusal(2, "nowhere.hir", "--in", folder)
    (folder / "s.npy").unlink()
    assert f"cannot read {folder}/s.npy: No such file" in refusal(2, folder / "add.hir", "--in", folder)
    assert "say where they are (--in DIR)" in refusal(1, folder / "add.hir")
    save(folder, "s", np.array(2.5))
    missing = folder / "missing"
    assert f"cannot write {missing}/y.npy" in refusal(3, folder / "add.hir", "--in", folder, "--out", missing)


@pytest.mark.skipif(num_gpus() > 0, reason="there is a GPU here")
def test_without_a_gpu(folder: Path) -> None:
    message = refusal(3, folder / "add.hir", "--in", folder, "--device", "cuda")
    assert re.match(r"hostir-eval: (FAILED_PRECONDITION|UNIMPLEMENTED): .*(driver|GPU|CUDA)", message), message


def test_the_command_line() -> None:
    assert "no option --repaet; did you mean --repeat?" in refusal(2, "p.hir", "--repaet", 3)
    helped = evaluate("--help")
    assert helped.returncode == 0
    assert "mpirun -n 4 hostir-eval PROGRAM.hir" in helped.stdout


def test_too_few_ranks_for_the_mesh(folder: Path) -> None:
    (folder / "add.hir").write_text("mesh @m = [0, 1, 2]\n" + ADD.replace("i0, 4], %s", "i0, 4] {mesh=@m}, %s", 1))
    message = refusal(1, folder / "add.hir", "--in", folder, ranks=2)
    assert "mesh [0, 1, 2] names device 2; " in message and "2 devices" in message


UNEVEN = """mesh @m = [0, 1, 2, 3]
fusion @uneven(%x: f32[i0, 3] {mesh=@m, shard(0, mesh_x)}, %w: f32[i0, 2]) {
  %y = add(%x, %x)
  %z: f32[i0, 3] {mesh=@m, shard(1, mesh_x)} = set(%y)
  %sum = sum(%y) {axes=[0], keepdim=false, dtype=null}
  %t = permute(%y) {dims=[1, 0]}
  %p = matmul(%t, %w)
  return %y, %z, %sum, %p
}
"""


@pytest.mark.parametrize("comm", ["ucx", "mpi"])
@pytest.mark.parametrize("rows", [8, 9, 3, 0])
def test_uneven_shards(folder: Path, rows: int, comm: str) -> None:
    (folder / "uneven.hir").write_text(UNEVEN)
    rng = np.random.default_rng(rows)
    x, w = rng.standard_normal((rows, 3), np.float32), rng.standard_normal((rows, 2), np.float32)
    save(folder, "x", x)
    save(folder, "w", w)
    done = evaluate(folder / "uneven.hir", "--in", folder, "--out", folder / "out", "--comm", comm, ranks=4)
    assert done.returncode == 0, done.stderr
    for name, want in {"y": x + x, "z": x + x, "sum": 2 * x.sum(0), "p": 2 * x.T @ w}.items():
        np.testing.assert_allclose(np.load(folder / f"out/{name}.npy"), want, rtol=1e-5, atol=1e-5)


WHOLE, BLOCKS = "{mesh=@m}", "{mesh=@m, shard(0, mesh_x)}"
DEALT = "{mesh=@m, inner_split(0, 2), parallelize(1, mesh_x)}"


@pytest.mark.parametrize("comm", ["ucx", "mpi"])
@pytest.mark.parametrize(("source", "target"), [(WHOLE, DEALT), (BLOCKS, DEALT), (DEALT, BLOCKS), (DEALT, DEALT)])
def test_elements_dealt_in_turns(folder: Path, source: str, target: str, comm: str) -> None:
    """Element i of n is that of device i mod 2, of which each of the two has n / 2."""
    text = f"mesh @m = [0, 1]\nfusion @deal(%x: f32[n] {source}) {{\n  %t {target} = add(%x, %x)\n  return %t\n}}\n"
    (folder / "deal.hir").write_text(text)
    report = folder / "report.json"
    run = [folder / "deal.hir", "--in", folder, "--out", folder / "out", "--comm", comm, "--json", report]
    for count in (24, 22):  # Whole turns of what two ranks exchange, and not.
        x = np.arange(count, dtype=np.float32)
        save(folder, "x", x)
        done = evaluate(*run, ranks=2)
        assert done.returncode == 0, done.stderr
        np.testing.assert_array_equal(np.load(folder / "out/t.npy"), 2 * x)
        held = x.nbytes if source == WHOLE else x.nbytes // 2
        assert json.loads(report.read_text())["shard_bytes"] == [held + x.nbytes // 2] * 2
    save(folder, "x", np.arange(21, dtype=np.float32))
    assert re.search(r"INVALID_ARGUMENT: .*axis 0 dealt 2 ways", refusal(1, *run, ranks=2))


def test_ranks_with_different_programs_do_not_start(folder: Path) -> None:
    (folder / "sub.hir").write_text(ADD.replace("add(%x, %s)", "sub(%x, %s)"))
    commands = [[str(EVAL), str(folder / f"{name}.hir"), "--in", str(folder)] for name in ("add", "sub")]
    done = launch([1, 1], commands)
    assert done.returncode == 3, done.stderr
    assert "FAILED_PRECONDITION: ranks 0 and 1 made different plans" in done.stderr


def test_the_first_failing_rank_is_told_by_all(folder: Path) -> None:
    (folder / "other").mkdir()
    save(folder / "other", "x", np.zeros((3, 5), np.float32))
    save(folder / "other", "s", np.array(1.0))
    program = str(folder / "add.hir")
    done = launch([1, 1], [[str(EVAL), program, "--in", str(folder / where)] for where in (".", "other")])
    assert done.returncode == 1, done.stderr
    assert "rank 1: " in done.stderr and "has extent 5; the program wants 4" in done.stderr


def test_timeline_of_two_ranks(tmp_path: Path) -> None:
    program = tmp_path / "sum.hir"
    program.write_text("""mesh @m = [0, 1]
fusion @total(%x: f32[i0, 8] {mesh=@m, shard(0, mesh_x)}) {
  %s {mesh=@m} = sum(%x) {axes=[0], keepdim=false, dtype=f32}
  return %s
}
""")
    path = tmp_path / "run.json"
    done = evaluate(program, "--random", 1, "--size", "i0=64", "--repeat", 3, "--timeline", path, ranks=2)
    assert done.returncode == 0, done.stderr
    trace = json.loads(path.read_text())
    assert trace["otherData"] == {"program": "total"}
    sums = [e for e in trace["traceEvents"] if e.get("cat") == "communication" and e["ph"] == "X" and e["tid"] > 0]
    assert [(e["pid"], e["name"]) for e in sums] == [(0, "allreduce #0"), (1, "allreduce #0")]
    assert min(e["ts"] + e["dur"] for e in sums) >= max(e["ts"] for e in sums)


def test_plans_of_several_programs_take_turns(tmp_path: Path) -> None:
    for name, op in (("twice", "add"), ("squares", "mul")):
        (tmp_path / f"{name}.hir").write_text(f"""fusion @{name}(%x: f32[i0, 8]) {{
  %y = {op}(%x, %x)
  return %y
}}
""")
    programs = [tmp_path / "twice.hir", tmp_path / "squares.hir"]
    times = tmp_path / "times.json"
    arguments = ["--overlap", "never,chosen", "--random", 1, "--size", "i0=64", "--repeat", 3, "--json", times]
    done = evaluate(*programs, *arguments)
    assert done.returncode == 0, done.stderr
    rows = json.loads(times.read_text())
    assert [(row["program"], row["overlap"], len(row["samples_ms"])) for row in rows] == [
        (name, overlap, 3) for name in ("twice", "squares") for overlap in ("never", "chosen")
    ]
    assert done.stdout.count("(overlap never)") == 2


@pytest.mark.parametrize("ranks", [0, 2])
def test_what_is_calibrated_predicts(tmp_path: Path, ranks: int) -> None:
    rates, program, times = (tmp_path / name for name in ("rates.txt", "sums.hir", "times.json"))
    done = evaluate("--calibrate", rates, ranks=ranks)
    assert done.returncode == 0, done.stderr
    words = [line.split() for line in rates.read_text().splitlines()]
    assert words[0] == ["hostir", "rates", "1"] and ["ranks", str(max(ranks, 1))] in words
    curves = {tuple(line[:-2]) for line in words if line[0] in ("memory", "product", "communication")}
    types = ("allgather", "allreduce", "reduce_scatter", "all_to_all", "collective_permute", "copies")
    communications = {("communication", name) for name in types} if ranks else set()
    assert curves == {("memory",), ("product", "f32"), ("product", "bf16")} | communications
    mesh, of_mesh = ("mesh @m = [0, 1]\n", " {mesh=@m, shard(0, mesh_x)}") if ranks else ("", "")
    program.write_text(f"""{mesh}fusion @sums(%x: f32[4096, 256]{of_mesh}) {{
  %s{" {mesh=@m}" if ranks else ""} = sum(%x) {{axes=[0], keepdim=false, dtype=f32}}
  return %s
}}
""")
    arguments = ["--random", 1, "--repeat", 5, "--rates", rates, "--json", times]
    done = evaluate(program, *arguments, ranks=ranks)
    assert done.returncode == 0, done.stderr
    row = json.loads(times.read_text())
    assert f"predicted: {row['predicted_ms']:.4g} ms a run" in done.stdout
    assert 0.01 < row["predicted_ms"] / row["median_ms"] < 100  # Others use this machine, too.


def test_calibrate_goes_with_no_program(tmp_path: Path) -> None:
    done = evaluate("--calibrate", tmp_path / "rates.txt", "program.hir")
    assert done.returncode == 2 and "--calibrate times programs of its own" in done.stderr
    (tmp_path / "rates.txt").write_text("hostir rates 1\nmemory 0 1\n")
    (tmp_path / "program.hir").write_text("fusion @f(%x: f32[4]) {\n  %y = relu(%x)\n  return %y\n}\n")
    done = evaluate(tmp_path / "program.hir", "--random", 1, "--rates", tmp_path / "rates.txt")
    assert done.returncode != 0 and "rates.txt: line 2: memory wants bytes and seconds, both above 0" in done.stderr
