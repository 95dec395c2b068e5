"""Nodes, heads and ranks that die, stop or are cut off: what is said, how soon, what is kept, and that the next run is
right."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

import hostir
from cluster import Cluster, certificates, networks
from cluster import total as total_at
from eventually import eventually
from hostir import DataType, DeviceMesh, FusionDefinition, private_daemon

MESH = DeviceMesh([0, 1, 2, 3])
LEASE = 5.0  # Seconds until a link that says nothing is lost.


def total(rows: int = 1) -> FusionDefinition:
    """The sum over a tensor whose rows are split over both nodes, ``rows`` times over."""
    with FusionDefinition("total") as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float)
        x.shard(MESH, {0: "mesh_x"})
        y = fd.ops.sum(x, dims=[0])
        for _ in range(rows):
            y = fd.ops.add(fd.ops.cos(y), 1.0)
        y.shard(MESH, {})
        fd.add_output(y)
    return fd


VALUES = np.arange(64, dtype=np.float32).reshape(8, 8)
WANT = np.cos(VALUES.sum(axis=0)) + 1


class Work:
    """A client, and a program that needs both nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self.client = cluster.client()
        self.program = total()
        self.put()

    def put(self) -> None:
        self.input = self.client.put(VALUES, self.program.fusion.inputs()[0])

    def run(self) -> None:
        (self.output,) = self.client.run(self.program, [self.input], wait=True)  # Kept: nothing is released at rest.
        np.testing.assert_allclose(self.output.numpy(), WANT, rtol=1e-5)

    def fails(self, seconds: float) -> hostir.HostirError:
        """How the next run fails, within that time."""
        began = time.monotonic()
        with pytest.raises(hostir.HostirError) as failed:
            self.run()
        assert time.monotonic() - began < seconds, failed.value
        return failed.value

    def heals(self, seconds: float = 10.0) -> None:
        """The next run is right, within that time."""

        def is_right() -> bool:
            try:
                self.run()
            except hostir.Unavailable:
                return False
            return True

        eventually(is_right, seconds)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "nodes"
    folder.mkdir()
    made = Cluster(private_daemon.find_daemon(), folder, comm_timeout_ms=6000)
    yield made
    made.stop()


@pytest.fixture
def work(cluster: Cluster) -> Iterator[Work]:
    made = Work(cluster)
    made.run()
    yield made
    made.client.close()


def rank_pid(client: hostir.Client, rank: int) -> int:
    return int(client.status()["devices"][rank]["pid"])


@pytest.mark.parametrize("rank", [0, 3])
def test_a_rank_dies_at_rest(work: Work, rank: int) -> None:
    os.kill(rank_pid(work.client, rank), signal.SIGKILL)
    work.heals(2.0)  # With the tensor of before: the nodes kept it.


def test_a_rank_stops_in_a_run(work: Work) -> None:
    pid = rank_pid(work.client, 3)
    os.kill(pid, signal.SIGSTOP)
    error = work.fails(6.0 + 2.0)
    assert "comm_timeout_ms = 6000" in str(error) or "heartbeat_ms" in str(error)
    work.heals()


def test_a_rank_that_stops_at_rest_is_noticed(work: Work) -> None:
    pid = rank_pid(work.client, 2)
    generation = work.client.status()["generation"]
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: work.client.status()["generation"] > generation)
    work.heals()


def dies(cluster: Cluster) -> Callable[[], None]:
    cluster.kill(1)

    def comes_back() -> None:
        cluster.start(1)
        cluster.ready(1)

    return comes_back


def stops(cluster: Cluster) -> Callable[[], None]:
    cluster.signal(1, signal.SIGSTOP)
    return lambda: cluster.signal(1, signal.SIGCONT)


def test_a_node_dies_at_rest(cluster: Cluster, work: Work) -> None:
    comes_back = dies(cluster)
    error = work.fails(2.0)
    assert isinstance(error, hostir.Unavailable) and "node 1 (" in str(error)
    began = time.monotonic()
    comes_back()
    with pytest.raises(hostir.DataLoss, match="put it again"):
        work.heals()
    work.put()
    work.run()
    assert time.monotonic() - began < 10


def test_a_node_stops_and_goes_on(cluster: Cluster, work: Work) -> None:
    comes_back = stops(cluster)
    error = work.fails(LEASE + 2.0)
    assert isinstance(error, hostir.Unavailable) and "node 1 (" in str(error) and "is lost" in str(error)
    comes_back()
    work.heals()  # With the tensor of before.


def test_a_node_dies_in_a_run(cluster: Cluster, work: Work) -> None:
    long = total(rows=200)
    values = np.ones((1024, 1 << 12), np.float32)
    big = work.client.put(values, long.fusion.inputs()[0])
    work.client.run(long, [big], wait=True)
    outputs = [work.client.run(long, [big])[0] for _ in range(50)]
    comes_back = dies(cluster)
    failed = 0
    for output in outputs:
        try:
            output.wait()
        except hostir.HostirError as error:
            failed += 1
            assert "node 1" in str(error)
    print(f"{failed} of {len(outputs)} runs failed")
    comes_back()
    with pytest.raises(hostir.DataLoss):
        work.heals()
    work.put()
    work.run()


