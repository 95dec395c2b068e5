"""Sessions that outlive a connection, requests that are sent twice or given up, and arrays that have a name.

A proxy between client and daemon cuts connections, wherever a request or its answer just is.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import hostir
from eventually import becomes, eventually
from hostir import DataType, FusionDefinition
from hostir.wire import service_pb2 as pb

PATIENCE = 30.0
SEED = int(os.environ.get("HOSTIR_SEED", "26"))


class Proxy:
    """A socket whose connections go to the daemon's, until they are cut: after so many bytes either way, or at once."""

    def __init__(self, path: Path, address: str) -> None:
        self.address = f"unix:{path}"
        self._to = address.removeprefix("unix:")
        self._left = -1  # Bytes until the cut; below 0: none.
        self._lock = threading.Lock()
        self._ends: list[socket.socket] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        self.cuts = 0
        self.closed = False
        threading.Thread(target=self._serve, daemon=True).start()

    def cut_after(self, count: int) -> None:
        with self._lock:
            self._left = count

    def cut(self) -> None:
        with self._lock:
            ends, self._ends = self._ends, []
            self._left = -1
            self.cuts += 1
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.closed = True
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while not self.closed:
                near, _ = self._listening.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._to)
                with self._lock:
                    self._ends += [near, far]
                threading.Thread(target=self._copy, args=(near, far), daemon=True).start()
                threading.Thread(target=self._copy, args=(far, near), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                with self._lock:
                    cut = 0 <= self._left <= len(data)
                    if cut:
                        data = data[: self._left]
                    elif self._left > 0:
                        self._left -= len(data)
                target.sendall(data)
                if cut:
                    self.cut()
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@pytest.fixture
def proxy(client: hostir.Client, tmp_path: Path) -> Iterator[Proxy]:
    proxy = Proxy(tmp_path / "proxy", client.address)
    yield proxy
    proxy.close()


def sums(n: int = 64) -> FusionDefinition:
    with FusionDefinition("sums") as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.Float)
        y = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.Float)
        fd.add_output(fd.ops.add(x, y))
        fd.add_output(fd.ops.mul(x, y))
    return fd


def slow() -> FusionDefinition:
    """Some tenths of a second."""
    with FusionDefinition("slow") as fd:
        x = fd.define_tensor(shape=[1024, 1024], contiguity=True, dtype=DataType.Double)
        y = x
        for _ in range(4):
            y = fd.ops.matmul(y, x)
        fd.add_output(y)
    return fd


# --- leases -------------------------------------------------------------------------------------------------------


def calls_between_cuts(
    client: hostir.Client, proxy: Proxy, arrays: list[tuple[hostir.Array, np.ndarray[Any, Any]]]
) -> int:
    """How many runs it was. ``arrays``: those that are left, at most 20, with the values that they should have."""
    random_ = random.Random(SEED)
    fd = sums()
    runs = 0
    for step in range(150):
        if random_.random() < 0.5:
            proxy.cut_after(random_.choice([0, 1, 9, 60, 200, 500, 1000, 5000]))
        if len(arrays) < 2 or random_.random() < 0.4:
            value = np.full(random_.choice([1, 10, 1000]), step, np.float32)
            arrays.append((client.put(value), value))
        elif random_.random() < 0.6:
            (x, xv), (y, yv) = random_.choice(arrays), random_.choice(arrays)
            if xv.shape == yv.shape:
                runs += 1
                with np.errstate(all="ignore"):
                    arrays += zip(client.run(fd, [x, y], wait=step % 2 == 0), (xv + yv, xv * yv), strict=True)
        elif random_.random() < 0.5:
            client.free(arrays.pop(random_.randrange(len(arrays)))[0])
        else:
            array, value = random_.choice(arrays)
            np.testing.assert_array_equal(array.numpy(), value)
        del arrays[: max(0, len(arrays) - 20)]
    proxy.cut_after(-1)
    for array, value in arrays:
        np.testing.assert_array_equal(array.numpy(), value)
    return runs


def test_random_cuts(client: hostir.Client, proxy: Proxy) -> None:
    """Every value is right, every run happens once, and nothing is left of answers that were lost."""
    print(f"HOSTIR_SEED={SEED}")
    before = client.status()
    with hostir.connect(proxy.address, lease=PATIENCE) as other:
        arrays: list[tuple[hostir.Array, np.ndarray[Any, Any]]] = []
        runs = calls_between_cuts(other, proxy, arrays)
        assert proxy.cuts > 20, "connections were cut"
        other._free_collected()
        after = client.status()
        assert after["runs"] - before["runs"] == runs
        assert after["tensors"] - before["tensors"] == len(arrays)
    assert becomes(lambda: client.status()["tensors"], before["tensors"]), "closed at once, lease or not"


