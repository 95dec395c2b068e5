"""Daemons that are the nodes of one cluster, on this machine: by Unix sockets, or each in a network of its own."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import hostir
from hostir import DataType, DeviceMesh, FusionDefinition

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
from etcd import Etcd
from eventually import eventually

_LINE = re.compile(r"ready (?:address|node)=")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


class Networks:
    """A network namespace for each node, and a bridge between them, whose links have a rate and, where the kernel has
    netem, a delay."""

    def __init__(self, nodes: int, delay: str = "0.5ms", rate: str = "1gbit") -> None:
        self._rate = rate
        self.names = [f"hostir-{os.getpid()}-{node}" for node in range(nodes)]
        self._bridge = f"hostir-{os.getpid()}-bridge"
        try:
            _run("ip", "netns", "add", self._bridge)
            _run("ip", "-n", self._bridge, "link", "add", "bridge", "type", "bridge")
            _run("ip", "-n", self._bridge, "link", "set", "bridge", "up")
            for node, name in enumerate(self.names):
                _run("ip", "netns", "add", name)
                end = f"node{node}"
                _run("ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", end, "netns", self._bridge)
                _run("ip", "-n", name, "address", "add", f"10.77.0.{node + 1}/24", "dev", "eth0")
                for device in ("eth0", "lo"):
                    _run("ip", "-n", name, "link", "set", device, "up")
                _run("ip", "-n", self._bridge, "link", "set", end, "master", "bridge", "up")
                shape = ["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root"]
                try:
                    _run(*shape, "netem", "delay", delay, "rate", rate)
                except OSError:
                    if node == 0:
                        print(f"this kernel has no netem: {rate}, without a delay")
                    _run(*shape, "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
        except OSError:
            self.close()
            raise

    def address(self, node: int, port: int = 7001) -> str:
        return f"tcp:10.77.0.{node + 1}:{port}"

    def inside(self, node: int) -> list[str]:
        """The words before a command that is to run there, as on a machine of its own: without common shared memory."""
        alone = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
        return ["ip", "netns", "exec", self.names[node], "unshare", "--ipc", "--mount", "sh", "-c", alone, "sh"]

    def cut(self, node: int, *, off: bool) -> None:
        """A partition: what is sent to and from the node is lost."""
        _run("ip", "-n", self._bridge, "link", "set", f"node{node}", "down" if off else "up")

    def slow(self, node: int, *, on: bool, rate: str = "1mbit") -> None:
        """A link of little bandwidth, in both directions."""
        shape = ["tbf", "rate", rate if on else self._rate, "burst", "256kb", "latency", "50ms"]
        _run("tc", "-n", self.names[node], "qdisc", "replace", "dev", "eth0", "root", *shape)
        end = ["dev", f"node{node}", "root"]
        _run("tc", "-n", self._bridge, "qdisc", *(["replace", *end, *shape] if on else ["del", *end]))

    def bytes_sent(self, node: int) -> int:
        return self._counted(node, "tx_bytes")

    def bytes_received(self, node: int) -> int:
        return self._counted(node, "rx_bytes")

    def _counted(self, node: int, what: str) -> int:
        path = f"/sys/class/net/eth0/statistics/{what}"
        told = subprocess.run(
            ["ip", "netns", "exec", self.names[node], "cat", path], capture_output=True, text=True, check=True
        )
        return int(told.stdout)

    def close(self) -> None:
        for name in (*self.names, self._bridge):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=30)


@contextlib.contextmanager
def networks(nodes: int, **shape: str) -> Iterator[Networks]:
    """Skips where this user, or this machine, can make none."""
    for tool in ("ip", "tc", "unshare"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    try:
        made = Networks(nodes, **shape)
    except OSError as error:
        pytest.skip(f"no network namespaces with shaped links: {error}")
    try:
        yield made
    finally:
        made.close()


def certificates(folder: pathlib.Path, names: list[str]) -> dict[str, str]:
    """Settings of nodes that are called by ``names``. Files: ca, node and client, each .pem and .key."""
    command = [str(pathlib.Path(os.environ["HOSTIR_BUILD_DIR"]) / "hostir"), "certs", str(folder)]
    _run(*command, *(word for name in names for word in ("--node", name)))
    return {
        "tls_cert": f"{folder}/node.pem",
        "tls_key": f"{folder}/node.key",
        "tls_client_ca": f"{folder}/ca.pem",
    }


def total(devices: list[int]) -> FusionDefinition:
    """The sum over the rows of a tensor, which are split over ``devices``."""
    with FusionDefinition("total") as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float)
        x.shard(DeviceMesh(devices), {0: "mesh_x"})
        y = fd.ops.sum(x, dims=[0])
        y.shard(DeviceMesh(devices), {})
        fd.add_output(y)
    return fd


class Cluster:
    """Nodes of ``devices`` each, or by node, whose files are in ``folder``; the first heads them, or, with ``etcd``,
    whichever is elected: the first to be started, while no other has to be."""

    def __init__(
        self,
        program: str,
        folder: pathlib.Path,
        nodes: int = 2,
        devices: str | list[str] = "cpu:2",
        networks: Networks | None = None,
        etcd: Etcd | None = None,
        listens: list[str] | None = None,
        port: int = 7001,
        **settings: Any,
    ) -> None:
        folder.chmod(0o700)
        self.folder = folder
        self._program = program
        self._devices = devices
        self._networks = networks
        self._etcd = etcd
        self._settings = settings
        self.addresses = [networks.address(n, port) if networks else f"unix:{folder}/node{n}" for n in range(nodes)]
        self.listens = listens or [f"unix:{folder}/client{n}" for n in range(nodes)]
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * nodes
        self._starts = [0] * nodes
        try:
            for node in range(nodes) if etcd else reversed(range(nodes)):
                self.start(node)
                if etcd:
                    self.ready(node)  # Registered, the first elected: numbers are in this order.
            for node in range(nodes):
                self.ready(node)
        except BaseException:
            self.stop()
            raise

    def start(self, node: int, **settings: Any) -> None:
        """Returns before it is ready."""
        self._starts[node] += 1
        all_settings = {
            "devices": self._devices if isinstance(self._devices, str) else self._devices[node],
            "listen": self.listens[node],
            **self._place(node),
            **self._settings,
            **settings,
        }
        flags = [
            f"--{key.replace('_', '-')}={str(value).lower() if value is True else value}"
            for key, value in all_settings.items()
        ]
        inside = self._networks.inside(node) if self._networks else []
        with self._log(node).open("wb") as log:
            self.processes[node] = subprocess.Popen([*inside, self._program, *flags], stdout=log, stderr=log)

    def _place(self, node: int) -> dict[str, Any]:
        if self._etcd is None:
            return {"nodes": ",".join(self.addresses), "node": node}
        return {
            "cluster": self._etcd.cluster,
            "cluster_size": len(self.addresses),
            "node_address": self.addresses[node],
        }

    def ready(self, node: int) -> None:
        process = self.processes[node]
        assert process is not None
        eventually(lambda: _LINE.search(self.log(node)) or process.poll() is not None)
        assert process.poll() is None, self.log(node)

    def _log(self, node: int) -> pathlib.Path:
        return self.folder / f"log{node}.{self._starts[node]}"

    def log(self, node: int) -> str:
        return self._log(node).read_text()

    def client(self, **options: Any) -> hostir.Client:
        return hostir.connect(",".join(self.listens) if self._etcd else self.listens[0], timeout=30, **options)

    def head(self) -> int:
        """The node that serves clients, once there is one; with etcd."""
        assert self._etcd is not None

        def found() -> list[int]:
            return [n for n in range(len(self.addresses)) if self.heads(n)]

        return int(eventually(found)[0])

    def heads(self, node: int) -> bool:
        """As its log says."""
        process = self.processes[node]
        if process is None or process.poll() is not None:
            return False
        log = self.log(node)
        return log.rfind("ready address=") > log.rfind("heads no longer")

    def signal(self, node: int, number: int) -> None:
        process = self.processes[node]
        assert process is not None
        process.send_signal(number)

    def kill(self, node: int) -> None:
        process = self.processes[node]
        assert process is not None
        process.kill()
        process.wait()

    def stop(self) -> list[int]:
        """The exit codes of those that still run."""
        codes = []
        for process in self.processes:
            if process is None or process.poll() is not None:
                continue
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
            try:
                codes.append(process.wait(timeout=30))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append(process.wait())
        return codes