def test_a_node_dies_in_transfers(cluster: Cluster, work: Work) -> None:
    values = np.ones((64, 1 << 18), np.float32)
    big = work.client.put(values, work.program.fusion.inputs()[0])
    comes_back = dies(cluster)
    with pytest.raises(hostir.HostirError, match="node 1"):
        work.client.run(work.program, [big], wait=True)[0].numpy()
    comes_back()
    eventually(lambda: work.client.status()["serving"])
    big = work.client.put(values, work.program.fusion.inputs()[0])
    np.testing.assert_array_equal(big.numpy(), values)
    os.kill(rank_pid(work.client, 3), signal.SIGKILL)
    eventually(lambda: has(big, values))


def has(array: hostir.Array, values: np.ndarray) -> bool:
    """Whether the mesh serves; then the array's values are these."""
    try:
        np.testing.assert_array_equal(array.numpy(), values)
    except hostir.Unavailable:
        return False
    return True


def test_the_head_dies(cluster: Cluster, work: Work) -> None:
    cluster.kill(0)
    with pytest.raises(hostir.Unavailable):
        work.run()
    assert eventually(lambda: "has gone" in cluster.log(1))
    cluster.start(0)
    cluster.ready(0)
    anew = Work(cluster)
    anew.run()
    anew.client.close()


def test_the_head_stops_and_goes_on(cluster: Cluster, work: Work) -> None:
    cluster.signal(0, signal.SIGSTOP)
    assert eventually(lambda: "has gone" in cluster.log(1))  # It has ended its ranks.
    cluster.signal(0, signal.SIGCONT)
    work.heals()


def test_both_die(cluster: Cluster, work: Work) -> None:
    for node in range(2):
        cluster.kill(node)
    for node in range(2):
        cluster.start(node)
    for node in range(2):
        cluster.ready(node)
    anew = Work(cluster)
    anew.run()
    anew.client.close()


def test_what_is_freed_leaves_nothing(cluster: Cluster, work: Work) -> None:
    """Also of tensors that outlived their ranks."""
    process = cluster.processes[1]
    assert process is not None
    fds = Path(f"/proc/{process.pid}/fd")

    def shards() -> int:
        return sum("memfd" in os.readlink(path) for path in list(fds.iterdir()) if path.exists())

    before = shards()
    arrays = [work.client.put(VALUES + i, work.program.fusion.inputs()[0]) for i in range(20)]
    for array in arrays:
        work.client.run(work.program, [array], wait=True)
    assert shards() >= before + 40
    os.kill(rank_pid(work.client, 2), signal.SIGKILL)
    work.heals()
    work.client.free(*arrays)
    del arrays, array
    eventually(lambda: work.run() is None and shards() <= before + 8)


def test_what_is_freed_while_a_node_is_away_goes_too(cluster: Cluster, work: Work) -> None:
    process = cluster.processes[1]
    assert process is not None
    fds = Path(f"/proc/{process.pid}/fd")

    def shards() -> int:
        return sum("memfd" in os.readlink(path) for path in list(fds.iterdir()) if path.exists())

    before = shards()
    arrays = [work.client.put(VALUES + i, work.program.fusion.inputs()[0]) for i in range(20)]
    for array in arrays:
        work.client.run(work.program, [array], wait=True)
    comes_back = stops(cluster)
    work.fails(LEASE + 2.0)
    work.client.free(*arrays)
    del arrays, array
    comes_back()
    work.heals()
    eventually(lambda: work.run() is None and shards() <= before + 8)


