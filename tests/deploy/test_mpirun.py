"""mpirun starts the nodes of a cluster: each knows its place by mpirun's rank, programs run on all devices, and when
mpirun is ended nothing is left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import hostir
from hostir import DataType, DeviceMesh, FusionDefinition, private_daemon

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
from eventually import eventually

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "deploy/mpi/hostird-mpirun"
# Root is asked whether it means it; a machine of two cores has two slots.
OPTIONS = ["--allow-run-as-root", "--oversubscribe"]

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun on this machine")


def environment(**variables: str) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("HOSTIR_", "PMI", "OMPI", "SLURM"))
    }
    return {**kept, **variables}


def processes_with(word: str) -> list[str]:
    """The command lines of those that have ``word`` in theirs, or in their environment: what a daemon starts has it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            if word.encode() in command + (folder / "environ").read_bytes():
                found.append(command.replace(b"\0", b" ").decode())
        except OSError:
            continue  # It has ended meanwhile.
    return found


@contextmanager
def launched(folder: Path, command: list[str], **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """mpirun as the caller would start it, all of whose processes have the folder's path in their environment."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env=environment(HOSTIR_TEST_LAUNCHED_IN=str(folder), **variables),
            stdout=log,
            stderr=log,
            cwd=folder,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def ready(folder: Path, process: subprocess.Popen[bytes]) -> None:
    eventually(lambda: "ready address=" in (folder / "log").read_text() or process.poll() is not None)
    assert process.poll() is None, (folder / "log").read_text()


def sums_on_all_devices(address: str, devices: int) -> None:
    """Rows are over the devices, each of whose sums comes from all nodes: ranks of both speak with each other."""
    mesh = DeviceMesh(list(range(devices)))
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.Double)
        total = fd.ops.sum(x, [0])
        fd.add_output(total)
        x.shard(mesh, {0: "mesh_x"})
        total.set_device_mesh(mesh)
    rows = np.arange(devices * 3 * 5, dtype=np.float64).reshape(-1, 5)
    with hostir.connect(address, timeout=60) as client:
        status = client.status()
        assert len(status["devices"]) == devices
        (out,) = client.run(fd, [rows])
        np.testing.assert_array_equal(out.numpy(), rows.sum(axis=0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.mark.parametrize("nodes", [2, 3])
def test_nodes_by_mpirun(folder: Path, nodes: int) -> None:
    """The command of docs/deploy/mpi.md, on one machine: Unix sockets."""
    (folder / "nodes").write_text("".join(f"unix:{folder}/node{node}\n" for node in range(nodes)))
    flags = [f"--nodes={folder}/nodes", "--devices=cpu:2", f"--listen=unix:{folder}/client"]
    command = ["mpirun", *OPTIONS, "--bind-to", "none", "-n", str(nodes), private_daemon.find_daemon(), *flags]
    # Whom Slurm started mpirun for is the same for all: what mpirun says counts.
    with launched(folder, command, SLURM_PROCID="0") as process:
        ready(folder, process)
        sums_on_all_devices(f"unix:{folder}/client", 2 * nodes)
        assert len(processes_with(str(folder))) > 3 * nodes  # Daemons and two workers each.
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
    eventually(lambda: processes_with(str(folder)) == [])
    log = (folder / "log").read_text()
    assert log.count("[info] stopped") == nodes, log
    assert [path.name for path in folder.iterdir() if path.is_socket()] == []


def test_a_node_that_ends_takes_the_others_along(folder: Path) -> None:
    """mpirun has no use for a part of a job. That is its way: who wants the others to go on uses another launcher."""
    (folder / "nodes").write_text(f"unix:{folder}/node0\nunix:{folder}/node1\n")
    flags = [f"--nodes={folder}/nodes", "--devices=cpu:1", f"--listen=unix:{folder}/client"]
    with launched(folder, ["mpirun", *OPTIONS, "-n", "2", private_daemon.find_daemon(), *flags]) as process:
        ready(folder, process)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        assert process.wait(timeout=60) != 0
    eventually(lambda: processes_with(str(folder)) == [])


def test_the_script_with_a_list(folder: Path) -> None:
    (folder / "nodes").write_text("".join(f"unix:{folder}/node{node}\n" for node in range(2)))
    command = [str(SCRIPT), *OPTIONS, "-n", "2", "--", "--devices=cpu:1", f"--listen=unix:{folder}/client"]
    with launched(folder, command, NODES="nodes", HOSTIRD=private_daemon.find_daemon()) as process:
        ready(folder, process)
        sums_on_all_devices(f"unix:{folder}/client", 2)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
    eventually(lambda: processes_with(str(folder)) == [])


def test_the_script_asks_the_hosts_for_their_names(folder: Path) -> None:
    """Method: a program in hostird's place that says what it is given. A host of this machine's name is one node."""
    command = [str(SCRIPT), *OPTIONS, "--", "--devices=cpu:1"]
    done = subprocess.run(
        command, env=environment(HOSTIRD="echo", PORT="7100"), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["--nodes", f"tcp:{os.uname().nodename}:7100", "--devices=cpu:1"]
    assert subprocess.run([str(SCRIPT)], capture_output=True, timeout=60).returncode == 2


def test_more_processes_than_nodes_are_refused_by_number(folder: Path) -> None:
    command = [
        "mpirun",
        *OPTIONS,
        "-n",
        "2",
        private_daemon.find_daemon(),
        f"--nodes=unix:{folder}/node0",
        "--check-config",
    ]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)
    assert "--node=1 (PMIX_RANK): --nodes has 1, from 0 on" in done.stderr
    assert done.returncode == 2
