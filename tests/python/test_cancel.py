"""Runs that are cancelled, or have a deadline: those that wait for their turn, and the one that the ranks have.

A worker that is stopped holds a run, and the queue behind it, for as long as a test wants.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import grpc
import numpy as np
import pytest

import hostir
from eventually import becomes
from hostir import DeviceMesh, FusionDefinition
from hostir.wire import service_pb2 as pb

ME = rf"its client \(uid:{os.getuid()}\)"


@pytest.fixture(scope="module")
def two(daemon_program: str) -> Iterator[hostir.Client]:
    """A daemon that gives up what is cancelled after 200 ms."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HOSTIR_CANCEL_GRACE_MS", "200")
        with hostir.connect(devices="cpu:2", timeout=60) as client:
            yield client


@contextlib.contextmanager
def a_rank_stopped(client: hostir.Client) -> Iterator[int]:
    pid: int = client.status()["devices"][1]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def total() -> FusionDefinition:
    with FusionDefinition("total") as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        fd.add_output(fd.ops.sum(x))
        x.shard(DeviceMesh([0, 1]), {0: "mesh_x"})
    return fd


def doubled() -> FusionDefinition:
    with FusionDefinition("doubled") as fd:
        x = fd.define_tensor(shape=[], contiguity=[])
        fd.add_output(x + x)
        x.set_device_mesh(DeviceMesh([0, 1]))
    return fd


@pytest.fixture
def x(two: hostir.Client) -> hostir.Array:
    """What ``total`` makes 8 of. Both programs are there, and so is the mesh."""
    x = two.put(np.ones(8, np.float32), total().fusion.inputs()[0])
    (sum_,) = two.run(total(), [x], wait=True)
    (twice,) = two.run(doubled(), [sum_], wait=True)
    assert twice.numpy() == 16
    return x


def test_a_run_that_waits_is_taken_back(two: hostir.Client, x: hostir.Array) -> None:
    """At once, and what is made from it fails by its cause; the run before it, and the mesh, go on."""
    before = two.status()
    with a_rank_stopped(two):
        (first,) = two.run(total(), [x])
        (second,) = two.run(total(), [x])
        (third,) = two.run(doubled(), [second])
        assert becomes(lambda: two.status()["queued_runs"], 2)
        assert second.cancel()
        cause = rf"^run \d+ of total: {ME} cancelled it while it waited for its turn \(test_cancel.py:\d+: "
        with pytest.raises(hostir.Cancelled, match=cause):
            second.wait()
        assert two.status()["queued_runs"] == 1
        assert (first.state, second.state, third.state) == ("pending", "poisoned", "pending")
        assert not second.cancel(), "it is over"
    assert first.numpy() == 8
    with pytest.raises(hostir.Cancelled, match=cause):
        third.numpy()
    with pytest.raises(hostir.Cancelled, match="it poisoned input 0"):
        two.run(doubled(), [second], wait=True)
    assert not first.cancel() and not x.cancel()
    assert first.numpy() == 8
    after = two.status()
    assert (after["generation"], after["runs"]) == (before["generation"], after["runs_over"])


def test_a_run_under_way_ends_with_the_mesh(two: hostir.Client, x: hostir.Array) -> None:
    generation = two.status()["generation"]
    with a_rank_stopped(two):
        (first,) = two.run(total(), [x])
        (second,) = two.run(total(), [x])
        assert becomes(lambda: two.status()["queued_runs"], 1)
        assert first.cancel()
        with pytest.raises(hostir.Cancelled, match=rf"^run \d+ of total: {ME} cancelled it while it ran: .*rank 1"):
            first.wait()
        assert second.numpy() == 8, "it follows on the next mesh"
    assert two.status()["generation"] == generation + 1
    assert "cancelled it while it ran" in two.status()["last_failure"]


