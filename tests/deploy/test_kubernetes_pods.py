"""The manifests of deploy/kubernetes, started: each pod in a network of its own, without privileges, with the
names, variables and files that Kubernetes would give it. Probes are asked as the kubelet asks them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
from manifests import KUBERNETES, Document, container, environment, expand, only, render
from pods import BUILD, NAMESPACE, ROOT, Pods, lend, pods

sys.path.append(str(ROOT / "tests/python"))
from eventually import eventually

DOMAIN = f"hostir.{NAMESPACE}.svc.cluster.local"
PROGRAM = (ROOT / "tests/corpus/tensor_parallel_mlp.hir").read_text()  # On four devices.


@pytest.fixture(autouse=True)
def daemon_is_built() -> None:
    if not (BUILD / "hostird").exists() and not os.environ.get("HOSTIR_TESTS_NEED_DAEMON"):
        pytest.skip("this build has no daemon")


def pod_spec(documents: list[Document], name: str) -> Document:
    spec = only(documents, "StatefulSet", name)["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def mount(running: Pods, documents: list[Document]) -> Path:
    """/etc/hostir, elsewhere: the settings, and certificates as docs/deploy/kubernetes.md has them made."""
    etc = running.folder / "etc"
    (etc / "tls").mkdir(parents=True)
    made = running.folder / "made"
    command = [BUILD / "hostir", "certs", made, "--node", f"*.{DOMAIN}", "--client", "alice"]
    subprocess.run(command, check=True, capture_output=True)
    for name, mounted in {"node.pem": "tls.crt", "node.key": "tls.key", "ca.pem": "ca.crt"}.items():
        shutil.copy(made / name, etc / "tls" / mounted)
        lend(running, etc / "tls" / mounted, 0o440)
    text = only(documents, "ConfigMap")["data"]["hostird.toml"].replace("/etc/hostir", str(etc))
    (etc / "hostird.toml").write_text(text)
    return etc


class Mesh:
    """Two pods of hostir, the first two of `running`."""

    def __init__(self, running: Pods, documents: list[Document]) -> None:
        self.running = running
        self.container = container(documents)
        self.etc = mount(running, documents)
        self.variables = []
        for pod in range(2):
            cache = running.folder / f"cache{pod}"
            cache.mkdir()
            os.chown(cache, running.user, running.user)
            made = environment(documents, pod, NAMESPACE)
            self.variables.append({name: self._here(value, pod) for name, value in made.items()})
        self.processes = [self.start(pod) for pod in range(2)]

    def start(self, pod: int) -> subprocess.Popen[bytes]:
        arguments = [expand(self._here(word, pod), self.variables[pod]) for word in self.container["args"]]
        # For four devices in all, on whatever this machine has.
        return self.running.start(pod, ["hostird", *arguments, "--devices=cpu:2"], self.variables[pod])

    def _here(self, text: str, pod: int) -> str:
        text = text.replace("/var/cache/hostir", f"{self.running.folder}/cache{pod}")
        return text.replace("/etc/hostir", str(self.running.folder / "etc"))

    def passes(self, pod: int, probe: str) -> bool:
        if probe not in self.container:
            return True
        return self.running.run(pod, self.container[probe]["exec"]["command"], self.variables[pod]).returncode == 0

    def bench(self, address: str) -> subprocess.CompletedProcess[str]:
        """By the first pod's certificate, from its network."""
        words = ["hostir", "bench", "-", "--random=1", "--size=i0=6", "--repeat=3", "--address", address]
        return self.running.run(0, words, self.variables[0], PROGRAM)


def ready(mesh: Mesh) -> None:
    for pod in range(2):
        try:
            eventually(lambda pod=pod: mesh.passes(pod, "startupProbe"))
        except AssertionError:
            pytest.fail(mesh.running.logs())


