"""What a client sees when processes of its daemon die: an error with the rank and the user's line, then service."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hostir
from hostir import DeviceMesh, FusionDefinition

HERE = r" \(test_faults\.py:\d+: .*\)"


@pytest.fixture
def two(daemon_program: str) -> Iterator[hostir.Client]:
    with hostir.connect(devices="cpu:2", timeout=60) as client:
        yield client


def total() -> FusionDefinition:
    with FusionDefinition("total") as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        fd.add_output(fd.ops.sum(x))
        x.shard(DeviceMesh([0, 1]), {0: "mesh_x"})
    return fd


def worker(client: hostir.Client, rank: int) -> int:
    pid: int = client.status()["devices"][rank]["pid"]
    return pid


def test_a_rank_that_dies_in_a_run(two: hostir.Client) -> None:
    fd = total()
    x = two.put(np.ones(8, np.float32), fd.fusion.inputs()[0])
    (first,) = two.run(fd, [x])  # Kept: freeing it would be one more request that the rank can die in.
    assert first.numpy() == 8
    pid = worker(two, 1)
    os.kill(pid, signal.SIGSTOP)
    (y,) = two.run(fd, [x])
    (z,) = two.run(fd, [x])
    assert (y.state, z.state) == ("pending", "pending")
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(hostir.Unavailable) as caught:
        y.numpy()
    message = r"rank 1 died \(killed by signal 9\) during run 2 of total; the mesh is being restarted" + HERE
    assert re.fullmatch(message, str(caught.value)), str(caught.value)
    assert two.run(fd, [x])[0].numpy() == 8


def test_what_a_failed_run_leaves(two: hostir.Client) -> None:
    fd = total()
    x = two.put(np.ones(8, np.float32), fd.fusion.inputs()[0])
    (first,) = two.run(fd, [x], wait=True)  # Kept: freeing it would be one more request that the rank can die in.
    pid = worker(two, 0)
    os.kill(pid, signal.SIGSTOP)
    (y,) = two.run(fd, [x])
    (z,) = two.run(exponential(), [y])
    os.kill(pid, signal.SIGKILL)
    for array in (y, z, y):
        with pytest.raises(hostir.Unavailable):
            array.wait()
        assert array.state == "poisoned"
    with pytest.raises(hostir.Unavailable, match=r"^rank 0 died \(killed by signal 9\) during run 2 of total"):
        two.run(exponential(), [y])[0].numpy()
    assert two.run(fd, [x])[0].numpy() == 8, "what is on the devices outlives the workers"
    assert two.status()["generation"] == 2
    assert first.numpy() == 8


def exponential_of_one() -> FusionDefinition:
    with FusionDefinition("exponential") as fd:
        fd.add_output(fd.ops.exp(fd.define_tensor(shape=[], contiguity=[])))
    return fd


def exponential() -> FusionDefinition:
    with FusionDefinition("exponential") as fd:
        t = fd.define_tensor(shape=[], contiguity=[])
        fd.add_output(fd.ops.exp(t))
        t.set_device_mesh(DeviceMesh([0, 1]))
    return fd


def test_a_planner_that_dies(two: hostir.Client) -> None:
    pid = two.status()["planner_pid"]
    os.kill(pid, signal.SIGKILL)
    fd = total()
    for _ in range(2):  # The first request may have been for the dead one.
        try:
            (y,) = two.run(fd, [np.ones(8, np.float32)])
            break
        except hostir.Unavailable as error:
            assert "planner" in str(error)
    assert y.numpy() == 8
    assert two.status()["planner_pid"] != pid


def test_a_run_that_takes_too_long(two: hostir.Client) -> None:
    fd = total()
    x = two.put(np.ones(8, np.float32), fd.fusion.inputs()[0])
    os.kill(worker(two, 0), signal.SIGSTOP)
    with pytest.raises(hostir.DeadlineExceeded) as caught:
        two.run(fd, [x], timeout=0.2, wait=True)
    assert re.search(r"rank 0.*" + HERE, str(caught.value)), str(caught.value)
    assert two.run(fd, [x])[0].numpy() == 8


@contextlib.contextmanager
def hostird(program: str, folder: Path) -> Iterator[tuple[str, int]]:
    """The address and process of a daemon that is killed at the end, as others are: no client started it."""
    address = f"unix:{folder}/socket"
    read, write = os.pipe()
    arguments = [program, "--devices=cpu:1", f"--listen={address}", f"--ready-fd={write}"]
    daemon = subprocess.Popen(arguments, pass_fds=[write], stdout=subprocess.DEVNULL)
    os.close(write)
    try:
        assert os.read(read, 1), "it did not start"
        yield address, daemon.pid
    finally:
        os.close(read)
        daemon.kill()
        daemon.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def test_a_daemon_that_has_gone(daemon_program: str, folder: Path) -> None:
    with hostird(daemon_program, folder) as (address, _):
        client = hostir.connect(address)
        x = client.put(np.ones(3))
    for call in (client.status, x.numpy, x.wait, lambda: client.put(np.ones(3)), lambda: client.run(total(), [x])):
        with pytest.raises(hostir.Unavailable) as caught:
            call()
        message = rf"the daemon at {address} has gone \([\w ()]+\); connect again and put tensors again" + HERE
        assert re.fullmatch(message, str(caught.value)), str(caught.value)
    client.close()


def test_a_daemon_that_goes_in_a_request(daemon_program: str, folder: Path) -> None:
    with hostird(daemon_program, folder) as (address, pid), hostir.connect(address) as client:
        os.kill(worker(client, 0), signal.SIGSTOP)
        (y,) = client.run(exponential_of_one(), [np.float32(1)])
        killed = threading.Thread(target=os.kill, args=(pid, signal.SIGKILL))
        killed.start()
        with pytest.raises(hostir.Unavailable, match=rf"^the daemon at {address} has gone \(.*\); connect again"):
            y.numpy()
        killed.join()


def test_another_daemon_at_the_address(daemon_program: str, folder: Path) -> None:
    with hostird(daemon_program, folder) as (address, _):
        client = hostir.connect(address)
        x = client.put(np.ones(3))
    with hostird(daemon_program, folder), client:
        assert client.status()["sessions"] == 0
        with pytest.raises(hostir.FailedPrecondition) as caught:
            x.numpy()
        message = "no such session: its Connect stream has ended; connect again and put tensors again" + HERE
        assert re.fullmatch(message, str(caught.value)), str(caught.value)


def test_the_default_client_connects_again(daemon_program: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTIR_ADDRESS", f"unix:{folder}/socket")
    monkeypatch.setattr(hostir.connecting, "_default", None)
    for _ in range(2):
        with hostird(daemon_program, folder):
            assert exponential_of_one().execute([np.float32(0)])[0].numpy() == 1
    hostir.connecting._default.close()


# Traces the process of its argument until its standard input ends: SIGKILL does not end that for its parent.
TRACER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
seize = 0x4206
failed = libc.ptrace(seize, int(sys.argv[1]), None, None) != 0
print(os.strerror(ctypes.get_errno()) if failed else "held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def killed_and_held(pid: int) -> Iterator[None]:
    """SIGKILL has been sent to the process, which does not end for its parent until this is left."""
    command = [sys.executable, "-c", TRACER, str(pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tracer:
        assert tracer.stdin is not None and tracer.stdout is not None
        with tracer.stdin:  # Closed, it lets go.
            said = tracer.stdout.readline().strip()
            if said != "held":
                pytest.skip(f"no process may be traced here: {said}")
            os.kill(pid, signal.SIGKILL)
            yield


def test_a_rank_that_does_not_end(two: hostir.Client) -> None:
    fd = total()
    x = two.put(np.ones(8, np.float32), fd.fusion.inputs()[0])
    (first,) = two.run(fd, [x], wait=True)
    pid = worker(two, 1)
    with killed_and_held(pid):
        while two.status()["generation"] == 1:
            try:
                assert two.run(fd, [x])[0].numpy() == 8
            except hostir.Unavailable as error:  # Of the run that it dies in, if there is one.
                assert str(error).startswith("rank 1 died"), error
        assert two.run(fd, [x])[0].numpy() == 8, "the mesh goes on without it"
        assert two.status()["lingering"] == [f"rank 1 of generation 1 (process {pid})"]
    for _ in range(600):
        if not two.status()["lingering"]:
            break
        two.run(fd, [x])[0].numpy()
    assert two.status()["lingering"] == [] and first.numpy() == 8


def test_a_daemon_ends_beside_a_rank_that_does_not(daemon_program: str) -> None:
    client = hostir.connect(devices="cpu:2", timeout=60)
    fd = total()
    assert client.run(fd, [np.ones(8, np.float32)])[0].numpy() == 8
    pid = worker(client, 0)
    with killed_and_held(pid):
        began = time.monotonic()
        client.close()
        took = time.monotonic() - began
    assert took < 15