def test_a_run_that_ends_by_itself(daemon_program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within cancel_grace_ms a run that was cancelled is as right as any."""
    monkeypatch.setenv("HOSTIR_CANCEL_GRACE_MS", "60000")
    with hostir.connect(devices="cpu:2", timeout=60) as client:
        fd = total()
        x = client.put(np.ones(8, np.float32), fd.fusion.inputs()[0])
        client.run(fd, [x], wait=True)
        with a_rank_stopped(client):
            (y,) = client.run(fd, [x])
            assert becomes(lambda: client.status()["queued_runs"], 0)
            assert y.cancel() and y.cancel()
            assert y.state == "pending"
        assert y.numpy() == 8
        assert client.status()["generation"] == 1


def test_deadlines(two: hostir.Client, x: hostir.Array) -> None:
    """One passes in the queue, while another run is under way; one while its run is under way."""
    generation = two.status()["generation"]
    with a_rank_stopped(two):
        (first,) = two.run(total(), [x], deadline=2.0)
        (second,) = two.run(total(), [x], deadline=0.5)
        (third,) = two.run(doubled(), [second])
        (fourth,) = two.run(total(), [x], deadline=60)
        passed = r"^run \d+ of total: deadline_ms = \d+ passed while it waited for its turn \(test_cancel.py:"
        with pytest.raises(hostir.DeadlineExceeded, match=passed):
            second.wait()
        assert first.state == "pending"
        with pytest.raises(hostir.DeadlineExceeded, match=r"deadline_ms = \d+ passed while it ran: .*rank 1"):
            first.wait()
        with pytest.raises(hostir.DeadlineExceeded, match=passed):
            third.wait()
        assert fourth.numpy() == 8
    assert two.status()["generation"] == generation + 1


def test_what_is_refused(two: hostir.Client, x: hostir.Array) -> None:
    for wrong in (0, -1.0, float("nan")):
        with pytest.raises(hostir.InvalidArgument, match="deadline"):
            two.run(total(), [x], deadline=wrong)
    request = pb.RunRequest(session_id=two._session, program_id=two._compile(total()).program_id, deadline_ms=-1)
    request.args.add(handle=x._handle)
    with pytest.raises(grpc.RpcError, match="deadline_ms = -1"):
        two._stub.Run(request)
    request.deadline_ms = 2**62  # Any time.
    two._stub.Run(request)
    for number in (0, -1, 1 << 40):
        with pytest.raises(grpc.RpcError, match=f"run {number}: there has been none"):
            two._stub.Cancel(pb.CancelRequest(session_id=two._session, run_id=number))


def test_others_cannot(two: hostir.Client, x: hostir.Array) -> None:
    """A run is of its session. A request that comes twice with its key is carried out once."""
    with a_rank_stopped(two), hostir.connect(two.address) as other:
        (first,) = two.run(total(), [x])
        (second,) = two.run(total(), [x])
        assert becomes(lambda: two.status()["queued_runs"], 1)
        for run in (first, second):
            reply = other._stub.Cancel(pb.CancelRequest(session_id=other._session, run_id=run._run))
            assert reply.found == pb.CancelReply.FOUND_OVER
        assert (first.state, second.state) == ("pending", "pending")
        cancel = pb.CancelRequest(session_id=two._session, run_id=second._run, request_key="once")
        found = [two._stub.Cancel(cancel).found for _ in range(2)]
        assert found == [pb.CancelReply.FOUND_QUEUED] * 2
    assert first.numpy() == 8


def test_a_request_that_is_given_up(two: hostir.Client, x: hostir.Array) -> None:
    """Its run is not carried out, where its turn has not come."""
    before = two.status()["tensors"]
    with hostir.connect(two.address, deadline=30) as other:
        mine = other.put(np.ones(8, np.float32), total().fusion.inputs()[0])
        other._compile(total())
        with a_rank_stopped(two):
            (first,) = two.run(total(), [x])
            other._deadline = 0.2
            with pytest.raises(hostir.DeadlineExceeded):
                other.run(total(), [mine], wait=True)
            other._deadline = 30
            assert two.status()["queued_runs"] == 1
            other._free_collected()
            assert two.status()["queued_runs"] == 0
        assert first.numpy() == 8
        assert two.status()["tensors"] == before + 2