class Refused(grpc.RpcError):
    """Of a node that does not serve clients."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "connection refused"


@pytest.mark.parametrize("addresses", ["{0}", "{0},{0}-other"])
def test_a_request_that_fails_while_another_thread_comes_back(proxy: Proxy, addresses: str) -> None:
    """It hears of its failure when the session is there again: it is made again, as others are."""
    with hostir.connect(addresses.format(proxy.address), lease=PATIENCE) as other:
        asked = []

        def status(request: pb.StatusRequest, **options: Any) -> Any:
            asked.append(request)
            if len(asked) == 1:
                proxy.cut()
                assert eventually(other._session_.has_ended) and other._session_.resume()
                raise Refused
            return other._stub.Status(request, **options)

        assert other._call(status, pb.StatusRequest()).serving
        assert len(asked) == 2


def test_a_lease_ends(client: hostir.Client, proxy: Proxy) -> None:
    before = client.status()["tensor_bytes"]
    other = hostir.connect(proxy.address, lease=0.3)
    array = other.put(np.arange(1000))
    assert client.status()["tensor_bytes"] > before
    proxy.close()
    assert becomes(lambda: client.status()["tensor_bytes"], before)
    with pytest.raises(hostir.Unavailable, match="connect again"):
        array.numpy()
    other.close()


def test_without_a_lease(client: hostir.Client, proxy: Proxy) -> None:
    other = hostir.connect(proxy.address)
    array = other.put(np.arange(10))
    proxy.cut()
    with pytest.raises(hostir.HostirError, match="connect again"):
        array.numpy()
    other.close()


def test_another_connection_takes_over(client: hostir.Client) -> None:
    """The stream before ends, and the session goes on; one that has ended does not."""
    with hostir.connect(client.address, lease=PATIENCE) as other:
        array = other.put(np.arange(10))
        events = client._stub.Connect(pb.ConnectRequest(session_id=other._session, lease_ms=5000))
        assert next(events).session_id == other._session
        assert other._session_.has_ended()
        assert np.array_equal(array.numpy(), np.arange(10))
        assert client._stub.Disconnect(pb.DisconnectRequest(session_id=other._session)) is not None
        with pytest.raises(hostir.FailedPrecondition, match="no such session"):
            array.numpy()
    unknown = client._stub.Connect(pb.ConnectRequest(session_id="0" * 32))
    with pytest.raises(grpc.RpcError, match="has ended"):
        next(unknown)


def test_limits_of_leases(client: hostir.Client) -> None:
    """A longer one than the daemon grants is as long as that; what is no time is refused here."""
    events = client._stub.Connect(pb.ConnectRequest(lease_ms=1 << 40))
    limits = {limit["name"]: limit["value"] for limit in client.status()["limits"]}
    assert next(events).lease_ms == limits["session_lease_ms_max"]
    events.cancel()
    for wrong in (-1.0, float("nan")):
        with pytest.raises(hostir.InvalidArgument, match="lease"):
            hostir.connect(client.address, lease=wrong)
        with pytest.raises(hostir.InvalidArgument, match="deadline"):
            hostir.connect(client.address, deadline=wrong)


# --- idle sessions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lease", [0.0, PATIENCE])
def test_an_idle_session_ends(daemon_program: str, monkeypatch: pytest.MonkeyPatch, lease: float) -> None:
    """Status is no request of a session. One that waits is, however long."""
    monkeypatch.setenv("HOSTIR_SESSION_IDLE_MS", "1000")
    with (
        hostir.connect(devices="cpu:1", timeout=60) as watcher,
        hostir.connect(watcher.address, lease=lease) as idle,
        hostir.connect(watcher.address) as waits,
    ):
        array = idle.put(np.zeros(1000))
        x = waits.put(np.eye(1024))
        waits.run(slow(), [x], wait=True)
        pid = watcher.status()["devices"][0]["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            (y,) = waits.run(slow(), [x])
            waiting = threading.Thread(target=y.wait)
            waiting.start()
            assert becomes(lambda: watcher.status()["sessions"], 1), "watcher's own has ended, too"
        finally:
            os.kill(pid, signal.SIGCONT)
        waiting.join()
        assert y.numpy()[7, 7] == 1
        ended = r"no such session: .* \(session_idle_ms = 1000: .*\); connect again and put tensors again"
        with pytest.raises(hostir.FailedPrecondition, match=ended):
            array.numpy()
        with pytest.raises(hostir.FailedPrecondition, match="session_idle_ms = 1000"):
            idle.put(np.zeros(4))


# --- request keys -------------------------------------------------------------------------------------------------


@pytest.fixture
def request_(client: hostir.Client) -> pb.RunRequest:
    """A run with two outputs."""
    fd = sums()
    x = client.put(np.ones(8, np.float32), fd.fusion.inputs()[0])
    request = pb.RunRequest(session_id=client._session, program_id=client._compile(fd).program_id, request_key="k1")
    request.args.extend([pb.RunArg(handle=x._handle)] * 2)
    x._lose("is freed by hand")
    return request


def key_of(name: str) -> str:
    return f"{name} {time.monotonic_ns()}"


@pytest.mark.parametrize("wait", [False, True])
def test_a_request_sent_again(client: hostir.Client, request_: pb.RunRequest, wait: bool) -> None:
    request_.request_key = key_of("again")
    request_.wait = wait
    before = client.status()
    first = client._stub.Run(request_)
    assert client._stub.Run(request_) == first
    futures = [client._stub.Run.future(request_) for _ in range(8)]
    assert all(future.result() == first for future in futures)
    after = client.status()
    assert (after["runs"] - before["runs"], after["tensors"] - before["tensors"]) == (1, 2)
    handles = [output.handle for output in first.outputs]
    free = pb.FreeRequest(session_id=client._session, handles=handles, request_key=key_of("free"))
    client._stub.Free(free)
    client._stub.Free(free)
    free.request_key = key_of("free")
    with pytest.raises(grpc.RpcError, match="was freed"):
        client._stub.Free(free)


def test_keys_are_of_one_request(client: hostir.Client, request_: pb.RunRequest) -> None:
    request_.request_key = key_of("one")
    client._stub.Run(request_)
    request_.timeout_ms = 1000
    with pytest.raises(grpc.RpcError, match="is that of another request"):
        client._stub.Run(request_)
    request_.request_key = "x" * 65
    with pytest.raises(grpc.RpcError, match="at most 64"):
        client._stub.Run(request_)
    with hostir.connect(client.address) as other, pytest.raises(grpc.RpcError, match="no handle"):
        request_.request_key = key_of("one")
        client._stub.Run(request_)
        request_.session_id = other._session
        other._stub.Run(request_)


def test_requests_that_are_given_up(client: hostir.Client, request_: pb.RunRequest) -> None:
    """Before they come, and after they were answered: nothing is left."""
    before = client.status()["tensors"]
    for gone_first in (False, True):
        request_.request_key = key_of("given up")
        abandon = pb.FreeRequest(session_id=client._session, abandoned=[request_.request_key])
        if gone_first:
            client._stub.Free(abandon)
        else:
            client._stub.Run(request_)
            assert client.status()["tensors"] == before + 2
            client._stub.Free(abandon)
        assert client.status()["tensors"] == before
        with pytest.raises(grpc.RpcError, match="given up"):
            client._stub.Run(request_)
        assert client.status()["tensors"] == before


def test_a_failure_is_kept(client: hostir.Client, request_: pb.RunRequest) -> None:
    request_.request_key = key_of("failure")
    del request_.args[1]
    for _ in range(2):
        with pytest.raises(grpc.RpcError, match="has 2 inputs, 1 were given"):
            client._stub.Run(request_)


def test_uploads_sent_again(client: hostir.Client) -> None:
    header = pb.UploadHeader(session_id=client._session, dtype=1, shape=[4], request_key=key_of("put"))
    requests = [pb.UploadRequest(header=header), pb.UploadRequest(chunk=b"\1\0\1\1")]
    before = client.status()["tensors"]
    first = client._stub.Upload(iter(requests))
    assert client._stub.Upload(iter(requests)) == first
    assert client.status()["tensors"] == before + 1
    header.shape[:] = [5]
    with pytest.raises(grpc.RpcError, match="is that of another request"):
        client._stub.Upload(iter([pb.UploadRequest(header=header)]))
    client._stub.Free(pb.FreeRequest(session_id=client._session, abandoned=[header.request_key]))
    assert client.status()["tensors"] == before


# --- what Python has collected ------------------------------------------------------------------------------------


def test_what_is_collected_is_freed_in_the_end(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that refuses to free, for want of room, is asked again; one handle that is gone keeps no other."""
    before = client.status()["tensors"]
    arrays = [client.put(np.zeros(4)) for _ in range(3)]
    handles = [array._handle for array in arrays]

    class Refused(grpc.RpcError):  # type: ignore[misc]
        def code(self) -> grpc.StatusCode:
            return grpc.StatusCode.RESOURCE_EXHAUSTED

        def details(self) -> str:
            return "requests_max = 1: as many are under way; try again later"

    def refuse(*_: Any, **__: Any) -> None:
        raise Refused

    with monkeypatch.context() as patched:
        patched.setattr(client._stub, "Free", refuse)
        arrays.clear()
        client._free_collected()
        assert sorted(client._collected) == sorted(handles)
    client._stub.Free(pb.FreeRequest(session_id=client._session, handles=handles[1:2]))
    client._collected.append("0" * 32)
    client._free_collected()
    assert not client._collected
    assert client.status()["tensors"] == before


