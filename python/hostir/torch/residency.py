"""Which arrays hold what tensors hold: parameters are sent once, and again only when they change."""

from __future__ import annotations

import dataclasses
import enum
import threading
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ..array import Array


class Kind(enum.Enum):
    """How a tensor and its array go together."""

    COPY = enum.auto()  # The same values, until the tensor's version counter says that it has others.
    MAPPED = enum.auto()  # The same memory.
    STAND_IN = enum.auto()  # The tensor has no values: nobody but a graph is to read it.


@dataclasses.dataclass
class _Kept:
    storage: Any  # Weak: an address is given to another storage only when this one is gone.
    version: int
    array: Array
    kind: Kind


Key = tuple[int, int, tuple[int, ...], tuple[int, ...], torch.dtype]


class Residency:
    """Arrays by the memory of the tensors whose values they have. Threads: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Key, _Kept] = {}

    def find(self, tensor: torch.Tensor, *, copies: bool) -> Array | None:
        """The array with the tensor's values; None: there is none. ``copies``: also one that has them
        only as far as the version counter knows, which does not see what is written through ``.data`` or NumPy."""
        with self._lock:
            kept = self._kept.get(_key(tensor))
        if kept is None or kept.storage.expired() or kept.array._gone:
            return None
        if kept.kind is Kind.COPY and not (copies and kept.version == tensor._version):
            return None
        return kept.array

    def values_of(self, tensor: torch.Tensor) -> Array | None:
        """The array of a tensor that has no values of its own; None: it has."""
        with self._lock:
            kept = self._kept.get(_key(tensor))
        return kept.array if kept is not None and kept.kind is Kind.STAND_IN and not kept.storage.expired() else None

    def keep(self, tensor: torch.Tensor, array: Array, kind: Kind) -> None:
        """From now on ``array`` has the tensor's values, as long as its memory lives."""
        kept = _Kept(StorageWeakRef(tensor.untyped_storage()), tensor._version, array, kind)
        with self._lock:
            self._kept[_key(tensor)] = kept

    def sweep(self) -> None:
        """Lets go of arrays whose tensors are gone, or have changed."""
        with self._lock:
            for key in [key for key, kept in self._kept.items() if kept.storage.expired()]:
                del self._kept[key]

    def forget(self, tensor: torch.Tensor | None = None) -> None:
        """Sends it again with its next use; without an argument all."""
        with self._lock:
            for key in [k for k in self._kept if tensor is None or k[0] == tensor.untyped_storage()._cdata]:
                del self._kept[key]

    def __len__(self) -> int:
        return len(self._kept)


def _key(tensor: torch.Tensor) -> Key:
    shape, stride = tuple(tensor.shape), tensor.stride()
    return tensor.untyped_storage()._cdata, int(tensor.storage_offset()), shape, stride, tensor.dtype
