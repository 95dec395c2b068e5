"""Requests to a daemon on this machine in frames, by its Unix socket: gRPC takes three times as long for a small one.

A frame has a request, the next its answer, one request of a connection at a time (service/rpc/framed_calls.h). Sessions
and streams stay with gRPC, and so do requests where no connection comes, or all of them are in use.
"""

from __future__ import annotations

import collections
import contextlib
import socket
import struct
import threading
import time
from typing import Any

import grpc

_PREFACE = b"HOSTIR-FRAMED-CALLS/01\r\n"
_REQUEST = struct.Struct("<IBB")  # Bytes of the message, of the method's name, of the trace context.
_ANSWER = struct.Struct("<II")  # Bytes of the message or the error's text, status code.
_TRACE_BYTES_MAX = 255  # A trace context has 55: the daemon would leave a longer one out, too.
_CONNECTIONS_MAX = 8  # Of a client; a thread that waits for a run has one.
_CONNECT_SECONDS = 1.0
_AGAIN_SECONDS = 1.0  # After none came: the daemon has as many as it may have.
_READ_BYTES = 64 << 10
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class _Failed(grpc.RpcError):  # type: ignore[misc]
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


class Sockets:
    """The connections of one client. Threads: any."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._free: collections.deque[socket.socket] = collections.deque()
        self._open: set[socket.socket] = set()  # Guarded by the lock, as the next.
        self._not_before = 0.0
        self.closed = False

    def take(self) -> socket.socket | None:
        """One that no request is under way on; None: there is none, and none more is to be had."""
        with contextlib.suppress(IndexError):
            return self._free.pop()
        with self._lock:
            if self.closed or len(self._open) >= _CONNECTIONS_MAX or time.monotonic() < self._not_before:
                return None
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._open.add(made)
        try:
            made.settimeout(_CONNECT_SECONDS)
            made.connect(self._path)
            made.sendall(_PREFACE)
            if len(made.recv(_ANSWER.size)) == _ANSWER.size:  # It is taken.
                return made
        except OSError:
            pass
        except BaseException:  # An interrupt.
            self.drop(made)
            raise
        self.drop(made)
        self._not_before = time.monotonic() + _AGAIN_SECONDS
        return None

    def give_back(self, connection: socket.socket) -> None:
        self._free.append(connection)

    def drop(self, connection: socket.socket) -> None:
        """Closes one that ``take`` gave, which ends the request under way on it, for the daemon, too."""
        with self._lock:
            self._open.discard(connection)
        connection.close()

    def cut(self) -> None:
        """Ends all requests under way, as if the daemon had gone."""
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):  # It is not connected yet, or no more.
                    each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            self.closed = True
        self.cut()
        with contextlib.suppress(IndexError):
            while True:
                self.drop(self._free.pop())


class Method:
    """One of the service's, called as the stub's, whose is ``by_grpc``. Threads: any."""

    def __init__(self, sockets: Sockets, name: str, reply: Any, by_grpc: Any) -> None:
        self._sockets = sockets
        self._name = name.encode()
        self._read = reply.FromString
        self._by_grpc = by_grpc
        self.future = by_grpc.future

    def __call__(self, request: Any, timeout: float | None = None, metadata: Any = None) -> Any:
        """The answer, within ``timeout`` seconds. Raises grpc.RpcError."""
        connection = self._sockets.take()
        if connection is None:
            return self._by_grpc(request, timeout=timeout, metadata=metadata)
        try:
            code, answer = self._exchange(connection, request, timeout, metadata)
        except BaseException as error:  # An interrupt, too: the daemon hears of it as the connection ends.
            self._sockets.drop(connection)
            if isinstance(error, TimeoutError):
                raise _Failed(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
            if isinstance(error, OSError):
                raise self._cut_off() from None
            raise
        self._sockets.give_back(connection)
        if code != 0:
            raise _Failed(_CODES.get(code, grpc.StatusCode.UNKNOWN), answer.decode(errors="replace"))
        return self._read(answer)

    def _cut_off(self) -> _Failed:
        if self._sockets.closed:
            return _Failed(grpc.StatusCode.CANCELLED, "the client was closed")
        return _Failed(grpc.StatusCode.UNAVAILABLE, "Socket closed")

    def _exchange(
        self, connection: socket.socket, request: Any, timeout: float | None, metadata: Any
    ) -> tuple[int, bytes]:
        end = None if timeout is None else time.monotonic() + timeout
        if connection.gettimeout() != timeout:  # Which costs a system call, where it is another.
            connection.settimeout(timeout)
        trace = metadata[0][1].encode() if metadata else b""
        trace = trace if len(trace) <= _TRACE_BYTES_MAX else b""
        message = request.SerializeToString()
        head = _REQUEST.pack(len(message), len(self._name), len(trace))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # It may have said why.
            connection.sendall(b"".join((head, self._name, trace, message)))
        data = _more(connection.recv(_READ_BYTES))
        while len(data) < _ANSWER.size:
            data += _more(connection.recv(_READ_BYTES))
        size, code = _ANSWER.unpack_from(data)
        answer = data[_ANSWER.size :]
        if len(answer) == size:
            return code, answer
        whole = bytearray(size)
        whole[: len(answer)] = answer
        rest = memoryview(whole)[len(answer) :]
        while rest:
            if end is not None:
                connection.settimeout(max(1e-3, end - time.monotonic()))
            rest = rest[_more(connection.recv_into(rest)) :]
        return code, bytes(whole)


def _more(received: Any) -> Any:
    if not received:  # No bytes: the end.
        raise ConnectionResetError("the daemon has closed the connection")
    return received