# --- deadlines ----------------------------------------------------------------------------------------------------


def test_a_deadline(client: hostir.Client) -> None:
    """A late answer is given up, and freed as soon as it is there."""
    before = client.status()["tensors"]
    fd = slow()
    with hostir.connect(client.address, deadline=0.02) as other:
        other._deadline = None
        x = other.put(np.eye(1024))
        other._compile(fd)
        other._deadline = 0.02
        with pytest.raises(hostir.DeadlineExceeded):
            other.run(fd, [x], wait=True)
        other._deadline = None
        other._free_collected()
        assert becomes(lambda: client.status()["tensors"] - before, 1), "x alone is left"


def test_a_daemon_that_is_stopped(daemon_program: str) -> None:
    with hostir.connect(devices="cpu:1", deadline=0.3, timeout=60) as client:
        array = client.put(np.arange(10))
        rank = client.status()["devices"][0]["pid"]
        daemon = int(Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(daemon, signal.SIGSTOP)
        try:
            with pytest.raises(hostir.DeadlineExceeded):
                client.put(np.arange(10))
        finally:
            os.kill(daemon, signal.SIGCONT)
        client._deadline = PATIENCE
        assert np.array_equal(array.numpy(), np.arange(10))


# --- names --------------------------------------------------------------------------------------------------------


def test_names_outlive_sessions(client: hostir.Client) -> None:
    before = client.status()
    value = np.arange(1000, dtype=np.float32)
    with hostir.connect(client.address) as other:
        other.publish(other.put(value), "weights/w1")
    assert client.status()["tensor_bytes"] == before["tensor_bytes"] + value.nbytes
    first, second = client.attach("weights/w1"), client.attach("weights/w1")
    assert np.array_equal(first.numpy(), value)
    assert client.status()["tensors"] == before["tensors"] + 1, "it is there once"
    out, product = client.run(sums(), [first, second])
    assert np.array_equal(out.numpy(), 2 * value)
    (named,) = client.names()
    assert (named["name"], named["owner"], named["tensor"]["spec"]["shape"]) == (
        "weights/w1",
        f"uid:{os.getuid()}",
        [1000],
    )
    client.withdraw("weights/w1")
    with pytest.raises(hostir.NotFound, match="weights/w1"):
        client.attach("weights/w1")
    with pytest.raises(hostir.NotFound):
        client.withdraw("weights/w1")
    assert np.array_equal(second.numpy(), value), "whoever has it keeps it"
    client.free(first, second, out, product)
    assert becomes(lambda: client.status()["tensor_bytes"], before["tensor_bytes"])


def test_a_name_is_given_anew(client: hostir.Client) -> None:
    a, b = client.put(np.zeros(4)), client.put(np.ones(4))
    client.publish(a, "step")
    old = client.attach("step")
    client.publish(b, "step", everyone=True)
    assert np.array_equal(client.attach("step", owner=f"uid:{os.getuid()}").numpy(), np.ones(4))
    assert np.array_equal(old.numpy(), np.zeros(4))
    assert [named["everyone"] for named in client.names()] == [True]
    client.withdraw("step")


def test_names_that_are_refused(client: hostir.Client) -> None:
    array = client.put(np.zeros(4))
    for name in ("", "a b", "x" * 257, "ä"):
        with pytest.raises(hostir.InvalidArgument, match="want 1 to 256"):
            client.publish(array, name)
    with pytest.raises(hostir.NotFound, match="uid:4711"):
        client.attach("step", owner="uid:4711")
    assert client.names() == []


def test_results_can_be_published_early(client: hostir.Client) -> None:
    """A client that attaches waits for the run, and is told how it failed."""
    x = client.put(np.eye(1024))
    (y,) = client.run(slow(), [x])
    client.publish(y, "y")
    with hostir.connect(client.address) as other:
        assert other.attach("y").numpy()[5, 5] == 1
    client.withdraw("y")


def test_attaching_waits_for_the_run(client: hostir.Client) -> None:
    """A session relies on its own runs alone: another's, which may have a later turn, are over."""
    x = client.put(np.eye(1024))
    client.run(slow(), [x], wait=True)
    (y,) = [client.run(slow(), [x]) for _ in range(3)][-1]
    client.publish(y, "late")
    with hostir.connect(client.address) as other:
        late = other.attach("late")
        assert (y.state, late.state) == ("ready", "ready")
        assert other.run(doubled(), [late])["twice"].numpy()[7, 7] == 2
    client.withdraw("late")


def doubled() -> FusionDefinition:
    with FusionDefinition("doubled") as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.Double)
        fd.add_output({"twice": x + x})
    return fd


