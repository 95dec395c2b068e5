"""hostir against a real daemon: values, errors, exit codes.

Oracles: NumPy; the Python client, which asks the same daemon; hostir-eval, which makes the same inputs up.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hostir as client_of_python
from conftest import BUILD, CORPUS, HOSTIR, Daemon, clean_environment, good, hostir, size_flags, sizes_of

COLUMN_SUMS = """\
mesh @m = [0, 1]
fusion @column_sums(%x: f32[i0, i1] {mesh=@m, shard(0, mesh_x)}) {
  %y = sum(%x) {axes=[0], keepdim=false, dtype=null}
  return %y
}
"""
# Every kind of input: bf16, an axis that is stored once, a number, integers, booleans.
MIXED = """\
fusion @mixed(%a: bf16[i0, 4], %row: f32[b:i0, 4], %s: f64, %n: i64[i0, 4], %t: bool[4]) {
  %af = cast(%a) {dtype=f32}
  %b = add(%af, %row)
  %c = mul(%b, %s)
  %nf = cast(%n) {dtype=f32}
  %d = add(%c, %nf)
  %zero = constant() {value=0.0, dtype=f64}
  %tt = broadcast(%t) {is_broadcast_dim=[1, 0]}
  %e = where(%tt, %d, %zero)
  %f = cast(%e) {dtype=bf16}
  %again = add(%row, %row)
  return %e, %f, %again
}
"""
NEGATE = "fusion @negate(%x: f32[i0]) {\n  %y = neg(%x)\n  return %y\n}\n"


def steps(count: int) -> str:
    """A program of so many kernels, no two of them equal."""
    lines = []
    for i in range(count):
        lines += [
            f"  %c{i} = constant() {{value={i + 0.5}, dtype=f64}}",
            f"  %a{i} = add(%{f's{i - 1}' if i else 'x'}, %c{i})",
        ]
        lines += [f"  %b{i} = tanh(%a{i})", f"  %s{i} = segment_set(%b{i})"]
    return "\n".join(["fusion @steps(%x: f32[i0]) {", *lines, f"  return %s{count - 1}", "}\n"])


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "program.hir"
        path.write_text(text)
        return path

    return write


def save(folder: Path, **arrays: np.ndarray) -> Path:
    folder.mkdir(exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder


# --- run ---------------------------------------------------------------------------------------------------------


def test_run_on_two_ranks(daemon, program, tmp_path):
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    out = tmp_path / "new" / "out"
    said = good(
        "run", program(COLUMN_SUMS), "--in", save(tmp_path / "in", x=x), "--out", out, "--address", daemon.address
    )
    np.testing.assert_array_equal(np.load(out / "y.npy"), x.sum(axis=0))
    assert said.startswith(f"program on 2 cpu devices ({daemon.address})\nplan and compile ")
    assert "put 96 B in " in said and " on the devices; get in " in said
    assert said.endswith(f"output %y: f32[i1] -> {out}/y.npy\n")


def test_run_with_stride_orders(daemon, program, tmp_path):
    """Files are row-major; what is said of an output has its order."""
    text = (
        "mesh @m = [0, 1]\n"
        "fusion @f(%x: f32[i0, 4, 3] {mesh=@m, shard(1, mesh_x), stride_order(0, 2, 1)}) {\n"
        "  %y: f32[i0, 4, 3] {mesh=@m, stride_order(1, 0, 2)} = add(%x, %x)\n"
        "  return %y\n}\n"
    )
    x = np.arange(60, dtype=np.float32).reshape(5, 4, 3)
    folder, out = save(tmp_path / "in", x=x), tmp_path / "out"
    said = good("run", program(text), "--in", folder, "--out", out, "--address", daemon.address)
    np.testing.assert_array_equal(np.load(out / "y.npy"), 2 * x)
    assert "output %y: f32[i0, 4, 3] {stride_order(1, 0, 2)} -> " in said


def test_run_with_a_timeline(daemon, program, tmp_path):
    path = tmp_path / "run.json"
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    arguments = ["run", program(COLUMN_SUMS), "--in", save(tmp_path / "in", x=x), "--address", daemon.address]
    said = good(*arguments, "--timeline", path)
    assert said.endswith(f"timeline -> {path}\n")
    trace = json.loads(path.read_text())
    assert {e["pid"] for e in trace["traceEvents"]} == {0, 1}
    assert any(e.get("cat") == "communication" for e in trace["traceEvents"])


@pytest.mark.parametrize("full", [False, True])
def test_run_with_every_kind_of_input(daemon, program, tmp_path, full):
    rng = np.random.default_rng(7)
    a = rng.standard_normal((3, 4)).astype(ml_dtypes.bfloat16)
    row = rng.standard_normal((1, 4)).astype(np.float32)
    n = rng.integers(-9, 9, (3, 4))
    t = np.array([True, False, True, True])
    stored = np.ascontiguousarray(np.broadcast_to(row, (3, 4))) if full else row
    folder = save(tmp_path / "in", a=a, row=stored, s=np.float64(0.5), n=n, t=t)
    good("run", program(MIXED), "--in", folder, "--out", tmp_path / "out", HOSTIR_ADDRESS=daemon.address)
    e = np.where(t, (a.astype(np.float32) + row) * np.float32(0.5) + n.astype(np.float32), np.float32(0))
    np.testing.assert_allclose(np.load(tmp_path / "out/e.npy"), e, rtol=1e-6)
    f = np.load(tmp_path / "out/f.npy")
    assert f.dtype == np.dtype("V2")
    np.testing.assert_array_equal(
        f.view(ml_dtypes.bfloat16), np.load(tmp_path / "out/e.npy").astype(ml_dtypes.bfloat16)
    )
    # Stored once, written whole.
    np.testing.assert_array_equal(np.load(tmp_path / "out/again.npy"), np.broadcast_to(row + row, (3, 4)))


@pytest.mark.parametrize("text", [NEGATE, MIXED])
def test_inputs_made_up_are_those_of_hostir_eval(daemon, program, tmp_path, text):
    path = program(text)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    theirs.mkdir()
    arguments = [path, "--random", "5", "--size", "i0=37"]
    good("run", *arguments, "--out", ours, "--address", daemon.address)
    subprocess.run([BUILD / "hostir-eval", *arguments, "--out", theirs], capture_output=True, timeout=120, check=True)
    names = sorted(path.name for path in theirs.glob("*.npy"))
    assert names == sorted(path.name for path in ours.glob("*.npy")) != []
    for name in names:
        assert (ours / name).read_bytes() == (theirs / name).read_bytes()


def test_outputs_are_named_as_they_are_written(daemon, program, tmp_path):
    text = """fusion @f(%x: f32[i0]) {
  %y = add(%x, %x)
  %z = add(%x, %x)
  %c = cast(%x) {dtype=f32}
  return %y, %z, %c
}
"""
    folder = save(tmp_path / "io", x=np.ones(3, np.float32))
    good("run", program(text), "--in", folder, "--out", folder, "--address", daemon.address)
    assert {path.stem: np.load(path)[0] for path in folder.iterdir()} == {"x": 1, "y": 2, "z": 2, "c": 1}


def test_behind_two_dashes_is_the_program(daemon, program):
    said = good("run", "--random=1", "--size=i0=2", "--address", daemon.address, "--", program(NEGATE))
    assert said.endswith("output %y: f32[i0]\n")


def test_empty_arrays_and_standard_input(daemon, tmp_path):
    folder = save(tmp_path / "in", x=np.zeros(0, np.float32))
    arguments = ["run", "-", "--in", folder, "--out", tmp_path / "out", "--address", daemon.address]
    done = hostir(*arguments, text=NEGATE)
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "out/y.npy").shape == (0,)


def test_a_daemon_of_its_own(program, tmp_path):
    """It is gone when the command is, and nothing is left of it."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    x = np.ones((2, 2), np.float32)
    arguments = ["run", program(COLUMN_SUMS), "--in", save(tmp_path / "in", x=x), "--out", tmp_path]
    said = good(*arguments, "--devices", "cpu:2", TMPDIR=str(scratch))
    assert "(a daemon of its own on cpu:2)" in said
    assert list(scratch.iterdir()) == []
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), [2, 2])


def test_the_default_address(daemon, tmp_path, program):
    """Where a socket is at the default address it is used; where none is, run starts a daemon, and status does not."""
    (tmp_path / "hostir").mkdir()
    socket = tmp_path / "hostir/socket"
    socket.symlink_to(daemon.address.removeprefix("unix:"))
    assert f"hostird 0.1.0 at unix:{socket}: serving" in good("status", XDG_RUNTIME_DIR=str(tmp_path))
    socket.unlink()
    assert hostir("status", XDG_RUNTIME_DIR=str(tmp_path)).returncode == 4
    said = good("run", program(NEGATE), "--random=1", "--size=i0=4", XDG_RUNTIME_DIR=str(tmp_path))
    assert "(a daemon of its own on cpu:4)" in said


# --- explain -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
@pytest.mark.parametrize("sized", [False, True], ids=["symbols", "sizes"])
def test_explain_says_what_the_python_client_says(four, path, sized):
    daemon, sizes = four, sizes_of(path) if sized else {}
    flags = size_flags(sizes)
    said = good("explain", path, *flags, "--address", daemon.address)
    with client_of_python.connect(daemon.address) as python:
        request = client_of_python.client.pb.ExplainRequest(session_id=python._session, sizes=sizes)
        request.program.text = path.read_text()
        reply = python._call(python._stub.Explain, request)
    assert said == f"{client_of_python.plan.Plan(reply)}\n"
    shown = json.loads(good("explain", path, *flags, "--json", "--address", daemon.address))
    assert shown["program_id"] == reply.program_id
    assert shown["explanation"]["host_ir"] == reply.explanation.host_ir
    assert [s["ops"] for s in shown["explanation"]["segments"]] == [list(s.ops) for s in reply.explanation.segments]
    for ours, theirs in zip(shown["explanation"]["segments"], reply.explanation.segments, strict=True):
        assert ours.get("bytes_value") == (theirs.bytes_value if theirs.HasField("bytes_value") else None)
    assert [g["condition"] for g in shown["guards"]] == [g.condition for g in reply.guards]