def test_nobody_else_reaches_a_node(cluster: Cluster) -> None:
    """Who can give a node orders can have it run code: its socket is in a folder that is its user's alone, or none."""
    folder = cluster.folder / "open"
    folder.mkdir()
    folder.chmod(0o755)
    nodes = f"--nodes=unix:{folder}/0,unix:{folder}/1"
    command = [private_daemon.find_daemon(), nodes, "--node=1", f"--listen=unix:{cluster.folder}/other"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "this user's alone" in done.stdout + done.stderr


def test_a_partition(tmp_path: Path) -> None:
    with networks(2) as made:
        folder = tmp_path / "nodes"
        folder.mkdir()
        keys = certificates(tmp_path / "keys", [made.address(node).split(":")[1] for node in range(2)])
        cluster = Cluster(private_daemon.find_daemon(), folder, networks=made, comm_timeout_ms=5000, **keys)
        try:
            work = Work(cluster)
            work.run()
            made.cut(1, off=True)
            error = work.fails(LEASE + 2.0)
            assert "node 1 (" in str(error)
            eventually(lambda: "has gone" in cluster.log(1))
            made.cut(1, off=False)
            work.heals(15.0)  # With the tensor of before.
            work.client.close()
        finally:
            cluster.stop()


def test_a_slow_link_is_not_lost(tmp_path: Path) -> None:
    """At 1 Mbit/s a put and a get of 1 MiB at a node take a quarter of a minute, and nobody is missed."""
    with networks(2) as made:
        folder = tmp_path / "nodes"
        folder.mkdir()
        keys = certificates(tmp_path / "keys", [made.address(node).split(":")[1] for node in range(2)])
        cluster = Cluster(private_daemon.find_daemon(), folder, networks=made, **keys)
        try:
            work = Work(cluster)
            at_node = total_at([2, 3])
            values = np.random.default_rng(1).standard_normal((1 << 9, 1 << 9), np.float32)
            small = work.client.put(values[:2], at_node.fusion.inputs()[0])
            work.client.run(at_node, [small], wait=True)
            generation = work.client.status()["generation"]
            lost = cluster.log(0).count("has no link"), cluster.log(1).count("has gone")  # While they started.
            made.slow(1, on=True)
            began = time.monotonic()
            big = work.client.put(values, at_node.fusion.inputs()[0])
            (sums,) = work.client.run(at_node, [big], wait=True)  # The bytes go with it.
            put_s = time.monotonic() - began
            np.testing.assert_array_equal(big.numpy(), values)
            get_s = time.monotonic() - began - put_s
            np.testing.assert_allclose(sums.numpy(), values.sum(axis=0), rtol=1e-3, atol=1e-3)
            print(f"put {put_s:.1f} s, get {get_s:.1f} s")
            assert put_s > 5.0 and get_s > 5.0, "the link was not slow"
            assert work.client.status()["generation"] == generation
            assert lost == (cluster.log(0).count("has no link"), cluster.log(1).count("has gone"))
            work.client.close()
        finally:
            cluster.stop()


def test_a_node_of_another_cluster(tmp_path: Path) -> None:
    """The head says which, and ends."""
    folder = tmp_path / "nodes"
    folder.mkdir(mode=0o700)
    nodes = f"unix:{folder}/0,unix:{folder}/1"
    program = private_daemon.find_daemon()
    listen = [f"--listen=unix:{folder}/client{node}" for node in range(2)]
    other = subprocess.Popen(
        [program, f"--nodes={nodes}", "--node=1", "--cluster-name=theirs", listen[1]], stderr=subprocess.PIPE
    )
    try:
        head = [program, f"--nodes={nodes}", "--node=0", "--cluster-name=ours", listen[0], "--join-timeout-ms=20000"]
        done = subprocess.run(head, capture_output=True, text=True, timeout=60)
        assert done.returncode == 3
        said = done.stdout + done.stderr
        assert "node 1 (" in said and "of the cluster" in said and "theirs" in said and "ours" in said
    finally:
        other.terminate()
        other.wait()


def test_a_node_that_does_not_come(tmp_path: Path) -> None:
    folder = tmp_path / "nodes"
    folder.mkdir(mode=0o700)
    nodes = f"unix:{folder}/0,unix:{folder}/1"
    listen = f"--listen=unix:{folder}/c"
    head = [private_daemon.find_daemon(), f"--nodes={nodes}", "--node=0", listen, "--join-timeout-ms=300"]
    done = subprocess.run(head, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert "join_timeout_ms" in done.stdout + done.stderr and "node 1 (" in done.stdout + done.stderr


def test_clients_give_no_orders(tmp_path: Path) -> None:
    """Their certificates have the same authority."""
    keys = certificates(tmp_path / "keys", ["127.0.0.1"])
    (tmp_path / "nodes").mkdir(mode=0o700)
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in keys.items()]
    nodes = f"--nodes=unix:{tmp_path}/nodes/0,tcp:127.0.0.1:7001"
    process = subprocess.Popen(
        [private_daemon.find_daemon(), nodes, "--node=1", f"--listen=unix:{tmp_path}/nodes/c", *flags],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        while "ready" not in process.stdout.readline():
            assert process.poll() is None

        def outcome(name: str) -> grpc.StatusCode:
            read = lambda end: (tmp_path / "keys" / f"{name}.{end}").read_bytes()  # noqa: E731
            ca = (tmp_path / "keys" / "ca.pem").read_bytes()
            credentials = grpc.ssl_channel_credentials(ca, read("key"), read("pem"))
            with grpc.secure_channel("127.0.0.1:7001", credentials) as channel:
                serve = channel.stream_stream("/hostir.v1.Node/Serve")
                try:
                    next(serve(iter([b"\x0a\x00"]), timeout=10))
                except grpc.RpcError as error:
                    return error.code()
            return grpc.StatusCode.OK

        assert outcome("client") == grpc.StatusCode.PERMISSION_DENIED
        assert outcome("node") == grpc.StatusCode.FAILED_PRECONDITION  # No cluster, no version.
    finally:
        process.terminate()
        process.wait()
