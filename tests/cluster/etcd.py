"""An etcd of one member, from Debian's package, for the time of a test."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
from typing import Any

import pytest

from eventually import eventually

_SERVES = re.compile(r"serving .*client requests on [\d.]+:(\d+)")


class Etcd:
    """Serves at ``host``; ``inside``: the words before its command. With ``tls``, the settings of a node, its clients
    show a certificate that the same authority signed. Skips where etcd is not installed, unless HOSTIR_TESTS_NEED_ETCD
    says that it has to be."""

    def __init__(
        self, folder: pathlib.Path, host: str = "127.0.0.1", inside: list[str] | None = None, tls: Any = None
    ) -> None:
        if shutil.which("etcd") is None and not os.environ.get("HOSTIR_TESTS_NEED_ETCD"):
            pytest.skip("needs etcd (Debian's etcd-server)")
        self._folder = folder
        self._host = host
        self._inside = inside or []
        self._tls = tls
        self._port = 0
        self._starts = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """With what it knew before, at the same port."""
        self._starts += 1
        log = self._folder / f"etcd.{self._starts}"
        scheme = "https" if self._tls else "http"
        serves = f"{scheme}://{self._host}:{self._port}"
        flags = ["--data-dir", str(self._folder / "etcd"), "--heartbeat-interval", "20", "--election-timeout", "200"]
        flags += ["--listen-client-urls", serves, "--advertise-client-urls", serves]
        flags += ["--listen-peer-urls", f"http://{self._host}:0"]
        if self._tls:
            flags += ["--cert-file", self._tls["tls_cert"], "--key-file", self._tls["tls_key"], "--client-cert-auth"]
            flags += ["--trusted-ca-file", self._tls["tls_client_ca"]]
        with log.open("wb") as out:
            self.process = subprocess.Popen([*self._inside, "etcd", *flags], stdout=out, stderr=out)
        process = self.process
        eventually(lambda: _SERVES.search(log.read_text()) or process.poll() is not None)
        found = _SERVES.search(log.read_text())
        assert found is not None, log.read_text()
        self._port = int(found.group(1))

    @property
    def cluster(self) -> str:
        """As ``hostird --cluster`` takes it."""
        return f"etcd:{self._host}:{self._port}"

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def get(self, key: str) -> dict[str, Any]:
        """The JSON at ``key``."""
        said = self._ctl("get", "--print-value-only", key)
        return json.loads(said)  # type: ignore[no-any-return]

    def keys(self, prefix: str) -> list[str]:
        return self._ctl("get", "--prefix", "--keys-only", prefix).split()

    def _ctl(self, *words: str) -> str:
        command = [*self._inside, "etcdctl", "--endpoints", f"{self._host}:{self._port}", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=True, env={**os.environ, "ETCDCTL_API": "3"}
        )
        return done.stdout

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.wait(timeout=30)