CHAIN = """fusion @chain(%x: f32[i0, 8]) {
  %a = exp(%x)
  %b = neg(%a)
  %c = sum(%a) {axes=[1], keepdim=false, dtype=f32}
  return %b, %c
}
"""


def test_diff_says_what_a_rule_brings(four, program, tmp_path):
    """Fused, a run reads x and writes b and c; op by op it writes a besides, and reads it twice."""
    fused, apart = program(CHAIN), tmp_path / "apart.hir"
    apart.write_text("segmentation one_op\n" + CHAIN)
    said = good("diff", fused, apart, "--size=i0=32", "--address", four.address)
    totals, segments = said.split("\n\n")
    rows = {line.split("  ")[0]: line.split()[-3:] for line in totals.splitlines()[2:]}
    assert rows["kernels"] == ["1", "3", "3.00"]
    assert totals.splitlines()[3].split() == ["a", "rank", "reads", "and", "writes", "2.1", "KiB", "5.1", "KiB", "2.41"]
    assert [line.split()[:3] for line in segments.splitlines()[2:]] == [
        ["-", "k0", "kernel"],
        ["+", "k0", "kernel"],
        ["+", "k1", "kernel"],
        ["+", "k2", "kernel"],
    ]
    said = good("diff", fused, fused, "--address", four.address)
    assert said.endswith("\nthe segments are the same\n")
    assert "sizes?" in said
    done = hostir("diff", fused, tmp_path / "none.hir", "--address", four.address)
    assert (done.returncode, done.stderr) == (
        2,
        f"hostir: NOT_FOUND: cannot read {tmp_path}/none.hir, or it is empty\n",
    )
    apart.write_text("segmentation one_ops\n" + CHAIN)
    done = hostir("diff", fused, apart, "--address", four.address)
    assert done.returncode == 1
    assert f"{apart}: segmentation" in done.stderr


