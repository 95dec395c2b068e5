"""The units of deploy/systemd: systemd reads them, hostird knows flags and settings, and what they start is ready."""

from __future__ import annotations

import configparser
import getpass
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
UNIT = ROOT / "deploy/systemd/hostird@.service"
SETTINGS = ROOT / "deploy/systemd/hostird.toml"
DAEMON = Path(os.environ.get("HOSTIR_BUILD_DIR", "build/dev")).resolve() / "hostird"


def section(name: str) -> dict[str, str]:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment]  # Keys as they are written.
    unit.read(UNIT)
    return dict(unit[name])


def command(runtime: Path) -> list[str]:
    """ExecStart with this build's hostird, this tree's settings, and `runtime` as the folder that systemd makes."""
    program, *flags = shlex.split(section("Service")["ExecStart"])
    assert program == "/opt/hostir/bin/hostird"  # Where a bundle is unpacked: deploy/bundle.
    assert "unix:/run/hostir-%i/socket" in flags and section("Service")["RuntimeDirectory"] == "hostir-%i"
    places = {"/etc/hostir/hostird.toml": str(SETTINGS), "unix:/run/hostir-%i/socket": f"unix:{runtime}/socket"}
    return [str(DAEMON), *(places.get(flag, flag) for flag in flags)]


def environment(**variables: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("HOSTIR_")} | variables


@pytest.fixture(autouse=True)
def daemon_is_built() -> None:
    if not DAEMON.exists() and not os.environ.get("HOSTIR_TESTS_NEED_DAEMON"):
        pytest.skip("this build has no daemon")


def test_systemd_reads_it(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    unit = tmp_path / "hostird@alice.service"
    # The program is looked for, too.
    unit.write_text(UNIT.read_text().replace("/opt/hostir/bin/hostird", str(DAEMON)))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60, check=False
    )
    said = [line for line in checked.stderr.splitlines() if unit.name in line]
    assert (checked.returncode, said) == (0, []), checked.stderr


