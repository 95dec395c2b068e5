"""The unit of deploy/systemd: systemd reads it, hostird knows its flags and settings, and its command becomes ready."""

from __future__ import annotations

import configparser
import os
import shlex
import shutil
import signal
import socket
import subprocess
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
