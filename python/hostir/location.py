"""Where in the user's program a call was made: the file, the line, and its text."""

from __future__ import annotations

import linecache
import os
import sys

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def caller_location() -> str:
    """``mlp.py:12: y = fd.ops.linear(x, w)`` for the innermost frame outside this package; empty when there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if not os.path.abspath(path).startswith(_PACKAGE):
            line = linecache.getline(path, frame.f_lineno).strip()
            return f"{os.path.basename(path)}:{frame.f_lineno}" + (f": {line}" if line else "")
        frame = frame.f_back  # type: ignore[assignment]
    return ""