def test_hostird_knows_its_flags_and_settings(tmp_path: Path) -> None:
    done = subprocess.run(
        [*command(tmp_path), "--check-config"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    settings = dict(line.split(" = ", 1) for line in done.stdout.splitlines() if " = " in line)
    assert settings["listen"].startswith(f'"unix:{tmp_path}/socket"')
    assert settings["devices"].startswith('"cuda:all"')


def test_the_limits_of_stopping_fit(tmp_path: Path) -> None:
    """The daemon drains before systemd kills it; what does not mend itself is not tried again."""
    service = section("Service")
    done = subprocess.run([DAEMON, "--check-config"], env=environment(), capture_output=True, text=True, check=True)
    drain = next(line for line in done.stdout.splitlines() if line.startswith("drain_timeout_ms"))
    drain_ms = int(drain.split("=")[1].split()[0])
    assert drain_ms < int(service["TimeoutStopSec"]) * 1000
    assert set(service["RestartPreventExitStatus"].split()) == {"2", "4"}  # docs/configuration.md


def test_its_command_becomes_ready(tmp_path: Path) -> None:
    """As Type=notify wants: READY=1 to $NOTIFY_SOCKET once it serves; SIGTERM ends it well. On CPUs: flags win."""
    assert section("Service")["Type"] == "notify"
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(tmp_path / "notify"))
    notify.settimeout(60)
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    log = tmp_path / "log"
    with log.open("wb") as stream:
        daemon = subprocess.Popen(
            [*command(runtime), "--devices=cpu:1"],
            env=environment(NOTIFY_SOCKET=str(tmp_path / "notify")),
            stdout=stream,
            stderr=stream,
        )
    try:
        said = notify.recv(4096).decode()
        assert "READY=1" in said.split("\n"), log.read_text()
        assert (runtime / "socket").is_socket()
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(timeout=60) == 0, log.read_text()
        assert "STOPPING=1" in notify.recv(4096).decode()
    finally:
        daemon.kill()
        daemon.wait()
        notify.close()


def test_all_units_are_read_by_systemd(tmp_path: Path) -> None:
    """As they are, but for the program: systemd wants one that is there."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on this machine")
    user = getpass.getuser()
    units = []
    for unit in [*UNIT.parent.glob("*.service"), *UNIT.parent.glob("*.socket")]:
        copy = tmp_path / unit.name.replace("@.", f"@{user}.")
        copy.write_text(unit.read_text().replace("/opt/hostir/bin/hostird", str(DAEMON)))
        units.append(copy)
    assert len(units) == 3
    for unit in units:
        verify = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
        done = subprocess.run(verify, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and "hostir" not in done.stderr, done.stderr


def values(unit: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", (UNIT.parent / unit).read_text(), re.M):
        found.setdefault(key, []).append(value)
    return found


def test_the_socket_is_the_one_that_the_daemon_listens_on() -> None:
    (path,) = values("hostird@.socket")["ListenStream"]
    (start,) = values("hostird@.service")["ExecStart"]
    assert f"--listen unix:{path}" in start
    assert values("hostird@.service")["RuntimeDirectoryPreserve"] == ["yes"]  # It stays when the daemon ends.


@pytest.mark.parametrize("unit", ["hostird@.service", "hostird-node.service"])
def test_what_every_daemon_is_held_to(unit: str) -> None:
    held = {
        key: values(unit)[key] for key in ("Type", "OOMPolicy", "MemoryMax", "TasksMax", "RestartPreventExitStatus")
    }
    assert held == {
        "Type": ["notify"],
        "OOMPolicy": ["continue"],
        "MemoryMax": ["90%"],
        "TasksMax": ["16384"],
        "RestartPreventExitStatus": ["2 4"],
    }
    assert int(values(unit)["WatchdogSec"][0]) >= 10  # Long enough for a machine that is short of time.


@pytest.mark.parametrize("membership", ["list", "etcd"])
def test_settings_of_a_node(tmp_path: Path, membership: str) -> None:
    """The file of the unit, with certificates of this test; of the two ways to be a cluster the other is a comment."""
    if membership == "etcd" and "--cluster-size" not in subprocess.check_output([DAEMON, "--help"], text=True):
        pytest.skip("this hostird knows no etcd")
    subprocess.run([DAEMON.parent / "hostir", "certs", tmp_path / "keys", "--node", "10.0.0.1"], check=True)
    text = (UNIT.parent / "node.toml").read_text().replace("/etc/hostir/", f"{tmp_path}/keys/")
    if membership == "list":
        text = re.sub(r"^(cluster|cluster_name|cluster_size|node_address) = ", r"# \g<0>", text, flags=re.M)
        text = re.sub(r"^# (nodes|node) = ", r"\1 = ", text, flags=re.M)
    (tmp_path / "node.toml").write_text(text)
    check = [DAEMON, "--config", tmp_path / "node.toml", "--check-config"]
    done = subprocess.run(check, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f'tls_key = "{tmp_path}/keys/node.key"' in done.stdout


@pytest.mark.parametrize("nodes", [0, 1])
def test_it_says_that_it_lives(tmp_path: Path, nodes: int) -> None:
    """WATCHDOG=1 twice in $WATCHDOG_USEC, of a daemon and of a node without its head; nothing while it is stopped."""
    tmp_path.chmod(0o700)
    flags = [f"--nodes=unix:{tmp_path}/0,unix:{tmp_path}/1", "--node=1"] if nodes else []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        daemon = subprocess.Popen(
            [DAEMON, f"--listen=unix:{tmp_path}/socket", *flags],
            env=environment(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="400000"),
            stdout=subprocess.DEVNULL,
        )
        try:
            assert manager.recv(4096).startswith(b"READY=1")
            begun = time.monotonic()
            assert [manager.recv(4096) for _ in range(6)] == [b"WATCHDOG=1"] * 6
            assert time.monotonic() - begun >= 0.9  # The first at once.
            daemon.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, daemon.pid, os.WSTOPPED)
            manager.setblocking(False)
            with pytest.raises(BlockingIOError):
                while True:
                    manager.recv(4096)  # What came before.
            manager.settimeout(1.0)
            with pytest.raises(TimeoutError):
                manager.recv(4096)
            daemon.send_signal(signal.SIGCONT)
            manager.settimeout(60)
            assert manager.recv(4096) == b"WATCHDOG=1"
            daemon.terminate()
            assert daemon.wait(timeout=60) == 0
        finally:
            daemon.kill()
            daemon.wait()
