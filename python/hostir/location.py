"""Where in the user's program a call was made, and the variable its result goes to."""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from .errors import InvalidArgument
from .variables import variable_of

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LINE_CHARACTERS = 160
_TEXTS: dict[tuple[str, int], str] = {}  # By file and line: a program records many ops of one line.
_TEXTS_MAX = 1 << 14
_told = threading.local()


@contextlib.contextmanager
def on_behalf_of(location: str) -> Iterator[None]:
    """Calls inside are those of another line than the one that runs: of a program that was traced before, say."""
    before = getattr(_told, "location", "")
    _told.location = location
    try:
        yield
    finally:
        _told.location = before


def caller_location() -> str:
    """``mlp.py:12: y = fd.ops.linear(x, w)`` for the innermost frame outside this package; empty when there is none."""
    told = getattr(_told, "location", "")
    if told:
        return str(told)
    frame = _caller()
    if frame is None:
        return ""
    return location_text(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)


def location_text(path: str, number: int, module: dict[str, Any] | None = None) -> str:
    """``mlp.py:12: y = fd.ops.linear(x, w)`` for a line of a file; ``module``: the globals of what is not in a file."""
    at = path, number
    text = _TEXTS.get(at)
    if text is None:
        text = _text(path, number, module)
        if len(_TEXTS) >= _TEXTS_MAX:
            _TEXTS.clear()
        _TEXTS[at] = text
    return text


def _text(path: str, number: int, module: dict[str, Any] | None) -> str:
    line = linecache.getline(path, number, module).strip()
    if len(line) > _LINE_CHARACTERS:
        line = line[: _LINE_CHARACTERS - 3] + "..."
    return f"{os.path.basename(path)}:{number}" + (f": {line}" if line else "")


def caller_variable(part: int | None = None) -> str:
    """``y`` for a call made by ``y = fd.ops.linear(x, w)``; empty when the result is not stored at once.

    ``params.w`` for ``params = {"w": ...}`` and ``params["w"] = ...``, ``layers.*`` where the place in a list is not
    known. A function that returns the result is looked through: ``y = layer(x)``. ``part``: one of several results.
    """
    frame = _caller()
    return "" if frame is None else variable_of(frame, () if part is None else (part,))


def invalid(message: str) -> InvalidArgument:
    """An error about the call that the user's program is making."""
    return InvalidArgument(located(message))


def located(message: str) -> str:
    """``message`` with the line of the call that the user's program is making."""
    location = caller_location()
    return f"{message} ({location})" if location else message


def _caller() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


@functools.lru_cache(maxsize=4096)
def _is_ours(path: str) -> bool:
    return os.path.abspath(path).startswith(_PACKAGE) or path.endswith("hostir" + os.sep + "_pointwise.py")
