"""Requests in frames: they are what gRPC carries as well, end as those do, and leave the rest to gRPC.

A worker that is stopped holds a run, and whoever waits for it, for as long as a test wants.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import hostir
from eventually import eventually
from hostir import FusionDefinition
from hostir.wire import service_pb2 as pb

CONNECTIONS_MAX = 8  # As of framed.py.


@pytest.fixture(scope="module")
def one(daemon_program: str) -> Iterator[hostir.Client]:
    with hostir.connect(devices="cpu:1", timeout=60) as client:
        yield client


def doubled(name: str = "doubled") -> FusionDefinition:
    with FusionDefinition(name) as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        fd.add_output(x + x)
    return fd


@contextlib.contextmanager
def stopped(client: hostir.Client) -> Iterator[None]:
    """Its only rank answers nobody."""
    pid: int = client.status()["devices"][0]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def open_sockets(client: hostir.Client) -> int:
    return len(client._stub._sockets._open)


def test_requests_go_in_frames(one: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are no streams, by one connection; their errors have code, text and line of the user's."""

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a request that went by gRPC")

    for name in ("Compile", "Run", "Wait", "Cancel"):
        monkeypatch.setattr(getattr(one._stub, name), "_by_grpc", refused)
    x = np.arange(8, dtype=np.float32)
    fd = doubled()
    for _ in range(3):
        (y,) = one.run(fd, [x], wait=True)
        assert y.state == "ready"
    assert open_sockets(one) == 1
    with pytest.raises(hostir.NotFound, match="run 77: there has been none"):
        one._call(one._stub.Cancel, pb.CancelRequest(session_id=one._session, run_id=77))


def test_by_grpc_it_is_the_same(one: hostir.Client) -> None:
    with hostir.connect(one.address) as plain:
        own = {name: getattr(wired, "_by_grpc", None) for name, wired in vars(plain._stub).items()}
        vars(plain._stub).update({name: method for name, method in own.items() if method is not None})
        (y,) = plain.run(doubled(), [np.arange(8, dtype=np.float32)])
        assert y.numpy().tolist() == [2 * value for value in range(8)]
        assert open_sockets(plain) == 0


def test_more_threads_than_connections(one: hostir.Client) -> None:
    """The others go by gRPC meanwhile, and all are answered."""
    fd = doubled()
    with hostir.connect(one.address) as client, ThreadPoolExecutor(3 * CONNECTIONS_MAX) as threads:
        x = client.put(np.ones(8, np.float32))
        client.run(fd, [x], wait=True)
        with stopped(one):
            asked = [threads.submit(client.run, fd, [x], wait=True) for _ in range(3 * CONNECTIONS_MAX)]
            eventually(lambda: open_sockets(client) == CONNECTIONS_MAX)
        for each in asked:
            assert each.result(timeout=60)[0].numpy().tolist() == [2.0] * 8


def test_a_deadline(one: hostir.Client) -> None:
    """The connection goes with the request, whose run goes on, and what it makes is freed; the next one is new."""
    fd = doubled()
    with hostir.connect(one.address, deadline=0.3) as client:
        x = client.put(np.ones(8, np.float32))
        client.run(fd, [x], wait=True)
        with stopped(one), pytest.raises(hostir.DeadlineExceeded):
            client.run(fd, [x], wait=True)
        assert client.run(fd, [x], wait=True)[0].numpy().tolist() == [2.0] * 8
        eventually(lambda: one.status()["tensors"] <= 2 + len(one.names()))


def test_who_closes_the_client_ends_its_requests(one: hostir.Client) -> None:
    fd = doubled()
    client = hostir.connect(one.address)
    x = client.put(np.ones(8, np.float32))
    client.run(fd, [x], wait=True)
    with ThreadPoolExecutor(1) as threads, stopped(one):
        runs = one.status()["runs"]
        waiting = threads.submit(client.run, fd, [x], wait=True)
        eventually(lambda: one.status()["runs"] > runs)
        client.close()
        with pytest.raises((hostir.Cancelled, hostir.FailedPrecondition, hostir.Unavailable)):
            waiting.result(timeout=60)
    assert one.run(fd, [np.ones(8, np.float32)], wait=True)[0].state == "ready"


def test_an_interrupt(one: hostir.Client) -> None:
    """Control-C ends a request that waits, and the client goes on."""
    fd = doubled()
    with hostir.connect(one.address) as client:
        x = client.put(np.ones(8, np.float32))
        client.run(fd, [x], wait=True)
        main = threading.main_thread()
        assert main is threading.current_thread() and main.ident is not None
        with stopped(one):
            timer = threading.Timer(0.2, signal.pthread_kill, [main.ident, signal.SIGINT])
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                client.run(fd, [x], wait=True)
            timer.join()
        assert client.run(fd, [x], wait=True)[0].numpy().tolist() == [2.0] * 8


def test_requests_end_with_the_session(one: hostir.Client) -> None:
    """Also where the daemon says nothing of it, as one that is stopped: gRPC's keepalive notices for all."""
    fd = doubled()
    client = hostir.connect(one.address)
    x = client.put(np.ones(8, np.float32))
    client.run(fd, [x], wait=True)
    with ThreadPoolExecutor(1) as threads, stopped(one):
        runs = one.status()["runs"]
        waiting = threads.submit(client.run, fd, [x], wait=True)
        eventually(lambda: one.status()["runs"] > runs)
        client._session_._events.cancel()
        with pytest.raises(hostir.Unavailable, match="connect again"):
            waiting.result(timeout=60)
    client.close()


def test_a_large_answer_and_a_large_request(one: hostir.Client) -> None:
    """More than a socket holds, and more than is read at once."""
    with FusionDefinition("many") as fd:
        for _ in range(2000):
            fd.add_output(fd.define_tensor(shape=[4], contiguity=True) * 2.0)
    arrays = [np.full(4, k, np.float32) for k in range(2000)]
    with hostir.connect(one.address) as client:
        made = client.run(fd, arrays, wait=True)
        assert made[1999].numpy().tolist() == [3998.0] * 4
        assert open_sockets(client) == 1


def test_a_socket_that_does_not_speak_so(tmp_path: object) -> None:
    """A connection that ends at once, as at the daemon's limit, is none: gRPC carries the request."""
    from hostir.framed import Sockets

    path = f"{tmp_path}/socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()

        def refuse() -> None:
            listening.accept()[0].close()

        refusing = threading.Thread(target=refuse)
        refusing.start()
        sockets = Sockets(path)
        assert sockets.take() is None
        refusing.join()
        assert sockets.take() is None, "not at once again: nobody would accept it here"
    assert sockets._open == set()
