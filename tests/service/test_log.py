"""A log that nobody reads stops nothing: not a request, not the daemon's end. What it costs is counted.

Method: a daemon that logs every run, and a pipe that is read late, or never.
"""

import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator

import numpy as np
import pytest

import hostir

BUILD = pathlib.Path(os.environ.get("HOSTIR_BUILD_DIR", "build/dev")).resolve()
HOSTIRD = BUILD / "hostird"
RUNS_MAX = 50_000  # More than fill a pipe and what the daemon keeps.

pytestmark = pytest.mark.skipif(
    not HOSTIRD.exists() and not os.environ.get("HOSTIR_TESTS_NEED_DAEMON"), reason="hostird is not built"
)


@pytest.fixture
def unread(tmp_path: pathlib.Path) -> Iterator[tuple[subprocess.Popen[bytes], hostir.Client]]:
    """A daemon whose log is a pipe, and a client that has made it drop lines."""
    tmp_path.chmod(0o700)
    read, write = os.pipe()
    command = [HOSTIRD, "--devices=cpu:1", f"--listen=unix:{tmp_path}/socket", "--log-level=debug"]
    command.append(f"--ready-fd={write}")
    daemon = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=[write])
    os.close(write)
    with os.fdopen(read) as ready:
        address = ready.readline().strip()
    with hostir.FusionDefinition("a_long_name" * 20) as fd:  # Which is in each line.
        x = fd.define_tensor(shape=[-1], contiguity=True)
        fd.add_output(fd.ops.neg(x))
    try:
        with hostir.connect(address) as client:
            y = client.put(np.ones(4, np.float32))
            for number in range(RUNS_MAX):
                (y,) = client.run(fd, [y], wait=True)
                if number % 500 == 0 and client.status()["log_lines_dropped"] > 0:
                    break
            yield daemon, client
    finally:
        daemon.kill()
        daemon.wait()


def test_requests_are_answered(unread: tuple[subprocess.Popen[bytes], hostir.Client]) -> None:
    daemon, client = unread
    dropped = client.status()["log_lines_dropped"]
    assert dropped > 0
    assert daemon.stdout is not None
    for line in daemon.stdout:  # Now it is read, up to where lines are missing.
        if b"log dropped_lines=" in line:
            break
    told = int(line.split(b"dropped_lines=")[1].split()[0])
    assert dropped <= told <= client.status()["log_lines_dropped"]


def test_it_ends_in_order(unread: tuple[subprocess.Popen[bytes], hostir.Client]) -> None:
    daemon, _ = unread
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(timeout=60) == 0
