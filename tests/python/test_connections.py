"""Connections beyond what a daemon can have, idle ones, and those of other clients meanwhile.

Sockets that speak as much HTTP/2 as it takes to be served stand for other clients.
"""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

import grpc
import numpy as np
import pytest

import hostir
from hostir import wire

PATIENCE = 20.0
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # The second: SETTINGS without any.


class Other:
    """A connection. The daemon answers first with settings of its own."""

    def __init__(self, client: hostir.Client) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.served = False
        with contextlib.suppress(ConnectionError):
            self.socket.connect(client.address.removeprefix("unix:"))
            self.socket.sendall(HELLO)
            self.served = self.socket.recv(1) != b""

    def ends(self) -> bool:
        with contextlib.suppress(ConnectionError):
            while self.socket.recv(4096):
                pass
        return True

    def close(self) -> None:
        self.socket.close()


def is_served_soon(client: hostir.Client) -> bool:
    """The daemon hears of what was closed before, on threads of its own."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        other = Other(client)
        other.close()
        if other.served:
            return True
    return False


def test_without_descriptors(daemon_program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New clients are refused, those that there are served on, and new ones, too, once descriptors are free."""
    script = tmp_path / "hostird"
    script.write_text(f'#!/bin/sh\nulimit -n 100\nexec {daemon_program} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("HOSTIR_DAEMON", str(script))
    x = np.arange(64, dtype=np.float32)
    with hostir.connect(devices="cpu:1", timeout=60) as client:
        array = client.put(x)
        others = [Other(client)]
        while others[-1].served and len(others) < 100:
            others.append(Other(client))
        assert 20 < len(others) < 100, "as many as there are descriptors"
        assert client.status()["connections"] == len(others), "ours, and all but the last"
        assert np.array_equal(array.numpy(), x)
        for other in others:
            other.close()
        assert is_served_soon(client)
        # In a pool of its own: it would share our client's connection.
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(client.address, options=options) as channel:
            stub = wire.service_pb2_grpc.RuntimeStub(channel)
            assert stub.Status(wire.service_pb2.StatusRequest(), timeout=PATIENCE).serving
        assert np.array_equal(client.put(x).numpy(), x)


def test_at_connections_max(daemon_program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is closed, the others stay, and one that ends makes room."""
    monkeypatch.setenv("HOSTIR_CONNECTIONS_MAX", "3")
    with hostir.connect(devices="cpu:1", timeout=60) as client:
        one, two, three = Other(client), Other(client), Other(client)
        assert (one.served, two.served, three.served) == (True, True, False)
        assert client.status()["connections"] == 3
        one.close()
        assert is_served_soon(client)
        assert np.array_equal(client.put(np.ones(4, np.float32)).numpy(), np.ones(4, np.float32))


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name: str, value: str) -> bytes:
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


CALL = b"".join(
    literal(*pair)
    for pair in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/hostir.v1.Runtime/Status"),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]
)
# A literal field whose value has 2^28 bytes, which keep coming.
ENDLESS = [frame(1, 0, 1, b"\0\3abc\x7f\xff\xff\xff\x7f"), *[frame(9, 0, 1, b"a" * 16000)] * 10]
RESETS = [frame(1, 4, n, CALL) + frame(3, 0, n, b"\0\0\0\x08") for n in range(1, 20001, 2)]


@pytest.mark.parametrize("attack", [ENDLESS, RESETS], ids=["a header without end", "rapid reset"])
def test_what_grpc_does_not_bound(client: hostir.Client, attack: list[bytes]) -> None:
    """The connection ends, and others are served meanwhile."""
    x = np.ones(4, np.float32)
    array = client.put(x)
    others = [Other(client) for _ in range(3)]
    for other in others:
        assert other.served
        with contextlib.suppress(ConnectionError):
            for part in attack:
                other.socket.sendall(part)
    assert np.array_equal(array.numpy(), x)
    assert all(other.ends() for other in others)
    assert np.array_equal(client.put(x).numpy(), x)


def test_an_idle_connection_ends(daemon_program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a session does not."""
    monkeypatch.setenv("HOSTIR_CONNECTION_IDLE_MS", "200")
    x = np.ones(4, np.float32)
    with hostir.connect(devices="cpu:1", timeout=60) as client:
        array = client.put(x)
        other = Other(client)
        assert other.served
        assert other.ends()
        assert np.array_equal(array.numpy(), x), "the session is the same"
