"""Trace contexts: from the client, or OpenTelemetry's current span, to the logs, every rank and the timeline."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import numpy as np
import pytest

import hostir
from eventually import eventually
from hostir import DeviceMesh, FusionDefinition
from observed_daemon import ObservedDaemon

TWO = DeviceMesh([0, 1])
TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"
MALFORMED = ["", "00", TRACEPARENT.upper(), TRACEPARENT + "-00", TRACEPARENT.replace("00-", "01-", 1), "0" * 55]


@pytest.fixture(scope="module")
def daemon(daemon_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedDaemon]:
    folder = tmp_path_factory.mktemp("daemon")
    daemon = ObservedDaemon(daemon_program, folder, devices="cpu:2", device_bytes_max=1 << 20)
    yield daemon
    daemon.stop()


def mlp() -> FusionDefinition:
    with FusionDefinition("mlp") as fd:
        x = fd.define_tensor(shape=[-1, 8], contiguity=True)
        w = fd.define_tensor(shape=[8, 8], contiguity=True)
        y = fd.ops.linear(fd.ops.gelu(fd.ops.linear(x, w)), w)
        fd.add_output(y)
        for t in (x, w, y):
            t.set_device_mesh(TWO)
    return fd


def inputs(rows: int) -> list[np.ndarray]:
    return [np.ones((rows, 8), np.float32), np.ones((8, 8), np.float32)]


def test_a_run_is_traced_everywhere(daemon: ObservedDaemon, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.json"
    with hostir.connect(daemon.address, traceparent=TRACEPARENT) as client:
        x, w = inputs(4)
        client.run(fd := mlp(), [client.put(x, fd.fusion.inputs()[0]), w], timeline=path)[0].numpy()
    trace = json.loads(path.read_text())
    assert trace["otherData"] == {"program": "mlp", "traceparent": TRACEPARENT}
    # Each rank says for itself what it worked for.
    work = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {event["pid"] for event in work} == {0, 1}
    assert all(event["args"] == {"trace": TRACE} for event in work)
    (run,) = eventually(lambda: daemon.accesses(method="Run", trace=TRACE))
    for method in ("Upload", "Compile", "Download"):
        eventually(lambda method=method: daemon.accesses(method=method, trace=TRACE))
    daemon.logged(f"run={run['run']} request={run['request']} program=mlp us=")
    lines = daemon.logged(f"request={run['request']} ", " us=", count=2)
    assert len(lines) == 2 and all(line.endswith(f" trace={TRACE}") for line in lines), lines


def test_errors_name_the_trace_of_daemon_and_ranks(daemon: ObservedDaemon) -> None:
    """Method: a run for which the ranks have no memory."""
    other = "4bf92f3577b34da6a3ce929d0e0e4736"
    client = hostir.connect(daemon.address, traceparent=f"00-{other}-00f067aa0ba902b7-00")
    with client, pytest.raises(hostir.ResourceExhausted, match="device_bytes_max"):
        client.run(mlp(), inputs(1 << 17), wait=True)
    daemon.logged("warn", " method=Run ", other)
    daemon.logged("warn", "] run=", f"program=mlp trace={other} error=")
    for rank in (0, 1):
        daemon.logged(f"rank={rank} ", f"trace={other} error=")


def test_a_function_says_which_trace_it_is(daemon: ObservedDaemon) -> None:
    traces = iter([None, *MALFORMED, 7, TRACEPARENT])
    latest: list[object] = []

    def current() -> str | None:
        latest.append(next(traces))
        return latest[-1]  # type: ignore[return-value]

    with hostir.connect(daemon.address, traceparent=current) as client:
        before = len(daemon.accesses(method="Status", trace=TRACE))
        for _ in range(len(MALFORMED) + 3):
            client.status()
    assert latest[-1] == TRACEPARENT
    eventually(lambda: len(daemon.accesses(method="Status", trace=TRACE)) == before + 1)


@pytest.mark.parametrize("text", [*MALFORMED, 7])
def test_what_is_no_trace_is_refused_at_once(text: object) -> None:
    with pytest.raises(hostir.InvalidArgument, match=r"^traceparent = .*W3C Trace Context"):
        hostir.connect(devices="cpu:1", traceparent=text)  # type: ignore[arg-type]


def test_the_daemon_believes_no_client(daemon: ObservedDaemon) -> None:
    """What is no trace context of version 00 is left out. Method: a client that sends anything."""
    bad = [*MALFORMED, "x" * 4000, TRACEPARENT[:-1] + "G"]
    with hostir.connect(daemon.address) as client:
        session = client._session[:8]
        x = client.put(np.ones(4, np.float32))
        for value in bad:
            request = hostir.wire.service_pb2.ShardsRequest(session_id=client._session, handle=x._handle)
            client._stub.Shards(request, metadata=[("traceparent", value)])
        lines = eventually(
            lambda: (found := daemon.accesses(method="Shards", session=session)) and len(found) == len(bad) and found
        )
    assert [line for line in lines if "trace" in line] == []


def test_the_current_span_of_opentelemetry_comes_first(daemon: ObservedDaemon) -> None:
    trace = pytest.importorskip("opentelemetry.trace", reason="opentelemetry-api is not installed")
    span_trace = 0x5BD66EF5095369C7B0D1F8F4BD33716A
    context = trace.SpanContext(span_trace, 0xC532CB4098AC3DD2, is_remote=False, trace_flags=trace.TraceFlags(1))
    with hostir.connect(daemon.address, traceparent=TRACEPARENT) as client:
        before = len(daemon.accesses(method="Status", trace=TRACE))
        with trace.use_span(trace.NonRecordingSpan(context)):
            client.status()
        eventually(lambda: daemon.accesses(method="Status", trace=f"{span_trace:032x}"))
        client.status()
        eventually(lambda: len(daemon.accesses(method="Status", trace=TRACE)) == before + 1)
