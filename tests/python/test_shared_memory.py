"""Tensors in and out through memory that client and daemon share, beside streams as the oracle; and what is left of
transfers that nobody finishes."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hostir
from eventually import becomes
from hostir import Sharding, shared_memory
from hostir.wire import service_pb2 as pb
from hostir.wire import tensor_pb2 as pb_tensor

PATIENCE = 20.0
DTYPES = [np.bool_, np.int32, np.int64, np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
SEED = int(os.environ.get("HOSTIR_SEED", "26"))


@pytest.fixture
def shares_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tensors, too, go through memory, in pieces that are small."""
    monkeypatch.setattr(shared_memory, "LEAST_BYTES", 1)
    monkeypatch.setattr(shared_memory, "_PIECE_BYTES", 512)
    monkeypatch.setattr(shared_memory, "_BLOCK_BYTES", 100)


@contextlib.contextmanager
def streams(client: hostir.Client) -> Iterator[None]:
    client._transfers._shares = False
    try:
        yield
    finally:
        client._transfers._shares = True


def counted(client: hostir.Client) -> dict[str, int]:
    """How often each way of a transfer is asked for, from now on."""
    counts: dict[str, int] = {"Reserve": 0, "Upload": 0, "Share": 0, "Download": 0}
    stub = client._stub
    for name in counts:
        method = getattr(stub, name)

        def call(*args: Any, _name: str = name, _method: Any = method, **options: Any) -> Any:
            counts[_name] += 1
            return _method(*args, **options)

        setattr(stub, name, call)
    return counts


def a_sharding(random_: random.Random, shape: tuple[int, ...]) -> Sharding:
    """A layout on up to four devices, in one or two dimensions, blocks even or not, or dealt."""
    devices = random_.sample(range(4), random_.choice([1, 2, 4]))
    two = len(devices) == 4 and random_.random() < 0.5
    mesh: Any = [devices[:2], devices[2:]] if two else devices
    names = ["mesh_y", "mesh_x"] if two else ["mesh_x"]
    axes: dict[int, Any] = {}
    for name in names:
        if shape and random_.random() < 0.8:
            axes.setdefault(random_.randrange(len(shape)), []).append(name)
    sharding = {axis: names[0] if len(names) == 1 else names for axis, names in axes.items()}
    dealt = [
        axis
        for axis, split in sharding.items()
        if isinstance(split, str) and shape[axis] % (2 if two else len(devices)) == 0 and random_.random() < 0.3
    ]
    return Sharding(mesh, sharding, dealt=dealt) if dealt else Sharding(mesh, sharding)


def test_random_tensors_go_in_and_out(client: hostir.Client, shares_all: None) -> None:
    """By memory and by stream, in every combination, with the same elements; shards, too."""
    print(f"HOSTIR_SEED={SEED}")
    random_ = random.Random(SEED)
    numbers = np.random.default_rng(SEED)
    counts = counted(client)
    for case in range(120):
        shape = tuple(random_.choice([1, 2, 3, 4, 5, 8, 12, 17]) for _ in range(random_.randrange(5)))
        dtype = np.dtype(random_.choice(DTYPES))
        values = numbers.integers(0, 2 if dtype == np.bool_ else 100, shape).astype(dtype)
        if len(shape) > 1 and random_.random() < 0.3:
            values = values.T[::-1]
        if values.ndim and random_.random() < 0.2:
            values = np.broadcast_to(values[:1], values.shape)
        sharding = a_sharding(random_, values.shape)
        what = f"case {case}: {dtype} {values.shape} {values.strides} {sharding}"
        shared = client.put(values, sharding=sharding)
        with streams(client):
            streamed = client.put(values, sharding=sharding)
            assert np.array_equal(shared.numpy(), values), what
        assert np.array_equal(streamed.numpy(), values), what
        for (rank, slices, part), (other_rank, other_slices, other) in zip(shared.shards, streamed.shards, strict=True):
            assert (rank, slices) == (other_rank, other_slices), what
            assert np.array_equal(part, other) and np.array_equal(part, values[slices]), what
    assert counts["Reserve"] > 100 and counts["Share"] > 100, "memory was used"
    assert counts["Download"] > 100, "streams, too"


def test_large_tensors(client: hostir.Client) -> None:
    """With pieces of their real size, rows split and columns split: a run computes from what was put."""
    counts = counted(client)
    values = np.random.default_rng(1).standard_normal((4097, 2049), np.float32)
    for axis in (0, 1):
        array = client.put(values, sharding=Sharding([0, 1, 2, 3], {axis: "mesh_x"}))
        copy = client.reshard(array, Sharding([0, 1, 2, 3], {1 - axis: "mesh_x"}))
        assert np.array_equal(copy.numpy(), values)
    assert counts == {"Reserve": 2, "Upload": 0, "Share": 2, "Download": 0}


