"""hostir-eval where a rank is stuck: one line that names the cause and exit code 3, soon, whatever is queued; and where
work takes longer than --timeout, but no run does. On CPU ranks."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

EVAL = str(Path(os.environ["HOSTIR_BUILD_DIR"]) / "hostir-eval")
MPIRUN = shutil.which("mpirun") or ""
ENVIRONMENT = os.environ | {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
needs_mpirun = pytest.mark.skipif(not MPIRUN, reason="no mpirun here")

# Runs for ever, so that a rank that is stopped in it leaves all kinds of work queued on the other one.
STUCK = """mesh @m = [0, 1]
fusion @f(%x: f32[64, 4096] {mesh=@m, shard(1, mesh_x)}) {
  %s = sum(%x) {axes=[1], keepdim=false, dtype=null}
  %y {mesh=@m} = set(%s)
  return %y
}
"""

LONG = """fusion @f(%x: f32[i0]) {
  %a = exp(%x)
  %b = exp(%a)
  return %b
}
"""


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@needs_mpirun
@pytest.mark.parametrize(
    ("comm", "cause"),
    [
        ("ucx", r"rank 1 has not .*allreduce #\d+; rank 0 waiting [23]\.\d s"),
        ("mpi", r"a rank of team \[0, 1\] has not taken part in allreduce #\d+; rank 0 waiting [23]\d\d\d ms"),
    ],
    ids=["ucx", "mpi"],
)
def test_a_rank_that_stops_is_named_and_left(tmp_path: Path, comm: str, cause: str) -> None:
    """Rank 1 is stopped while rank 0 has runs queued that it takes part in."""
    (tmp_path / "stuck.hir").write_text(STUCK)
    own = f"{tmp_path}/$OMPI_COMM_WORLD_RANK"
    command = [MPIRUN, "--oversubscribe", "--bind-to", "none", "-n", "2"]
    command += ["sh", "-c", f'echo $$ > {own}.new; mv {own}.new {own}.pid; exec "$@"', "sh"]
    command += [EVAL, str(tmp_path / "stuck.hir"), "--random", "1", "--comm", comm, "--timeout", "2"]
    command += ["--repeat", "4000", "--batch", "4000"]
    pids = [tmp_path / f"{rank}.pid" for rank in (0, 1)]
    deadline = time.monotonic() + 60
    mpirun = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        while not all(pid.exists() for pid in pids) or processor_seconds(int(pids[1].read_text())) < 1:
            assert mpirun.poll() is None and time.monotonic() < deadline
            os.sched_yield()
        os.kill(int(pids[1].read_text()), signal.SIGSTOP)
        _, told = mpirun.communicate(timeout=60)
        assert mpirun.returncode == 3, told
        lines = [line for line in told.splitlines() if line.startswith("hostir-eval: ")]
        assert len(lines) == 1 and re.match(f"hostir-eval: DEADLINE_EXCEEDED: .*{cause}", lines[0]), told
    finally:
        for pid in filter(Path.exists, pids):
            if alive(int(pid.read_text())):
                os.kill(int(pid.read_text()), signal.SIGKILL)
        mpirun.kill()
        mpirun.wait()


@needs_mpirun
def test_a_rank_that_does_not_come_is_named_and_left(tmp_path: Path) -> None:
    """Rank 1 reads its program from a pipe that nobody writes to."""
    (tmp_path / "long.hir").write_text(LONG)
    os.mkfifo(tmp_path / "nothing.hir")
    command = [MPIRUN, "--oversubscribe", "--bind-to", "none"]
    for separator, name in (([], "long.hir"), ([":"], "nothing.hir")):
        command += [*separator, "-n", "1", EVAL, str(tmp_path / name), "--random", "1", "--size", "i0=4"]
        command += ["--timeout", "1"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 3, done.stderr
    assert 'DEADLINE_EXCEEDED: rank 1 did not come to the stage "plan" within 5 s (--timeout 1)' in done.stderr


def test_the_timeout_is_that_of_a_run(tmp_path: Path) -> None:
    """Seconds of runs, of a millisecond or so each, are queued at once."""
    (tmp_path / "long.hir").write_text(LONG)
    report = tmp_path / "report.json"
    command = [EVAL, str(tmp_path / "long.hir"), "--random", "1", "--size", "i0=4194304", "--timeout", "1"]
    command += ["--repeat", "1", "--warmup", "0", "--batch", "2048", "--json", str(report)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert json.loads(report.read_text())["median_ms"] * 2048 > 1000
