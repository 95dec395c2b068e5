"""Shards to and from the nodes of a cluster that keep them, past its head: several at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np

from . import tls, wire
from .address import target
from .errors import DeadlineExceeded, HostirError
from .reach import Reach
from .shared_memory import part_of

LEAST_BYTES = 512 << 10  # Below, the head's one round trip is faster (benchmarks/cluster_transfers.py).
_CHUNK_BYTES = 256 << 10  # So many of 256 streams are what a node has room for in gRPC.
_AT_ONCE = 8  # Shards.
_AGAIN_SECONDS = 10.0  # So long one that was not reached is not tried.
_OPTIONS = [  # One that dies, or is cut off, is noticed as soon as its head notices.
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),  # So long an attempt to connect lasts.
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 1000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.ping_timeout_ms", 2000),
    ("grpc.http2.max_pings_without_data", 0),
]


class NotReached(Exception):
    """What was to go to or come from a node does not: why."""


class Nodes:
    """Those whose addresses a daemon names. Threads: any may call."""

    def __init__(self, head: Reach, ca: str | None, cert: str | None, key: str | None) -> None:
        self._head = head
        self._files = (ca, cert, key)
        self._lock = threading.Lock()
        self._channels: dict[str, grpc.Channel] = {}  # By address. Guarded by _lock, as the next.
        self._closed_to: dict[str, tuple[float, str]] = {}  # Until when, and why.

    def write(self, values: np.ndarray[Any, Any], shards: Sequence[Any], seconds: float | None) -> list[str]:
        """The receipts for ``values``, in the shards' order. Raises NotReached, DeadlineExceeded."""
        return self._each(shards, lambda shard, stub, calls: stub.write(_block(values, shard), shard, seconds, calls))

    def read(self, values: np.ndarray[Any, Any], shards: Sequence[Any], seconds: float | None) -> None:
        """The shards' elements to ``values``, which has been allocated. Raises NotReached, DeadlineExceeded."""
        self._each(shards, lambda shard, stub, calls: stub.read(part_of(values, shard), shard, seconds, calls))

    def _each(self, shards: Sequence[Any], move: Callable[[Any, _Stub, _Calls], Any]) -> list[Any]:
        calls = _Calls()

        def one(shard: Any, stub: _Stub) -> Any:
            where = _where(shard)
            try:
                return move(shard, stub, calls)
            except grpc.FutureCancelledError:  # Another has failed.
                return None
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                    calls.fail(DeadlineExceeded, f"bytes of a shard, to or from {where}, took longer than they may")
                    return None
                why = f"{where}: {error.code().name}: {error.details()}"
                calls.fail(NotReached, why)
                if error.code() == grpc.StatusCode.UNAVAILABLE and shard.node:
                    self._close_to(shard.node, why)
            except (OSError, ValueError, HostirError) as error:  # Too few bytes; closed.
                calls.fail(NotReached, f"{where}: {error}")
            return None

        stubs = [self._open_stub(shard) for shard in shards]  # All, before a byte goes to one of them.
        if len(shards) == 1:
            done = [one(shards[0], stubs[0])]
        else:
            with ThreadPoolExecutor(min(_AT_ONCE, len(shards)), "hostir-shard") as pool:
                done = list(pool.map(one, shards, stubs))
        if calls.failure is not None:
            kind, why = calls.failure
            raise kind(why)
        return done

    def _open_stub(self, shard: Any) -> _Stub:
        """Raises NotReached."""
        try:
            return self._stub(shard.node)
        except (OSError, HostirError) as error:  # Not tried; no files for that address.
            raise NotReached(f"{_where(shard)}: {error}") from None

    def _stub(self, address: str) -> _Stub:
        """Raises OSError for one that was not reached a moment ago."""
        if not address:
            return _Stub(self._head.channel)
        with self._lock:
            until, why = self._closed_to.get(address, (0.0, ""))
            if time.monotonic() < until:
                raise OSError(f"not tried, since a moment ago {why}")
            channel = self._channels.get(address)
            if channel is None:
                files = tls.files_for(address, *self._files)
                channel = self._channels[address] = tls.channel(target(address), files, _OPTIONS)
        return _Stub(channel)

    def _close_to(self, address: str, why: str) -> None:
        with self._lock:
            self._closed_to[address] = (time.monotonic() + _AGAIN_SECONDS, why)
            channel = self._channels.pop(address, None)
        if channel is not None:
            channel.close()

    def close(self) -> None:
        with self._lock:
            channels = list(self._channels.values())
            self._channels.clear()
        for channel in channels:
            channel.close()


class _Calls:
    """Those of one transfer: when one fails, the others end. Threads: any may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: list[Any] = []  # Guarded by _lock, as the next.
        self.failure: tuple[type[Exception], str] | None = None  # The first, which others' ends follow.

    def begin(self, call: Any) -> Any:
        with self._lock:
            self._begun.append(call)
            over = self.failure is not None
        if over:
            call.cancel()
        return call

    def fail(self, kind: type[Exception], why: str) -> None:
        with self._lock:
            if self.failure is not None:
                return
            self.failure = (kind, why)
            begun = list(self._begun)
        for call in begun:
            call.cancel()


class _Stub:
    """Of one node's service. Raises gRPC's errors."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._write, self._read = wire.shard_methods(channel)

    def write(self, block: memoryview, shard: Any, seconds: float | None, calls: _Calls) -> str:
        pieces = (block[at : at + _CHUNK_BYTES] for at in range(0, block.nbytes, _CHUNK_BYTES))
        call = self._write.future(pieces, timeout=seconds, metadata=_shown(shard))
        return str(calls.begin(call).result().receipt)

    def read(self, part: np.ndarray[Any, Any], shard: Any, seconds: float | None, calls: _Calls) -> None:
        stored = tuple(shard.stored)
        in_place = part.shape == stored and part.flags.c_contiguous
        block = part if in_place else np.empty(stored, part.dtype)
        into = block.reshape(-1).view(np.uint8)
        at = 0
        call = self._read(wire.shards_pb2.ReadRequest(), timeout=seconds, metadata=_shown(shard))
        for message in calls.begin(call):
            into[at : at + len(message.data)] = np.frombuffer(message.data, np.uint8)
            at += len(message.data)
        if at != into.nbytes:
            raise OSError(f"{at} of {into.nbytes} bytes came")
        if not in_place:
            part[...] = block[tuple(slice(0, n) for n in part.shape)]


def _shown(shard: Any) -> tuple[tuple[str, str], ...]:
    return (("hostir-ticket", shard.ticket),)


def _where(shard: Any) -> str:
    return shard.node or "the head"


def _block(values: np.ndarray[Any, Any], shard: Any) -> memoryview:
    """The bytes of a shard, whose block may be longer than its elements."""
    part = part_of(values, shard)
    stored = tuple(shard.stored)
    if part.shape != stored:
        block = np.zeros(stored, part.dtype)
        block[tuple(slice(0, n) for n in part.shape)] = part
        part = block
    return np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
