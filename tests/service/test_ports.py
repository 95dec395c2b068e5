"""A daemon as it is installed opens no port: its sockets and those of all its children, by the system's own tables.

Method: /proc/net says which sockets of TCP and UDP there are, by inode; descriptors say whose they are. Two ranks
communicate meanwhile, so that what they communicate by is open. A daemon on TCP shows that the search finds ports.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import hostir
from hostir import DeviceMesh, FusionDefinition, private_daemon

TABLES = ("tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw", "raw6")


@pytest.fixture
def program() -> str:
    try:
        return private_daemon.find_daemon()
    except hostir.Unavailable as error:
        if os.environ.get("HOSTIR_TESTS_NEED_DAEMON") == "1":
            pytest.fail(f"this build has a service: {error}")
        pytest.skip(str(error))


def family(pid: int) -> list[int]:
    """The process and all that it has started, and so on."""
    found = [pid]
    for each in found:
        for task in Path(f"/proc/{each}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def sockets(pid: int) -> set[str]:
    """Inodes."""
    links = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(str(descriptor.readlink()))
        except FileNotFoundError:
            continue
    return {link.removeprefix("socket:[").rstrip("]") for link in links if link.startswith("socket:[")}


def ports(pid: int) -> list[str]:
    """The lines of /proc/net that are of one of the process's sockets: "tcp 0100007F:1F90 ..."."""
    mine = sockets(pid)
    lines = []
    for table in TABLES:
        path = Path(f"/proc/{pid}/net/{table}")
        if path.exists():
            rows = [line.split() for line in path.read_text().splitlines()[1:]]
            lines += [f"{table} {' '.join(row)}" for row in rows if row[9] in mine]
    return lines


def test_a_daemon_as_installed_opens_no_port(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UCX_TLS", "UCX_NET_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    with hostir.connect(devices="cpu:2", timeout=60) as client:
        with FusionDefinition("total") as fd:
            x = fd.define_tensor(shape=[-1], contiguity=True)
            fd.add_output(fd.ops.sum(x))
            x.shard(DeviceMesh([0, 1]), {0: "mesh_x"})
        (total,) = client.run(fd, [np.ones(1 << 20, np.float32)])
        assert total.numpy() == 1 << 20
        assert client._daemon is not None
        processes = family(client._daemon.pid)
        assert len(processes) >= 4, "the daemon, a planner and two workers"
        assert all(sockets(pid) for pid in processes), "each has its way to the daemon"
        assert {pid: ports(pid) for pid in processes} == {pid: [] for pid in processes}


def test_the_search_finds_a_port(program: str, tmp_path: Path) -> None:
    read, write_end = os.pipe()
    flags = ["--devices=cpu:1", "--listen=tcp:127.0.0.1:0", "--insecure-tcp", f"--ready-fd={write_end}"]
    log = (tmp_path / "log").open("wb")
    with subprocess.Popen([program, *flags], pass_fds=[write_end], stdout=log, stderr=log) as daemon:
        os.close(write_end)
        with os.fdopen(read) as ready:
            port = int(ready.readline().rpartition(":")[2])
        (line,) = (line for pid in family(daemon.pid) for line in ports(pid))
        daemon.terminate()
    assert line.split()[0] == "tcp" and line.split()[2] == f"0100007F:{port:04X}"
