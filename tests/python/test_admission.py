"""Messages that would cost much more than their bytes, or are none: refused unparsed, and nobody else notices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

import hostir
from hostir.wire import service_pb2 as pb

MIB = 1 << 20
# A message of only empty submessages, or of only fields that nobody knows.
EMPTY_ARGS = b"\x1a\x00"  # RunRequest.args
UNKNOWN = b"\xa2\x06\x00"  # Field 100.


@pytest.fixture(scope="module")
def daemon_process(daemon_program: str) -> Iterator[tuple[hostir.Client, int]]:
    """A client of a daemon of one rank, and the daemon's process: the rank's parent."""
    with hostir.connect(devices="cpu:1", timeout=60) as client:
        rank = client.status()["devices"][0]["pid"]
        found = re.search(r"^PPid:\s+(\d+)$", Path(f"/proc/{rank}/status").read_text(), re.MULTILINE)
        assert found is not None
        yield client, int(found[1])


def send(client: hostir.Client, method: str, message: bytes) -> grpc.RpcError:
    call = client._stub._channel.unary_unary(f"/hostir.v1.Runtime/{method}")
    with pytest.raises(grpc.RpcError) as caught:
        call(message, timeout=60)
    return caught.value


def begin_peak(daemon: int) -> int:
    """The peak begins anew, at what is in use now."""
    Path(f"/proc/{daemon}/clear_refs").write_text("5")
    return peak_mib(daemon)


def peak_mib(daemon: int) -> int:
    status = Path(f"/proc/{daemon}/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) // 1024


@pytest.mark.parametrize(
    ("method", "field", "least"),
    [
        ("Run", EMPTY_ARGS, "268435"),
        ("Run", UNKNOWN, "268435"),
        ("Compile", UNKNOWN, "268435"),
        ("Status", UNKNOWN, "268435"),
    ],
)
def test_what_costs_too_much_is_refused_unparsed(
    method: str, field: bytes, least: str, daemon_process: tuple[hostir.Client, int]
) -> None:
    client, pid = daemon_process
    before = begin_peak(pid)
    error = send(client, method, field * (19 * MIB // len(field)))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    said = f"requests_bytes_max = 268435456: 0 bytes of requests are in use, {least}"
    assert error.details().startswith(said), error.details()
    assert peak_mib(pid) - before < 100
    assert client.put(np.ones(2)).numpy().sum() == 2


def test_more_arguments_than_any_program_has(daemon_process: tuple[hostir.Client, int]) -> None:
    client, pid = daemon_process
    before = begin_peak(pid)
    error = send(client, "Run", EMPTY_ARGS * (2 * MIB))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "the run has 2097152 arguments; no program has more than 4096"
    assert peak_mib(pid) - before < 256


@pytest.mark.parametrize("method", ["Compile", "Explain", "Run", "Shards", "Wait", "Free", "Status"])
def test_bytes_that_are_no_request(method: str, daemon_process: tuple[hostir.Client, int]) -> None:
    client, _ = daemon_process
    error = send(client, method, b"\x0a\xff\xff")
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == f"the 3 bytes are no {method}Request"


def test_bytes_that_are_no_upload(daemon_process: tuple[hostir.Client, int]) -> None:
    client, _ = daemon_process
    call = client._stub._channel.stream_unary("/hostir.v1.Runtime/Upload")
    for message, said in [
        (b"\x0a\xff\xff", "the 3 bytes are no UploadRequest"),
        (UNKNOWN * (6 * MIB), "requests_bytes_max = 268435456"),
    ]:
        with pytest.raises(grpc.RpcError) as caught:
            call(iter([message]), timeout=60)
        assert caught.value.details().startswith(said), caught.value.details()


def test_downloads_that_nobody_reads(daemon_process: tuple[hostir.Client, int]) -> None:
    client, pid = daemon_process
    array = client.put(np.ones(16 * MIB, np.float32))
    before = begin_peak(pid)
    request = pb.DownloadRequest(session_id=client._session, handle=array._handle)
    unread = [client._stub.Download(request, timeout=60) for _ in range(300)]
    for call in unread:
        assert next(call).header.total_bytes == 64 * MIB  # Its first chunk follows.
    assert client.put(np.ones(2)).numpy().sum() == 2
    assert peak_mib(pid) - before < 200, "2 MiB for each would be 600"
    for call in unread:
        call.cancel()
    assert array.numpy().sum() == 16 * MIB
