"""How far the plans are that a client waits for."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TextIO

import grpc

_PATIENCE = 1.0  # Seconds; what is over before is not mentioned.
_REFRESH = 0.1
_ERASE = "\r\x1b[K"
_STAGES = {1: "queued", 2: "planning", 3: "compiling", 4: "done"}  # PlanProgress.Stage


@dataclass(frozen=True)
class PlanProgress:
    """How far a plan is: ``connect(progress=...)`` is called with each, on a thread of the client's.

    stage: "queued" behind ``plans_before`` other plans, "planning", "compiling" the last of which so many kernels
    are, or "done": made, or failed.

    >>> def told(p: hostir.PlanProgress) -> None:
    ...     print(p.stage, p.kernels_compiled, p.kernels)
    >>> client = hostir.connect(progress=told)
    """

    stage: str
    plans_before: int
    kernels_compiled: int
    kernels: int

    def __str__(self) -> str:
        if self.stage == "queued":
            return f"waiting for {self.plans_before} other plan{'' if self.plans_before == 1 else 's'}"
        if self.stage == "compiling":
            return f"compiling {self.kernels_compiled} of {self.kernels} kernel{'' if self.kernels == 1 else 's'}"
        return self.stage


class Display:
    """Says on a stream what calls wait for: on a terminal in one line that is rewritten, and gone when they are over;
    elsewhere a line whenever the stage changes, and once a second while kernels are counted.

    Thread-safe.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._lock = threading.Lock()
        self._calls = 0  # Under way.
        self._latest: PlanProgress | None = None
        self._since = 0.0  # When the first of them began.
        self._drawn = False
        self._logged = ("", 0.0)  # The stage that had a line last, and when.
        self._ticking = False

    def __enter__(self) -> None:
        with self._lock:
            self._calls += 1
            if self._calls == 1:
                self._since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._calls -= 1
            if self._calls == 0:
                self._latest = None
                self._erase()

    def __call__(self, progress: PlanProgress) -> None:
        with self._lock:
            waits = progress.stage != "done" and (progress.stage != "queued" or progress.plans_before > 0)
            self._latest = progress if waits and self._calls > 0 else None
            if self._latest is None:
                self._erase()
            elif not self._terminal:
                self._log()
            elif not self._ticking:
                self._ticking = True
                threading.Thread(target=self._tick, name="hostir-progress", daemon=True).start()

    def _tick(self) -> None:
        while True:
            with self._lock:
                if self._latest is None:
                    self._ticking = False
                    return
                if time.monotonic() - self._since >= _PATIENCE:
                    self._write(_ERASE + self._line()[: self._columns()])
                    self._drawn = True
            time.sleep(_REFRESH)

    def _line(self) -> str:
        return f"hostir: {self._latest}, {time.monotonic() - self._since:.1f} s"

    def _columns(self) -> int | None:
        """Of one row, up to where a cursor may go to the next: a second one could not be erased. None: any."""
        try:
            return max(0, os.get_terminal_size(self._stream.fileno()).columns - 1) or None
        except (OSError, ValueError):
            return None

    def _log(self) -> None:
        assert self._latest is not None
        stage, at = self._logged
        now = time.monotonic()
        if stage != self._latest.stage or now - at >= _PATIENCE:
            self._logged = (self._latest.stage, now)
            self._write(self._line() + "\n")

    def _erase(self) -> None:
        if self._drawn:
            self._drawn = False
            self._write(_ERASE)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # Closed: whoever closed it wants nothing said.
            self._drawn = False


def listen(events: Iterable[Any], told: Callable[[PlanProgress], None]) -> None:
    """Passes on what a session's events say of plans, on a thread of its own, until they end.

    What ``told`` raises ends that, and goes to ``threading.excepthook``: the calls go on.
    """

    def read() -> None:
        try:
            for event in events:
                if event.HasField("plan_progress"):
                    p = event.plan_progress
                    stage = _STAGES.get(p.stage, "planning")
                    told(PlanProgress(stage, int(p.plans_before), int(p.kernels_compiled), int(p.kernels)))
        except grpc.RpcError:
            return  # The end of the session: calls say of what.

    threading.Thread(target=read, name="hostir-session", daemon=True).start()
