"""deploy/slurm/hostir.sbatch: nodes start, the command has a cluster, and at the end nothing is left.

By programs in the place of Slurm's, which start the real daemons on Unix sockets; and by Slurm where it is installed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hostir import private_daemon

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
from eventually import eventually

HERE = Path(__file__).resolve().parent
SBATCH = HERE.parents[1] / "deploy/slurm/hostir.sbatch"
NAMESPACES = ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc", "--kill-child"]

SCONTROL = """#!/bin/sh
[ "$*" = "show hostnames n[0-1]" ] && echo n0 && echo n1
"""
# Two tasks, numbered as Slurm does; the addresses of the nodes become Unix sockets.
SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do
  case $1 in --output=*) exec >"${1#--output=}" 2>&1 ;; esac
  echo "$1" >>"$FAKE/srun"
  shift
done
bash=$1 c=$2 again=$3 name=$4 program=$5 flag=$6 nodes=$7
shift 7
echo "$nodes" >"$FAKE/nodes"
for task in 0 1; do
  SLURM_PROCID=$task setsid "$bash" "$c" "$again" "$name" "$program" "$flag" "unix:$FAKE/n0,unix:$FAKE/n1" "$@" &
  echo $! >>"$FAKE/tasks"
done
wait
"""
# As Slurm: each process of a task gets it.
SCANCEL = """#!/bin/bash
echo "$*" >"$FAKE/scancel"
for task in $(cat "$FAKE/tasks"); do kill -TERM -- -$task; done
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the script as a job of two nodes."""
    fake = tmp_path / "fake"
    fake.mkdir(mode=0o700)
    for name, text in {"scontrol": SCONTROL, "srun": SRUN, "scancel": SCANCEL}.items():
        (fake / name).write_text(text)
        (fake / name).chmod(0o755)
    (tmp_path / "submit").mkdir()
    (tmp_path / "tmp").mkdir()

    def start(*command: str, **variables: str) -> subprocess.Popen[str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("HOSTIR_", "SLURM_", "PMI"))}
        slurm = {"SLURM_JOB_ID": "42", "SLURM_JOB_NODELIST": "n[0-1]", "SLURM_SUBMIT_DIR": str(tmp_path / "submit")}
        mine = {
            "FAKE": str(fake),
            "PATH": f"{fake}:{os.environ['PATH']}",
            "BIN": str(Path(private_daemon.find_daemon()).parent),
            "TMPDIR": str(tmp_path / "tmp"),
            "HOSTIR_DEVICES": "cpu:2",
        }
        return subprocess.Popen(
            ["bash", str(SBATCH), *command],
            env={**kept, **slurm, **mine, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    yield start
    if (fake / "tasks").exists():
        for task in (fake / "tasks").read_text().split():
            with contextlib.suppress(OSError):
                os.killpg(int(task), signal.SIGKILL)


def left(folder: Path) -> list[str]:
    return sorted(path.name for part in ("submit", "tmp") for path in (folder / part).iterdir())


def test_a_command_has_a_cluster(job: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    status = f'"{Path(private_daemon.find_daemon()).parent}/hostir" status --json; exit 7'
    process = job("sh", "-c", status, NODE_PORT="7100", PORT_STEP="2")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 7, err
    assert len(json.loads(out)["devices"]) == 4
    assert (tmp_path / "fake/nodes").read_text() == "tcp:n0:7100,tcp:n1:7102\n"
    assert {"--ntasks-per-node=1", "--overlap"} <= set((tmp_path / "fake/srun").read_text().split())
    assert (tmp_path / "fake/scancel").read_text() == "--quiet --signal=TERM 42.0\n"
    assert (tmp_path / "submit/hostir-42.log").read_text().count("[info] stopped") == 2
    assert left(tmp_path) == ["hostir-42.log"]


def test_a_job_that_is_ended(job: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    """Slurm sends SIGTERM a minute before the time is over."""
    process = job("sh", "-c", "echo $$; exec cat", NODE_PORT="7100")
    assert process.stdout is not None
    command = int(process.stdout.readline())
    process.terminate()
    assert process.wait(timeout=60) == 143
    eventually(lambda: not Path(f"/proc/{command}").exists())
    assert left(tmp_path) == ["hostir-42.log"]


def test_a_daemon_that_is_killed_starts_again(job: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    process = job("sh", "-c", "echo up; exec tail -f /dev/null")
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    log = tmp_path / "submit/hostir-42.log"
    task = (tmp_path / "fake/tasks").read_text().split()[1]
    (daemon,) = Path(f"/proc/{task}/task/{task}/children").read_text().split()
    os.kill(int(daemon), signal.SIGKILL)
    eventually(lambda: log.read_text().count(f"node 1 (unix:{tmp_path}/fake/n1) joined") == 2)
    process.terminate()
    assert process.wait(timeout=60) == 143
    assert left(tmp_path) == ["hostir-42.log"]


def test_a_cluster_that_does_not_start(job: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    process = job("true", HOSTIR_DEVICES="cpu:none")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the cluster does not start" in err and "cpu:none" in err
    assert left(tmp_path) == ["hostir-42.log"]


def test_a_job_without_a_command(job: Callable[..., subprocess.Popen[str]]) -> None:
    process = job()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2 and "name the command" in err


def test_by_slurm(tmp_path: Path) -> None:
    """Three nodes of a real Slurm on this machine, by TCP and TLS."""
    for tool in ("slurmctld", "slurmd", "sbatch", "srun", "unshare", "ip"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    if (tried := subprocess.run([*NAMESPACES, "true"], capture_output=True, text=True)).returncode != 0:
        pytest.skip(f"no namespaces: {tried.stderr}")
    bin_ = Path(private_daemon.find_daemon()).parent
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HOSTIR_", "SLURM_", "PMI"))}
    command = [*NAMESPACES, sys.executable, "-B", str(HERE / "slurm_cluster.py"), str(tmp_path), str(SBATCH), str(bin_)]
    done = subprocess.run(command, env=kept, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = json.loads(done.stdout)
    well, ended = jobs["well"], jobs["ended"]
    assert well["code"] == "7:0", well
    status = json.loads(well["out"][well["out"].index("{") : well["out"].rindex("}") + 1])
    assert [device["node"] for device in status["devices"]] == [f"tcp:n{i}:{7001 + i}" for i in range(3) for _ in "ab"]
    assert ended["code"] == "143:0", ended
    for one in (well, ended):
        assert one["log"].count("[info] stopped") == 3, one
        assert [name.split("-")[0] for name in one["left"]] == ["hostir", "slurm"], one
        assert one["hostirds"] == 0
