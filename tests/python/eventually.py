"""Waits for what a daemon does in its own time."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 30.0


def eventually(check: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """What ``check`` says once it is true. Fails when it is not within ``seconds``."""
    until = time.monotonic() + seconds
    while not (said := check()):
        assert time.monotonic() < until, "not in time"
        select.select([], [], [], 0.01)
    return said


def becomes(read: Callable[[], Any], wanted: Any) -> bool:
    """Whether ``read`` says ``wanted`` in time."""
    end = time.monotonic() + PATIENCE
    while read() != wanted:
        if time.monotonic() > end:
            return False
        select.select([], [], [], 0.01)
    return True
