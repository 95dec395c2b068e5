"""Where a daemon listens, as users write it: "unix:/path" or "tcp:host:port", or several with commas between."""

from __future__ import annotations

import os

from .location import invalid

_PATH_BYTES_MAX = 107  # Of a socket, on Linux.
_PORT_MAX = 65535
_NOT_IN_PATHS = "#?,%"  # gRPC takes addresses for URIs: these end a path, part two, or stand for another character.


def target(address: str, named: str = "address") -> str:
    """The address as gRPC wants it. named: what it was given by. Raises InvalidArgument."""
    if fault := _fault(address):
        raise invalid(f"{named} = {address!r}: {fault}")
    return address.removeprefix("tcp:")


def addresses(text: str, named: str = "address") -> list[str]:
    """Those of "tcp:a:7000,tcp:b:7000", each as ``target`` takes it. Raises InvalidArgument."""
    each = text.split(",") if isinstance(text, str) else [text]
    for address in each:
        target(address, named)
    return each


def socket_path(address: str) -> str | None:
    """The path of a Unix socket's address; None for another's. REQUIRES: ``target`` took it."""
    return address.removeprefix("unix:") if address.startswith("unix:") else None


def is_loopback(address: str) -> bool:
    """Whether a TCP address names this machine by itself. The address is ``target``'s."""
    return address.removeprefix("tcp:").rpartition(":")[0] in ("127.0.0.1", "localhost", "[::1]")


def _fault(address: object) -> str:
    """What is wrong with it; empty for nothing."""
    if isinstance(address, str) and address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if not path.startswith("/"):
            return "want unix:/path, with an absolute path"
        if (size := len(os.fsencode(path))) > _PATH_BYTES_MAX:
            return f"a socket's path has at most {_PATH_BYTES_MAX} bytes, this one has {size}"
        if found := next((c for c in path if c in _NOT_IN_PATHS), ""):
            return f'the path has "{found}", which gRPC reads as no part of a path: name another'
        return ""
    if isinstance(address, str) and address.startswith("tcp:"):
        host, _, port = address.removeprefix("tcp:").rpartition(":")
        is_port = port.isascii() and port.isdecimal() and 1 <= int(port[:9]) <= _PORT_MAX
        return "" if host and is_port else f"want tcp:host:port with a port from 1 to {_PORT_MAX}"
    return "want unix:/path or tcp:host:port"
