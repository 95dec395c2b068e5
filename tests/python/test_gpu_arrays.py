"""Arrays on GPUs in and out, past the host, on fakes: ranks with memory of their own, and a driver whose GPUs are the
host's memory. The same on GPUs: tests/gpu/test_arrays.py."""

from __future__ import annotations

import gc
import os
import random
import signal
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hostir
import test_shared_memory
from fake_gpu import FakeDriver, FakeGpuArray, elements_of
from hostir import DataType, FusionDefinition, Sharding, cuda, gpu_array, shared_memory
from hostir.gpu_array import CudaArray
from hostir.wire import service_pb2 as pb
from hostir.wire import tensor_pb2 as pb_tensor
from observed_daemon import ObservedDaemon, eventually

SEED = int(os.environ.get("HOSTIR_SEED", "28"))
ROWS = Sharding([0, 1, 2, 3], {0: "mesh_x"})


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    fake = FakeDriver()
    monkeypatch.setattr(cuda, "driver", lambda: fake)
    yield fake
    gc.collect()
    assert not fake.held, "what nobody holds is freed"


@pytest.fixture(scope="module")
def observed(daemon_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedDaemon]:
    daemon = ObservedDaemon(
        daemon_program, tmp_path_factory.mktemp("gpu"), devices="cpu:4", own_memory="true", heartbeat_ms=200
    )
    yield daemon
    daemon.stop()


@pytest.fixture
def client(observed: ObservedDaemon, driver: FakeDriver) -> Iterator[hostir.Client]:
    """A client of ranks with memory of their own, that leaves nothing behind."""
    with hostir.Client(observed.address) as client:
        yield client
        gc.collect()
    with hostir.Client(observed.address) as after:
        eventually(lambda: after.status()["tensors"] == 0 and after.status()["tensor_bytes"] == 0)


