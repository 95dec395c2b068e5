"""Which arrays hold what tensors hold: parameters are sent once, and again only when they change."""

from __future__ import annotations

import dataclasses
import enum
import threading
import weakref
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ..array import Array
from ..errors import FailedPrecondition
from .memory import lies_as


class Kind(enum.Enum):
    """How a tensor and its array go together."""

    COPY = enum.auto()  # The same values, until the tensor's version counter says that it has others.
    SENT = enum.auto()  # As a copy, for the graph behind the one that sent it alone.
    MAPPED = enum.auto()  # The same memory.
    STAND_IN = enum.auto()  # The tensor has no values: nobody but a graph is to read it.


@dataclasses.dataclass(slots=True)
class _Kept:
    storage: Any  # Weak: an address is given to another storage only when this one is gone.
    address: int  # Of its memory, which may be replaced.
    version: int
    array: Array
    kind: Kind


Key = tuple[int, int, tuple[int, ...], tuple[int, ...], torch.dtype]
Place = tuple[int, torch.Size, torch.dtype]  # Address, of a dense tensor.
_SWEPT_LEAST = 256


class Residency:
    """Arrays by the memory of the tensors whose values they have. Threads: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Key, _Kept] = {}  # All but MAPPED.
        # MAPPED: the memory is the array's as long as that is there, whatever tensor is in it; and it keeps the array.
        self._mapped: dict[Place, weakref.ref[Array]] = {}
        self._sweep_at = _SWEPT_LEAST  # So many of these.

    def find(self, tensor: torch.Tensor, trusted: frozenset[Kind]) -> tuple[Array, Kind] | None:
        """The array with the tensor's values, and how the two go together; None: there is none. ``trusted``: COPY and
        SENT have them only as far as the version counter knows, which does not see what is written through ``.data`` or
        NumPy. Raises FailedPrecondition for a tensor that has no values, and no array any more."""
        place = self._mapped.get((tensor.data_ptr(), tensor.shape, tensor.dtype))
        if place is not None and (array := _there(place, tensor)) is not None:
            return array, Kind.MAPPED
        if not self._kept:
            return None
        with self._lock:
            kept = self._kept.get(_key(tensor))
        if kept is None or kept.storage.expired() or kept.address != tensor.data_ptr():
            return None
        array = kept.array
        if array._gone or array._client.closed:
            if kept.kind is Kind.STAND_IN:
                raise FailedPrecondition(
                    "what a forward graph has saved for this backward graph is gone with its client"
                )
            return None
        is_copy = kept.kind in (Kind.COPY, Kind.SENT)
        if is_copy and (kept.kind not in trusted or kept.version != _version(tensor)):
            return None
        return array, kept.kind

    def is_mapped(self, tensor: torch.Tensor) -> bool:
        """Whether its memory is an array's."""
        place = self._mapped.get((tensor.data_ptr(), tensor.shape, tensor.dtype))
        return place is not None and _there(place, tensor) is not None

    def values_of(self, tensor: torch.Tensor) -> Array | None:
        """The array of a tensor that has no values of its own; None: it has."""
        if not self._kept:
            return None
        with self._lock:
            kept = self._kept.get(_key(tensor))
        if kept is None or kept.kind is not Kind.STAND_IN:
            return None
        found = self.find(tensor, frozenset())
        return None if found is None else found[0]

    def keep(self, tensor: torch.Tensor, array: Array, kind: Kind) -> None:
        """From now on ``array`` has the tensor's values, as long as its memory lives, and no other array is found."""
        place = (tensor.data_ptr(), tensor.shape, tensor.dtype)
        if kind is Kind.MAPPED:
            self._mapped[place] = weakref.ref(array)
            if self._kept:
                with self._lock:
                    self._kept.pop(_key(tensor), None)
            return
        if tensor.is_inference() and kind in (Kind.COPY, Kind.SENT):  # Nothing says when it changes.
            return
        self._mapped.pop(place, None)
        weak = StorageWeakRef(tensor.untyped_storage())
        kept = _Kept(weak, tensor.data_ptr(), _version(tensor), array, kind)
        with self._lock:
            self._kept[_key(tensor)] = kept

    def sweep(self) -> None:
        """Lets go of arrays whose tensors are gone, or have changed."""
        with self._lock:
            gone = torch.UntypedStorage._expired  # Of all, with each graph: past StorageWeakRef.expired.
            for key in [key for key, kept in self._kept.items() if gone(kept.storage.cdata)]:
                del self._kept[key]
            if len(self._mapped) < self._sweep_at:
                return
            for place in [place for place, array in list(self._mapped.items()) if array() is None]:
                self._mapped.pop(place, None)
            self._sweep_at = max(_SWEPT_LEAST, 2 * len(self._mapped))

    def forget(self, tensor: torch.Tensor | None = None) -> None:
        """Sends it again with its next use; without an argument all. What has no other values stays."""
        for place in list(self._mapped):
            if tensor is None or place[0] == tensor.data_ptr():
                self._mapped.pop(place, None)
        with self._lock:
            for key, kept in list(self._kept.items()):
                is_it = tensor is None or key[0] == tensor.untyped_storage()._cdata
                if is_it and kept.kind is not Kind.STAND_IN:
                    del self._kept[key]

    def forget_copy(self, tensor: torch.Tensor) -> None:
        """As ``forget``, of one that nothing but a version counter vouches for."""
        if not self._kept:
            return
        with self._lock:
            kept = self._kept.get(_key(tensor))
            if kept is not None and kept.kind in (Kind.COPY, Kind.SENT):
                del self._kept[_key(tensor)]

    def __len__(self) -> int:
        return len(self._kept) + sum(array() is not None for array in list(self._mapped.values()))


def _there(mapped: weakref.ref[Array], tensor: torch.Tensor) -> Array | None:
    array = mapped()
    if array is None or array._gone or array._client.closed or not lies_as(tensor, array):
        return None
    return array


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _key(tensor: torch.Tensor) -> Key:
    return tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype
