"""Memory of this process's GPUs that it has lent to its daemon: arrays lie there, where both sides see them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import cuda
from .gpu_array import GpuView, strides_of
from .wire import service_pb2 as pb

_BLOCK_BYTES = 256 << 20
_MORE_BYTES_MAX = 4 << 30  # By which what is lent grows at once, but for an array that is larger.

Lend = Callable[[int, int, int], tuple[int, GpuView] | None]  # The device, the GPU, bytes: the memory's number.


class LentMemory:
    """Blocks of one session. They stay as long as that, or anything that was made of them. Threads: any may call."""

    def __init__(self, lend: Lend) -> None:
        self._lend = lend
        self._lock = threading.Lock()
        self._blocks: dict[int, GpuView] = {}
        self._wanted: dict[tuple[int, int], int] = {}  # Bytes, by device and GPU.
        self._is_refused = False

    def view(
        self, memory: int, offset: int, shape: Sequence[int], dtype: np.dtype[Any], keep: Any = None
    ) -> GpuView | None:
        """What lies there; it holds ``keep``. None: that is no memory of this process's."""
        block = self._blocks.get(memory)
        if block is None:
            return None
        return GpuView(block.address + offset, shape, strides_of(shape, dtype), dtype, block.ordinal, (block, keep))

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
        what was wanted. Where the daemon or a GPU has none left, nothing more is lent."""
        if not self._blocks and not self._wanted:
            return
        with self._lock:
            for (device, ordinal), nbytes in self._wanted.items():
                more = min(sum(block.nbytes for block in self._blocks.values()), _MORE_BYTES_MAX)
                lent = None if self._is_refused else self._lend(device, ordinal, max(_BLOCK_BYTES, 2 * nbytes, more))
                self._is_refused = lent is None
                if lent is not None:
                    self._blocks[lent[0]] = lent[1]
            self._wanted.clear()
            ordinals = {block.ordinal for block in self._blocks.values()}
        driver = cuda.driver()
        for ordinal in ordinals:
            assert driver is not None
            driver.synchronize(ordinal)

    def end(self) -> None:
        """With the session: what was made of blocks keeps them."""
        self._blocks.clear()
