"""The daemon that ``connect()`` starts for this process alone.

It listens on a Unix socket in a directory that only this user can enter, and ends, with its workers, when this
process does: it holds the reading end of a pipe whose writing end is open nowhere but here, since a process that is
forked from this one closes its copy first of all.
"""

from __future__ import annotations

import contextlib
import glob
import os
import select
import shutil
import signal
import subprocess
import tempfile
import textwrap
from pathlib import Path
from typing import IO, Any, BinaryIO

from hostir_programs import environment

from .errors import Unavailable
from .location import invalid

Log = str | os.PathLike[str] | IO[Any]  # Where a daemon's log goes: a path, or a file that has a descriptor.

DEFAULT_DEVICES = "cpu:4"
_DRAIN_SECONDS = 15.0  # hostird gives what is under way 10 s.
_LOG_LINES = 20
_LOG_BYTES = 65536  # Of a log's end, which hold them.
_EXIT_USAGE = 2  # docs/configuration.md has its exit codes.
_alive_ends: set[int] = set()  # The writing ends that this process has open, a daemon each.


class PrivateDaemon:
    """A running hostird. ``stop()`` lets it finish what is under way and removes its directory.

    log: the file that its log goes to, or None where that is no file.
    """

    def __init__(self, process: subprocess.Popen[bytes], directory: str, log: str | None, alive: int) -> None:
        self._process = process
        self._directory = directory
        self._log = log
        self._alive = alive  # The writing end of the pipe.
        self._pid = os.getpid()

    @property
    def address(self) -> str:
        return "unix:" + os.path.join(self._directory, "socket")

    @property
    def pid(self) -> int:
        return self._process.pid

    def log_tail(self) -> str:
        """The last lines of the daemon's log."""
        if self._log is None:
            return "(it went where connect(log=...) sent it)"
        try:
            with open(self._log, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_BYTES))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return "(no log)"
        return "\n".join(f"  {line}" for line in lines[-_LOG_LINES:]) or "(the log is empty)"

    def died(self) -> str:
        """How it ended: "exited with 1", "was killed by SIGKILL"; empty while it runs."""
        code = self._process.poll()
        if code is None:
            return ""
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"

    def stop(self) -> None:
        """SIGTERM: it drains and exits. May be called again."""
        if os.getpid() != self._pid:  # After a fork it is the parent's.
            return
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_DRAIN_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._alive >= 0:
            _close_alive(self._alive)
            self._alive = -1
        shutil.rmtree(self._directory, ignore_errors=True)


def find_daemon() -> str:
    """The hostird to run: ``$HOSTIR_DAEMON``, the installed package's, the build folder's, or that of ``$PATH``."""
    named = os.environ.get("HOSTIR_DAEMON")
    if named:
        if not os.access(named, os.X_OK):
            raise Unavailable(f"$HOSTIR_DAEMON is {named}, which is no program")
        return named
    package = Path(__file__).resolve().parent
    candidates = [str(package / "bin" / "hostird")]
    if os.environ.get("HOSTIR_BUILD_DIR"):
        candidates.append(os.path.join(os.environ["HOSTIR_BUILD_DIR"], "hostird"))
    built = glob.glob(str(package.parent.parent / "build" / "*" / "hostird"))
    candidates += sorted(built, key=os.path.getmtime, reverse=True)
    candidates += [os.path.join(d, "hostird") for d in os.environ.get("PATH", "").split(os.pathsep) if d]
    for candidate in candidates:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise Unavailable(
        "no hostird found: build it (./run build hostird hostir-worker), name it by $HOSTIR_DAEMON, "
        "or connect to a running daemon by its address or $HOSTIR_ADDRESS"
    )


def start(devices: str, timeout: float, log: Log | None = None) -> PrivateDaemon:
    """Starts a daemon on ``devices`` and waits until it is ready. ``log``: see hostir.connect.

    Raises Unavailable with its last log lines; InvalidArgument with them alone when it refuses what it was given.
    """
    program = find_daemon()
    given = None if log is None else _open_log(log)
    directory = tempfile.mkdtemp(prefix="hostir-")  # Mode 0700.
    log_path = None if given is not None else os.path.join(directory, "log")
    if isinstance(log, (str, os.PathLike)):
        log_path = os.path.abspath(log)
    alive_read, alive_write = os.pipe()
    _alive_ends.add(alive_write)
    ready_read, ready_write = os.pipe()
    arguments = [program, f"--devices={devices}", f"--listen=unix:{directory}/socket"]
    arguments += [f"--ready-fd={ready_write}", f"--alive-fd={alive_read}", f"--scratch={directory}"]
    try:
        with given or open(os.path.join(directory, "log"), "wb") as output:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment(),
                pass_fds=[alive_read, ready_write],
                start_new_session=True,  # An interrupt at the terminal is for this process, which stops the daemon.
            )
    except OSError as error:
        for fd in (alive_read, ready_read, ready_write):
            os.close(fd)
        _close_alive(alive_write)
        shutil.rmtree(directory, ignore_errors=True)
        raise Unavailable(f"cannot start {program}: {error}") from error
    os.close(alive_read)
    os.close(ready_write)
    daemon = PrivateDaemon(process, directory, log_path, alive_write)
    try:
        ready = _wait_ready(ready_read, timeout)
    finally:
        os.close(ready_read)
    if ready:
        return daemon
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.5)  # Its end of the pipe closes before it is gone.
    how = daemon.died() or f"was not ready within {timeout:g} s"
    tail = daemon.log_tail()
    process.kill()
    daemon.stop()
    if process.returncode == _EXIT_USAGE:
        raise invalid(textwrap.dedent(tail))
    raise Unavailable(f"{program} --devices={devices} {how}; its log ends:\n{tail}")


def _open_log(log: Log) -> BinaryIO:
    """What the daemon writes to: its own descriptor, so that the caller may close ``log``. Files are appended to."""
    if isinstance(log, (str, os.PathLike)):
        try:
            return open(log, "ab")
        except OSError as error:
            raise invalid(f"log: cannot write {os.fspath(log)}: {error.strerror}") from error
    try:
        log.flush()  # What was written before comes first.
        descriptor = os.dup(log.fileno())
    except (AttributeError, OSError, ValueError) as error:
        raise invalid(f"log: a path, or a file that has a descriptor, not a {type(log).__name__}") from error
    return os.fdopen(descriptor, "ab")


def _close_alive(end: int) -> None:
    _alive_ends.remove(end)  # Before another file gets its number.
    os.close(end)


def _close_inherited() -> None:
    """In a process just forked: the daemons are the other's, and end with it."""
    while _alive_ends:
        os.close(_alive_ends.pop())


os.register_at_fork(after_in_child=_close_inherited)


def _wait_ready(fd: int, timeout: float) -> bool:
    """Whether a byte arrives; false at the end of the pipe and after ``timeout`` seconds."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout * 1000)) and os.read(fd, 1) != b""
