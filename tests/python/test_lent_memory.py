"""Memory of GPUs that a client lends to its daemon, in which results lie, on fakes: ranks with memory of their own, and
a driver whose GPUs are the host's memory. The same on a GPU: tests/gpu/test_arrays.py."""

from __future__ import annotations

import gc
import os
import random
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hostir
import test_shared_memory
from fake_gpu import FakeDriver, FakeGpuArray
from hostir import DataType, FusionDefinition, Sharding, cuda, lent, shared_memory
from hostir.wire import service_pb2 as pb
from hostir.wire import tensor_pb2 as pb_tensor
from observed_daemon import ObservedDaemon, eventually

SEED = int(os.environ.get("HOSTIR_SEED", "28"))
BLOCK = 1 << 16  # Bytes that are lent at least; a grain of the fake's.


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    fake = FakeDriver(1)
    monkeypatch.setattr(cuda, "driver", lambda: fake)
    monkeypatch.setattr(lent, "_BLOCK_BYTES", BLOCK)
    yield fake
    gc.collect()
    assert not fake.held, "what nobody holds is freed"


@pytest.fixture(scope="module")
def observed(daemon_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedDaemon]:
    daemon = ObservedDaemon(
        daemon_program, tmp_path_factory.mktemp("lent"), devices="cpu:2", own_memory="true", heartbeat_ms=200
    )
    yield daemon
    daemon.stop()


