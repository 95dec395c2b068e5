"""Processes that were forked after their parent had connected: what gRPC left in them hangs, or breaks."""

from __future__ import annotations

import os

from .errors import FailedPrecondition

_connected: int | None = None  # The one that connected first, of this process and those that it was forked from.


def note_connecting() -> int:
    """This process, which connects now."""
    global _connected
    _connected = os.getpid()
    return _connected


def check(connected: int | None = None) -> None:
    """Raises FailedPrecondition in a process forked from one that ``connected``; None: from any that had."""
    connected = _connected if connected is None else connected
    if connected not in (None, os.getpid()):
        raise FailedPrecondition(
            f"process {os.getpid()} was forked from {connected}, which had connected; gRPC does not work after that: "
            'start it by multiprocessing.get_context("spawn"), or fork before you connect'
        )
