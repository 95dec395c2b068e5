"""The page of metrics of a real daemon: what docs/observability.md says is there, and is what happened."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator

import numpy as np
import pytest

import hostir
from eventually import eventually
from hostir import DeviceMesh, FusionDefinition, private_daemon
from observed_daemon import ObservedDaemon

TWO = DeviceMesh([0, 1])
ME = f"uid:{os.getuid()}"
PAGE = pathlib.Path("docs/observability.md")


@pytest.fixture(scope="module")
def daemon(daemon_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedDaemon]:
    daemon = ObservedDaemon(daemon_program, tmp_path_factory.mktemp("daemon"), devices="cpu:2")
    yield daemon
    daemon.stop()


@pytest.fixture
def client(daemon: ObservedDaemon) -> Iterator[hostir.Client]:
    with hostir.connect(daemon.address) as client:
        yield client


def negation(name: str = "negation") -> FusionDefinition:
    with FusionDefinition(name) as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        fd.add_output(fd.ops.neg(x))
    return fd


def sum_over_ranks() -> FusionDefinition:
    with FusionDefinition("sum_over_ranks") as fd:
        x = fd.define_tensor(shape=[2, 64], contiguity=True)
        y = fd.ops.sum(x, [0])
        fd.add_output(y)
        x.shard(TWO, {0: "mesh_x"})
        y.set_device_mesh(TWO)
    return fd


def changed(daemon: ObservedDaemon, name: str, before: float, by: float, **labels: str) -> None:
    eventually(lambda: daemon.metric(name, **labels) == before + by)


def test_the_page_has_what_the_documentation_says(daemon: ObservedDaemon, client: hostir.Client) -> None:
    """Method: names, types and meanings of both; labels of the samples, once everything has happened."""
    client.run(sum_over_ranks(), [np.ones((2, 64), np.float32)], wait=True)
    eventually(lambda: daemon.metric("hostir_communication_bytes_total", type="Allreduce"))
    page = daemon.page()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| (.*) \|$", PAGE.read_text(), re.M)
    documented = {name: (kind, meaning) for name, kind, _, meaning in rows}
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", page, re.M))
    meanings = dict(re.findall(r"^# HELP (\w+) (.*)$", page, re.M))
    assert {name: (kinds[name], meanings[name]) for name in kinds} == documented
    labels = {name: set(re.findall(r"`(\w+)`", text)) for name, _, text, _ in rows}
    for name, of in daemon.metrics():
        family = re.sub(r"_(bucket|sum|count)$", "", name) if name not in kinds else name
        assert {key for key, _ in of} - {"le", "quantile"} == labels[family], name


def test_requests_are_counted_by_method_and_code(daemon: ObservedDaemon, client: hostir.Client) -> None:
    before = daemon.metric("hostir_requests_total", method="Run", code="OK")
    refused = daemon.metric("hostir_requests_total", method="Shards", code="NOT_FOUND")
    timed = daemon.metric("hostir_request_seconds_count", method="Run")
    y = client.put(np.ones(4, np.float32))
    for _ in range(3):
        (y,) = client.run(negation(), [y], wait=True)
    handle, y._handle = y._handle, "0" * 32
    with pytest.raises(hostir.NotFound):
        y.shards()
    y._handle = handle
    changed(daemon, "hostir_requests_total", before, 3, method="Run", code="OK")
    changed(daemon, "hostir_request_seconds_count", timed, 3, method="Run")
    changed(daemon, "hostir_requests_total", refused, 1, method="Shards", code="NOT_FOUND")


def test_runs_wait_and_end(daemon: ObservedDaemon, client: hostir.Client) -> None:
    good = daemon.metric("hostir_runs_total", code="OK")
    queued = daemon.metric("hostir_queue_seconds_count", principal=ME)
    took = daemon.metric("hostir_run_seconds_count")
    y = client.put(np.ones(4, np.float32))
    for _ in range(5):
        (y,) = client.run(negation(), [y], wait=True)
    changed(daemon, "hostir_runs_total", good, 5, code="OK")
    changed(daemon, "hostir_queue_seconds_count", queued, 5, principal=ME)
    changed(daemon, "hostir_run_seconds_count", took, 5)


def test_queues_are_seen_while_they_are(daemon: ObservedDaemon, client: hostir.Client) -> None:
    """Method: a worker that is stopped; the page comes all the same."""
    workers = [device["pid"] for device in client.status()["devices"]]
    (y,) = client.run(negation(), [np.ones(4, np.float32)], wait=True)
    waited = daemon.metric("hostir_queue_seconds_sum", principal=ME)
    try:
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        for _ in range(10):
            (y,) = client.run(negation(), [y])
        eventually(lambda: daemon.metric("hostir_queued_runs", principal=ME) == 9)
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
    y.numpy()
    eventually(lambda: daemon.metric("hostir_queued_runs", principal=ME) == 0)
    assert daemon.metric("hostir_queue_seconds_sum", principal=ME) > waited


def test_bytes_and_tensors(daemon: ObservedDaemon, client: hostir.Client) -> None:
    up, down = daemon.metric("hostir_uploaded_bytes_total"), daemon.metric("hostir_downloaded_bytes_total")
    x = client.put(np.ones(3 << 18, np.float32))
    x.numpy()
    changed(daemon, "hostir_uploaded_bytes_total", up, 3 << 20)
    changed(daemon, "hostir_downloaded_bytes_total", down, 3 << 20)
    status = client.status()
    eventually(lambda: daemon.metric("hostir_tensor_bytes") == status["tensor_bytes"] >= 3 << 20)
    assert daemon.metric("hostir_tensors") == status["tensors"]
    limits = {limit["name"]: limit["value"] for limit in status["limits"]}
    found = {dict(of)["limit"]: value for (name, of), value in daemon.metrics().items() if name == "hostir_limit"}
    assert found == limits
    eventually(lambda: daemon.metric("hostir_sessions", principal=ME) == client.status()["sessions"])


def test_communications_are_counted_by_type(daemon: ObservedDaemon, client: hostir.Client) -> None:
    """Bytes are those that explain shows, of every rank; times come from runs that are measured."""
    fd = sum_over_ranks()
    (record,) = client.explain(fd).communications
    before = daemon.metric("hostir_communication_bytes_total", type=record.type)
    timed = daemon.metric("hostir_communication_seconds_count", type=record.type)
    x = client.put(np.ones((2, 64), np.float32), sharding=hostir.Sharding([0, 1], {0: "mesh_x"}))
    for _ in range(4):
        client.run(fd, [x], wait=True)
    changed(daemon, "hostir_communication_bytes_total", before, 4 * 2 * 64 * 4, type=record.type)
    client.profile(fd, [x])
    changed(daemon, "hostir_communication_seconds_count", timed, 2, type=record.type)  # Two ranks.


def test_plans_are_made_once(daemon: ObservedDaemon, client: hostir.Client) -> None:
    names = ("hostir_program_cache_hits_total", "hostir_program_cache_misses_total", "hostir_plans_total")
    before = [daemon.metric(name) for name in names]
    seconds = daemon.metric("hostir_plan_seconds_count")
    fd = negation("planned_once")
    client.run(fd, [np.ones(4, np.float32)], wait=True)
    with hostir.connect(daemon.address) as other:
        other.run(fd, [np.ones(4, np.float32)], wait=True)
    for name, old, more in zip(names, before, (1, 1, 1), strict=True):
        changed(daemon, name, old, more)
    changed(daemon, "hostir_plan_seconds_count", seconds, 1)


def test_a_planner_that_dies_is_counted(daemon: ObservedDaemon, client: hostir.Client) -> None:
    before = daemon.metric("hostir_planner_deaths_total")
    os.kill(client.status()["planner_pid"], signal.SIGKILL)
    changed(daemon, "hostir_planner_deaths_total", before, 1)


def test_a_mesh_that_stays_broken(daemon_program: str, tmp_path: pathlib.Path) -> None:
    """The page says so, and does not wait for it. Method: a worker program that is taken away while one is killed."""
    worker = pathlib.Path(private_daemon.find_daemon()).with_name("hostir-worker").resolve()
    link = tmp_path / "worker"
    link.symlink_to(worker)
    daemon = ObservedDaemon(daemon_program, tmp_path, devices="cpu:2", worker=link)
    with hostir.connect(daemon.address) as client:
        generation = daemon.metric("hostir_mesh_generation")
        assert daemon.metric("hostir_mesh_healthy") == 1
        assert daemon.metric("hostir_mesh_down_seconds_total") == 0
        link.unlink()
        link.symlink_to("/bin/false")
        os.kill(client.status()["devices"][0]["pid"], signal.SIGKILL)
        eventually(lambda: daemon.metric("hostir_mesh_healthy") == 0)
        seconds = []
        for _ in range(20):
            start = time.monotonic()
            assert "hostir_mesh_healthy 0" in daemon.page()
            seconds.append(time.monotonic() - start)
        assert statistics.median(seconds) < 0.2, seconds  # On a machine that does other things, too.
        down = daemon.metric("hostir_mesh_down_seconds_total")
        eventually(lambda: daemon.metric("hostir_mesh_down_seconds_total") > down > 0)
        link.unlink()
        link.symlink_to(worker)
        eventually(lambda: daemon.metric("hostir_mesh_healthy") == 1)
        eventually(lambda: daemon.metric("hostir_mesh_heals_total") == 1)
        assert daemon.metric("hostir_mesh_generation") > generation
        down = daemon.metric("hostir_mesh_down_seconds_total")
        assert client.status()["heals"] == 1
        assert client.status()["mesh_down_ms"] == int(down * 1000)
    daemon.stop()


def test_the_process_is_described(daemon: ObservedDaemon) -> None:
    started = daemon.metric("process_start_time_seconds")
    assert time.time() - 600 < started <= time.time()
    resident = re.search(r"^VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text(), re.M)
    assert resident is not None and 0.5 < daemon.metric("process_resident_memory_bytes") / int(resident[1]) / 1024 < 2
    assert daemon.metric("process_start_time_seconds") == started
    assert daemon.metric("hostir_build_info", version=hostir.__version__) == 1


def test_who_reads_slowly_holds_up_nobody(daemon: ObservedDaemon, client: hostir.Client) -> None:
    """Method: connections that ask for the page and never read it, more than there are threads; a run, and the end."""
    host, port = daemon.metrics_address.rsplit(":", 1)
    slow = [socket.create_connection((host, int(port))) for _ in range(8)]
    for connection in slow:
        connection.send(b"GET /metrics HTTP/1.1\r\n")
    (y,) = client.run(negation(), [np.ones(4, np.float32)], wait=True)
    np.testing.assert_array_equal(y.numpy(), -np.ones(4, np.float32))
    for connection in slow:
        connection.close()


@pytest.mark.parametrize(
    ("flag", "code", "said"),
    [
        ("--metrics=tcp:localhost:0", 2, "want tcp: and the number of an address, as in tcp:127.0.0.1:9464"),
        ("--metrics=unix:/tmp/x", 2, "want tcp: and the number of an address"),
        ("--metrics=9464", 2, "want unix:/path or tcp:host:port"),
        ("--metrics=tcp:192.0.2.1:9464", 4, "cannot listen on tcp:192.0.2.1:9464: Cannot assign requested address"),
    ],
)
def test_addresses_that_are_refused(
    daemon_program: str, tmp_path: pathlib.Path, flag: str, code: int, said: str
) -> None:
    tmp_path.chmod(0o700)
    command = [daemon_program, f"--listen=unix:{tmp_path}/socket", flag]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    assert said in done.stdout + done.stderr


def test_nothing_listens_without_the_setting(
    client: hostir.Client, daemon_program: str, tmp_path: pathlib.Path
) -> None:
    """Method: the sockets of a daemon that was told nothing."""
    with hostir.connect(devices="cpu:1") as private:
        assert private._daemon is not None
        pid = private._daemon._process.pid
        inodes = {
            match[1]
            for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir()
            if (match := re.fullmatch(r"socket:\[(\d+)\]", str(fd.readlink())))
        }
        for table in ("tcp", "tcp6"):
            rows = pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
            assert not [row for row in rows if row.split()[9] in inodes]
