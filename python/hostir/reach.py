"""The daemon at an address, or whichever of several serves: the nodes of a cluster, of which one heads the others."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import grpc

from . import tls, wire
from .address import socket_path, target
from .framed import Method, Sockets

_TURN_SECONDS = 1.0  # That one of several gets to answer.
_PAUSE_SECONDS = 0.05


class Reach:
    """Its attributes are the stub's methods. Threads: any may call, but for ``find``: one at a time."""

    def __init__(
        self,
        addresses: list[str],
        ca: str | None,
        cert: str | None,
        key: str | None,
        options: list[tuple[str, int]],
    ) -> None:
        self._ends = [(address, target(address), tls.files_for(address, ca, cert, key)) for address in addresses]
        self._options = options
        if len(addresses) > 1:  # Another goes on with the session: one that says nothing is given up soon.
            soon = {name: 2000 for name, _ in options if name.endswith(("keepalive_time_ms", "timeout_ms"))}
            soon["grpc.keepalive_permit_without_calls"] = 0  # Its session is a call.
            self._options = list({**dict(options), **soon}.items())
        self._sockets: Sockets | None = None  # For requests in frames.
        self.turn = 0  # Another when requests go another way: what was asked before may have been cut off.
        self._open(0)

    def _open(self, place: int) -> None:
        self.turn += 1
        self._place = place
        self.address, where, self._files = self._ends[place]
        self._channel = tls.channel(where, self._files, self._options)
        self._stub = wire.runtime_stub(self._channel)
        if len(self._ends) == 1:  # It stays this one: nothing is between.
            self.__dict__.update(vars(self._stub))

    def take_frames(self) -> None:
        """The daemon takes requests in frames, by a Unix socket: from now on they go so, where it has one."""
        path = socket_path(self.address)
        if self.has_others or path is None or self._sockets is not None:
            return
        self._sockets = Sockets(path)
        for name, reply in wire.unary_replies().items():
            self.__dict__[name] = Method(self._sockets, name, reply, getattr(self._stub, name))

    def cut(self) -> None:
        """The session's connection has ended: requests in frames end with it, also where a daemon says nothing."""
        if self._sockets is not None:
            self._sockets.cut()

    def __getattr__(self, name: str) -> Any:
        return _Method(self, name)

    @property
    def channel(self) -> grpc.Channel:
        """That of the one that serves, or did last."""
        return self._channel

    @property
    def has_others(self) -> bool:
        """Whether more than one daemon may serve."""
        return len(self._ends) > 1

    def find(self, seconds: float) -> None:
        """Returns when a daemon has answered, within ``seconds``. Raises gRPC's errors, and Unauthenticated at once for
        what no waiting mends."""
        end = time.monotonic() + seconds
        if len(self._ends) == 1:
            # A future of the channel's would look for changes every 200 ms, and hold up close() for as long.
            tls.wait_ready(self._stub, self.address, self._files, seconds)
            return
        while True:
            try:
                left = max(0.01, end - time.monotonic())
                tls.wait_ready(self._stub, self.address, self._files, min(_TURN_SECONDS, left), patient=False)
                return
            except grpc.RpcError:
                if time.monotonic() > end:
                    raise
            self._channel.close()
            self._open((self._place + 1) % len(self._ends))
            if self._place == 0:
                time.sleep(_PAUSE_SECONDS)

    def lost(self) -> None:
        """The one that served does so no more: its connection is not waited for."""
        self.turn += 1
        if self.has_others:
            with contextlib.suppress(ValueError):
                self._channel.close()
            self._open((self._place + 1) % len(self._ends))

    def found(self) -> None:
        """It serves again. Over the one connection of one address nothing else tells from what was asked meanwhile."""
        if len(self._ends) == 1:
            self.turn += 1

    def close(self) -> None:
        if self._sockets is not None:
            self._sockets.close()
        self._channel.close()


class _Method:
    """One of the stub's, of whichever stub there is when it is called."""

    def __init__(self, reach: Reach, name: str) -> None:
        self._reach = reach
        self._name = name

    def _now(self) -> Any:
        return getattr(self._reach._stub, self._name)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        try:
            return self._now()(*arguments, **options)
        except ValueError as error:  # The channel was closed meanwhile.
            raise _Closed from error

    def future(self, *arguments: Any, **options: Any) -> Any:
        try:
            return self._now().future(*arguments, **options)
        except ValueError as error:
            raise _Closed from error


class _Closed(grpc.RpcError):  # type: ignore[misc]
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "the connection is closed"
