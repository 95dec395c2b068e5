"""The runs of a client that may be under way, so that it waits for one of its own where the daemon has no room."""

from __future__ import annotations

import collections
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence

from .array import Array

_KEPT = 4096  # Runs; older ones are over, or not worth waiting for.
_PAUSE_FIRST, _PAUSE_LAST = 0.001, 0.1  # Seconds.
_QUEUE = "queued_runs_max = "
# A refusal by one of these ends with a run: its place in the queue, or the memory of its inputs and results.
_ENDS_WITH_RUNS = (_QUEUE, "tensor_bytes_max = ", "tensors_max = ", "staging_bytes_max = ", "principal_")


class Backlog:
    """Knows the results of runs in the order in which these were accepted, and holds none of them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: collections.deque[weakref.ref[Array]] = collections.deque(maxlen=_KEPT)

    def add(self, results: Sequence[Array]) -> None:
        if results:
            with self._lock:
                while self._results and _held(self._results[0]) is None:
                    self._results.popleft()
                self._results.append(weakref.ref(results[0]))

    def oldest(self, most: int, are_pending: Callable[[list[Array]], list[bool]]) -> Array | None:
        """The result of the first run that is under way, among the last ``most``; None when none is, or nobody holds
        its result. ``are_pending`` is asked once. Runs before it are forgotten."""
        with self._lock:
            held = [array for ref in self._results if (array := _held(ref)) is not None][-most:]
        first = next(itertools.compress(held, are_pending(held)), None) if held else None
        if first is not None:
            with self._lock:
                while self._results and _held(self._results[0]) is not first:
                    self._results.popleft()
        return first


def ends_with_runs(message: str) -> bool:
    """Whether what was refused with ``message`` may be accepted when runs before it are over."""
    return any(limit in message for limit in _ENDS_WITH_RUNS)


def is_full_queue(message: str) -> bool:
    return _QUEUE in message


def pauses() -> Iterator[float]:
    """Seconds between attempts where no run of one's own is left to wait for."""
    pause = _PAUSE_FIRST
    while True:
        yield pause
        pause = min(2 * pause, _PAUSE_LAST)


def _held(ref: weakref.ref[Array]) -> Array | None:
    array = ref()
    return None if array is None or array._gone else array