@pytest.fixture
def client(observed: ObservedDaemon, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[hostir.Client]:
    """A client that takes the ranks' devices for GPU 0, and leaves nothing behind."""
    monkeypatch.setattr(hostir.Client, "_gpu_of", lambda client, device: 0)
    with hostir.Client(observed.address) as client:
        yield client
        gc.collect()
    with hostir.Client(observed.address) as after:
        eventually(lambda: after.status()["tensors"] == 0 and after.status()["tensor_bytes"] == 0)


def scaled(size: int, device: int = 0) -> FusionDefinition:
    with FusionDefinition("scaled") as fd:
        x = fd.define_tensor(shape=[size], contiguity=True, dtype=DataType.Float)
        y = fd.ops.mul(x, 2.0)
        fd.add_output(y)
        x.lay_out(Sharding([device]))
    return fd


def run(client: hostir.Client, fd: FusionDefinition, values: Any) -> hostir.Array:
    (result,) = client.run(fd, [values], wait=True)
    return result


def test_results_lie_in_memory_that_both_sides_see(client: hostir.Client, driver: FakeDriver) -> None:
    fd, values = scaled(100), np.arange(100, dtype=np.float32)
    first = run(client, fd, values)
    assert first._memory == 0
    assert client._map_on_gpu(first) is None, "it is copied; memory is lent for those that come"
    second = run(client, fd, values)
    assert len(driver.held) == 1
    view = client._map_on_gpu(second)
    assert view is not None
    assert np.array_equal(view.to_numpy(), 2 * values)
    assert np.array_equal(second.numpy(), 2 * values), "it is downloaded as any other"
    waits = driver.waits
    driver.copy(view.address, np.full(100, 7, np.float32).ctypes.data, 400)
    third = run(client, fd, second)
    assert driver.waits == waits + 1, "a run waits for what this process writes there"
    assert third.numpy().tolist() == [14.0] * 100
    again = client._map_on_gpu(third)
    assert again is not None
    assert again.address != view.address


def test_what_is_stored_once_is_seen_by_strides_of_0(client: hostir.Client) -> None:
    with FusionDefinition("row") as fd:
        x = fd.define_tensor(shape=[4], contiguity=True, dtype=DataType.Float)
        fd.add_output(fd.ops.expand(fd.ops.broadcast(x, [True, False]), [3, 4]))
        x.lay_out(Sharding([0]))
    values = np.arange(4, dtype=np.float32)
    made = run(client, fd, values)
    assert made._stored_once == (True, False)
    client._map_on_gpu(made)
    made = run(client, fd, values)
    view = client._map_on_gpu(made)
    assert view is not None
    assert (view.shape, view.strides, view.has_repeats) == ((3, 4), (0, 4), True)
    assert np.array_equal(view.to_numpy(), np.broadcast_to(values, (3, 4)))


def test_a_stride_order_is_seen_by_strides(client: hostir.Client) -> None:
    with FusionDefinition("ordered") as fd:
        x = fd.define_tensor(shape=[3, 4, 5], dtype=DataType.Float)
        row = fd.ops.sum(x, [0])
        fd.add_output(
            [
                fd.ops.stride_order(x * 2, [1, 2, 0]),
                fd.ops.stride_order(fd.ops.expand(fd.ops.broadcast(row, [True, False, False]), [3, 4, 5]), [2, 0, 1]),
            ]
        )
        x.lay_out(Sharding([0]))
    values = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    for _ in range(2):  # Memory is lent for those that come.
        made = client.run(fd, [values], wait=True)
        views = [client._map_on_gpu(each) for each in made]
    wide = np.broadcast_to(values.sum(0), (3, 4, 5))
    for view, want, strides in zip(views, [2 * values, wide], [(20, 60, 4), (0, 4, 16)], strict=True):
        assert view is not None
        assert (view.shape, view.strides) == (want.shape, strides)
        assert np.array_equal(view.to_numpy(), want)


def test_a_place_is_used_again_when_nobody_has_it(client: hostir.Client) -> None:
    fd, values = scaled(100), np.arange(100, dtype=np.float32)
    client._map_on_gpu(run(client, fd, values))
    view = client._map_on_gpu(run(client, fd, values))  # The array lives in the view.
    assert view is not None
    kept = run(client, fd, 3 * values)
    assert kept._memory_offset != 0
    assert np.array_equal(view.to_numpy(), 2 * values)
    address = view.address
    del view
    gc.collect()
    eventually(lambda: client.status()["tensors"] == 2)  # The block, and `kept`.
    new = client._map_on_gpu(run(client, fd, 5 * values))
    assert new is not None
    assert new.address == address
    assert np.array_equal(kept.numpy(), 6 * values)


def test_uploads_are_written_in_place(client: hostir.Client) -> None:
    fd, values = scaled(100), np.arange(100, dtype=np.float32)
    client._map_on_gpu(run(client, fd, values))
    counts = test_shared_memory.counted(client)
    wide = np.zeros((100, 3), np.float32)
    wide[:, 1] = values
    run(client, fd, values)
    before = dict(counts)
    put = client.put(FakeGpuArray(wide[:, 1]), next(iter(fd._inputs)))
    assert (counts["Reserve"] - before["Reserve"], counts["Upload"]) == (1, before["Upload"])
    assert put._memory != 0
    assert np.array_equal(put.numpy(), values)
    assert np.array_equal(run(client, fd, put).numpy(), 2 * values)


def test_more_is_lent_when_it_is_full(client: hostir.Client, driver: FakeDriver) -> None:
    fd, values = scaled(BLOCK // 8), np.arange(BLOCK // 8, dtype=np.float32)  # Half a block each.
    held = [run(client, fd, values * k) for k in range(5)]
    for array in held:
        client._map_on_gpu(array)
    held += [run(client, fd, values * k) for k in range(5, 12)]
    blocks = [memory._mapped.size() for memory in driver.held]
    assert blocks == [5 * BLOCK], "twice as much as there was no place for"
    assert [array._memory != 0 for array in held] == [False] * 5 + [True] * 7
    held += [run(client, fd, values * k) for k in range(12, 20)]
    client._map_on_gpu(held[-1])
    held.append(run(client, fd, values * 20))
    blocks = [memory._mapped.size() for memory in driver.held]
    assert blocks == [5 * BLOCK, 5 * BLOCK], "and then as much as all before"
    for k, array in enumerate(held):
        assert np.array_equal(array.numpy(), 2 * k * values)


def test_a_gpu_that_has_none_to_lend(client: hostir.Client, driver: FakeDriver) -> None:
    fd, values = scaled(100), np.arange(100, dtype=np.float32)
    driver.is_full = True
    assert client._map_on_gpu(run(client, fd, values)) is None
    counts = test_shared_memory.counted(client)
    for _ in range(3):
        result = run(client, fd, values)
        assert client._map_on_gpu(result) is None
    assert counts["Reserve"] == 1, "nobody asks again"
    assert np.array_equal(result.numpy(), 2 * values)


def test_each_device_has_its_own(client: hostir.Client, driver: FakeDriver) -> None:
    values = np.arange(100, dtype=np.float32)
    for device in range(2):
        fd = scaled(100, device)
        client._map_on_gpu(run(client, fd, values))
        view = client._map_on_gpu(run(client, fd, values))
        assert view is not None
        assert np.array_equal(view.to_numpy(), 2 * values)
    assert len(driver.held) == 2
    run(client, fd, values)
    split = client.put(values, sharding=Sharding([0, 1], {0: "mesh_x"}))
    assert client._map_on_gpu(split) is None
    assert len(driver.held) == 2, "it is no place for a part of a tensor"


def test_another_session_reads_what_lies_there(client: hostir.Client, observed: ObservedDaemon) -> None:
    fd, values = scaled(100), np.arange(100, dtype=np.float32)
    client._map_on_gpu(run(client, fd, values))
    result = run(client, fd, values)
    client.publish(result, "lent")
    with hostir.Client(observed.address) as other:
        found = other.attach("lent")
        assert np.array_equal(found.numpy(), 2 * values)
        assert np.array_equal(run(other, fd, found).numpy(), 4 * values)
        assert other._map_on_gpu(found) is None
        assert run(other, fd, found)._memory == 0, "nobody's results lie in another session's memory"
    client.withdraw("lent")


def test_the_memory_outlives_its_session(observed: ObservedDaemon, driver: FakeDriver, client: hostir.Client) -> None:
    fd, values = scaled(100), np.arange(100, dtype=np.float32)
    with hostir.Client(observed.address) as other:
        other._map_on_gpu(run(other, fd, values))
        view = other._map_on_gpu(run(other, fd, values))
    assert view is not None
    gc.collect()
    assert np.array_equal(view.to_numpy(), 2 * values)
    assert len(driver.held) == 1


def test_a_rank_that_died(client: hostir.Client, observed: ObservedDaemon, driver: FakeDriver) -> None:
    fd, values = scaled(100), np.arange(100, dtype=np.float32)
    client._map_on_gpu(run(client, fd, values))
    result = run(client, fd, values)
    view = client._map_on_gpu(result)
    assert view is not None
    generation = client.status()["generation"]
    os.kill(client.status()["devices"][0]["pid"], signal.SIGKILL)
    eventually(lambda: client.status()["generation"] > generation and client.status()["serving"])
    assert result.state == "lost"
    assert np.array_equal(view.to_numpy(), 2 * values), "the memory is the client's"
    after = run(client, fd, values)
    assert after._memory == 0, "the new rank has none of it"
    assert np.array_equal(after.numpy(), 2 * values)
    assert client._map_on_gpu(after) is None
    assert client._map_on_gpu(run(client, fd, values)) is not None


def test_only_one_shard_is_lent(client: hostir.Client, driver: FakeDriver) -> None:
    header = pb.UploadHeader(session_id=client._session, dtype=pb_tensor.DTYPE_BOOL, shape=[BLOCK])
    header.sharding.CopyFrom(hostir.wire.sharding_message(Sharding([0, 1], {0: "mesh_x"}), 1))
    lend = pb.ReserveRequest(header=header, on_devices=True, lend=True)
    with pytest.raises(hostir.FailedPrecondition, match=r"cannot be lent: it is not whole on one GPU"):
        client._call(client._stub.Reserve, lend)
    header.sharding.CopyFrom(hostir.wire.sharding_message(Sharding([0]), 1))
    lend.header.CopyFrom(header)
    reserved = client._call(client._stub.Reserve, lend)
    with pytest.raises(hostir.FailedPrecondition, match="no memory has been offered"):
        client._call(client._stub.Commit, pb.CommitRequest(session_id=client._session, token=reserved.token))
    reserved = client._call(client._stub.Reserve, lend)
    small = os.memfd_create("small")
    assert shared_memory.offer(client._transfers._path, reserved.token, [small])
    os.close(small)
    with pytest.raises(hostir.InvalidArgument, match=f"shared memory of 0 bytes, expected {BLOCK}"):
        client._call(client._stub.Commit, pb.CommitRequest(session_id=client._session, token=reserved.token))


def test_random_lives(client: hostir.Client) -> None:
    """Arrays of random sizes that come and go: each has its values as long as it lives."""
    print(f"HOSTIR_SEED={SEED}")
    random_ = random.Random(SEED)
    sizes = [1, 3, 127, 128, 129, 1000, 5000]
    programs = {size: scaled(size) for size in sizes}
    alive: list[tuple[hostir.Array, Any, np.ndarray[Any, Any]]] = []
    mapped = 0
    for step in range(300):
        size = random_.choice(sizes)
        values = np.full(size, step, np.float32)
        source: Any = values if random_.random() < 0.5 else FakeGpuArray(values)
        result = run(client, programs[size], source)
        view = client._map_on_gpu(result) if random_.random() < 0.7 else None
        mapped += view is not None
        alive.append((result, view, 2 * values))
        while len(alive) > random_.randrange(1, 40):
            alive.pop(random_.randrange(len(alive)))
        result, view, expected = random_.choice(alive)
        assert np.array_equal(result.numpy() if view is None else view.to_numpy(), expected), f"step {step}"
    assert mapped > 150


def test_what_comes_by_the_host_asks_for_none(client: hostir.Client, driver: FakeDriver) -> None:
    """Each step of an optimizer that is not compiled puts parameters anew."""
    fd, values = scaled(100), np.arange(100, dtype=np.float32)
    for _ in range(10):
        put = client.put(values, next(iter(fd._inputs)))
        assert client._map_on_gpu(put) is None
        run(client, fd, put)
    assert not driver.held


def test_memory_that_ranks_have_lost_goes_back(client: hostir.Client, driver: FakeDriver) -> None:
    fd, values = scaled(100), np.arange(100, dtype=np.float32)
    for death in range(4):
        client._map_on_gpu(run(client, fd, values))
        assert client._map_on_gpu(run(client, fd, values)) is not None
        gc.collect()
        assert len(driver.held) == 1, f"after {death} deaths"
        generation = client.status()["generation"]
        os.kill(client.status()["devices"][0]["pid"], signal.SIGKILL)
        eventually(lambda before=generation: client.status()["generation"] > before and client.status()["serving"])
    client._map_on_gpu(run(client, fd, values))
    run(client, fd, values)
    gc.collect()
    run(client, fd, values)
    eventually(lambda: client.status()["tensor_bytes"] <= BLOCK + 400)


def test_a_device_that_took_none_is_asked_later(
    client: hostir.Client, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    fd, values = scaled(100), np.arange(100, dtype=np.float32)
    driver.is_full = True
    client._map_on_gpu(run(client, fd, values))
    client._map_on_gpu(run(client, fd, values))
    driver.is_full = False
    run(client, fd, values)
    assert not driver.held, "a minute is not over"
    monkeypatch.setattr(lent, "_REFUSED_SECONDS", 0.0)
    client._map_on_gpu(run(client, fd, values))
    assert client._map_on_gpu(run(client, fd, values)) is not None
