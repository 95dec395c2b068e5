"""Pods on this machine: what manifests say of a container, in a network of its own, as a user without privileges."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests/cluster"), str(ROOT / "tests/python")]
from cluster import networks  # noqa: E402
from manifests import Document  # noqa: E402

BUILD = Path(os.environ.get("HOSTIR_BUILD_DIR", "build/dev")).resolve()
NAMESPACE = "default"
_PROGRAMS = "/mnt"  # Where BUILD is to be seen: who is not root may not reach it where it lies.
# Shared memory and names are a pod's own; then nothing is left of root.
_BECOME = r"""
mount -t tmpfs tmpfs /dev/shm && mount --bind "$HOSTS" /etc/hosts && mount --bind "$BUILD" /mnt &&
exec setpriv --reuid "$POD_USER" --regid "$POD_USER" --clear-groups --no-new-privs \
  --inh-caps=-all --bounding-set=-all "$@"
"""


class Pods:
    """`names` are those of the pods, each the whole name that others know it by."""

    def __init__(self, names: list[str], folder: Path, user: int, inside: list[list[str]]) -> None:
        self.names = names
        self.folder = folder
        self.user = user
        self._inside = inside
        self._processes: list[subprocess.Popen[bytes]] = []
        hosts = [f"10.77.0.{pod + 1} {name} {name.partition('.svc.')[0]}" for pod, name in enumerate(names)]
        (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts, ""]))

    def _prepared(self, pod: int, command: list[str], variables: dict[str, str]) -> tuple[list[str], dict[str, str]]:
        prefix = [*self._inside[pod], "sh", "-c", _BECOME, "sh"]
        made = {"HOSTS": str(self.folder / "hosts"), "BUILD": str(BUILD), "POD_USER": str(self.user)}
        path = f"{_PROGRAMS}:/usr/bin:/bin"
        return [*prefix, *command], {"PATH": f"{path}:/usr/sbin:/sbin", "HOME": "/", **made, **variables}

    def start(self, pod: int, command: list[str], variables: dict[str, str]) -> subprocess.Popen[bytes]:
        prepared, environment = self._prepared(pod, command, variables)
        with (self.folder / f"log{len(self._processes)}").open("wb") as log:
            process = subprocess.Popen(prepared, env=environment, stdout=log, stderr=log)
        self._processes.append(process)
        return process

    def logs(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(self.folder.glob("log*")))

    def run(
        self, pod: int, command: list[str], variables: dict[str, str], given: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """As `kubectl exec -i` does."""
        prepared, environment = self._prepared(pod, command, variables)
        return subprocess.run(
            prepared, env=environment, input=given, capture_output=True, text=True, timeout=60, check=False
        )

    def stop(self) -> list[int]:
        """Exit codes by SIGTERM, in the order of starts."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        try:
            return [process.wait(timeout=45) for process in self._processes]
        finally:
            self.kill()

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@contextlib.contextmanager
def pods(names: list[str], spec: Document) -> Iterator[Pods]:
    """`spec` is the pods'. Skips where this machine can make none."""
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv")
    user = spec["securityContext"]["runAsUser"]
    with networks(len(names)) as made, tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        folder.chmod(0o755)
        running = Pods(names, folder, user, [made.inside(pod) for pod in range(len(names))])
        try:
            yield running
        finally:
            running.kill()


def lend(pods: Pods, path: Path, mode: int) -> None:
    """As fsGroup does: root's, and its group's."""
    os.chown(path, 0, pods.user)
    path.chmod(mode)
