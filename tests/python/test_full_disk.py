"""Places that a daemon writes to are full: requests are served without them, or end with an error that says so.

Method: a log that is /dev/full, and folders on a file system of 64 KiB that is filled to the last byte, in a mount
namespace of the daemon's own; where none may be made, that is the reason of the skip.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hostir
from fault_table import column_sums, until

X = np.arange(64 * 8, dtype=np.float32).reshape(64, 8)
FILLED = """
mount -t tmpfs -o size="$2" tmpfs "$1" || exit 9
[ "$3" = True ] && cat /dev/zero > "$1/fill" 2>/dev/null
shift 3; exec "$@"
"""


@contextlib.contextmanager
def serving(
    program: str, folder: Path, full: Path | None, log: str, env: dict[str, str], size: str = "64k", fill: bool = True
) -> Iterator[tuple[hostir.Client, int]]:
    """A client of a daemon, and its process, whose `full` has `size`, all of it filled, and whose log is `log`."""
    address = f"unix:{folder}/socket"
    read, write = os.pipe()
    command = [program, "--devices=cpu:2", f"--listen={address}", f"--ready-fd={write}"]
    if full is not None:
        may = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True)
        if may.returncode != 0:
            pytest.skip(f"no mount namespace can be made here: {may.stderr.strip()}")
        command = ["unshare", "-m", "sh", "-c", FILLED, "sh", str(full), size, str(fill), *command]
    with open(log, "wb") as out:
        daemon = subprocess.Popen(command, pass_fds=[write], stdout=out, stderr=out, env={**os.environ, **env})
    os.close(write)
    try:
        with os.fdopen(read) as ready:
            assert ready.readline(), "it did not start"
        with hostir.connect(address) as client:
            yield client, daemon.pid
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(20) == 0
    finally:
        daemon.kill()
        daemon.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    (tmp_path / "full").mkdir()
    return tmp_path


def check(client: hostir.Client) -> None:
    """A program that nobody compiled before, a run, and again after a rank has died."""
    fd = column_sums(2, f"full_disk_{os.urandom(4).hex()}")
    for _ in range(2):
        (y,) = client.run(fd, [X], wait=True)
        np.testing.assert_allclose(y.numpy(), X.sum(0), rtol=1e-5)
    generation = client.status()["generation"]
    os.kill(client.status()["devices"][0]["pid"], signal.SIGKILL)
    until(lambda: client.status()["generation"] > generation and client.status()["serving"], "healing")
    (y,) = client.run(fd, [X], wait=True)
    np.testing.assert_allclose(y.numpy(), X.sum(0), rtol=1e-5)


def test_a_log_on_a_full_disk(daemon_program: str, folder: Path) -> None:
    with serving(daemon_program, folder, None, "/dev/full", {}) as (client, _):
        check(client)


def test_compiled_kernels_on_a_full_disk(daemon_program: str, folder: Path) -> None:
    full = folder / "full"
    with serving(daemon_program, folder, full, os.devnull, {"XDG_CACHE_HOME": str(full)}) as (client, _):
        check(client)


def test_shared_memory_that_fills_up(daemon_program: str, folder: Path) -> None:
    """Ranks connect by other ways, or the mesh does not heal, and says why, until there is room."""
    with serving(daemon_program, folder, Path("/dev/shm"), os.devnull, {}, size="48m", fill=False) as (client, pid):
        x = client.put(X)
        check(client)
        fill = Path(f"/proc/{pid}/root/dev/shm/fill")
        with contextlib.suppress(OSError), fill.open("wb") as out:
            while True:
                out.write(bytes(1 << 16))
                out.flush()
        generation = client.status()["generation"]
        os.kill(client.status()["devices"][0]["pid"], signal.SIGKILL)
        until(lambda: client.status()["generation"] > generation, "another generation", 30)
        np.testing.assert_array_equal(x.numpy(), X)  # It needs no rank.
        try:
            (y,) = client.run(column_sums(2), [X], wait=True, timeout=5)
            np.testing.assert_allclose(y.numpy(), X.sum(0), rtol=1e-5)
        except (hostir.Unavailable, hostir.ResourceExhausted, hostir.DeadlineExceeded):
            assert "start of the mesh" in client.status()["last_failure"], client.status()["last_failure"]
        fill.unlink()
        until(lambda: client.status()["serving"], "healing", 60)
        (y,) = client.run(column_sums(2), [X], wait=True)
        np.testing.assert_allclose(y.numpy(), X.sum(0), rtol=1e-5)
