"""Memory of this process's GPUs that it has lent to its daemon: arrays lie there, where both sides see them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import cuda
from .gpu_array import GpuView, strides_of
from .wire import service_pb2 as pb

_BLOCK_BYTES = 256 << 20
_MORE_BYTES_MAX = 4 << 30  # By which what is lent grows at once, but for an array that is larger.
_REFUSED_SECONDS = 60.0  # Until a device that took no memory is asked again.


class Block(NamedTuple):
    """Memory of a GPU of this process's, lent for arrays of a device of the daemon's."""

    device: int
    view: GpuView
    handle: str


Lend = Callable[[int, int, int], tuple[int, Block] | None]  # The device, the GPU, bytes: the memory's number.
TakeBack = Callable[[Sequence[Block]], list[bool]]  # Which are lost with a rank.


class LentMemory:
    """Blocks of one session. They stay as long as that, or anything that was made of them. Threads: any may call."""

    def __init__(self, lend: Lend, take_back: TakeBack) -> None:
        self._lend = lend
        self._take_back = take_back
        self._lock = threading.Lock()
        self._blocks: dict[int, Block] = {}
        self._wanted: dict[tuple[int, int], int] = {}  # Bytes, by device and GPU.
        self._refused: dict[int, float] = {}  # By device: when.

    def view(
        self, memory: int, offset: int, shape: Sequence[int], dtype: np.dtype[Any], keep: Any = None
    ) -> GpuView | None:
        """What lies there; it holds ``keep``. None: that is no memory of this process's."""
        block = self._blocks.get(memory)
        if block is None:
            return None
        at = block.view.address + offset
        return GpuView(at, shape, strides_of(shape, dtype), dtype, block.view.ordinal, (block, keep))

    def target(self, shards: Sequence[pb.SharedShard], dtype: np.dtype[Any]) -> GpuView | None:
        """Where an upload, which has one shard, is to be written; None: not here."""
        (shard,) = shards if len(shards) == 1 else (None,)
        return None if shard is None else self.view(shard.memory, shard.memory_offset, shard.stored, dtype)

    def want(self, device: int, ordinal: int, nbytes: int) -> None:
        """There was no place for an array of ``device``, which is GPU ``ordinal`` here: the next run finds more."""
        with self._lock:
            self._wanted[device, ordinal] = self._wanted.get((device, ordinal), 0) + nbytes

    def prepare(self) -> None:
        """Before a run, which may read and write there: waits for what the GPUs have to do in this process, and lends
        what was wanted. A device that takes none is asked again a minute later."""
        if not self._blocks and not self._wanted:
            return
        with self._lock:
            for (device, ordinal), nbytes in self._wanted.items():
                self._grow(device, ordinal, nbytes)
            self._wanted.clear()
            ordinals = {block.view.ordinal for block in self._blocks.values()}
        driver = cuda.driver()
        for ordinal in ordinals:
            assert driver is not None
            driver.synchronize(ordinal)

    def _grow(self, device: int, ordinal: int, nbytes: int) -> None:
        if time.monotonic() - self._refused.get(device, -_REFUSED_SECONDS) < _REFUSED_SECONDS:
            return
        there = {memory: block for memory, block in self._blocks.items() if block.device == device}
        if there:
            for memory, is_lost in zip(list(there), self._take_back(list(there.values())), strict=True):
                if is_lost:
                    del self._blocks[memory], there[memory]
        more = min(sum(block.view.nbytes for block in there.values()), _MORE_BYTES_MAX)
        lent = self._lend(device, ordinal, max(_BLOCK_BYTES, 2 * nbytes, more))
        if lent is None:
            self._refused[device] = time.monotonic()
        else:
            self._blocks[lent[0]] = lent[1]

    def end(self) -> None:
        """With the session: what was made of blocks keeps them."""
        self._blocks.clear()
