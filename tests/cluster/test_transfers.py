"""Elements between clients and the nodes that keep them: values, which way they go, and what becomes of them when a
node, a client or a head goes meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest

import hostir
from cluster import Cluster, certificates, networks, total
from etcd import Etcd
from eventually import becomes, eventually
from hostir import DataType, DeviceMesh, FusionDefinition, Sharding, private_daemon, wire
from hostir.nodes import Nodes, NotReached
from hostir.reach import Reach
from hostir.wire import service_pb2 as pb

ALL = [0, 1, 2, 3]
ROWS = Sharding(ALL, {0: "mesh_x"})
VALUES = np.random.default_rng(1).standard_normal((1024, 512)).astype(np.float32)  # 2 MiB.
LIMIT = 4 * VALUES.nbytes
LISTEN = {"insecure_tcp": True, "metrics": "tcp:127.0.0.1:0", "tensor_bytes_max": LIMIT}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two nodes of two devices, whose clients come by TCP."""
    made = Cluster(private_daemon.find_daemon(), tmp_path, listens=["tcp:127.0.0.1:0"] * 2, **LISTEN)
    yield made
    made.stop()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[hostir.Client]:
    with connect(cluster) as made:
        yield made


def connect(cluster: Cluster, **options: Any) -> hostir.Client:
    found = re.search(r"ready address=(\S+)", cluster.log(0))
    assert found is not None
    return hostir.connect(f"tcp:{found[1]}", timeout=30, **options)


def counted(cluster: Cluster, name: str) -> int:
    found = re.search(r"metrics address=(\S+)", cluster.log(0))
    assert found is not None
    with urllib.request.urlopen(f"http://{found[1]}/metrics", timeout=10) as answer:
        sample = re.search(rf"^hostir_{name}_total (\S+)$", answer.read().decode(), re.MULTILINE)
    assert sample is not None
    return int(float(sample[1]))


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in held]


def past_head(cluster: Cluster) -> tuple[int, int]:
    return counted(cluster, "uploaded_past_head_bytes"), counted(cluster, "downloaded_past_head_bytes")


def test_elements_go_to_the_nodes_that_keep_them(cluster: Cluster, client: hostir.Client) -> None:
    """Each node gets its own once, also where several devices there want the same."""
    grid = DeviceMesh([[0, 1], [2, 3]])
    up = down = 0
    for sharding, sent in [
        (ROWS, 1),
        (Sharding(ALL, {1: "mesh_x"}), 1),
        (Sharding(grid, {0: "mesh_y", 1: "mesh_x"}), 1),
        (Sharding(grid, {0: "mesh_y"}), 1),
        (Sharding(grid, {0: "mesh_x"}), 2),
        (Sharding(ALL), 2),
        (Sharding([2, 3], {0: "mesh_x"}), 1),
        (Sharding(ALL, {0: "mesh_x"}, dealt=[0]), 1),
    ]:
        array = client.put(VALUES, sharding=sharding)
        up += sent * VALUES.nbytes
        assert counted(cluster, "uploaded_past_head_bytes") == up
        np.testing.assert_array_equal(array.numpy(), VALUES)
        down += VALUES.nbytes if sent == 1 else 0  # Of copies the first is read, which the head has.
        assert counted(cluster, "downloaded_past_head_bytes") == down
        client.free(array)
    assert counted(cluster, "unreached_nodes") == 0
    assert client.status()["tensor_bytes"] == 0


@pytest.mark.parametrize("shape", [(1021, 257), (2, 100001), (3, 70001), (9, 70001), (270001,), (5, 1, 30001)])
def test_blocks_that_are_longer_than_their_elements(client: hostir.Client, cluster: Cluster, shape: Any) -> None:
    values = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    for axis in range(len(shape)):
        array = client.put(values, sharding=Sharding(ALL, {axis: "mesh_x"}))
        np.testing.assert_array_equal(array.numpy(), values)
    assert counted(cluster, "uploaded_past_head_bytes") > 0


def test_runs_read_what_was_put_and_clients_what_they_made(client: hostir.Client, cluster: Cluster) -> None:
    program = total(ALL)
    array = client.put(VALUES, program.fusion.inputs()[0])
    assert counted(cluster, "uploaded_past_head_bytes") == VALUES.nbytes
    (y,) = client.run(program, [array])
    np.testing.assert_allclose(y.numpy(), VALUES.sum(axis=0), rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(array.numpy(), VALUES)


def test_what_is_small_goes_by_the_head(client: hostir.Client, cluster: Cluster) -> None:
    small = VALUES[:8]
    np.testing.assert_array_equal(client.put(small, sharding=ROWS).numpy(), small)
    once = np.broadcast_to(np.arange(1 << 18, dtype=np.float32), (4, 1 << 18))  # One row in memory.
    np.testing.assert_array_equal(client.put(once, sharding=ROWS).numpy(), once)
    here = client.put(VALUES, sharding=Sharding([0, 1], {0: "mesh_x"}))  # All of it is the head's own.
    np.testing.assert_array_equal(here.numpy(), VALUES)
    assert past_head(cluster) == (0, 0)
    assert "error=" not in cluster.log(0).partition("ready address=")[2]  # It is no fault.


def test_a_node_that_is_not_reached(client: hostir.Client, cluster: Cluster) -> None:
    """Its elements go by the head, without an error; it is counted, and tried again only after a while."""
    made = client.put(VALUES, sharding=ROWS)
    client._nodes.close()
    listening = cluster.folder / "node1"
    listening.rename(cluster.folder / "elsewhere")  # The head's link goes on.
    before = past_head(cluster)
    np.testing.assert_array_equal(made.numpy(), VALUES)
    put = client.put(VALUES, sharding=ROWS)
    np.testing.assert_array_equal(put.numpy(), VALUES)
    assert past_head(cluster) == before
    assert counted(cluster, "unreached_nodes") >= 2
    assert re.search(
        r"reaches a node no longer: 2097152 bytes go by the head error=.*node1: UNAVAILABLE", cluster.log(0)
    )
    assert "not tried, since a moment ago" in cluster.log(0)
    (cluster.folder / "elsewhere").rename(listening)
    client._nodes._closed_to.clear()
    np.testing.assert_array_equal(made.numpy(), VALUES)
    assert past_head(cluster)[1] == before[1] + VALUES.nbytes
    client.free(made, put)
    assert client.status()["tensor_bytes"] == 0


def hit_in_the_middle(monkeypatch: pytest.MonkeyPatch, hit: Callable[[], None]) -> None:
    """``hit`` is called once, when a node has got a piece of a shard."""
    whole = wire.shard_methods
    hits = [hit]

    def methods(channel: Any) -> tuple[Any, Any]:
        write, read = whole(channel)

        def hit_write(pieces: Iterator[memoryview], **options: Any) -> grpc.Future:
            def cut() -> Iterator[memoryview]:
                for piece in pieces:
                    yield piece[: len(piece) // 2]
                    if hits:
                        hits.pop()()
                    yield piece[len(piece) // 2 :]

            return write.future(cut(), **options)

        return SimpleNamespace(future=hit_write), read

    monkeypatch.setattr(wire, "shard_methods", methods)


def test_a_node_that_dies_in_a_put(client: hostir.Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """As without: what was put is there, and runs that need the node are refused by its name until it is back."""
    hit_in_the_middle(monkeypatch, lambda: cluster.kill(1))
    program = total(ALL)
    array = client.put(VALUES, program.fusion.inputs()[0])
    np.testing.assert_array_equal(array.numpy(), VALUES)
    with pytest.raises(hostir.Unavailable, match="node 1"):
        client.run(program, [array], wait=True)
    cluster.start(1)
    cluster.ready(1)

    def goes() -> bool:
        try:
            (y,) = client.run(program, [array], wait=True)
        except hostir.Unavailable:
            return False
        np.testing.assert_allclose(y.numpy(), VALUES.sum(axis=0), rtol=1e-3, atol=1e-3)
        return True

    eventually(goes)
    client.free(array)
    eventually(lambda: client.status()["tensor_bytes"] == 0)


def test_a_node_that_dies_with_what_was_put(client: hostir.Client, cluster: Cluster) -> None:
    array = client.put(VALUES, sharding=ROWS)
    cluster.kill(1)
    with pytest.raises((hostir.DataLoss, hostir.Unavailable), match="node 1"):
        array.numpy()
    cluster.start(1)
    cluster.ready(1)

    def is_lost() -> bool:
        with pytest.raises((hostir.DataLoss, hostir.Unavailable)) as failed:
            array.numpy()
        return isinstance(failed.value, hostir.DataLoss) and "put it again" in str(failed.value)

    eventually(is_lost)
    again = client.put(VALUES, sharding=ROWS)
    np.testing.assert_array_equal(again.numpy(), VALUES)


def test_a_rank_that_dies_takes_nothing_that_was_put(client: hostir.Client, cluster: Cluster) -> None:
    array = client.put(VALUES, sharding=ROWS)
    generation = client.status()["generation"]
    os.kill(client.status()["devices"][3]["pid"], 9)
    eventually(lambda: client.status()["generation"] > generation and client.status()["serving"])
    (y,) = client.run(total(ALL), [array], wait=True)
    np.testing.assert_allclose(y.numpy(), VALUES.sum(axis=0), rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(array.numpy(), VALUES)


def test_a_run_that_fails_takes_nothing_that_was_put(tmp_path: Path) -> None:
    """Devices that have no room for what it holds in between; the mesh goes on."""
    cluster = Cluster(
        private_daemon.find_daemon(), tmp_path, listens=["tcp:127.0.0.1:0"] * 2, device_bytes_max=1 << 20, **LISTEN
    )
    mesh = DeviceMesh(ALL)
    with FusionDefinition("gathered") as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float)
        x.shard(mesh, {0: "mesh_x"})
        gathered = fd.ops.set(x)
        gathered.shard(mesh, {})
        y = fd.ops.sum(fd.ops.cos(gathered), dims=[0])
        y.shard(mesh, {})
        fd.add_output(y)
    try:
        with connect(cluster) as client:
            array = client.put(VALUES, sharding=ROWS)
            generation = client.status()["generation"]
            with pytest.raises(hostir.ResourceExhausted, match="device_bytes_max"):
                client.run(fd, [array], wait=True)
            assert client.status()["generation"] == generation
            np.testing.assert_array_equal(array.numpy(), VALUES)
            (z,) = client.run(total(ALL), [array], wait=True)
            np.testing.assert_allclose(z.numpy(), VALUES.sum(axis=0), rtol=1e-3, atol=1e-3)
    finally:
        cluster.stop()


def reserve(client: hostir.Client, shape: tuple[int, int] = VALUES.shape) -> Any:
    header = pb.UploadHeader(session_id=client._session, dtype=wire.dtype_number(hostir.DataType.Float))
    header.shape[:] = shape
    header.sharding.CopyFrom(wire.sharding_message(ROWS, 2))
    return client._stub.Reserve(pb.ReserveRequest(header=header, at_nodes=True))


def shown(ticket: str) -> dict[str, Any]:
    return {"metadata": (("hostir-ticket", ticket),), "timeout": 30}


def test_a_client_that_leaves_in_a_put_leaves_nothing(cluster: Cluster) -> None:
    """Neither at the head nor at nodes, which have room for four such tensors; and it writes no longer."""
    leaves = threading.Event()

    def some() -> Iterator[memoryview]:
        yield memoryview(bytes(1000))
        leaves.wait()

    for _ in range(4):
        with connect(cluster) as client, connect(cluster) as other:
            for _ in range(4):
                shard = reserve(client).shards[2]
                under_way = other._nodes._stub(shard.node)._write.future(some(), **shown(shard.ticket))
            client.close()
            with pytest.raises(grpc.RpcError) as failed:
                under_way.result()
            # The last is of one that came when all was over.
            ends = (grpc.StatusCode.CANCELLED, grpc.StatusCode.ABORTED, grpc.StatusCode.NOT_FOUND)
            assert failed.value.code() in ends
    leaves.set()
    with connect(cluster) as client:
        eventually(lambda: client.status()["tensor_bytes"] == 0)
        kept = [client.put(VALUES, sharding=ROWS) for _ in range(4)]
        for array in kept:
            np.testing.assert_array_equal(array.numpy(), VALUES)
        with pytest.raises(hostir.ResourceExhausted, match="tensor_bytes_max"):
            client.put(VALUES, sharding=ROWS)
    assert counted(cluster, "uploaded_past_head_bytes") == LIMIT


def test_tickets_serve_once_for_their_bytes(client: hostir.Client, cluster: Cluster) -> None:
    """By name, at the node: of another's shards, of more and of fewer bytes, used ones, and ones that are over."""

    def refused(call: Callable[[], Any], code: grpc.StatusCode, why: str) -> None:
        with pytest.raises(grpc.RpcError) as failed:
            call()
        assert failed.value.code() == code
        assert re.search(why, str(failed.value.details())), failed.value.details()

    reserved = reserve(client)
    block = memoryview(bytes(VALUES.nbytes // 4))
    stubs = [client._nodes._stub(shard.node) for shard in reserved.shards]
    tickets = [shard.ticket for shard in reserved.shards]
    gone = "it has been used, is over, or never was"
    for stub in (stubs[0], stubs[3]):  # The head's, and the other node's.
        refused(lambda: stub._write(iter([block]), **shown("f" * 32)), grpc.StatusCode.NOT_FOUND, gone)  # noqa: B023
        refused(lambda: stub._write(iter([block]), timeout=30), grpc.StatusCode.NOT_FOUND, gone)  # noqa: B023
    for stub, other in ((stubs[0], tickets[3]), (stubs[3], tickets[0])):
        refused(lambda: stub._write(iter([block]), **shown(other)), grpc.StatusCode.NOT_FOUND, gone)  # noqa: B023
    refused(
        lambda: list(stubs[3]._read(wire.shards_pb2.ReadRequest(), **shown(tickets[3]))),
        grpc.StatusCode.NOT_FOUND,
        gone,
    )
    more = "for 524288 bytes, and 524289 have come"
    refused(
        lambda: stubs[0]._write(iter([block, block[:1]]), **shown(tickets[0])), grpc.StatusCode.INVALID_ARGUMENT, more
    )
    fewer = "for 524288 bytes, of which 524287 came"
    refused(lambda: stubs[1]._write(iter([block[1:]]), **shown(tickets[1])), grpc.StatusCode.INVALID_ARGUMENT, fewer)
    receipts = [stubs[n]._write(iter([block]), **shown(tickets[n])).receipt for n in (2, 3)]
    assert all(len(receipt) == 32 for receipt in receipts)
    refused(lambda: stubs[3]._write(iter([block]), **shown(tickets[3])), grpc.StatusCode.NOT_FOUND, gone)
    commit = pb.CommitRequest(session_id=client._session, token=reserved.token, receipts=["", "", *receipts])
    refused(
        lambda: client._stub.Commit(commit), grpc.StatusCode.INVALID_ARGUMENT, r"shard 0 \(of device 0\) is not written"
    )

    reserved = reserve(client)
    client._stub.Release(pb.ReleaseRequest(session_id=client._session, token=reserved.token))
    late = client._nodes._stub(reserved.shards[3].node)
    ticket = reserved.shards[3].ticket

    def is_over() -> bool:
        try:
            late._write(iter([block[:1]]), **shown(ticket))
        except grpc.RpcError as error:
            return error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.ABORTED)
        return False

    eventually(is_over)
    assert becomes(lambda: client.status()["tensor_bytes"], 0)
    np.testing.assert_array_equal(client.put(VALUES, sharding=ROWS).numpy(), VALUES)


def test_a_node_that_is_full_while_a_run_is_under_way(client: hostir.Client, cluster: Cluster) -> None:
    """Nodes keep what was freed until the run is over; what is put meanwhile goes by the head."""
    held = client.put(VALUES, sharding=ROWS)
    client.run(total(ALL), [held], wait=True)
    pid = client.status()["devices"][3]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        (y,) = client.run(total(ALL), [held])
        for _ in range(2 * LIMIT // VALUES.nbytes):  # Of each, a node keeps half.
            array = client.put(VALUES, sharding=ROWS)
            np.testing.assert_array_equal(array.numpy(), VALUES)
            client.free(array)
        assert 0 < counted(cluster, "uploaded_past_head_bytes") <= LIMIT * 2
        put = client.put(VALUES, sharding=ROWS)
    finally:
        os.kill(pid, signal.SIGCONT)
    np.testing.assert_allclose(y.numpy(), VALUES.sum(axis=0), rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(put.numpy(), VALUES)


def test_a_client_with_many_transfers_leaves_tickets_to_others(client: hostir.Client, cluster: Cluster) -> None:
    """It has node_transfers_max; what is more goes by the head."""
    array = client.put(VALUES, sharding=ROWS)
    before = past_head(cluster)
    tokens = [reserve(client, (4, 4)).token for _ in range(64)]
    assert all(tokens) and not reserve(client, (4, 4)).token
    np.testing.assert_array_equal(array.numpy(), VALUES)
    client.put(VALUES, sharding=ROWS)
    assert past_head(cluster) == before
    with connect(cluster) as other:
        other.put(VALUES, sharding=ROWS)
        assert past_head(cluster)[0] == before[0] + VALUES.nbytes
    client._stub.Release(pb.ReleaseRequest(session_id=client._session, token=tokens[0]))
    eventually(lambda: bool(reserve(client, (4, 4)).token))
    assert counted(cluster, "unreached_nodes") == 0


def test_streams_that_do_not_go_on(cluster: Cluster) -> None:
    """A node has room for 256; elements of who comes later go by the head."""
    leaves = threading.Event()

    def some() -> Iterator[memoryview]:
        yield memoryview(bytes(1))
        leaves.wait()

    with contextlib.ExitStack() as stack:
        streams = []
        for _ in range(3):
            other = stack.enter_context(connect(cluster))
            for shard in [shard for _ in range(43) for shard in reserve(other, (4, 4)).shards[2:]]:
                write = other._nodes._stub(shard.node)._write
                streams.append(write.future(some(), **shown(shard.ticket)))
        eventually(lambda: sum(stream.done() for stream in streams) == len(streams) - 256)
        for refused in (stream for stream in streams if stream.done()):
            assert refused.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "as many as it may, 256" in refused.details()
        client = stack.enter_context(connect(cluster))
        array = client.put(VALUES, sharding=ROWS)
        np.testing.assert_array_equal(array.numpy(), VALUES)
        assert past_head(cluster) == (0, 0)
        for stream in streams:
            stream.cancel()
        leaves.set()

        def goes() -> bool:
            client.free(client.put(VALUES, sharding=ROWS))
            return past_head(cluster)[0] > 0

        eventually(goes)


class _Ended(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "it says so"


def test_where_one_node_is_not_reached_the_others_are_not_waited_for() -> None:
    """Calls that are under way are cancelled, later ones at once; the first cause is told."""
    nodes = Nodes(Reach(["tcp:127.0.0.1:1"], None, None, None, []), None, None, None)
    under_way = threading.Barrier(2)

    def move(shard: Any, stub: Any, calls: Any) -> None:
        ended = threading.Event()
        if shard.node == "tcp:127.0.0.1:3":
            under_way.wait(30)
            raise _Ended(grpc.StatusCode.UNAVAILABLE)
        calls.begin(SimpleNamespace(cancel=ended.set))
        if shard.node == "tcp:127.0.0.1:2":
            under_way.wait(30)
        assert ended.wait(30)
        raise _Ended(grpc.StatusCode.CANCELLED)

    shards = [SimpleNamespace(node=f"tcp:127.0.0.1:{port}") for port in (2, 3, 4)]
    with pytest.raises(NotReached, match=r"^tcp:127\.0\.0\.1:3: UNAVAILABLE: it says so$"):
        nodes._each(shards, move)
    with pytest.raises(
        NotReached, match=r"^tcp:127\.0\.0\.1:3: not tried, since a moment ago"
    ):  # And to none is written.
        nodes._each(shards, lambda *_: pytest.fail("a byte went"))
    nodes.close()


def test_messages_that_no_ticket_is_for(client: hostir.Client) -> None:
    """They are not read at all."""
    shard = reserve(client).shards[3]
    large = memoryview(bytes((64 << 20) + 1))
    with pytest.raises(grpc.RpcError, match="larger than max") as failed:
        client._nodes._stub(shard.node)._write(iter([large]), **shown(shard.ticket))
    assert failed.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_what_was_put_outlives_the_head(tmp_path: Path) -> None:
    """By etcd: no part of it was on the node that headed, and no run has used it."""
    tmp_path.chmod(0o700)
    etcd = Etcd(tmp_path)
    cluster = Cluster(
        private_daemon.find_daemon(),
        tmp_path,
        3,
        devices="cpu:1",
        etcd=etcd,
        listens=[f"tcp:127.0.0.1:{port}" for port in free_ports(3)],
        insecure_tcp=True,
    )
    try:
        with cluster.client() as client:
            put = client.put(VALUES, sharding=Sharding([1, 2], {0: "mesh_x"}))
            client.put(VALUES, sharding=Sharding([1, 2], {0: "mesh_x"}))  # Nodes hear of the first before they grant.
            cluster.kill(0)

            def there() -> bool:
                try:
                    np.testing.assert_array_equal(put.numpy(), VALUES)
                except hostir.Unavailable:
                    return False
                return True

            eventually(there)
            assert cluster.head() in (1, 2)
            again = client.put(VALUES, sharding=Sharding([1, 2], {0: "mesh_x"}))
            np.testing.assert_array_equal(again.numpy(), VALUES)
    finally:
        cluster.stop()
        etcd.stop()


MIB = 16


def test_by_tls_between_hosts(tmp_path: Path) -> None:
    """A client, the head and another node on hosts of their own: the head's link carries its own shards alone, unless
    the client has no route to the other node."""
    with networks(3) as made:
        hosts = [made.address(node).split(":")[1] for node in range(3)]
        keys = certificates(tmp_path / "keys", hosts)
        folder = tmp_path / "nodes"
        folder.mkdir()
        listens = [f"tcp:{host}:4710" for host in hosts[:2]]
        cluster = Cluster(private_daemon.find_daemon(), folder, networks=made, listens=listens, **keys)

        def transfer(way: str) -> tuple[dict[str, Any], float]:
            """What the client says, and MiB at the head's link."""
            command = [sys.executable, "-B", str(Path(__file__).parent / "transfer_client.py"), listens[0]]
            files = [str(tmp_path / "keys" / name) for name in ("ca.pem", "node.pem", "node.key")]
            before = made.bytes_received(0) + made.bytes_sent(0)
            told = subprocess.run(
                [*made.inside(2), *command, *files, f"--mib={MIB}", f"--way={way}"],
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert told.returncode == 0, told.stderr
            mib = (made.bytes_received(0) + made.bytes_sent(0) - before) / 2**20
            print(f"a put and a get of {MIB} MiB by the {way}: {mib:.1f} MiB at the head's link; {told.stdout.strip()}")
            return json.loads(told.stdout), mib

        try:
            said, mib = transfer("nodes")
            assert said["unreached"] == []
            assert mib < 1.1 * MIB  # Its half, in and out.
            _, mib = transfer("head")
            assert mib > 2 * MIB
            lost = ["neighbour", "replace", hosts[1], "lladdr", "02:00:00:00:00:01", "nud", "permanent", "dev", "eth0"]
            subprocess.run(["ip", "-n", made.names[2], *lost], check=True, timeout=30)  # Nobody answers, nor refuses.
            said, mib = transfer("nodes")
            assert f"tcp:{hosts[1]}:7001: UNAVAILABLE" in said["unreached"][0]
            assert said["put"][0] < 5  # One second, and the way by the head.
            assert mib > 2 * MIB
        finally:
            codes = cluster.stop()
        assert codes == [0, 0]