def test_programs_have_names(daemon_program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One outlives its client, and its plan: the daemon keeps those of one program alone."""
    monkeypatch.setenv("HOSTIR_PROGRAMS_MAX", "1")
    with hostir.connect(devices="cpu:2", timeout=60) as client:
        with hostir.connect(client.address) as other:
            other.publish(sums(), "math/sums", everyone=True)
        (named,) = client.names()
        assert (named["name"], named["everyone"]) == ("math/sums", True)
        assert client.status()["tensor_bytes"] == named["program_bytes"] > 0
        program = client.program("math/sums", owner=f"uid:{os.getuid()}")
        assert (program.inputs, program.outputs) == (
            {"x": "f32[i0]", "y": "f32[i0]"},
            {"t0": "f32[i0]", "t1": "f32[i0]"},
        )
        x = np.arange(5, dtype=np.float32)
        for inputs, by_name in (([x, x], {}), ([x], {"y": x}), ([], {"x": x, "y": client.put(x)})):
            total, product = program(*inputs, **by_name)
            assert np.array_equal(total.numpy(), x + x) and np.array_equal(product.numpy(), x * x)
            client.run(doubled(), [np.eye(2)], wait=True)  # Whose plan takes the place of the other.
        (total, _) = client.run(program, {"x": [1, 2], "y": [3, 4]}, wait=True, deadline=PATIENCE)
        assert total.numpy().tolist() == [4, 6]
        with pytest.raises(hostir.InvalidArgument, match="math/sums has no input z"):
            program(x, z=x)
        with pytest.raises(hostir.InvalidArgument, match=r"client\.program"):
            client.attach("math/sums")
        client.publish(client.put(x), "math/sums")  # The array takes the name.
        with pytest.raises(hostir.InvalidArgument, match=r"client\.attach"):
            client.program("math/sums")
        client.withdraw("math/sums")
        with pytest.raises(hostir.NotFound, match="math/sums"):
            client.program("math/sums")
        assert program(x, x)[0].numpy().tolist() == (x + x).tolist(), (
            "who has it keeps it, as long as its plan is there"
        )


def test_quotas(daemon_program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotas of one principal: sessions, handles with names among them, and bytes."""
    monkeypatch.setenv("HOSTIR_PRINCIPAL_SESSIONS_MAX", "2")
    monkeypatch.setenv("HOSTIR_PRINCIPAL_TENSORS_MAX", "3")
    monkeypatch.setenv("HOSTIR_PRINCIPAL_BYTES_MAX", "100000")
    with hostir.connect(devices="cpu:1", timeout=60) as client, hostir.connect(client.address) as other:
        with pytest.raises(hostir.ResourceExhausted, match="principal_sessions_max = 2"):
            hostir.connect(client.address)
        arrays = [client.put(np.zeros(4)), other.put(np.zeros(4))]
        client.publish(sums(), "third")
        with pytest.raises(hostir.ResourceExhausted, match="principal_tensors_max = 3"):
            other.put(np.zeros(4))
        client.withdraw("third")
        with pytest.raises(hostir.ResourceExhausted, match="principal_bytes_max = 100000"):
            other.put(np.zeros(20000))
        assert client.status()["tensor_bytes"] == 64
        arrays.append(other.put(np.zeros(10000)))
        assert arrays[-1].numpy().sum() == 0
