"""A cluster that etcd knows: who heads it, what becomes of sessions and tensors when that changes, etcd's absence."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

import hostir
from cluster import Cluster, certificates, networks, total
from etcd import Etcd
from eventually import eventually
from hostir import DataType, DeviceMesh, FusionDefinition, Sharding, wire
from hostir.wire import service_pb2 as pb

REPLACED = 10.0  # Seconds, at most, until a head is.
VALUES = np.arange(64, dtype=np.float32).reshape(8, 8)


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    tmp_path.chmod(0o700)
    made = Etcd(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def cluster(tmp_path: Path, etcd: Etcd) -> Iterator[Cluster]:
    """Three nodes of one device; node 0 heads."""
    made = Cluster(_program(), tmp_path, 3, devices="cpu:1", etcd=etcd)
    yield made
    made.stop()


def _program() -> str:
    return str(Path(os.environ["HOSTIR_BUILD_DIR"]) / "hostird")


def run(client: hostir.Client, devices: list[int], values: np.ndarray = VALUES) -> None:
    program = total(devices)
    (y,) = client.run(program, [values], wait=True)
    np.testing.assert_allclose(y.numpy(), values.sum(axis=0), rtol=1e-5)


def eventually_runs(client: hostir.Client, devices: list[int], seconds: float) -> float:
    """How long it took until a run went well."""
    began = time.monotonic()

    def goes() -> bool:
        try:
            run(client, devices)
        except (hostir.Unavailable, hostir.DataLoss):
            return False
        return True

    eventually(goes, seconds)
    return time.monotonic() - began


def test_nodes_register_and_the_first_heads(cluster: Cluster, etcd: Etcd) -> None:
    assert cluster.head() == 0
    with cluster.client() as client:
        assert [device["node"] for device in client.status()["devices"]] == cluster.addresses
        run(client, [0, 1, 2])
    keys = etcd.keys("/hostir/hostir/")
    assert [key for key in keys if "/nodes/" in key] == [f"/hostir/hostir/nodes/000{n}" for n in range(3)]
    assert [key for key in keys if "/live/" in key] == [f"/hostir/hostir/live/{n}" for n in range(3)]
    head = etcd.get("/hostir/hostir/lead/head")
    assert (head["term"], head["address"], head["listen"]) == ("1", cluster.addresses[0], cluster.listens[0])
    node = etcd.get("/hostir/hostir/nodes/0001")
    assert (node["address"], node["node"]["kind"], len(node["node"]["devices"])) == (cluster.addresses[1], "cpu", 1)


def test_a_head_that_dies_is_replaced_and_sessions_go_on(cluster: Cluster) -> None:
    """What the survivors hold is there, by the same handles; what the dead node had a part of is lost, and says so."""
    with cluster.client(lease=60) as client:
        kept = client.put(VALUES, sharding=Sharding([1, 2], {0: "mesh_x"}))
        gone = client.put(VALUES, sharding=Sharding([0, 1], {0: "mesh_x"}))
        client.publish(kept, "weights")
        (output,) = client.run(total([1, 2]), [kept], wait=True)
        client.run(total([0, 1]), [gone], wait=True)
        began = time.monotonic()
        cluster.kill(0)
        client.status()  # Goes on with whoever heads then.
        replaced = time.monotonic() - began
        print(f"replaced in {replaced:.1f} s")
        assert replaced < REPLACED
        eventually_runs(client, [1, 2], REPLACED)  # The survivors do what needs no other.
        np.testing.assert_array_equal(kept.numpy(), VALUES)
        with pytest.raises(hostir.Unavailable, match=r"node 0 \(.*\) is not there, and run .* needs its device 0"):
            run(client, [0, 1, 2])
        cluster.start(0)
        eventually_runs(client, [0, 1, 2], REPLACED)
        np.testing.assert_array_equal(kept.numpy(), VALUES)
        np.testing.assert_allclose(output.numpy(), VALUES.sum(axis=0))
        (again,) = client.run(total([1, 2]), [kept], wait=True)
        np.testing.assert_allclose(again.numpy(), VALUES.sum(axis=0))
        np.testing.assert_array_equal(client.attach("weights").numpy(), VALUES)
        with pytest.raises(hostir.DataLoss, match=r"node 0 \(.*put it again"):
            gone.numpy()


def test_a_head_that_stops_and_goes_on_is_a_node_then(cluster: Cluster) -> None:
    """It finds another head, ends what it served, and has all its shards for that one."""
    with cluster.client(lease=60) as client:
        kept = client.put(VALUES, sharding=Sharding([0, 1, 2], {}))
        client.run(total_of_copy(), [kept], wait=True)
        began = time.monotonic()
        cluster.signal(0, signal.SIGSTOP)
        client.status()
        print(f"replaced in {time.monotonic() - began:.1f} s")
        assert time.monotonic() - began < REPLACED
        cluster.signal(0, signal.SIGCONT)
        eventually_runs(client, [0, 1, 2], REPLACED)
        np.testing.assert_array_equal(kept.numpy(), VALUES)
        eventually(lambda: "heads no longer" in cluster.log(0))
        assert not cluster.heads(0)
        assert cluster.head() in (1, 2)


def test_a_head_that_is_none_opens_no_session(cluster: Cluster) -> None:
    """A head that stopped takes what waited for it before it hears of another head: such a client is told, or has a
    session that the other one goes on with."""
    channels = [grpc.insecure_channel(cluster.listens[0]) for _ in range(8)]
    for channel in channels:
        grpc.channel_ready_future(channel).result(timeout=10)
    cluster.signal(0, signal.SIGSTOP)
    calls = [wire.runtime_stub(channel).Connect(pb.ConnectRequest(lease_ms=60_000), timeout=30) for channel in channels]
    with cluster.client() as client:
        head = eventually(lambda: [node for node in (1, 2) if cluster.heads(node)])[0]
        cluster.signal(0, signal.SIGCONT)
        codes = []
        for call in calls:
            try:
                session = next(call).session_id
            except grpc.RpcError as error:
                codes.append((error.code(), error.details()))
                continue
            other = wire.runtime_stub(grpc.insecure_channel(cluster.listens[head]))
            assert next(other.Connect(pb.ConnectRequest(session_id=session), timeout=10)).session_id == session
        print(codes)
        assert all(code == grpc.StatusCode.UNAVAILABLE for code, _ in codes)
        run(client, [1, 2])
    for channel in channels:
        channel.close()


def total_of_copy() -> FusionDefinition:
    with FusionDefinition("twice") as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float)
        x.shard(DeviceMesh([0, 1, 2]), {})
        y = fd.ops.add(x, x)
        y.shard(DeviceMesh([0, 1, 2]), {})
        fd.add_output(y)
    return fd


def test_a_head_that_is_asked_to_end_is_replaced_at_once(cluster: Cluster) -> None:
    """As in an upgrade: what runs is carried out, and the lease is not waited for."""
    with cluster.client(lease=60) as client:
        kept = client.put(VALUES, sharding=Sharding([1, 2], {0: "mesh_x"}))
        client.run(total([1, 2]), [kept], wait=True)
        began = time.monotonic()
        cluster.signal(0, signal.SIGTERM)
        client.status()
        took = time.monotonic() - began
        print(f"replaced in {took:.1f} s")
        assert took < 4
        process = cluster.processes[0]
        assert process is not None and process.wait(timeout=10) == 0
        cluster.start(0)
        eventually_runs(client, [0, 1, 2], REPLACED)
        np.testing.assert_array_equal(kept.numpy(), VALUES)


def test_a_run_under_way_gets_one_typed_error_and_is_not_carried_out_again(cluster: Cluster) -> None:
    with cluster.client(lease=60) as client:
        run(client, [0, 1, 2])
        failures: list[hostir.HostirError] = []
        done = threading.Event()

        def runs() -> None:
            while not done.is_set():
                try:
                    run(client, [0, 1, 2])
                except hostir.HostirError as failure:
                    failures.append(failure)
                    return

        thread = threading.Thread(target=runs)
        thread.start()
        cluster.kill(0)
        thread.join(timeout=REPLACED + 5)
        done.set()
        assert not thread.is_alive()
        (failure,) = failures
        assert isinstance(failure, hostir.Unavailable), failure
        print(failure)
        cluster.start(0)
        eventually_runs(client, [0, 1, 2], REPLACED)


def test_what_does_not_need_a_node_goes_on_without_it(cluster: Cluster) -> None:
    """Its tensors are lost when it is back with nothing; what others hold is not."""
    with cluster.client() as client:
        kept = client.put(VALUES, sharding=Sharding([0, 2], {0: "mesh_x"}))
        gone = client.put(VALUES, sharding=Sharding([1, 2], {0: "mesh_x"}))
        client.run(total([0, 2]), [kept], wait=True)
        client.run(total([1, 2]), [gone], wait=True)
        cluster.kill(1)
        took = eventually_runs(client, [0, 2], REPLACED)
        print(f"others go on after {took:.2f} s")
        assert took < 2
        with pytest.raises(hostir.Unavailable, match=r"node 1 \(.*\) is not there, and run .* needs its device 1"):
            run(client, [0, 1, 2])
        with pytest.raises(hostir.Unavailable, match=r"node 1 \(.*\) is not there"):
            gone.numpy()
        error = client.status()["devices"][1]["error"]
        assert error["code"] == 14 and "is not there" in error["message"]
        for _ in range(20):  # What is freed meanwhile is free.
            extra = client.put(VALUES, sharding=Sharding([0, 2], {0: "mesh_x"}))
            client.run(total([0, 2]), [extra], wait=True)
            client.free(extra)
        cluster.start(1)
        eventually_runs(client, [0, 1, 2], REPLACED)
        np.testing.assert_array_equal(kept.numpy(), VALUES)
        with pytest.raises(hostir.DataLoss):
            gone.numpy()


def _hostir(cluster: Cluster, *words: str) -> str:
    command = [str(Path(os.environ["HOSTIR_BUILD_DIR"]) / "hostir"), *words, "--address", ",".join(cluster.listens)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_drained_node_may_be_stopped(cluster: Cluster) -> None:
    """No run fails: those under way end before it leaves, and those that do not need it never notice."""
    with cluster.client(lease=60) as client:
        failures: list[hostir.HostirError] = []
        done = threading.Event()

        def runs() -> None:
            while not done.is_set():
                try:
                    run(client, [0, 2])
                except hostir.HostirError as failure:
                    failures.append(failure)

        thread = threading.Thread(target=runs)
        thread.start()
        assert "is drained" in _hostir(cluster, "drain", "1")
        assert "is drained" in _hostir(cluster, "status")
        with pytest.raises(hostir.Unavailable, match=r"node 1 \(.*\) is drained .*needs its device 1"):
            run(client, [1, 2])
        cluster.kill(1)
        cluster.start(1)
        cluster.ready(1)
        assert "a part in runs again" in _hostir(cluster, "undrain", cluster.addresses[1])
        run(client, [0, 1, 2])
        done.set()
        thread.join(timeout=30)
        assert not failures, failures[0]


def test_a_drained_node_stays_so_under_another_head(cluster: Cluster) -> None:
    _hostir(cluster, "drain", "2")
    cluster.signal(0, signal.SIGTERM)
    with cluster.client() as client:
        cluster.start(0)
        eventually_runs(client, [0, 1], REPLACED)
        with pytest.raises(hostir.Unavailable, match="is drained"):
            run(client, [0, 1, 2])
        with pytest.raises(hostir.NotFound, match='"3" is no node: 0 to 2, or unix:'):
            client.drain(3)
        assert client.drain(2, back=True) == cluster.addresses[2]
        eventually_runs(client, [0, 1, 2], REPLACED)


def test_a_node_that_dies_is_named_and_comes_back(cluster: Cluster) -> None:
    with cluster.client() as client:
        run(client, [0, 1, 2])
        cluster.kill(1)
        with pytest.raises(hostir.Unavailable, match=r"node 1 \(.*\) is (lost|not there)"):
            run(client, [0, 1, 2])
        cluster.start(1)
        eventually_runs(client, [0, 1, 2], REPLACED)
        assert cluster.head() == 0


def test_without_etcd_the_service_goes_on_and_says_so(cluster: Cluster, etcd: Etcd) -> None:
    """For longer than any lease; a head that dies then is replaced when etcd is back."""
    with cluster.client(lease=60) as client:
        run(client, [0, 1, 2])
        etcd.kill()
        eventually(lambda: "etcd is not there: who is a member, and heads, stays as it is" in cluster.log(0))
        until = time.monotonic() + 7.0
        while time.monotonic() < until:
            run(client, [0, 1, 2])
        began = time.monotonic()
        with cluster.client(lease=60) as other:
            print(f"a session without etcd took {time.monotonic() - began:.1f} s")
            assert time.monotonic() - began < 4.5
            run(other, [0, 1, 2])
        etcd.start()
        eventually(lambda: "etcd is there again" in cluster.log(0))
        eventually(lambda: etcd.get("/hostir/hostir/lead/head")["term"] == "1")
        run(client, [0, 1, 2])
        assert [cluster.heads(node) for node in range(3)] == [True, False, False]
        etcd.kill()
        cluster.kill(0)
        etcd.start()
        client.status()
        assert cluster.head() in (1, 2)


def test_etcd_that_stops_changes_nothing(cluster: Cluster, etcd: Etcd) -> None:
    with cluster.client(lease=60) as client:
        etcd.signal(signal.SIGSTOP)
        until = time.monotonic() + 7.0
        while time.monotonic() < until:
            run(client, [0, 1, 2])
        etcd.signal(signal.SIGCONT)
        eventually(lambda: "etcd is there again" in cluster.log(0))
        run(client, [0, 1, 2])
        assert cluster.head() == 0


def test_who_does_not_belong_is_told(cluster: Cluster, etcd: Etcd, tmp_path: Path) -> None:
    def refused(**settings: object) -> str:
        flags = {
            "listen": f"unix:{tmp_path}/other",
            "node_address": f"unix:{tmp_path}/another",
            "cluster": etcd.cluster,
            "cluster_size": 3,
            **settings,
        }
        words = [f"--{key.replace('_', '-')}={value}" for key, value in flags.items()]
        done = subprocess.run([_program(), *words], capture_output=True, text=True, timeout=30)
        assert done.returncode != 0
        return done.stdout + done.stderr

    cluster.head()
    assert "the cluster hostir has its 3 nodes" in refused()
    assert "has 3 nodes, and --cluster-size is 2" in refused(cluster_size=2)
    assert "want how many nodes" in refused(cluster_size=0)
    assert "want unix:/path or tcp:host:port" in refused(node_address="nowhere")
    assert "want etcd:HOST:PORT" in refused(cluster="zookeeper:1")
    assert "not by both" in refused(nodes=f"unix:{tmp_path}/a,unix:{tmp_path}/b")


def test_between_networks_with_tls(tmp_path: Path) -> None:
    """Each node, and etcd, in a network of its own; all show certificates. The head is cut off from all others."""
    tmp_path.chmod(0o700)
    with networks(4) as made:
        hosts = [made.address(node).split(":")[1] for node in range(4)]
        settings = certificates(tmp_path / "certs", hosts)
        etcd = Etcd(tmp_path, host=hosts[3], inside=made.inside(3), tls=settings)
        of_etcd = {"etcd_cert": "tls_cert", "etcd_key": "tls_key", "etcd_ca": "tls_client_ca"}
        settings.update({key: settings[of] for key, of in of_etcd.items()})
        try:
            cluster = Cluster(_program(), tmp_path, 3, devices="cpu:1", networks=made, etcd=etcd, **settings)
        except BaseException:
            etcd.stop()
            raise
        try:
            with cluster.client(lease=60) as client:
                kept = client.put(VALUES, sharding=Sharding([0, 1, 2], {}))
                client.run(total_of_copy(), [kept], wait=True)
                began = time.monotonic()
                made.cut(0, off=True)
                eventually(lambda: cluster.heads(1) or cluster.heads(2))
                print(f"replaced in {time.monotonic() - began:.1f} s")
                assert time.monotonic() - began < REPLACED
                made.cut(0, off=False)
                eventually(lambda: "heads no longer" in cluster.log(0))
                eventually_runs(client, [0, 1, 2], REPLACED)
                np.testing.assert_array_equal(kept.numpy(), VALUES)
        finally:
            cluster.stop()
            etcd.stop()
