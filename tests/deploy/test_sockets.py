"""hostird serves on a socket that a manager of services made, as systemd's: $LISTEN_FDS, $LISTEN_PID, descriptor 3."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import hostir
from hostir import private_daemon

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
from eventually import eventually

# As a manager does: the descriptor has its number, the variables name the process that is then hostird.
GIVE = (
    'exec 3<&"$1"; [ $1 = 3 ] || eval "exec $1<&-"; export LISTEN_PID=${LISTEN_PID:-$$} LISTEN_FDS=1; shift; exec "$@"'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def listening(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen()
    return made


def command(given: int, *flags: str) -> list[str]:
    return ["bash", "-c", GIVE, "bash", str(given), private_daemon.find_daemon(), "--devices=cpu:1", *flags]


def environment(**variables: str) -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("HOSTIR_")} | variables


@contextmanager
def daemon(given: socket.socket, log: Path, *flags: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """One that ends well on SIGTERM."""
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command(given.fileno(), *flags),
            pass_fds=(given.fileno(),),
            env=environment(**variables),
            stdout=stream,
            stderr=stream,
        )
    try:
        yield process
        process.terminate()
        assert process.wait(timeout=60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def refused(given: socket.socket, *flags: str) -> str:
    fd = given.fileno()
    done = subprocess.run(
        command(fd, *flags), pass_fds=(fd,), env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stdout + done.stderr


def served(address: str) -> None:
    with hostir.connect(address, timeout=60) as client:
        assert len(client.status()["devices"]) == 1


def children(pid: int) -> list[int]:
    return [
        int(word) for task in Path(f"/proc/{pid}/task").iterdir() for word in (task / "children").read_text().split()
    ]


def test_who_came_before_is_served_and_the_socket_stays(folder: Path) -> None:
    """As systemd starts it: by the first who connects. The daemon that comes next has the same socket."""
    address = f"unix:{folder}/socket"
    with listening(folder / "socket") as given:
        for turn in range(2):
            with daemon(given, folder / f"log{turn}", f"--listen={address}"):
                served(address)  # It waits in the socket's queue.
            assert (folder / "socket").is_socket()


def held(pid: int) -> list[str]:
    """Files and sockets of a process, but those that it closes meanwhile."""
    found = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(descriptor))
    return found


def test_ranks_do_not_have_it(folder: Path) -> None:
    """Else it would listen for as long as the last of them lives."""
    with (
        listening(folder / "socket") as given,
        daemon(given, folder / "log", f"--listen=unix:{folder}/socket") as process,
    ):
        served(f"unix:{folder}/socket")
        inode = os.readlink(f"/proc/self/fd/{given.fileno()}")
        holders = {pid: held(pid) for pid in [process.pid, *children(process.pid)]}
        assert len(holders) >= 3  # A planner and a worker.
        assert [pid for pid, fds in holders.items() if inode in fds] == [process.pid]


def test_by_tcp(folder: Path) -> None:
    with socket.socket() as given:
        given.bind(("127.0.0.1", 0))
        given.listen()
        address = f"tcp:127.0.0.1:{given.getsockname()[1]}"
        with daemon(given, folder / "log", f"--listen={address}", "--insecure-tcp"):
            served(address)
        said = refused(given, "--listen=tcp:127.0.0.1:1", "--insecure-tcp")
        assert f"gave {address}, and --listen says tcp:127.0.0.1:1" in said


def test_another_socket_than_listen_says(folder: Path) -> None:
    with listening(folder / "socket") as given:
        said = refused(given, f"--listen=unix:{folder}/other")
    assert f"gave unix:{folder}/socket, and --listen says unix:{folder}/other: both must be the same" in said


def test_what_does_not_listen(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as given:
        assert "gave descriptor 3, which does not listen" in refused(given, f"--listen=unix:{folder}/socket")


def test_a_folder_that_others_may_enter(folder: Path) -> None:
    (folder / "open").mkdir()
    (folder / "open").chmod(0o755)
    with listening(folder / "open/socket") as given:
        assert "must be this user's alone" in refused(given, f"--listen=unix:{folder}/open/socket")


def test_what_another_process_was_given_is_not_taken(folder: Path) -> None:
    with listening(folder / "given") as given:
        flags = f"--listen=unix:{folder}/own"
        with daemon(given, folder / "log", flags, LISTEN_PID=str(os.getpid())):
            eventually((folder / "own").is_socket)
            served(f"unix:{folder}/own")


def test_another_daemon_does_not_take_the_address_away(folder: Path) -> None:
    address = f"unix:{folder}/socket"
    with listening(folder / "socket") as given, daemon(given, folder / "log", f"--listen={address}"):
        served(address)
        other = [private_daemon.find_daemon(), f"--listen={address}"]
        assert subprocess.run(other, env=environment(), capture_output=True, timeout=60).returncode == 4
        served(address)


def test_one_that_is_killed_leaves_the_socket_to_the_next(folder: Path) -> None:
    address = f"unix:{folder}/socket"
    with listening(folder / "socket") as given:
        with pytest.raises(AssertionError), daemon(given, folder / "log", f"--listen={address}") as process:
            served(address)
            process.send_signal(signal.SIGKILL)
        with daemon(given, folder / "log", f"--listen={address}"):
            served(address)
