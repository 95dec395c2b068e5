"""Tensors to and from a daemon on the same host, in memory that both have: nothing goes over the wire.

The daemon says where elements lie, and gives descriptors of that memory through its Unix socket to whoever knows the
transfer's token and is the session's user. All of it is copied by the kernel's reads and writes, in pieces, by a few
threads: writes to fresh memory so cost no page fault and no zeroed page each.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from .sharding import elements

LEAST_BYTES = 1 << 20  # Below, a stream is as fast.
PARTS_MAX = 253  # That one message carries (service/rpc/shared_transfers.h).
_PREFACE = b"HOSTIR-SHARED-MEMORY/1\r\n"
_PIECE_BYTES = 16 << 20  # Of one read or write.
_BLOCK_BYTES = 1 << 20  # That is made contiguous at a time, within a cache.
_THREADS = min(4, len(os.sched_getaffinity(0)))
_MAP_FAILED = ctypes.c_void_p(-1).value
_MREMAP_OVER = 3  # MREMAP_MAYMOVE | MREMAP_FIXED of Linux.
_SECONDS = 10.0  # For the daemon to give descriptors.


@contextmanager
def descriptors(path: str, token: str, shards: Sequence[Any]) -> Iterator[list[int] | None]:
    """One for each shard, -1 for those without bytes; None where none come, as through a socket that was forwarded from
    another host."""
    wanted = sum(shard.bytes > 0 for shard in shards)
    received: list[int] = []
    try:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(_SECONDS)
                connection.connect(path)
                connection.sendall(_PREFACE + token.encode())
                _, received, _, _ = socket.recv_fds(connection, 1, PARTS_MAX)
        except OSError:  # Not there any more, or full.
            pass
        given = iter(received)
        yield [next(given) if shard.bytes else -1 for shard in shards] if len(received) == wanted else None
    finally:
        for descriptor in received:
            os.close(descriptor)


def offer(path: str, token: str, given: Sequence[int]) -> bool:
    """Whether the daemon has got descriptors of this process's."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_SECONDS)
            connection.connect(path)
            socket.send_fds(connection, [_PREFACE + token.encode()], list(given))
            return len(connection.recv(1)) == 1
    except OSError:  # As above.
        return False


def slices(shard: Any) -> tuple[slice, ...]:
    """Which elements of what travels ``shard`` has."""
    parts = zip(shard.shard.start, shard.shard.extent, shard.shard.step, strict=True)
    return tuple(elements(*part) for part in parts)


def write(values: np.ndarray[Any, Any], shards: Sequence[Any], given: Sequence[int]) -> None:
    """``values`` to the shards' memory. Raises OSError where the machine has none left."""
    _each(
        [
            task
            for shard, descriptor in zip(shards, given, strict=True)
            if descriptor >= 0
            for task in _writes(part_of(values, shard), tuple(shard.stored), descriptor)
        ]
    )


def read(values: np.ndarray[Any, Any], shards: Sequence[Any], given: Sequence[int]) -> None:
    """The shards' memory to ``values``, which has been allocated."""
    _each(
        [
            task
            for shard, descriptor in zip(shards, given, strict=True)
            if descriptor >= 0
            for task in _reads(part_of(values, shard), tuple(shard.stored), descriptor)
        ]
    )


