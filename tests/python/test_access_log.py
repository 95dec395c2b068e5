"""The access log of a real daemon: a line for each request that is over, which says whose it was and how it went."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import numpy as np
import pytest

import hostir
from eventually import eventually
from hostir import FusionDefinition
from observed_daemon import ObservedDaemon


@pytest.fixture(scope="module")
def daemon(daemon_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedDaemon]:
    daemon = ObservedDaemon(daemon_program, tmp_path_factory.mktemp("daemon"), devices="cpu:1")
    yield daemon
    daemon.stop()


def negation() -> FusionDefinition:
    with FusionDefinition("negation") as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        fd.add_output(fd.ops.neg(x))
    return fd


def test_each_request_has_a_line(daemon: ObservedDaemon) -> None:
    with hostir.connect(daemon.address) as client:
        session = client._session[:8]
        x = client.put(np.ones(1000, np.float32))
        (y,) = client.run(negation(), [x], wait=True)
        y.numpy()
        client.free(y)
    lines = eventually(lambda: (found := daemon.accesses(session=session)) and len(found) >= 6 and found)
    assert {line["method"] for line in lines} >= {"Connect", "Upload", "Compile", "Run", "Download", "Free"}
    for line in lines:
        assert line["code"] == ("CANCELLED" if line["method"] == "Connect" else "OK")
        assert line["principal"] == f"uid:{os.getuid()}"
        assert line["peer"].startswith("fd:") and line["us"] >= 0 and line["time"].endswith("Z")
        assert "trace" not in line
    numbers = [line["request"] for line in lines if line["method"] != "Connect"]
    assert len(set(numbers)) == len(numbers)
    of = {line["method"]: line for line in lines}
    assert of["Upload"]["bytes_in"] == 4000 and of["Download"]["bytes_out"] == 4000
    assert of["Run"]["run"] >= 1 and of["Run"]["bytes_in"] > 0 and of["Run"]["bytes_out"] > 0
    # The log knows run and request by the same numbers.
    daemon.logged(f"run={of['Run']['run']} request={of['Run']['request']} ")


def test_what_is_refused_has_its_code(daemon: ObservedDaemon) -> None:
    with hostir.connect(daemon.address) as client:
        session = client._session[:8]
        with pytest.raises(hostir.InvalidArgument):
            client.run(negation(), [np.ones((2, 2), np.float32)])
        client._session = '\x00\n"no session'  # What a client makes up is not for the log.
        with pytest.raises(hostir.FailedPrecondition):
            client.put(np.ones(4, np.float32))
    eventually(lambda: daemon.accesses(session=session, code="INVALID_ARGUMENT"))
    (refused,) = eventually(lambda: daemon.accesses(code="FAILED_PRECONDITION"))
    assert refused["method"] == "Upload" and "session" not in refused


def test_requests_that_may_be_sent_again(daemon: ObservedDaemon) -> None:
    """Method: a client with a lease, whose requests have keys; an array that goes by shared memory."""
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with hostir.connect(daemon.address, lease=5, traceparent=traceparent) as client:
        session = client._session[:8]
        (y,) = client.run(negation(), [np.ones(1 << 20, np.float32)], wait=True)
        y.numpy()
    wanted = {"Reserve", "Commit", "Compile", "Run", "Share", "Release"}
    eventually(lambda: {line["method"] for line in daemon.accesses(session=session)} >= wanted)
    lines = daemon.accesses(session=session)
    of = {line["method"]: line for line in lines}
    assert of["Run"]["run"] >= 1 and of["Run"]["bytes_out"] > 0
    assert {of[method]["trace"] for method in ("Reserve", "Commit", "Run", "Share")} == {traceparent.split("-")[1]}
    # The run itself knows the trace of the request that came first.
    (run,) = daemon.logged(f"run={of['Run']['run']} request=")
    assert run.endswith(f" trace={of['Run']['trace']}")


def test_among_the_lines_of_the_log(daemon_program: str, tmp_path: pathlib.Path) -> None:
    daemon = ObservedDaemon(
        daemon_program, tmp_path, devices="cpu:1", access_log="-", access_log_format="text", log_level="info"
    )
    with hostir.connect(daemon.address) as client:
        client.status()
    (line, *_) = daemon.logged("method=Status principal=uid:")
    assert line.startswith("time=2") and " code=OK us=" in line
    assert not daemon.access_log.exists()
    daemon.stop()
