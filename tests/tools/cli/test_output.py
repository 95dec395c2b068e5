"""Where answers go: a stdout that takes nothing, and terminals that are smaller than what is said."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import resource
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest

from conftest import BUILD, HOSTIR, Daemon, clean_environment, good

NEGATE = "fusion @negate(%x: f32[i0]) {\n  %y = neg(%x)\n  return %y\n}\n"
PROGRAM = ["PROGRAM", "--random=1", "--size=i0=2"]
COMMANDS = [
    ["--help"],
    ["--version"],
    ["completion", "bash"],
    ["status"],
    ["status", "--json"],
    ["top", "--once"],
    ["top"],
    ["explain", "PROGRAM", "--json"],
    ["run", *PROGRAM],
    ["bench", *PROGRAM, "--repeat=1", "--json"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_full_disk_is_2(daemon: Daemon, tmp_path: Path, command: list[str]) -> None:
    program = tmp_path / "negate.hir"
    program.write_text(NEGATE)
    arguments = [str(program) if word == "PROGRAM" else word for word in command]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [HOSTIR, *arguments],
            env=clean_environment(HOSTIR_ADDRESS=daemon.address),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "hostir: UNAVAILABLE: cannot write standard output: No space left on device\n"


def no_files_grow() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([HOSTIR, "--help"], "hostir: UNAVAILABLE: cannot write standard output: File too large\n"),
        ([BUILD / "hostir-opt", "--help"], "hostir-opt: cannot write standard output\n"),
        ([BUILD / "hostir-opt", "tests/corpus/rms_norm.hir"], "hostir-opt: cannot write standard output\n"),
    ],
)
def test_a_file_that_may_not_grow_is_2(daemon: Daemon, tmp_path: Path, command: list[Path], message: str) -> None:
    """And does not end the program by a signal."""
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(
            command,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            preexec_fn=no_files_grow,
        )
    assert (done.returncode, done.stderr) == (2, message)


class Terminal:
    """One of so many rows and columns, and what was written to it."""

    def __init__(self, rows: int, columns: int) -> None:
        self.outer, self.inner = pty.openpty()
        fcntl.ioctl(self.inner, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.seen = b""

    def read_until(self, count: int, what: bytes) -> None:
        """Until ``what`` was seen so often."""
        deadline = time.monotonic() + 60
        while self.seen.count(what) < count:
            assert select.select([self.outer], [], [], deadline - time.monotonic())[0], self.seen
            self.seen += os.read(self.outer, 4096)

    def close(self) -> None:
        os.close(self.outer)
        os.close(self.inner)


def test_progress_stays_in_one_row(own_daemon: Daemon, tmp_path: Path) -> None:
    """What a terminal has put into a second row could not be erased."""
    program = tmp_path / "a_program_of_a_long_name.hir"
    program.write_text(NEGATE)
    planner = json.loads(good("status", "--json", "--address", own_daemon.address))["planner_pid"]
    os.kill(planner, signal.SIGSTOP)
    terminal = Terminal(24, 30)
    command = [HOSTIR, "run", program, "--random=1", "--size=i0=4", "--address", own_daemon.address]
    process = subprocess.Popen(command, env=clean_environment(), stdout=subprocess.PIPE, stderr=terminal.inner)
    terminal.read_until(2, b"\r\x1b[K")
    os.kill(planner, signal.SIGCONT)
    process.communicate(timeout=60)
    assert process.returncode == 0
    lines = terminal.seen.decode().split("\r\x1b[K")
    assert lines[1] == "hostir: planning and compilin"
    assert all(len(line) < 30 and "\n" not in line for line in lines)
    terminal.close()


def test_q_ends_top(daemon: Daemon) -> None:
    """At once, whatever the interval; the terminal is as it was."""
    terminal = Terminal(24, 80)
    before = termios.tcgetattr(terminal.outer)
    process = subprocess.Popen(
        [HOSTIR, "top", "--interval=3600", "--address", daemon.address],
        env=clean_environment(),
        stdin=terminal.inner,
        stdout=terminal.inner,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
    )
    terminal.read_until(1, b"plans ")
    os.write(terminal.outer, b"x")
    os.write(terminal.outer, b"q")
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, b"")
    assert termios.tcgetattr(terminal.outer) == before
    terminal.close()


def test_top_fits_its_terminal(daemon: Daemon) -> None:
    terminal = Terminal(6, 40)
    command = [HOSTIR, "top", "--interval=0.1", "--address", daemon.address]
    process = subprocess.Popen(command, env=clean_environment(), stdout=terminal.inner, stderr=subprocess.PIPE)
    terminal.read_until(3, b"\x1b[H\x1b[J")
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, b"")
    for table in terminal.seen.decode().split("\x1b[H\x1b[J")[1:3]:
        rows = table.split("\r\n")
        assert len(rows) == 6 and rows[0].startswith("hostird ") and rows[4].startswith("plans ")
        assert all(len(row) < 40 for row in rows)
        assert re.fullmatch(r"hostird \S+ at \S+", rows[0])
    terminal.close()