def test_explain_shows_a_saved_answer(four, tmp_path):
    """As it shows the daemon's, and asks none."""
    path = CORPUS[0]
    with client_of_python.connect(four.address) as python:
        request = client_of_python.client.pb.ExplainRequest(session_id=python._session)
        request.program.text = path.read_text()
        reply = python._call(python._stub.Explain, request)
    saved = tmp_path / f"{path.stem}.plan"
    saved.write_bytes(reply.SerializeToString())
    for flags in ([], ["--json"]):
        asked = good("explain", path, *flags, "--address", four.address)
        assert good("explain", saved, "--reply", *flags, "--address=unix:/nowhere") == asked
    pictures = [tmp_path / "asked.svg", tmp_path / "saved.svg"]
    good("explain", path, "--svg", pictures[0], "--address", four.address)
    good("explain", saved, "--reply", "--svg", pictures[1])
    assert pictures[0].read_text() == pictures[1].read_text()
    for bytes_ in (b"fusion @p(", client_of_python.client.pb.ExplainReply(program_id="1").SerializeToString()):
        saved.write_bytes(bytes_)
        done = hostir("explain", saved, "--reply")
        assert done.returncode == 1
        assert done.stderr == f"hostir: INVALID_ARGUMENT: {saved}: a hostir.v1.ExplainReply is wanted\n"


# --- status, top, bench ------------------------------------------------------------------------------------------


def test_status(daemon):
    said = good("status", "--address", daemon.address)
    assert said.startswith(f"hostird 0.1.0 at {daemon.address}: serving, up ")
    shown = json.loads(good("status", "--json", "--address", daemon.address))
    with client_of_python.connect(daemon.address) as python:
        asked = python.status()
    assert [list(device) for device in shown["devices"]] == [
        [field for field in device if field != "error"] for device in asked["devices"]
    ]
    for field in ("version", "planner_pid", "planner_pids", "generation", "serving", "limits"):
        assert shown[field] == asked[field]
    for device in shown["devices"]:
        resident = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{device['pid']}/status").read_text(), re.M)
        assert resident is not None and 0.5 < device["resident_bytes"] / (int(resident[1]) * 1024) < 2
        assert re.search(rf"^{device['rank']}\s+cpu:{device['ordinal']}\s.*\s{device['pid']}\s", said, re.M)
    for limit in shown["limits"]:
        assert re.search(rf"^{limit['name']} +{limit['value']}$", said, re.M)
    assert shown["requests"] > 0 and shown["requests_under_way"] == 1 and shown["uptime_ms"] > 0


def test_health(daemon):
    assert good("health", "--address", daemon.address) == "serving\n"


def test_top_once(daemon):
    said = good("top", "--once", "--address", daemon.address)
    assert [line.split()[0] for line in said.splitlines()[1:5]] == ["tensors", "requests", "runs", "plans"]
    assert len(re.findall(r"^[01] +cpu:[01] ", said, re.M)) == 2
    assert "\x1b" not in said


def test_top_shows_times_and_who_waits(own_daemon):
    with client_of_python.FusionDefinition() as negate:
        given = negate.define_tensor(shape=[-1], contiguity=True, dtype=client_of_python.DataType.Float)
        negate.add_output(negate.ops.neg(given))
    with client_of_python.connect(own_daemon.address) as python:
        for _ in range(20):
            python.run(negate, [np.ones(4, np.float32)], wait=True)
        with pytest.raises(client_of_python.InvalidArgument):
            python.run(negate, [np.ones((4, 4), np.float32)])
        python.put(np.ones(4, np.float32))
        said = good("top", "--once", "--address", own_daemon.address)
        status = python.status()
    time_of = r"\d+(\.\d)? (us|ms|s)"
    assert re.search(rf"^Run +21 +1 +{time_of} +{time_of}$", said, re.M), said
    assert re.search(rf"^Upload +1 +0 +{time_of} +{time_of}$", said, re.M), said
    assert re.search(rf"^\(runs on the devices\) +20 +0 +{time_of} +{time_of}$", said, re.M), said
    assert re.search(rf"^uid:{os.getuid()} +1 +0 +{time_of} +{time_of}$", said, re.M), said
    run = next(times for times in status["requests_over"] if times["name"] == "Run")
    assert sum(run["counts"]) == 21 and len(run["counts"]) == len(status["time_bounds_us"]) + 1
    assert status["principals"][0]["sessions"] == 1