def a_view(random_: random.Random, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same elements, with strides of some kind."""
    kind = random_.randrange(4)
    if kind == 0 or values.ndim == 0:
        return values.copy()
    if kind == 1:
        return np.asfortranarray(values)
    wide = np.zeros([2 * n + 1 for n in values.shape], values.dtype)
    inside = wide[tuple(slice(1, 2 * n + 1, 2) if kind == 2 else slice(1, n + 1) for n in values.shape)]
    inside[...] = values
    return inside


def test_random_arrays_go_in_and_out(client: hostir.Client) -> None:
    print(f"HOSTIR_SEED={SEED}")
    random_ = random.Random(SEED)
    numbers = np.random.default_rng(SEED)
    counts = test_shared_memory.counted(client)
    past_host = 0
    for case in range(100):
        shape = tuple(random_.choice([1, 2, 3, 4, 5, 8, 12, 17]) for _ in range(random_.randrange(4)))
        dtype = np.dtype(random_.choice(test_shared_memory.DTYPES))
        values = numbers.integers(0, 2 if dtype == np.bool_ else 100, shape).astype(dtype)
        sharding = test_shared_memory.a_sharding(random_, shape)
        source = FakeGpuArray(a_view(random_, values), ordinal=random_.randrange(2))
        what = f"case {case}: {dtype} {shape} {source._values.strides} {sharding}"
        before = dict(counts)
        array = client.put(source, sharding=sharding)
        past_host += counts["Upload"] == before["Upload"]
        assert source.streams == [1], "it was asked to be ready on the default stream"
        assert np.array_equal(elements_of(array.cuda(1)), values), what
        assert np.array_equal(array.numpy(), values), what
        for (rank, slices, part), (there, wanted, other) in zip(array.cuda_shards(), array.shards, strict=True):
            assert (rank, slices) == (there, wanted), what
            assert np.array_equal(elements_of(part), other), what
    assert past_host > 60 and counts["Reserve"] == 100


def test_a_program_takes_and_gives_them(client: hostir.Client) -> None:
    with FusionDefinition("twice") as fd:
        x = fd.define_tensor(shape=[-1, 8], contiguity=True, dtype=DataType.Float)
        y = fd.ops.add(x, x)
        fd.add_output(y)
        x.shard([0, 1, 2, 3], {0: "mesh_x"})
    values = np.arange(80, dtype=np.float32).reshape(10, 8)  # Blocks of 3: the last has one row.
    (result,) = client.run(fd, [FakeGpuArray(values.T.copy().T)])
    assert np.array_equal(elements_of(result.cuda()), values * 2)
    (as_float,) = client.run(fd, [FakeGpuArray(values.astype(np.float16))])  # Converted: on the host.
    assert np.array_equal(as_float.numpy(), values * 2)
    again = client.put(result.cuda(), sharding=ROWS)
    assert np.array_equal(again.numpy(), values * 2)
    assert again.cuda().numpy().dtype == np.float32
    assert result.cuda().__cuda_array_interface__["typestr"] == "<f4"


@pytest.mark.parametrize("ranks", [1, 4])
def test_they_lie_as_their_stride_order_says(client: hostir.Client, ranks: int) -> None:
    with FusionDefinition("ordered") as fd:
        x = fd.define_tensor(shape=[-1, -1, -1], stride_order=[1, 2, 0])
        fd.add_output(fd.ops.stride_order(x * 2, [0, 1, 2]))
        x.shard(list(range(ranks)), {0: "mesh_x"})
    counts, random_ = test_shared_memory.counted(client), random.Random(SEED)
    values = np.arange(4 * 5 * 6, dtype=np.float32).reshape(4, 5, 6)
    for _ in range(6):
        given = FakeGpuArray(a_view(random_, values))
        placed = client.put(given, x)
        (result,) = client.run(fd, [placed])
        for array, want, axes in [(placed, values, (1, 0, 2)), (result, 2 * values, (2, 1, 0))]:
            on_gpu = array.cuda()
            assert np.array_equal(elements_of(on_gpu), want)
            assert np.array_equal(array.numpy(), want)
            assert [on_gpu.view.strides[axis] for axis in axes] == sorted(on_gpu.view.strides, reverse=True)
            for (_, slices, part), (_, other, own) in zip(array.cuda_shards(), array.shards, strict=True):
                assert slices == other
                assert np.array_equal(elements_of(part), own)
                assert np.array_equal(own, want[slices])
    assert counts["Upload"] == 0, "none of it passed the host"


def test_repeated_elements_are_sent_once(client: hostir.Client) -> None:
    values = np.broadcast_to(np.arange(5, dtype=np.float32), (64, 5))
    array = client.put(FakeGpuArray(values), sharding=ROWS)
    assert np.array_equal(array.numpy(), values)
    assert client.status()["tensor_bytes"] == 4 * 5 * 4, "an element of the axis on each device"
    assert np.array_equal(elements_of(array.cuda()), values)


def test_results_outlive_their_client(observed: ObservedDaemon, driver: FakeDriver) -> None:
    with hostir.Client(observed.address) as client:
        result = client.put(FakeGpuArray(np.arange(6, dtype=np.float64)), sharding=ROWS).cuda()
        capsule = result.__dlpack__()
    assert result.numpy().tolist() == [0, 1, 2, 3, 4, 5]
    assert len(driver.held) == 1
    del result
    gc.collect()
    assert len(driver.held) == 1, "the capsule has it"
    del capsule
    assert not driver.held
    with pytest.raises(ValueError, match="this one"):
        _fails_with(CudaArray(gpu_array.from_numpy(np.zeros(3, np.float32), 0)).__dlpack__())
    assert not driver.held, "and an error that was under way is the one that is heard of"


def _fails_with(capsule: Any) -> None:
    raise ValueError("this one")


def test_ranks_on_the_hosts_memory(daemon_program: str, driver: FakeDriver) -> None:
    """All goes by the host there, and nobody sees it."""
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    with hostir.connect(devices="cpu:2", timeout=60) as client:
        array = client.put(FakeGpuArray(values), sharding=Sharding([0, 1], {1: "mesh_x"}))
        assert np.array_equal(elements_of(array.cuda()), values)
        assert np.array_equal(
            client.from_shards([FakeGpuArray(values[:2]), values[2:]], Sharding([0, 1], {0: "mesh_x"})), values
        )
        assert array.__dlpack_device__() == (1, 0), "these ranks are no GPUs"
        assert np.array_equal(np.from_dlpack(array), values)


def test_a_gpu_without_memory(client: hostir.Client, driver: FakeDriver) -> None:
    """Elements go in by the host then; for what comes out there is no room."""
    values = np.arange(8, dtype=np.float32)
    driver.is_full = True
    counts = test_shared_memory.counted(client)
    array = client.put(FakeGpuArray(values), sharding=ROWS)
    assert np.array_equal(array.numpy(), values)
    assert (counts["Reserve"], counts["Upload"]) == (1, 1)
    with pytest.raises(hostir.ResourceExhausted, match="GPU 0 has no"):
        array.cuda(0)
    driver.is_full = False
    assert np.array_equal(elements_of(array.cuda(0)), values)


def test_without_a_gpu(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "driver", lambda: None)
    with pytest.raises(hostir.FailedPrecondition, match="this process sees no GPU: use numpy"):
        client.put(np.zeros(3, np.float32)).cuda()


def test_memory_that_is_none_is_refused(client: hostir.Client, driver: FakeDriver) -> None:
    """It may be taken away while a rank reads it; or is too small; or no memory."""
    values = np.arange(8, dtype=np.float32)
    driver.seals = False
    counts = test_shared_memory.counted(client)
    array = client.put(FakeGpuArray(values), sharding=ROWS)  # By the host then.
    assert np.array_equal(array.numpy(), values)
    assert counts["Reserve"] == 1
    driver.seals = True
    header = pb.UploadHeader(session_id=client._session, dtype=pb_tensor.DTYPE_FLOAT32, shape=[1 << 20])
    for make, why in (
        (lambda: os.memfd_create("small"), r"shared memory of 0 bytes, expected 4194304"),
        (lambda: os.open("/dev/null", os.O_RDWR), r"shared memory of 0 bytes"),
        (lambda: os.eventfd(0), r"shared memory of 0 bytes"),
    ):
        reserved = client._call(client._stub.Reserve, pb.ReserveRequest(header=header, on_devices=True))
        commit = pb.CommitRequest(session_id=client._session, token=reserved.token)
        descriptor = make()
        assert not shared_memory.offer(client._transfers._path, reserved.token, [descriptor] * 2), "there is one shard"
        assert shared_memory.offer(client._transfers._path, reserved.token, [descriptor])
        os.close(descriptor)
        with pytest.raises(hostir.InvalidArgument, match=why):
            client._call(client._stub.Commit, commit)
        with pytest.raises(hostir.NotFound):
            client._call(client._stub.Commit, commit)
    reserved = client._call(client._stub.Reserve, pb.ReserveRequest(header=header, on_devices=True))
    with pytest.raises(hostir.FailedPrecondition, match="no memory has been offered"):
        client._call(client._stub.Commit, pb.CommitRequest(session_id=client._session, token=reserved.token))
    assert np.array_equal(client.put(FakeGpuArray(values), sharding=ROWS).numpy(), values)


def test_a_rank_that_died(client: hostir.Client, observed: ObservedDaemon) -> None:
    array = client.put(FakeGpuArray(np.arange(8, dtype=np.float32)), sharding=ROWS)
    generation = client.status()["generation"]
    os.kill(client.status()["devices"][3]["pid"], signal.SIGKILL)
    eventually(lambda: client.status()["generation"] > generation and client.status()["serving"])
    with pytest.raises(hostir.DataLoss, match="its memory was on the devices"):
        array.cuda()
    again = client.put(FakeGpuArray(np.arange(8, dtype=np.float32)), sharding=ROWS)
    assert elements_of(again.cuda()).tolist() == list(range(8))


def test_rows_copy_what_numpy_does() -> None:
    print(f"HOSTIR_SEED={SEED}")
    random_ = random.Random(SEED)
    for _ in range(300):
        shape = [random_.choice([0, 1, 2, 3, 5]) for _ in range(random_.randrange(5))]
        values = np.random.default_rng(random_.randrange(1 << 30)).integers(0, 100, shape).astype(ml_dtypes.bfloat16)
        source = a_view(random_, values)
        target = a_view(random_, np.zeros_like(values))
        number = 0
        for row in gpu_array.rows(shape, target.strides, source.strides, values.itemsize):
            addresses = (target.ctypes.data + row[0], source.ctypes.data + row[1])
            FakeDriver().copy(*addresses, *row[2:])
            number += 1
        assert np.array_equal(target, values)
        if source.flags.c_contiguous and target.flags.c_contiguous:
            assert number <= 1
