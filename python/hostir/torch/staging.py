"""Inputs that come from outside at each call: copied to arrays that stay, in memory that both sides have."""

from __future__ import annotations

import collections
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ..array import Array
from ..inputs import VALUE_BYTES
from .memory import mapped, sent_bytes

_BYTES_MAX = 256 << 20  # Of one program's, which stay as long as that.
_TRIES_MAX = 4  # For an input whose arrays could not be mapped: on GPUs memory is lent with the first runs.


class Slot(NamedTuple):
    """An array with an input's values."""

    array: Array
    memory: torch.Tensor | None  # The array's own; None: it cannot be seen from here.

    def fits(self, value: torch.Tensor, client: Any, order: tuple[int, ...]) -> bool:
        array = self.array
        if array._memory_order != order:
            return False
        is_there = array._client is client and not array._gone and self.memory is not None
        return is_there and array.shape == value.shape and self.memory.dtype == value.dtype  # type: ignore[union-attr]


_all: weakref.WeakSet[Staging] = weakref.WeakSet()


def clear() -> None:
    """Lets go of the arrays of all programs."""
    for staging in list(_all):
        staging.clear()


class Staging:
    """Those of one program. A run has its slots to itself. Threads: any."""

    def __init__(self) -> None:
        _all.add(self)
        self._slots: dict[int, Slot] = {}  # By input; not those that a run has now.
        self._tries: collections.Counter[int] = collections.Counter()

    def clear(self) -> None:
        """Lets go of arrays, and tries again where some could not be mapped."""
        self._slots.clear()
        self._tries.clear()

    def fill(
        self, place: int, value: torch.Tensor, client: Any, put: Callable[[], Array], order: tuple[int, ...] = ()
    ) -> Slot | None:
        """An array with the values of input ``place``, in that memory order: ``put``'s the first time. None: it is to
        go another way."""
        if not value.numel() or sent_bytes(value) != value.nbytes:
            return None
        slot = self._slots.pop(place, None)
        if slot is not None and slot.fits(value, client, order):
            assert slot.memory is not None
            slot.memory.copy_(value)
            return slot
        if slot is not None and value.nbytes <= VALUE_BYTES and slot.array._client is client:  # Of a changing shape.
            self._slots[place] = slot
            return None
        total = value.nbytes + sum(each.array.nbytes for each in list(self._slots.values()))
        if self._tries[place] >= _TRIES_MAX or total > _BYTES_MAX:
            return None
        array = put()
        memory = mapped(array)
        self._tries[place] += memory is None
        return Slot(array, memory)

    def give_back(self, slots: dict[int, Slot]) -> None:
        """By input: the run that had them is over, and well."""
        self._slots.update((place, slot) for place, slot in slots.items() if slot.memory is not None)
