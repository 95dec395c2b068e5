"""A daemon that is seen from outside: its page of metrics, its access log, its log."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import urllib.request
from typing import Any

from eventually import eventually

Labels = frozenset[tuple[str, str]]


class ObservedDaemon:
    """A hostird with metrics on a port of its own and an access log as JSON, in ``folder``; ``settings`` come first."""

    def __init__(self, program: str, folder: pathlib.Path, **settings: Any) -> None:
        folder.chmod(0o700)
        self.access_log = folder / "access.json"
        self.log_path = folder / "log"
        read, write = os.pipe()
        all_settings = {
            "listen": f"unix:{folder}/socket",
            "log_level": "debug",
            "metrics": "tcp:127.0.0.1:0",
            "access_log": self.access_log,
            "access_log_format": "json",
            **settings,
        }
        flags = [f"--{key.replace('_', '-')}={value}" for key, value in all_settings.items()]
        command = [program, f"--ready-fd={write}", *flags]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(command, pass_fds=[write], stdout=log, stderr=log)
        os.close(write)
        with os.fdopen(read) as ready:
            self.address = ready.readline().strip()
        assert self.address, self.log()
        (self.metrics_address,) = eventually(lambda: re.findall(r"metrics address=(\S+)", self.log()))

    def log(self) -> str:
        return self.log_path.read_text()

    def logged(self, *words: str, count: int = 1) -> list[str]:
        """Lines of the log with all of ``words``, once there are ``count``: an answer does not wait for its lines."""

        def found() -> list[str]:
            lines = [line for line in self.log().splitlines() if all(word in line for word in words)]
            return lines if len(lines) >= count else []

        return list(eventually(found))

    def page(self) -> str:
        with urllib.request.urlopen(f"http://{self.metrics_address}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def metrics(self) -> dict[tuple[str, Labels], float]:
        """The samples of the page, by name and labels."""
        samples = {}
        for line in self.page().splitlines():
            if not line.startswith("#"):
                found = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
                assert found, line
                name, labels, value = found.groups()
                samples[name, frozenset(re.findall(r'(\w+)="([^"]*)"', labels or ""))] = float(value)
        return samples

    def metric(self, name: str, **labels: str) -> float:
        """0 for a sample that is not there yet."""
        return self.metrics().get((name, frozenset(labels.items())), 0.0)

    def accesses(self, **wanted: Any) -> list[dict[str, Any]]:
        """Lines of the access log that have these values."""
        lines = [json.loads(line) for line in self.access_log.read_text().splitlines()]
        return [line for line in lines if all(line.get(key) == value for key, value in wanted.items())]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            assert self.process.wait(timeout=60) == 0
        finally:
            self.process.kill()
            self.process.wait()
