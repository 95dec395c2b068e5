"""The daemon that connect() starts: found, ready, private, and gone with its client, however that ends."""

from __future__ import annotations

import io
import os
import re
import select
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import hostir
from hostir import private_daemon

GONE_SECONDS = 10.0


def ends(pid: int) -> bool:
    """Whether the process, no child of ours, ends in time. It has begun to when this is called."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    ended = bool(poll.poll(GONE_SECONDS * 1000))
    os.close(fd)
    return ended


def processes(client: hostir.Client) -> list[int]:
    """The daemon's workers and planner."""
    status = client.status()
    return [*(device["pid"] for device in status["devices"]), status["planner_pid"]]


def script(path: Path, text: str) -> str:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


# --- finding it ---


def test_the_daemon_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("named", "built", "path"):
        (tmp_path / folder).mkdir()
        script(tmp_path / folder / "hostird", "")
    monkeypatch.setenv("HOSTIR_DAEMON", str(tmp_path / "named" / "hostird"))
    monkeypatch.setenv("HOSTIR_BUILD_DIR", str(tmp_path / "built"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(private_daemon.glob, "glob", lambda pattern: [])
    assert private_daemon.find_daemon() == str(tmp_path / "named" / "hostird")
    monkeypatch.delenv("HOSTIR_DAEMON")
    assert private_daemon.find_daemon() == str(tmp_path / "built" / "hostird")
    monkeypatch.delenv("HOSTIR_BUILD_DIR")
    assert private_daemon.find_daemon() == str(tmp_path / "path" / "hostird")
    (tmp_path / "path" / "hostird").chmod(0o644)
    with pytest.raises(hostir.Unavailable) as caught:
        private_daemon.find_daemon()
    assert str(caught.value) == (
        "no hostird found: build it (./run build hostird hostir-worker), name it by $HOSTIR_DAEMON, "
        "or connect to a running daemon by its address or $HOSTIR_ADDRESS"
    )
    monkeypatch.setenv("HOSTIR_DAEMON", "/nowhere/hostird")
    with pytest.raises(hostir.Unavailable, match=r"^\$HOSTIR_DAEMON is /nowhere/hostird, which is no program$"):
        hostir.connect(devices="cpu:1")


# --- when it does not start ---


def test_a_daemon_that_exits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = script(tmp_path / "hostird", "for i in $(seq 30); do echo line $i; done; exit 3")
    monkeypatch.setenv("HOSTIR_DAEMON", program)
    with pytest.raises(hostir.Unavailable) as caught:
        hostir.connect(devices="cpu:2")
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{program} --devices=cpu:2 exited with 3; its log ends:"
    assert lines[1:] == [f"  line {i}" for i in range(11, 31)]


def test_a_daemon_that_is_never_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = script(tmp_path / "hostird", "exec sleep 1000")
    monkeypatch.setenv("HOSTIR_DAEMON", program)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(private_daemon.tempfile, "tempdir", None)
    with pytest.raises(hostir.Unavailable) as caught:
        hostir.connect(devices="cpu:1", timeout=0.2)
    assert str(caught.value) == (
        f"{program} --devices=cpu:1 was not ready within 0.2 s; its log ends:\n(the log is empty)"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["hostird"], "its directory is removed"


def test_a_program_that_cannot_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hostird").write_text("no program")
    (tmp_path / "hostird").chmod(0o755)
    monkeypatch.setenv("HOSTIR_DAEMON", str(tmp_path / "hostird"))
    with pytest.raises(hostir.Unavailable, match=rf"^cannot start {tmp_path}/hostird: "):
        hostir.connect(devices="cpu:1")


def test_an_address_where_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTIR_ADDRESS", f"unix:{tmp_path}/socket")
    with pytest.raises(hostir.Unavailable) as caught:
        hostir.connect(timeout=0.2)
    assert str(caught.value) == f"no daemon answers at unix:{tmp_path}/socket within 0.2 s"


def test_devices_that_there_are_not(daemon_program: str) -> None:
    with pytest.raises(hostir.InvalidArgument) as caught:
        hostir.connect(devices="cpu:0")
    said = (
        "hostird: --devices=cpu:0: want cpu:N with N from 1 to 64, cuda:all, or GPUs by number such as cuda:0,2 "
        "(no such number of CPU devices)"
    )
    here = r" \(test_private_daemon\.py:\d+: hostir\.connect\(devices=\"cpu:0\"\)\)"
    assert re.fullmatch(re.escape(said) + here, str(caught.value)), str(caught.value)


def test_an_environment_that_the_daemon_refuses(daemon_program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTIR_RPC_THREADS", "0")
    with pytest.raises(hostir.InvalidArgument, match=r"^hostird: HOSTIR_RPC_THREADS=0: 0 is not in range: want 1 to "):
        hostir.connect(devices="cpu:1")


# --- its log ---


@pytest.mark.parametrize("way", ["path", "Path", "file", "closed at once"])
def test_its_log_goes_to_a_file(daemon_program: str, tmp_path: Path, way: str) -> None:
    path = tmp_path / "hostir.log"
    path.write_text("before\n")
    with open(path, "a") as file:
        file.write("and written\n")
        log = {"path": str(path), "Path": path}.get(way, file)
        with hostir.connect(devices="cpu:1", timeout=60, log=log) as client:
            if way == "closed at once":
                file.close()
            assert client._daemon is not None
            for _ in range(1000):  # It serves a moment before it says so.
                if "ready address=" in path.read_text():
                    break
                client.status()
            assert "ready address=" in path.read_text()
            tail = client._daemon.log_tail()
            assert "ready address=" in tail if way in ("path", "Path") else tail.startswith("(it went where")
            assert not Path(client.address.removeprefix("unix:")).with_name("log").exists()
    lines = path.read_text().splitlines()
    assert lines[0] == "before" and ("and written" in lines[:2] or way in ("path", "Path"))
    assert any("ready address=" in line for line in lines), "it outlives the daemon"


def test_what_its_processes_print_is_in_the_log(
    daemon_program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTIR_DUMP", "fusion")
    with hostir.FusionDefinition("dumped") as fd:
        fd.add_output(-fd.define_tensor(shape=[-1]))
    with hostir.connect(devices="cpu:1", timeout=60, log=tmp_path / "log") as client:
        client.explain(fd)
    assert "@dumped" in (tmp_path / "log").read_text()


def test_logs_that_cannot_be_written(daemon_program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for log, message in [
        (tmp_path, f"log: cannot write {tmp_path}: Is a directory"),
        (io.StringIO(), "log: a path, or a file that has a descriptor, not a StringIO"),
        (7, "log: a path, or a file that has a descriptor, not a int"),
    ]:
        with pytest.raises(hostir.InvalidArgument, match="^" + re.escape(message)):
            hostir.connect(devices="cpu:1", log=log)  # type: ignore[arg-type]
    with pytest.raises(
        hostir.InvalidArgument, match=r"^log: the daemon at unix:/nowhere runs already, with a log of its"
    ):
        hostir.connect("unix:/nowhere", log="hostir.log")
    monkeypatch.setenv("HOSTIR_ADDRESS", "unix:/elsewhere")
    with pytest.raises(hostir.InvalidArgument, match=r"^log: the daemon at unix:/elsewhere runs already"):
        hostir.connect(log="hostir.log")


def test_a_daemon_that_exits_has_its_log_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTIR_DAEMON", script(tmp_path / "hostird", "echo why; exit 3"))
    with pytest.raises(hostir.Unavailable, match=r"exited with 3; its log ends:\n  why$"):
        hostir.connect(devices="cpu:2", log=tmp_path / "log")
    with open(tmp_path / "log", "rb") as file:
        assert file.read() == b"why\n"


# --- its life ---


def test_it_is_private_and_leaves_nothing(daemon_program: str) -> None:
    client = hostir.connect(devices="cpu:2")
    assert client.num_devices == 2
    directory = Path(client.address.removeprefix("unix:")).parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {path.name for path in directory.iterdir()} >= {"socket", "log"}
    pids = processes(client)
    daemon = client._daemon
    assert daemon is not None
    client.close()
    assert daemon.died() == "exited with 0"
    assert all(ends(pid) for pid in pids)
    assert not directory.exists()


def test_it_ends_at_once_after_a_download(daemon_program: str) -> None:
    """Of a few, since not every one makes the daemon wait for its client: one in four did, and ended 10 s later."""
    for _ in range(12):
        client = hostir.connect(devices="cpu:1", timeout=60)
        assert client.put(np.ones(1 << 18, np.float32)).numpy().sum() == 1 << 18
        started = time.monotonic()
        client.close()
        assert time.monotonic() - started < GONE_SECONDS / 2


CHILD = """
    import sys, hostir
    client = hostir.connect(devices="cpu:2", timeout=60)
    status = client.status()
    pids = [client._daemon.pid, status["planner_pid"], *(device["pid"] for device in status["devices"])]
    print(*pids, client.address, flush=True)
    {}
"""


@pytest.mark.parametrize("way", ["killed", "exits", "raises", "is interrupted"])
def test_it_ends_with_its_client(daemon_program: str, way: str) -> None:
    last = {"exits": "sys.exit(0)", "raises": "raise KeyError"}.get(way, "sys.stdin.read()")
    child = subprocess.Popen(
        [sys.executable, "-B", "-c", textwrap.dedent(CHILD).format(last)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdout is not None
    *numbers, address = child.stdout.readline().split()
    if way in ("killed", "is interrupted"):
        child.send_signal(signal.SIGKILL if way == "killed" else signal.SIGINT)
    child.communicate()
    assert all(ends(int(number)) for number in numbers)
    assert not Path(address.decode().removeprefix("unix:")).parent.exists()


def test_it_ends_with_its_client_though_a_forked_process_lives(daemon_program: str) -> None:
    """Two daemons of a process end with it; that of a child, which was forked before there were any, serves on."""
    program = """
        import os, signal, sys, hostir
        if os.fork() == 0:
            with hostir.connect(devices="cpu:1", timeout=60) as own:
                print("own", own._daemon.pid, flush=True)
                sys.stdin.readline()
                print(len(own.status()["devices"]), flush=True)
                sys.stdin.readline()
        else:
            clients = [hostir.connect(devices="cpu:1", timeout=60) for _ in range(2)]
            if lives := os.fork():
                print("theirs", lives, *(client._daemon.pid for client in clients), flush=True)
            signal.pause()
    """
    parent = subprocess.Popen(
        [sys.executable, "-B", "-c", textwrap.dedent(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdin is not None and parent.stdout is not None
    lines = (parent.stdout.readline().split() for _ in range(2))
    pids = {name: [int(number) for number in numbers] for name, *numbers in lines}
    lives, *theirs = pids[b"theirs"]
    try:
        parent.kill()
        parent.wait()
        assert [ends(pid) for pid in theirs] == [True, True]
    finally:
        os.kill(lives, signal.SIGKILL)
    parent.stdin.write(b"\n")
    parent.stdin.flush()
    assert parent.stdout.readline() == b"1\n"
    parent.stdin.close()
    assert all(ends(pid) for pid in pids[b"own"])
    parent.stdout.close()


def test_its_death_is_told_with_its_log(daemon_program: str) -> None:
    client = hostir.connect(devices="cpu:1")
    pids = processes(client)
    assert client._daemon is not None
    os.kill(client._daemon.pid, signal.SIGKILL)
    client._daemon._process.wait()
    with pytest.raises(hostir.Unavailable) as caught:
        client.put(np.zeros(3))
    first, *log = str(caught.value).splitlines()
    assert first == "the private daemon was killed by SIGKILL; its log ends:"
    assert any("ready address=unix:" in line for line in log)
    client.close()
    assert all(ends(pid) for pid in pids)


def test_a_client_that_dies_in_an_upload_leaves_nothing(daemon_program: str) -> None:
    upload = """
        from hostir.wire import service_pb2 as pb
        def requests():
            yield pb.UploadRequest(header=pb.UploadHeader(session_id=client._session, dtype=7, shape=[1 << 20]))
            for _ in range(4):
                yield pb.UploadRequest(chunk=bytes(1 << 20))
            print("sent", flush=True)
            sys.stdin.read()
        client._stub.Upload(requests())
    """
    with hostir.connect(devices="cpu:2") as client:
        before = client.status()
        child = subprocess.Popen(
            [sys.executable, "-B", "-c", "import sys, hostir\nclient = hostir.connect()\n" + textwrap.dedent(upload)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "HOSTIR_ADDRESS": client.address},
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"sent\n"
        while client.status()["tensor_bytes"] < before["tensor_bytes"] + (3 << 20):
            pass  # The daemon has most of it.
        child.kill()
        child.communicate()
        keys = ("tensor_bytes", "tensors", "sessions")
        while any(client.status()[key] != before[key] for key in keys):
            pass  # The test's time limit is what fails it.
        assert client.put(np.ones(3)).numpy().sum() == 3


def test_no_gpu_to_use(daemon_program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # Whatever this machine has.
    with pytest.raises(hostir.FailedPrecondition, match=r"^no device for devices='cuda:all': "):
        hostir.connect(devices="cuda:all")


def test_kinds_of_devices_are_shown(daemon_program: str) -> None:
    with hostir.connect(devices="cpu:2", timeout=60) as client:
        assert client.device_kind == "cpu"
        assert repr(client) == f"<hostir.Client of {client.address}: 2 cpu devices>"
        assert [(d["kind"], d["ordinal"]) for d in client.status()["devices"]] == [("cpu", 0), ("cpu", 1)]
        assert client.status()["failed_devices"] == []
