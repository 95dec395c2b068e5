"""TLS to a daemon on another machine: the client's three files, and why a connection fails, in a sentence."""

from __future__ import annotations

import dataclasses
import os
import socket
import ssl
import time
from typing import Any

import grpc

from .address import is_loopback
from .errors import Unauthenticated
from .location import invalid
from .wire import service_pb2 as pb
from .wire import service_pb2_grpc as rpc

_SECONDS = 2.0  # That finding the reason of a failure takes at most.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # With empty settings.
_FRAME_HEADER_BYTES = 9
_SETTINGS = 4
_NAME_MISMATCH = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_HAS_EXPIRED = 10
_NOT_YET_VALID = 9
_OF_FILES = {"ca": "HOSTIR_CA", "cert": "HOSTIR_CERT", "key": "HOSTIR_KEY"}


@dataclasses.dataclass(frozen=True)
class Files:
    """Paths of PEM files: the authorities that sign daemons' certificates, this client's certificate, and its key."""

    ca: str
    cert: str
    key: str


def files_for(address: str, ca: str | None, cert: str | None, key: str | None) -> Files | None:
    """The files for a connection to ``address``: the arguments, else the environment's; None: without TLS.

    Raises InvalidArgument where files are missing, cannot be read or do not belong together.
    """
    given = {"ca": ca, "cert": cert, "key": key}
    if address.startswith("unix:"):
        if named := [name for name, path in given.items() if path is not None]:
            raise invalid(f"{', '.join(named)}: {address} is of this machine, which knows its users; TLS is for tcp:")
        return None
    paths = {name: path or os.environ.get(_OF_FILES[name]) or "" for name, path in given.items()}
    missing = [f"{name} (${_OF_FILES[name]})" for name, path in paths.items() if not path]
    if len(missing) == len(paths) and is_loopback(address):
        return None
    if missing:
        raise invalid(
            f"{address} wants TLS, with three files: {', '.join(missing)} missing; without TLS only this machine's "
            "daemons are talked to"
        )
    files = Files(**{name: os.fspath(path) for name, path in paths.items()})
    for name, path in dataclasses.asdict(files).items():
        _read(name, path)
    _context(files)
    return files


def channel(target: str, files: Files | None, options: list[tuple[str, int]]) -> grpc.Channel:
    """A channel that speaks TLS where there are files for it."""
    if files is None:
        return grpc.insecure_channel(target, options=options)
    read = {name: _read(name, path) for name, path in dataclasses.asdict(files).items()}
    credentials = grpc.ssl_channel_credentials(read["ca"], read["key"], read["cert"])
    return grpc.secure_channel(target, credentials, options=options)


def wait_ready(
    stub: rpc.RuntimeStub, address: str, files: Files | None, timeout: float, *, patient: bool = True
) -> None:
    """Returns when the daemon has answered. Raises grpc.RpcError when it has not in time, or, unless ``patient``, when
    nobody listens there; Unauthenticated at once for what no waiting mends."""
    deadline = time.monotonic() + timeout
    if address.startswith("tcp:"):
        try:
            stub.Status(pb.StatusRequest(), timeout=timeout)
            return
        except grpc.RpcError as error:
            if not patient and error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise  # Nobody is there to say why.
            why = why_not_connected(address, files)
            if why:
                raise Unauthenticated(f"the daemon at {address} {why}") from error
    stub.Status(pb.StatusRequest(), wait_for_ready=patient, timeout=max(0.01, deadline - time.monotonic()))


def why_not_connected(address: str, files: Files | None) -> str:
    """Why gRPC could not connect to tcp:host:port, with the remedy; gRPC says "Socket closed" to most of it. "" when
    nobody listens there, when nothing is wrong by now, and for what is no daemon."""
    host, _, port = address.removeprefix("tcp:").rpartition(":")
    host = host.strip("[]")
    deadline = time.monotonic() + _SECONDS
    try:
        if files is None:
            return _why_not_plain(host, int(port), deadline)
        return _why_not_tls(host, int(port), files, deadline)
    except OSError:
        return ""


