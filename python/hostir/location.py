"""Where in the user's program a call was made, and the variable its result goes to."""

from __future__ import annotations

import dis
import functools
import itertools
import linecache
import os
import sys
from types import CodeType, FrameType
from typing import Any

from .errors import InvalidArgument

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LINE_CHARACTERS = 160
_TEXTS: dict[tuple[str, int], str] = {}  # By file and line: a program records many ops of one line.
_TEXTS_MAX = 1 << 14
_RETURNED = "return"  # No variable has this name.


def caller_location() -> str:
    """``mlp.py:12: y = fd.ops.linear(x, w)`` for the innermost frame outside this package; empty when there is none."""
    frame = _caller()
    if frame is None:
        return ""
    at = frame.f_code.co_filename, frame.f_lineno
    text = _TEXTS.get(at)
    if text is None:
        text = _text(*at, frame.f_globals)
        if len(_TEXTS) >= _TEXTS_MAX:
            _TEXTS.clear()
        _TEXTS[at] = text
    return text


def _text(path: str, number: int, module: dict[str, Any]) -> str:
    line = linecache.getline(path, number, module).strip()
    if len(line) > _LINE_CHARACTERS:
        line = line[: _LINE_CHARACTERS - 3] + "..."
    return f"{os.path.basename(path)}:{number}" + (f": {line}" if line else "")


def caller_variable() -> str:
    """``y`` for a call made by ``y = fd.ops.linear(x, w)``; empty when the result is not stored in a variable at once.

    A function that returns the result is looked through: ``y = layer(x)``.
    """
    frame = _caller()
    while frame is not None:
        name = _destinations(frame.f_code).get(frame.f_lasti, "")
        if name != _RETURNED:
            return name
        frame = frame.f_back
    return ""


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


@functools.lru_cache(maxsize=4096)
def _destinations(code: CodeType) -> dict[int, str]:
    """Where the result of the instruction at an offset goes: the variable, or _RETURNED; no entry for anything else."""
    destinations: dict[int, str] = {}
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
    for instruction, following in itertools.pairwise(instructions):
        name = ""
        if following.opname.startswith(("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")):
            name = following.argval[0] if isinstance(following.argval, tuple) else following.argval
        elif following.opname == "RETURN_VALUE":
            name = _RETURNED
        if name.isascii() and name:
            # An instruction under way is at its own offset or at the end of what is cached behind it.
            destinations.update(dict.fromkeys(range(instruction.offset, following.offset, 2), name))
    return destinations