def mapped(shard: Any, descriptor: int) -> np.ndarray[Any, Any]:
    """The bytes of a shard where the daemon has them, to be read and written there."""
    memory = mmap.mmap(descriptor, shard.bytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    return np.frombuffer(memory, np.uint8)  # Mapped as long as viewed.


def make_own(memory: np.ndarray[Any, Any]) -> None:
    """Puts a copy of mapped bytes in their place, at once for whoever reads them meanwhile."""
    size = -(-memory.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    access, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    fresh = libc.mmap(None, size, access, kind, -1, 0)
    if fresh == _MAP_FAILED:
        raise OSError(ctypes.get_errno(), f"no memory for a copy of {memory.nbytes} mapped bytes")
    ctypes.memmove(fresh, memory.ctypes.data, memory.nbytes)
    if libc.mremap(fresh, size, size, _MREMAP_OVER, memory.ctypes.data) == _MAP_FAILED:
        raise OSError(ctypes.get_errno(), f"a copy of {memory.nbytes} mapped bytes cannot take their place")


def part_of(values: np.ndarray[Any, Any], shard: Any) -> np.ndarray[Any, Any]:
    """A view of the elements of ``values`` that ``shard`` has."""
    index: Any = (*slices(shard), ...)  # Also without axes a view, no element.
    view: np.ndarray[Any, Any] = values[index]
    return view


def _each(tasks: list[Callable[[], None]]) -> None:
    if len(tasks) < 2 or _THREADS < 2:
        for task in tasks:
            task()
        return
    with ThreadPoolExecutor(min(_THREADS, len(tasks)), "hostir-copy") as pool:
        for done in [pool.submit(task) for task in tasks]:
            done.result()


def _writes(part: np.ndarray[Any, Any], stored: tuple[int, ...], descriptor: int) -> Iterator[Callable[[], None]]:
    if part.size == 0:
        return
    if part.shape[1:] != stored[1:]:  # Rows have padding between them.
        yield partial(_copy, _mapped(part, stored, descriptor, mmap.PROT_READ | mmap.PROT_WRITE), part)
        return
    for rows, at in _pieces(part, _PIECE_BYTES):
        yield partial(_write, rows, descriptor, at)


def _write(rows: np.ndarray[Any, Any], descriptor: int, at: int) -> None:
    for block, start in _pieces(rows, rows.nbytes if rows.flags.c_contiguous else _BLOCK_BYTES, at):
        data = np.ascontiguousarray(block).reshape(-1).view(np.uint8).data
        while data:
            written = os.pwrite(descriptor, data, start)
            data, start = data[written:], start + written


def _reads(part: np.ndarray[Any, Any], stored: tuple[int, ...], descriptor: int) -> Iterator[Callable[[], None]]:
    if part.size == 0:
        return
    if part.shape[1:] == stored[1:] and part.flags.c_contiguous:
        for rows, at in _pieces(part, _PIECE_BYTES):
            yield partial(_read, rows, descriptor, at)
        return
    mapped = _mapped(part, stored, descriptor, mmap.PROT_READ)
    pieces = zip(_pieces(part, _PIECE_BYTES), _pieces(mapped, _PIECE_BYTES), strict=True)
    for (rows, _), (source, _) in pieces:
        yield partial(_copy, rows, source)


def _read(rows: np.ndarray[Any, Any], descriptor: int, at: int) -> None:
    data = rows.reshape(-1).view(np.uint8).data
    while data:
        got = os.preadv(descriptor, [data], at)
        if got == 0:
            raise OSError(f"shared memory ends {len(data)} bytes early")
        data, at = data[got:], at + got


def _copy(target: np.ndarray[Any, Any], source: np.ndarray[Any, Any]) -> None:
    np.copyto(target, source)


def _mapped(part: np.ndarray[Any, Any], stored: tuple[int, ...], descriptor: int, access: int) -> np.ndarray[Any, Any]:
    """Where the elements of ``part`` are in the memory of ``descriptor``, whose block may be longer."""
    size = int(np.prod(stored, dtype=np.int64)) * part.itemsize
    whole: np.ndarray[Any, Any] = np.frombuffer(
        mmap.mmap(descriptor, size, mmap.MAP_SHARED, access), np.uint8
    )  # Mapped as long as viewed.
    block: np.ndarray[Any, Any] = whole.view(part.dtype).reshape(stored)
    return block[tuple(slice(0, n) for n in part.shape)]


def _pieces(part: np.ndarray[Any, Any], piece_bytes: int, at: int = 0) -> Iterator[tuple[np.ndarray[Any, Any], int]]:
    """Views of ``part``, of at most ``piece_bytes`` where an axis can be cut, each with its offset in bytes."""
    if part.nbytes <= piece_bytes or part.ndim == 0:
        yield part, at
        return
    row_bytes = part.nbytes // len(part)
    if row_bytes > piece_bytes:
        for index in range(len(part)):
            yield from _pieces(part[index], piece_bytes, at + index * row_bytes)
        return
    step = piece_bytes // row_bytes
    for first in range(0, len(part), step):
        yield part[first : first + step], at + first * row_bytes
