"""A real daemon on a Unix socket, and hostir as a shell calls it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

BUILD = Path(os.environ.get("HOSTIR_BUILD_DIR", "build/dev")).resolve()
HOSTIR = BUILD / "hostir"


def clean_environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOSTIR_")}
    return {**kept, **variables}


class Daemon:
    """A hostird that has said that it is ready."""

    def __init__(self, folder: Path, devices: str) -> None:
        folder.chmod(0o700)
        read, write_end = os.pipe()
        flags = [f"--devices={devices}", f"--listen=unix:{folder}/socket", f"--ready-fd={write_end}"]
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [BUILD / "hostird", *flags, "--log-level=debug"],
                # Its kernels are compiled by this daemon, whatever others have left on disk.
                env=clean_environment(XDG_CACHE_HOME=str(folder / "cache")),
                pass_fds=[write_end],
                stdout=log,
                stderr=log,
            )
        os.close(write_end)
        with os.fdopen(read) as ready:
            self.address = ready.readline().strip()
        assert self.address, self.log.read_text()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for all tests that do not break it: two CPU ranks."""
    if not HOSTIR.exists() and not os.environ.get("HOSTIR_TESTS_NEED_DAEMON"):
        pytest.skip("this build has no service")
    running = Daemon(tmp_path_factory.mktemp("daemon"), "cpu:2")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Four ranks: as many as programs of the corpus name."""
    if not HOSTIR.exists() and not os.environ.get("HOSTIR_TESTS_NEED_DAEMON"):
        pytest.skip("this build has no service")
    running = Daemon(tmp_path_factory.mktemp("four"), "cpu:4")
    yield running
    running.stop()


@pytest.fixture
def own_daemon(tmp_path: Path) -> Iterator[Daemon]:
    """One that the test may break."""
    running = Daemon(tmp_path, "cpu:2")
    yield running
    running.stop()


def hostir(*arguments: str | Path, text: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HOSTIR, *arguments],
        env=clean_environment(**variables),
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


CORPUS = sorted(Path("tests/corpus").rglob("*.hir"))


def sizes_of(program: Path) -> dict[str, int]:
    """Those that its comment gives; none where its shapes are constants after all."""
    said = re.search(r"^// Sizes: (.*)$", program.read_text(), re.M)
    sizes = dict(size.split("=") for size in said[1].split()) if said else {}
    return {} if program.stem == "adaptive_layer_norm_backward" else {name: int(size) for name, size in sizes.items()}


def size_flags(sizes: dict[str, int]) -> list[str]:
    return [word for name, size in sizes.items() for word in ("--size", f"{name}={size}")]


def good(*arguments: str | Path, **variables: str) -> str:
    """Its answer; it ends with 0 and says nothing on stderr."""
    done = hostir(*arguments, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