def _why_not_plain(host: str, port: int, deadline: float) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with _dial(host, port, deadline) as connection:
        try:
            context.wrap_socket(connection, server_hostname=host).close()
        except ssl.SSLEOFError:
            return ""
        except ssl.SSLError as error:
            if "ALERT" not in str(error.reason):  # Else it speaks TLS, if only to refuse.
                return ""
    return "speaks TLS: connect with ca=, cert= and key= ($HOSTIR_CA, $HOSTIR_CERT, $HOSTIR_KEY)"


def _why_not_tls(host: str, port: int, files: Files, deadline: float) -> str:
    try:
        with (
            _dial(host, port, deadline) as connection,
            _context(files).wrap_socket(connection, server_hostname=host) as spoken,
        ):
            # It looks at our certificate when we think that all is done (TLS 1.3), and says nothing of what it finds.
            return "" if _answers(spoken) else _not_taken(files)
    except ssl.SSLCertVerificationError as error:
        return _why_not_verified(error, host, port, files, deadline)
    except (ssl.SSLError, ConnectionError) as error:
        if isinstance(error, ssl.SSLError) and "ALERT" in str(error.reason):
            return _not_taken(files)
    if _speaks_plain_http2(host, port, deadline):
        return (
            "speaks no TLS: connect without ca, cert and key, or start it with --tls-cert, --tls-key and "
            "--tls-client-ca"
        )
    return ""


def _answers(spoken: ssl.SSLSocket) -> bool:
    try:
        return bool(spoken.recv(1))
    except (ssl.SSLError, ConnectionError):
        return False


def _not_taken(files: Files) -> str:
    return (
        f"does not take the certificate {files.cert}: it has expired, or no authority of its tls_client_ca signed it; "
        "have one signed by such (cert=, $HOSTIR_CERT)"
    )


def _why_not_verified(error: ssl.SSLCertVerificationError, host: str, port: int, files: Files, deadline: float) -> str:
    if error.verify_code in _NAME_MISMATCH:
        context = _context(files)
        context.check_hostname = False
        with _dial(host, port, deadline) as connection, context.wrap_socket(connection) as spoken:
            shown: dict[str, Any] = spoken.getpeercert() or {}
        names = ", ".join(str(value) for _, value in shown.get("subjectAltName", ()))
        return (
            f"has a certificate for other names than {host} ({names}): connect by one of these, or have its tls_cert "
            "signed for this one, too"
        )
    if error.verify_code == _HAS_EXPIRED:
        return "has a certificate that has expired: its tls_cert must be renewed"
    if error.verify_code == _NOT_YET_VALID:
        return "has a certificate that is not valid yet: one of the two machines' clocks is wrong"
    return (
        f"has a certificate that the authorities of {files.ca} did not sign ({error.verify_message}): give the ca that "
        "did (ca=, $HOSTIR_CA)"
    )


def _speaks_plain_http2(host: str, port: int, deadline: float) -> bool:
    with _dial(host, port, deadline) as connection:
        connection.sendall(_PREFACE)
        frame = connection.recv(_FRAME_HEADER_BYTES, socket.MSG_WAITALL)
        return len(frame) == _FRAME_HEADER_BYTES and frame[3] == _SETTINGS


def _dial(host: str, port: int, deadline: float) -> socket.socket:
    left = max(0.01, deadline - time.monotonic())
    connection = socket.create_connection((host, port), timeout=left)
    connection.settimeout(left)
    return connection


def _context(files: Files) -> ssl.SSLContext:
    """Raises InvalidArgument for files that do not hold what they should."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(files.ca)
    except ssl.SSLError as error:
        raise invalid(f"ca = {files.ca!r}: holds no certificates in PEM ({error.reason})") from None
    try:
        # A passphrase would be asked for on the terminal.
        context.load_cert_chain(files.cert, files.key, password="")
    except ssl.SSLError as error:
        raise invalid(
            f"cert = {files.cert!r}, key = {files.key!r}: want a certificate and its private key, in PEM, without a "
            f"passphrase ({error.reason or error})"
        ) from None
    return context


def _read(name: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise invalid(
            f"{name} = {path!r}: cannot be read: {error.strerror}; name a file that is there and that this user may "
            f"read ({name}=, ${_OF_FILES[name]})"
        ) from None
