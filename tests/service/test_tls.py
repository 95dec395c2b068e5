"""TLS for people: `hostir certs`, what hostird says of its files, and what clients say when a connection fails.

Method: one daemon with TLS and one without, on loopback; the Python client and hostir, with certificates of hostir.
Each error must come long before the time that connecting may take.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hostir

BUILD = Path(os.environ.get("HOSTIR_BUILD_DIR", "build/dev")).resolve()
HOSTIR = BUILD / "hostir"
SOON = 8.0  # Of the 10 s that connecting may take: the machine may be busy.

pytestmark = pytest.mark.skipif(
    not HOSTIR.exists() and not os.environ.get("HOSTIR_TESTS_NEED_DAEMON"), reason="hostir is not built"
)


def clean_environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOSTIR_")}
    return {**kept, **variables}


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = clean_environment(**variables)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def make_certs(folder: Path, *flags: str) -> Path:
    done = run(HOSTIR, "certs", folder, *flags)
    assert done.returncode == 0, done.stderr
    return folder


@contextlib.contextmanager
def daemon(folder: Path, *flags: str) -> Iterator[str]:
    """The address of a hostird that is ready: "tcp:127.0.0.1:port"."""
    read, write_end = os.pipe()
    command = [BUILD / "hostird", "--devices=cpu:1", "--listen=tcp:127.0.0.1:0", f"--ready-fd={write_end}", *flags]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env=clean_environment(), pass_fds=[write_end], stdout=log, stderr=subprocess.STDOUT
        )
    os.close(write_end)
    with os.fdopen(read) as ready:
        address = ready.readline().strip()
    assert address, (folder / "log").read_text()
    try:
        yield f"tcp:{address}"
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = ("--server", "127.0.0.1", "--client", "alice", "--client", "bob")
    return make_certs(tmp_path_factory.mktemp("certs") / "of_daemon", *names)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certs(tmp_path_factory.mktemp("certs") / "of_others", "--client", "alice")


def daemon_files(folder: Path) -> list[str]:
    return [f"--tls-cert={folder}/server.pem", f"--tls-key={folder}/server.key", f"--tls-client-ca={folder}/ca.pem"]


@pytest.fixture(scope="module")
def address(certs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with daemon(tmp_path_factory.mktemp("daemon"), *daemon_files(certs)) as ready:
        yield ready


@pytest.fixture(scope="module")
def plain_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with daemon(tmp_path_factory.mktemp("plain"), "--insecure-tcp") as ready:
        yield ready


def client_files(folder: Path, name: str = "alice") -> dict[str, str]:
    return {"ca": f"{folder}/ca.pem", "cert": f"{folder}/{name}.pem", "key": f"{folder}/{name}.key"}


# --- hostir certs -----------------------------------------------------------------------------------------------


def test_certs_makes_what_its_commands_name(tmp_path: Path) -> None:
    done = run(HOSTIR, "certs", tmp_path / "c", "--client", "alice", "--days", "2")
    assert done.returncode == 0, done.stderr
    made = sorted(path.name for path in (tmp_path / "c").iterdir())
    assert made == ["alice.key", "alice.pem", "ca.key", "ca.pem", "server.key", "server.pem"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "c").iterdir()} == {0o600}
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o700
    commands = re.findall(r"^  (hostird? .*)$", done.stdout, re.M)
    assert [command.split()[0] for command in commands] == ["hostird", "hostir"]
    check = run(BUILD / "hostird", *commands[0].split()[1:], "--check-config")
    assert check.returncode == 0, check.stderr


def test_certs_overwrites_nothing(tmp_path: Path) -> None:
    folder = make_certs(tmp_path / "c")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = run(HOSTIR, "certs", folder, "--client", "bob")
    assert done.returncode == 2
    assert f"{folder}/ca.pem is there, and may be somebody's only key" in done.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--client", "a/b"], '--client "a/b": want letters, digits and -._@'),
        (["--client", "ca"], '--client "ca": want'),
        (["--server", "a b"], '--server: name "a b": want 1 to 64 of letters'),
        (["--days", "0"], "--days: Value 0 not in range"),
    ],
)
def test_certs_refuses(tmp_path: Path, flags: list[str], message: str) -> None:
    done = run(HOSTIR, "certs", tmp_path / "c", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert not (tmp_path / "c").exists()


# --- hostird's files --------------------------------------------------------------------------------------------


def refusal(*flags: str) -> str:
    done = run(BUILD / "hostird", "--listen=tcp:127.0.0.1:0", *flags)
    assert done.returncode == 2, done.stdout
    return done.stderr


def test_beyond_loopback_only_with_all_three(certs: Path) -> None:
    files = daemon_files(certs)
    anywhere = "--listen=tcp:0.0.0.0:0"
    done = run(BUILD / "hostird", anywhere, *files, "--check-config")
    assert done.returncode == 0, done.stderr
    assert "--tls-cert, --tls-key and --tls-client-ca give it both" in run(BUILD / "hostird", anywhere).stderr
    for missing, name in zip(files, ("--tls-cert", "--tls-key", "--tls-client-ca"), strict=True):
        said = run(BUILD / "hostird", anywhere, "--insecure-tcp", *(file for file in files if file != missing)).stderr
        assert said == (
            f"hostird: TLS wants three files, all or none: {name} is missing (hostir certs makes all three for trying "
            "out)\n"
        )


def test_files_of_the_daemon_that_will_not_do(certs: Path, others: Path, tmp_path: Path) -> None:
    cert, key, ca = daemon_files(certs)
    shared = tmp_path / "shared.key"
    shutil.copy(certs / "server.key", shared)
    shared.chmod(0o644)
    told = refusal(cert, f"--tls-key={shared}", ca)
    assert told == (
        f"hostird: --tls-key={shared} (--tls-key): {shared} can be read or written by others (mode 0644), and who has "
        f"the key can pass for its owner: chmod 600 {shared}\n"
    )
    told = refusal(cert, f"--tls-key={others}/server.key", ca)
    assert f"{others}/server.key is not the key of the certificate {certs}/server.pem" in told
    told = refusal(f"--tls-cert={tmp_path}/none", key, f"--tls-client-ca={certs}/alice.pem")
    assert f"--tls-cert={tmp_path}/none (--tls-cert): {tmp_path}/none cannot be read: No such file" in told
    assert "alice.pem holds the certificate of CN=alice, which is no authority" in told


# --- clients ----------------------------------------------------------------------------------------------------


def test_two_certificates_at_one_daemon(certs: Path, address: str) -> None:
    x = np.arange(5, dtype=np.float32)
    with (
        hostir.connect(address, **client_files(certs)) as alice,
        hostir.connect(address, **client_files(certs, "bob")) as bob,
    ):
        assert np.array_equal(alice.put(x).numpy(), x)
        assert np.array_equal(bob.put(x).numpy(), x)


def test_the_environment_names_the_files(certs: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {f"HOSTIR_{name.upper()}": path for name, path in client_files(certs).items()}
    for name, path in variables.items():
        monkeypatch.setenv(name, path)
    with hostir.connect(address) as client:
        assert client.num_devices == 1
    done = run(HOSTIR, "status", HOSTIR_ADDRESS=address, **variables)
    assert done.returncode == 0, done.stderr


def says(address: str, files: dict[str, str]) -> tuple[str, str]:
    """What the Python client and hostir say, each of which must fail soon."""
    start = time.monotonic()
    with pytest.raises(hostir.HostirError) as caught:
        hostir.connect(address, **files)
    assert time.monotonic() - start < SOON
    start = time.monotonic()
    done = run(HOSTIR, "status", "--address", address, *(f"--{name}={path}" for name, path in files.items()))
    assert time.monotonic() - start < SOON
    assert done.returncode in (2, 4), done.stderr
    return str(caught.value), done.stderr


def test_a_client_of_another_authority(certs: Path, others: Path, address: str) -> None:
    files = {**client_files(others), "ca": f"{certs}/ca.pem"}
    for said in says(address, files):
        assert f"the daemon at {address} does not take the certificate {others}/alice.pem" in said
        assert "tls_client_ca" in said


def test_a_daemon_of_another_authority(certs: Path, others: Path, address: str) -> None:
    for said in says(address, {**client_files(certs), "ca": f"{others}/ca.pem"}):
        assert f"the daemon at {address} has a certificate that the authorities of {others}/ca.pem did not sign" in said
        assert "give the ca that did" in said


def test_a_name_that_the_daemon_has_not(certs: Path, address: str) -> None:
    by_name = address.replace("127.0.0.1", "localhost")
    for said in says(by_name, client_files(certs)):
        assert f"the daemon at {by_name} has a certificate for other names than localhost (127.0.0.1)" in said
        assert "connect by one of these" in said


def test_plaintext_to_a_daemon_with_tls(address: str) -> None:
    for said in says(address, {}):
        assert f"the daemon at {address} speaks TLS: connect with ca" in said


def test_tls_to_a_daemon_without(certs: Path, plain_address: str) -> None:
    for said in says(plain_address, client_files(certs)):
        assert (
            f"the daemon at {plain_address} speaks no TLS: connect without ca, cert and key, or start it with" in said
        )


def test_files_of_a_client_that_are_missing(certs: Path, others: Path, address: str, tmp_path: Path) -> None:
    files = client_files(certs)
    for missing in files:
        for said in says(address, {name: path for name, path in files.items() if name != missing}):
            assert f"{address} wants TLS, with three files:" in said and missing in said and "missing" in said
        for said in says(address, {**files, missing: f"{tmp_path}/none"}):
            assert f"{tmp_path}/none" in said and "cannot be read" in said
    for said in says(address, {**files, "key": f"{others}/alice.key"}):
        assert "alice.key" in said and "alice.pem" in said


def test_without_tls_nothing_leaves_the_machine() -> None:
    for said in says("tcp:198.51.100.1:4710", {}):  # An address of nobody (RFC 5737).
        assert "tcp:198.51.100.1:4710 wants TLS" in said and "only this machine's daemons" in said


def test_files_for_a_daemon_of_this_machine(certs: Path) -> None:
    with pytest.raises(hostir.InvalidArgument, match="TLS is for tcp:"):
        hostir.connect("unix:/nowhere/socket", **client_files(certs))
    with pytest.raises(hostir.InvalidArgument, match="ca, cert and key are for a daemon at tcp:host:port"):
        hostir.connect(devices="cpu:1", **client_files(certs))


def test_a_handshake_that_does_not_go_on_ends(certs: Path, address: str) -> None:
    """The listener has seen its first bytes; then gRPC waits, 5 s."""
    host, _, port = address.removeprefix("tcp:").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as stuck:
        stuck.sendall(bytes([0x16, 3, 1, 2, 0, 1]))
        with hostir.connect(address, **client_files(certs)) as client:  # Others are served meanwhile.
            assert client.num_devices == 1
        assert stuck.recv(1) == b""