def test_top_goes_on_until_it_is_interrupted(daemon):
    command = [HOSTIR, "top", "--interval", "0.1", "--address", daemon.address]
    process = subprocess.Popen(command, env=clean_environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    heads = 0
    for line in process.stdout:
        heads += line.startswith("hostird ")
        if heads == 2 and line.startswith("requests"):
            assert re.search(r"\(\d+\.\d/s\)", line)
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_top_shows_how_fast_runs_end(own_daemon):
    """Of runs that were all accepted before it looks."""
    with client_of_python.FusionDefinition() as negate:
        given = negate.define_tensor(shape=[-1], contiguity=True, dtype=client_of_python.DataType.Float)
        negate.add_output(negate.ops.neg(given))
    with client_of_python.connect(own_daemon.address) as python:
        workers = [device["pid"] for device in python.status()["devices"]]
        (x,) = python.run(negate, [np.ones(4, np.float32)], wait=True)
        over = python.status()["runs_over"]
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        for _ in range(40):
            (x,) = python.run(negate, [x])
        command = [HOSTIR, "top", "--interval", "0.1", "--address", own_daemon.address]
        process = subprocess.Popen(command, env=clean_environment(), stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            found = re.match(r"runs +(\d+) over(?: \((\d+\.\d)/s\))?, (\d+) queued$", line)
            assert found or not line.startswith("runs"), line
            if not found:
                continue
            seen.append((int(found[1]) - over, float(found[2] or 0)))
            if len(seen) == 2:
                for worker in workers:
                    os.kill(worker, signal.SIGCONT)
            if seen[-1][0] == 40:
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert seen[0] == (0, 0) and seen[1] == (0, 0)
    assert max(rate for _, rate in seen) > 0, seen


def test_bench(daemon, program):
    arguments = ["bench", program(COLUMN_SUMS), "--random=1", "--size=i0=2", "--size=i1=3", "--address", daemon.address]
    runs = json.loads(good("status", "--json", "--address", daemon.address))["runs"]
    shown = json.loads(good(*arguments, "--repeat=5", "--warmup=2", "--json"))
    assert json.loads(good("status", "--json", "--address", daemon.address))["runs"] == runs + 1 + 2 + 5
    assert (shown["program"], shown["num_devices"], shown["upload_bytes"]) == ("program", 2, 24)
    assert len(shown["request_ms"]) == len(shown["devices_ms"]) == 5
    for kind in ("request", "devices"):
        assert shown[f"{kind}_quartiles_ms"] == [sorted(shown[f"{kind}_ms"])[i] for i in (1, 2, 3)]
    for request, devices in zip(shown["request_ms"], shown["devices_ms"], strict=True):
        assert 0 < devices < request
    said = good(*arguments, "--repeat=1")
    assert re.search(r"^request to answer( +\S+){3}$", said, re.M) and re.search(
        r"^on the devices( +\S+){3}$", said, re.M
    )


def test_bench_of_a_program_that_takes_its_input_over(daemon, program):
    text = "fusion @p(%x: f32[4]) {\n  %y = neg(%x)\n  return %y alias %x\n}\n"
    good("bench", program(text), "--random=1", "--repeat=3", "--address", daemon.address)


# --- exit codes and errors ---------------------------------------------------------------------------------------

USAGE = {
    "no command": (
        [],
        "which command? run, replay, explain, diff, status, health, top, drain, undrain, dump, bench, certs, "
        "completion",
    ),
    "unknown command": (["statsu"], "statsu: no such command; did you mean status? (hostir --help)"),
    "unknown option": (
        ["run", "--dervices", "x"],
        "--dervices: no such option; did you mean --devices? (hostir run --help)",
    ),
    "unknown option of hostir": (["--versoin"], "--versoin: no such option; did you mean --version? (hostir --help)"),
    "no program": (["run"], "which program? PROGRAM.hir is missing (hostir run --help)"),
    "two programs": (["run", "a.hir", "b.hir"], "b.hir: one argument too many (hostir run --help)"),
    "no shell": (["completion"], "for which shell? bash, zsh or fish (hostir completion --help)"),
    "a shell": (["completion", "csh"], "csh not in {"),
    "two daemons": (["run", "a.hir", "--address=unix:/a", "--devices=cpu:1"], "--address and --devices:"),
    "two sources": (["run", "a.hir", "--in=d", "--random=1"], "--in and --random:"),
    "sizes of files": (
        ["run", "a.hir", "--in=d", "--size=i0=1"],
        "--size: the sizes of inputs that are read are theirs",
    ),
    "a size": (["explain", "a.hir", "--size=i0"], "--size i0: want NAME=EXTENT with an extent of 0 or more"),
    "a negative size": (["explain", "a.hir", "--size=i0=-1"], "--size i0=-1: want NAME=EXTENT"),
    "repeat": (["bench", "a.hir", "--repeat=0"], "--repeat"),
    "repeat, above": (["bench", "a.hir", "--repeat=1000001"], "1000001 not in range"),
    "interval": (["top", "--interval=0.05"], "--interval"),
    "seed": (["run", "a.hir", "--random=-1"], "--random: Value -1 not in range 0 to 9223372036854775806 ("),
    "seed, above": (["run", "a.hir", "--random=9223372036854775808"], "not in range 0 to "),
    "a size twice": (["bench", "a.hir", "--random=1", "--size=i0=1", "--size=i0=2"], "--size i0=2: i0 has an extent"),
    "behind --": (["run", "--", "a.hir", "b.hir"], "b.hir: one argument too many"),
    "svg and json": (["explain", "a.hir", "--svg=a", "--json"], "--json"),
    "no file": (["run", "/nowhere/a.hir"], "NOT_FOUND: cannot read /nowhere/a.hir"),
    "a folder": (["explain", "/tmp"], "NOT_FOUND: cannot read /tmp: it is a folder; a program is a file"),
    "address": (["status", "--address=/run/socket"], "/run/socket: want unix:/path or tcp:host:port"),
    "devices": (["run", "{negate}", "--devices=cpu:0"], "--devices: cpu:0: want cpu:N with N from 1 to 64"),
}


@pytest.mark.parametrize("case", USAGE)
def test_usage_is_2(program, case):
    arguments, expected = USAGE[case]
    done = hostir(*[argument.format(negate=program(NEGATE)) for argument in arguments])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("hostir: ") and done.stderr.count("\n") == 1
    assert expected in done.stderr


def test_files_that_are_not_there_are_2(daemon, program, tmp_path):
    arguments = ["run", program(NEGATE), "--address", daemon.address]
    done = hostir(*arguments, "--in", tmp_path)
    assert done.returncode == 2
    assert f"NOT_FOUND: cannot read {tmp_path}/x.npy: No such file or directory" in done.stderr
    done = hostir(*arguments, "--random=1", "--size=i0=1", "--out", program(NEGATE))
    assert done.returncode == 2 and "cannot make" in done.stderr
    done = hostir("explain", program(NEGATE), "--svg", "/nowhere/a.svg", "--address", daemon.address)
    assert done.returncode == 2 and "cannot write /nowhere/a.svg" in done.stderr


REFUSED = {
    "program": ("fusion @p(", {}, "INVALID_ARGUMENT: {path}: line 1: "),
    "dtype": (NEGATE, {"x": np.zeros(2)}, "input %x: {folder}/x.npy holds <f8; the program wants f32"),
    "axes": (
        NEGATE,
        {"x": np.zeros((2, 2), np.float32)},
        "input %x: {folder}/x.npy has 2 axes; the program wants f32[i0]",
    ),
    "column-major": (
        COLUMN_SUMS,
        {"x": np.zeros((4, 2), np.float32).T},
        "{folder}/x.npy is column-major; save numpy.ascontiguousarray of it",
    ),
    "extent": (
        "fusion @p(%x: f32[i0], %y: f32[i0]) {\n  %z = add(%x, %y)\n  return %z\n}\n",
        {"x": np.zeros(2, np.float32), "y": np.zeros(3, np.float32)},
        "input %y: axis 0 of {folder}/y.npy has extent 3; the program wants i0 = 2 (i0 = 2)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_1(daemon, program, tmp_path, case):
    text, arrays, expected = REFUSED[case]
    folder = save(tmp_path / "in", **arrays)
    path = program(text)
    done = hostir("run", path, "--in", folder, "--address", daemon.address)
    assert (done.returncode, done.stdout) == (1, "")
    assert expected.format(path=path, folder=folder) in done.stderr


def test_missing_sizes_and_inputs_are_named(daemon, program):
    path = program(NEGATE)
    done = hostir("run", path, "--random=1", "--address", daemon.address)
    assert done.returncode == 1
    assert "input %x: f32[i0]: nothing gives a value for the size i0 (--size i0=N)" in done.stderr
    done = hostir("run", path, "--address", daemon.address)
    assert done.returncode == 1 and "say where they are (--in DIR), or have them made up" in done.stderr
    done = hostir("explain", path, "--size=i9=3", "--address", daemon.address)
    assert done.returncode == 1 and "negate has no size i9; its sizes are i0" in done.stderr
    for command in ("run", "bench"):
        done = hostir(command, path, "--random=1", "--size=i0=4", "--size=i9=3", "--address", daemon.address)
        assert done.returncode == 1 and "the program has no size i9; its sizes are i0" in done.stderr


def test_inputs_that_do_not_fit_memory(daemon, program):
    path = program("fusion @p(%x: f32[i0, i1]) {\n  %y = neg(%x)\n  return %y\n}\n")
    arguments = [path, "--random=1", "--size", f"i0={2**40}", "--size", f"i1={2**10}"]
    message = rf"RESOURCE_EXHAUSTED: .*input %x: {2**52} bytes are to be made up; this machine has \d+ bytes of memory"
    for command in ("run", "bench"):
        done = hostir(command, *arguments, "--address", daemon.address)
        assert done.returncode == 1 and re.search(message, done.stderr), done.stderr
    done = subprocess.run([BUILD / "hostir-eval", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and re.search(message, done.stderr), done.stderr


@pytest.mark.parametrize(
    "command", [["status"], ["health"], ["top", "--once"], ["run", "{}", "--random=1", "--size=i0=1"]]
)
def test_nobody_at_the_address_is_4(program, tmp_path, command):
    address = f"unix:{tmp_path}/socket"
    arguments = [word.format(program(NEGATE)) for word in command]
    done = hostir(*arguments, "--address", address)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == (
        f"hostir: UNAVAILABLE: no daemon answers at {address}; start one (hostird --listen {address}), "
        "or name another (--address, HOSTIR_ADDRESS)\n"
    )


def test_no_device_is_3(program):
    arguments = ["run", program(NEGATE), "--random=1", "--size=i0=1"]
    done = hostir(*arguments, "--devices=cuda:all", HOSTIR_WORKER="/bin/false")
    assert done.returncode == 3, done.stderr
    assert "FAILED_PRECONDITION: " in done.stderr
    done = hostir(*arguments, "--devices=cpu:1", HOSTIR_WORKER="/nowhere/hostir-worker")
    assert done.returncode == 3
    assert "hostird --devices=cpu:1 exited with 3; its log ends:\n" in done.stderr
    assert "cannot start /nowhere/hostir-worker: No such file or directory" in done.stderr


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline


@pytest.mark.parametrize(("victim", "code"), [("worker", 3), ("daemon", 4)])
def test_who_dies_during_a_run(own_daemon: Daemon, program, victim, code):
    address = own_daemon.address
    status = json.loads(good("status", "--json", "--address", address))
    worker = status["devices"][1]["pid"]
    os.kill(worker, signal.SIGSTOP)  # The run cannot end.
    arguments = ["run", program(COLUMN_SUMS), "--random=1", "--size=i0=2", "--size=i1=2", "--address", address]
    running = subprocess.Popen([HOSTIR, *arguments], env=clean_environment(), stderr=subprocess.PIPE, text=True)
    until(lambda: json.loads(good("status", "--json", "--address", address))["runs"] == 1)
    os.kill(worker if victim == "worker" else own_daemon.process.pid, signal.SIGKILL)
    _, error = running.communicate(timeout=60)
    assert running.returncode == code, error
    assert error.startswith("hostir: UNAVAILABLE: ")
    assert ("rank 1 died" if victim == "worker" else f"the daemon at {address} has gone") in error


def test_status_and_top_while_it_drains(own_daemon: Daemon, program):
    address = own_daemon.address
    worker = json.loads(good("status", "--json", "--address", address))["devices"][1]["pid"]
    os.kill(worker, signal.SIGSTOP)  # The run is under way until it goes on.
    arguments = ["run", program(COLUMN_SUMS), "--random=1", "--size=i0=2", "--size=i1=2", "--address", address]
    running = subprocess.Popen([HOSTIR, *arguments], env=clean_environment(), stdout=subprocess.DEVNULL)
    until(lambda: json.loads(good("status", "--json", "--address", address))["runs"] == 1)
    assert f"at {address}: serving" in good("status", "--address", address)
    own_daemon.process.send_signal(signal.SIGTERM)
    until(lambda: f"at {address}: draining" in good("status", "--address", address))
    assert f"at {address}: draining" in good("top", "--once", "--address", address)
    done = hostir("health", "--address", address)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"hostir: UNAVAILABLE: {address} does not serve: its mesh is down, or it drains\n"
    os.kill(worker, signal.SIGCONT)
    assert running.wait(timeout=60) == 0
    assert own_daemon.process.wait(timeout=60) == 0


# --- terminals ---------------------------------------------------------------------------------------------------


def test_progress_on_a_terminal(own_daemon: Daemon, program):
    """While the planner is stopped the line says so from the first second on; when it goes on its kernels are counted;
    then the line is erased, and stdout has the answer."""
    planner = json.loads(good("status", "--json", "--address", own_daemon.address))["planner_pid"]
    os.kill(planner, signal.SIGSTOP)
    terminal, inner = pty.openpty()
    command = [HOSTIR, "run", program(steps(200)), "--random=1", "--size=i0=4", "--address", own_daemon.address]
    process = subprocess.Popen(command, env=clean_environment(), stdout=subprocess.PIPE, stderr=inner)
    os.close(inner)
    seen = b""
    deadline = time.monotonic() + 60
    while b"hostir: planning and compiling program, 1." not in seen:
        assert select.select([terminal], [], [], deadline - time.monotonic())[0], seen
        seen += os.read(terminal, 4096)
    os.kill(planner, signal.SIGCONT)
    while re.search(rb"hostir: compiling \d+ of 200 kernels, [1-9]\d*\.\d s", seen) is None:
        assert select.select([terminal], [], [], deadline - time.monotonic())[0], seen
        seen += os.read(terminal, 4096)
    answer, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"output %s199: f32[i0]" in answer and b"\x1b" not in answer
    rest = b""
    while select.select([terminal], [], [], 0)[0]:
        try:
            rest += os.read(terminal, 4096)
        except OSError:  # The end of a terminal whose other side is closed.
            break
    os.close(terminal)
    assert (seen + rest).endswith(b"\r\x1b[K")


def test_progress_where_it_is_asked_for(own_daemon: Daemon, program):
    """A line for each stage, and none of a plan that is there already. Without --progress there is none."""
    arguments = [program(steps(5)), "--random=1", "--size=i0=4", "--progress", "--address", own_daemon.address]
    done = hostir("run", *arguments)
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert all(re.fullmatch(r"hostir: .*, \d+\.\d s(, \d+ % of \d+ B, .*/s)?", line) for line in lines), lines
    said = [re.sub(r", \d+\.\d s.*", "", line.removeprefix("hostir: ")) for line in lines]
    # The latest of what happens while a line is under way is said: the first stages may be over by then.
    assert said[0] == "planning and compiling program"
    stages = [line for line in said if line == "planning" or line.startswith("compiling ")]
    assert "planning" not in stages[1:]
    compiled = [int(line.split()[1]) for line in stages if line.startswith("compiling ")]
    assert compiled and compiled == sorted(compiled)
    assert all(
        line == f"compiling {count} of 5 kernels"
        for line, count in zip(stages[-len(compiled) :], compiled, strict=True)
    )
    assert said[-1] == "running program"
    assert " of 5 kernels" not in hostir("run", *arguments).stderr


def test_requests_have_a_number_in_the_log(own_daemon: Daemon, program):
    """The plan and the run that a request asks for say which."""
    arguments = ["--random=1", "--size=i0=2", "--size=i1=2", "--address", own_daemon.address]
    good("run", program(COLUMN_SUMS), *arguments)
    log = own_daemon.log.read_text()
    compiled = re.search(r"request=(\d+) method=Compile ", log)
    ran = re.search(r"request=(\d+) method=Run ", log)
    assert compiled and re.search(rf"planning planner=\d+ request={compiled[1]} bytes=\d+", log)
    assert ran and re.search(rf"run=1 request={ran[1]} program=column_sums us=\d+ code=OK", log)
    assert all(line.startswith("[20") for line in log.splitlines())
