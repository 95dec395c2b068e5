"""A session with a daemon: the stream it lives by, and how it goes on over another connection where it has a lease."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc

from .errors import Unauthenticated
from .progress import PlanProgress, listen
from .reach import Reach
from .wire import service_pb2 as pb

_END_SECONDS = 0.1
_PAUSE_SECONDS = 0.05  # Between two attempts to come back.


class Session:
    """Opened when it is made, within ``seconds``. Raises gRPC's errors. Threads: any may call."""

    def __init__(self, stub: Reach, lease: float, told: Callable[[PlanProgress], None] | None, seconds: float) -> None:
        self._stub = stub
        self._told = told
        self._lock = threading.Lock()
        self._request = pb.ConnectRequest(
            client=f"python, pid {os.getpid()}", progress=told is not None, lease_ms=int(lease * 1000)
        )
        self.hello = self._open(time.monotonic() + seconds)
        self.id = str(self.hello.session_id)
        self.lease = self.hello.lease_ms / 1000  # Seconds, as the daemon grants it.
        self.daemon = str(self.hello.daemon)  # Which one: the head of a cluster may be replaced.

    def _open(self, end: float) -> Any:
        while True:
            self._stub.find(max(0.01, end - time.monotonic()))
            try:
                return self._connect()
            except grpc.RpcError as error:
                # A daemon that has just ceased to be the head: another one is.
                is_over = error.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() > end
                if is_over or not self._stub.has_others:
                    raise
            self._stub.lost()
            time.sleep(_PAUSE_SECONDS)

    def _connect(self) -> Any:
        events = self._stub.Connect(self._request)
        hello = next(events)
        self._events = events
        if hello.framed_calls and hello.lease_ms == 0:  # One with a lease may be cut off, of which gRPC knows more.
            self._stub.take_frames()
            events.add_callback(self._stub.cut)
        if self._told is not None:
            listen(events, self._told)
        return hello

    def is_open(self) -> bool:
        return bool(self._events.is_active())

    def has_ended(self, seconds: float = _END_SECONDS) -> bool:
        """A request that the transport fails may be over a little before its session: by ``seconds`` at most."""
        over = threading.Event()
        return not self._events.add_callback(over.set) or over.wait(seconds)

    def why_ended(self) -> str:
        """What the daemon said as it ended the session; empty: nothing, as where the connection ended."""
        ended = self.has_ended() and self._events.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        return str(self._events.details() or "") if ended else ""

    def resume(self) -> bool:
        """Whether the session is there, after at most its lease; over another connection, where the old one is gone."""
        if self.lease <= 0:
            return False
        with self._lock:  # One thread comes back for all.
            if not self.has_ended():
                return True
            self._request.session_id = self.id
            end = time.monotonic() + self.lease
            self._stub.lost()
            while True:
                try:
                    self._stub.find(max(0.1, end - time.monotonic()))
                    self.daemon = str(self._connect().daemon)
                    self._stub.found()
                    return True
                except Unauthenticated:
                    return False
                except grpc.RpcError as error:
                    if error.code() == grpc.StatusCode.NOT_FOUND or time.monotonic() > end:
                        return False
                time.sleep(_PAUSE_SECONDS)

    def end(self) -> None:
        """Ends it now, also where it has a lease."""
        if self.lease > 0:
            with contextlib.suppress(grpc.RpcError, ValueError):  # Gone, and its session with it, sooner or later.
                self._stub.Disconnect(pb.DisconnectRequest(session_id=self.id), timeout=1.0)
        self._events.cancel()