def test_a_fixed_list_of_nodes() -> None:
    documents = render(KUBERNETES / "fixed")
    names = [f"hostir-{pod}.{DOMAIN}" for pod in range(2)]
    with pods(names, pod_spec(documents, "hostir")) as running:
        mesh = Mesh(running, documents)
        ready(mesh)
        for pod in range(2):
            assert mesh.passes(pod, "readinessProbe") and mesh.passes(pod, "livenessProbe")
        done = mesh.bench(f"tcp:{names[0]}:7000")
        assert done.returncode == 0, done.stderr + running.logs()
        assert mesh.bench(f"tcp:{names[1]}:7000").returncode == 4  # Only the head listens for clients.
        assert running.stop() == [0, 0], running.logs()


def start_etcd(running: Pods, documents: list[Document], first: int) -> list[subprocess.Popen[bytes]]:
    """Three members, from pod `first` of `running` on."""
    started = []
    for number in range(only(documents, "StatefulSet", "etcd")["spec"]["replicas"]):
        data = running.folder / f"etcd{number}"
        data.mkdir()
        data.chmod(0o777)
        words = [expand(word, {"POD_NAME": f"etcd-{number}"}) for word in container(documents, "etcd")["command"]]
        words = [word.replace("/var/lib/etcd", str(data)) for word in words]
        started.append(running.start(first + number, words, {}))
    return started


def answers(running: Pods, pod: int, probe: Document) -> bool:
    """A probe by HTTP, whose port is the client's."""
    url = f"http://127.0.0.1:2379{probe['httpGet']['path']}"
    words = [sys.executable, "-c", f"import urllib.request; urllib.request.urlopen({url!r}, timeout=5)"]
    return running.run(pod, words, {}).returncode == 0


def test_three_members_of_etcd() -> None:
    """They find each other, and their probes pass; without two of them only the one for liveness does."""
    if shutil.which("etcd") is None:
        pytest.skip("no etcd")
    documents = render(KUBERNETES / "etcd")
    inside = container(documents, "etcd")
    with pods([f"etcd-{number}.etcd" for number in range(3)], pod_spec(documents, "etcd")) as running:
        members = start_etcd(running, documents, 0)
        for pod in range(3):
            eventually(lambda pod=pod: answers(running, pod, inside["readinessProbe"]))
            assert answers(running, pod, inside["livenessProbe"])
        for member in members[1:]:
            member.kill()
        eventually(lambda: not answers(running, 0, inside["readinessProbe"]))
        assert answers(running, 0, inside["livenessProbe"])


def test_nodes_by_etcd() -> None:
    if shutil.which("etcd") is None:
        pytest.skip("no etcd")
    known = subprocess.run([BUILD / "hostird", "--help"], capture_output=True, text=True, check=True).stdout
    if not re.search(r"^ +--cluster-name\b", known, re.M):
        pytest.skip("this build has no cluster by etcd (--cluster-name)")
    documents, etcd = render(KUBERNETES / "base"), render(KUBERNETES / "etcd")
    names = [f"hostir-{pod}.{DOMAIN}" for pod in range(2)]
    with pods([*names, *(f"etcd-{n}.etcd" for n in range(3))], pod_spec(documents, "hostir")) as running:
        start_etcd(running, etcd, 2)
        for number in range(3):
            eventually(lambda n=number: answers(running, 2 + n, container(etcd, "etcd")["readinessProbe"]))
        mesh = Mesh(running, documents)
        ready(mesh)
        for pod in range(2):
            assert mesh.passes(pod, "readinessProbe") and mesh.passes(pod, "livenessProbe")
        # Either may head, and it alone listens for clients.
        head = eventually(lambda: heading(mesh, names))[0]
        other = 1 - head
        assert mesh.bench(f"tcp:{names[other]}:7000").returncode == 4
        # The kubelet ends the head, and starts it again. The other's probes pass: to restart it would mend nothing.
        mesh.processes[head].send_signal(signal.SIGTERM)
        assert mesh.processes[head].wait(timeout=45) == 0, running.logs()
        assert not mesh.passes(head, "livenessProbe") and mesh.passes(other, "livenessProbe")
        mesh.start(head)
        eventually(lambda: heading(mesh, names))
        assert mesh.passes(other, "readinessProbe")


def heading(mesh: Mesh, names: list[str]) -> list[int]:
    """The pods that serve a program."""
    return [pod for pod, name in enumerate(names) if mesh.bench(f"tcp:{name}:7000").returncode == 0]