def test_through_a_proxy(client: hostir.Client, tmp_path: Path, shares_all: None) -> None:
    """A socket that is forwarded brings no descriptors: tensors then go by stream."""
    path = tmp_path / "proxy"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    ends = [listening]

    def copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listening.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(client.address.removeprefix("unix:"))
                ends.extend((near, far))
                threading.Thread(target=copy, args=(near, far), daemon=True).start()
                threading.Thread(target=copy, args=(far, near), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    values = np.arange(1000, dtype=np.float32)
    before = client.status()["tensor_bytes"]
    with hostir.connect(f"unix:{path}") as other:
        counts = counted(other)
        for _ in range(2):
            assert np.array_equal(other.put(values).numpy(), values)
        assert counts == {"Reserve": 1, "Upload": 2, "Share": 0, "Download": 2}, "it tries once"
    for end in ends:
        end.close()
    assert becomes(lambda: client.status()["tensor_bytes"], before), "what was reserved is given back"


def reserve(client: hostir.Client, count: int) -> Any:
    header = pb.UploadHeader(session_id=client._session, dtype=pb_tensor.DTYPE_INT64, shape=[count])
    return client._stub.Reserve(pb.ReserveRequest(header=header))


def descriptors(client: hostir.Client, transfer: Any) -> Any:
    return shared_memory.descriptors(client.address.removeprefix("unix:"), transfer.token, transfer.shards)


def test_descriptors_come_once(client: hostir.Client) -> None:
    transfer = reserve(client, 8)
    with descriptors(client, transfer) as first, descriptors(client, transfer) as second:
        assert first is not None
        assert second is None
    unknown = pb.SharedMemoryReply(token="0" * 32, shards=transfer.shards)
    with descriptors(client, unknown) as none:
        assert none is None
    release = pb.ReleaseRequest(session_id=client._session, token=transfer.token)
    client._stub.Release(release)
    with pytest.raises(Exception, match="no transfer"):
        client._stub.Release(release)


def test_transfers_are_their_sessions(client: hostir.Client) -> None:
    transfer = reserve(client, 8)
    with hostir.connect(client.address) as other, pytest.raises(Exception, match="no transfer"):
        other._stub.Commit(pb.CommitRequest(session_id=other._session, token=transfer.token))
    client._stub.Commit(pb.CommitRequest(session_id=client._session, token=transfer.token))


def test_who_reads_cannot_write(client: hostir.Client) -> None:
    """Not by the descriptor, nor by mapping it."""
    array = client.put(np.arange(1024))
    request = pb.DownloadRequest(session_id=client._session, handle=array._handle)
    shared = client._stub.Share(request)
    with descriptors(client, shared) as given:
        assert given is not None
        with pytest.raises(OSError):
            os.pwrite(given[0], b"x", 0)
        with pytest.raises(OSError):
            mmap.mmap(given[0], 8192, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        assert os.fstat(given[0]).st_mode & 0o777 == 0o600, "another user cannot open it again"
        with pytest.raises(Exception, match="release it"):
            client._stub.Commit(pb.CommitRequest(session_id=client._session, token=shared.token))
    assert np.array_equal(array.numpy(), np.arange(1024))


def test_a_kept_descriptor_keeps_no_memory(client: hostir.Client) -> None:
    transfer = reserve(client, 1 << 16)
    with descriptors(client, transfer) as given:
        assert given is not None
        os.pwrite(given[0], b"x" * (1 << 19), 0)
        assert os.fstat(given[0]).st_blocks >= 1 << 10
        client._stub.Release(pb.ReleaseRequest(session_id=client._session, token=transfer.token))
        assert becomes(lambda: os.fstat(given[0]).st_blocks, 0)
        with pytest.raises(OSError):
            os.ftruncate(given[0], 1 << 30)


def test_who_leaves_leaves_nothing(client: hostir.Client) -> None:
    """A process that is killed between reserving and committing."""
    before = client.status()["tensor_bytes"]
    code = (
        "import sys, hostir; from hostir.wire import service_pb2 as pb, tensor_pb2 as pb_tensor\n"
        f"client = hostir.connect({client.address!r})\n"
        "header = pb.UploadHeader(session_id=client._session, dtype=pb_tensor.DTYPE_INT64, shape=[1 << 20])\n"
        "client._stub.Reserve(pb.ReserveRequest(header=header)); print('reserved', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"reserved\n"
        assert client.status()["tensor_bytes"] == before + (8 << 20)
        process.kill()
    assert becomes(lambda: client.status()["tensor_bytes"], before)


def test_idle_transfers_end(daemon_program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTIR_TRANSFER_IDLE_MS", "200")
    with hostir.connect(devices="cpu:1", timeout=60) as client:
        array = client.put(np.arange(1 << 16))
        held = client.status()["tensor_bytes"]
        transfers = [reserve(client, 1 << 16) for _ in range(3)]
        request = pb.DownloadRequest(session_id=client._session, handle=array._handle)
        transfers.append(client._stub.Share(request))
        assert becomes(lambda: client.status()["tensor_bytes"], held)
        for transfer in transfers:
            with pytest.raises(Exception, match="transfer_idle_ms = 200"):
                client._stub.Release(pb.ReleaseRequest(session_id=client._session, token=transfer.token))
        assert np.array_equal(array.numpy(), np.arange(1 << 16)), "the tensor is still there"


def test_refusals(client: hostir.Client) -> None:
    """Too large, repeated, empty: each by name; nothing is charged."""
    before = client.status()["tensor_bytes"]
    with pytest.raises(Exception, match="tensor_bytes_max"):
        reserve(client, 1 << 50)
    with pytest.raises(Exception, match="no bytes"):
        reserve(client, 0)
    with pytest.raises(Exception, match="no session"):
        client._stub.Reserve(pb.ReserveRequest(header=pb.UploadHeader(dtype=pb_tensor.DTYPE_INT64, shape=[1])))
    with hostir.FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=hostir.DataType.Float)
        fd.add_output(fd.ops.neg(x))
    values = np.broadcast_to(np.ones((1, 700), np.float32), (700, 700))
    counts = counted(client)
    assert np.array_equal(client.put(values, x).numpy(), values), "stored in full, sent once: by stream"
    assert counts["Upload"] == 1
    assert client.status()["tensor_bytes"] >= before


def test_many_threads(client: hostir.Client, shares_all: None) -> None:
    """Transfers of one client at once."""
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in itertools.islice(itertools.count(), 10):
                values = np.full((64, 64), number * 100 + step)
                array = client.put(values, sharding=Sharding([0, 1], {0: "mesh_x"}))
                assert np.array_equal(array.numpy(), values)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def doubled(client: hostir.Client, array: hostir.Array) -> hostir.Array:
    with hostir.FusionDefinition("doubled") as fd:
        x = fd.define_tensor(shape=list(array.shape), contiguity=True, dtype=array.data_type)
        fd.add_output(x + x)
    (twice,) = client.run(fd, [array], wait=True)
    assert isinstance(twice, hostir.Array)
    return twice


def test_mapped_memory_is_the_arrays_own(client: hostir.Client) -> None:
    """What is written there runs read; a later array that gets the memory is known without asking."""
    array = client.put(np.arange(1000, dtype=np.float32))
    memory = client._map(array)
    assert memory is not None
    mapped = memory.view(np.float32)[:1000]
    assert np.array_equal(mapped, np.arange(1000))
    mapped[:] = 7
    twice = doubled(client, array)
    assert (array.numpy() == 7).all() and (twice.numpy() == 14).all()
    first, shares = twice._memory, counted(client)
    assert first and client._map(twice) is not None
    client.free(twice)
    again = doubled(client, array)
    assert again._memory == first and client._map(again) is not None
    assert shares["Share"] == 1, shares
    assert (memory_of(client, again)[:1000] == 14).all()


def memory_of(client: hostir.Client, array: hostir.Array) -> Any:
    memory = client._map(array)
    assert memory is not None
    return memory.view(array.dtype)


def test_only_who_made_an_array_may_write_there(client: hostir.Client) -> None:
    """Another session reads it; one on several devices, or without elements, is in no one memory."""
    array = client.put(np.ones(100, np.float32))
    client.publish(array, "shared")
    with hostir.connect(client.address) as other:
        attached = other.attach("shared")
        assert attached._memory == array._memory and other._map(attached) is None
        request = pb.DownloadRequest(session_id=other._session, handle=attached._handle, writable=True)
        with pytest.raises(hostir.PermissionDenied, match="not one that this session has made on CPU devices"):
            other._call(other._stub.Share, request)
    client.withdraw("shared")
    assert client._map(client.put(np.ones((4, 4)), sharding=Sharding([0, 1], {0: "mesh_x"}))) is None
    assert client._map(client.put(np.ones((0, 4)))) is None


def test_memory_that_another_session_has_seen_is_not_used_again(client: hostir.Client) -> None:
    """Its descriptor would show what the first session computes next."""
    with hostir.connect(client.address) as other:
        result = doubled(client, client.put(np.ones(5000, np.float32)))
        first = result._memory
        client.publish(result, "seen")
        attached = other.attach("seen")
        shared = other._stub.Share(pb.DownloadRequest(session_id=other._session, handle=attached._handle))
        with shared_memory.descriptors(other._transfers._path or "", shared.token, shared.shards) as given:
            assert given is not None
            view = np.frombuffer(mmap.mmap(given[0], 20000, mmap.MAP_SHARED, mmap.PROT_READ), np.float32)
            assert (view == 2).all()
            other._transfers._release(shared.token)
            other.free(attached)
            client.withdraw("seen")
            client.free(result)
            again = [doubled(client, client.put(np.full(5000, n, np.float32))) for n in (3.0, 4.0)]
            assert first not in [each._memory for each in again]
            assert not np.isin(view, [6, 8]).any()
