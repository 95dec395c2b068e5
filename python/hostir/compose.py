"""Functions that are made of several operations: the user's variable is the name of the last one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from .location import caller_variable, invalid

_Made = TypeVar("_Made", bound=Callable[..., Any])


def composed(function: _Made) -> _Made:
    """``function`` takes a value of a definition first. What it records is called after it, "softmax", "softmax.1",
    but for its result: that has the name that a single operation's would have."""

    @functools.wraps(function)
    def named(value: Any, *args: Any, **kwargs: Any) -> Any:
        fd = getattr(value, "_definition", None)
        if fd is None:
            raise invalid(f"{function.__name__}: a {type(value).__name__} is no tensor of a definition")
        if fd._composing:
            return function(value, *args, **kwargs)
        variable = caller_variable()
        fd._composing = function.__name__.strip("_")
        try:
            result = function(value, *args, **kwargs)
        finally:
            fd._composing = ""
        _rename_last(fd, result, variable)
        return result

    return named  # type: ignore[return-value]


def _rename_last(fd: Any, result: Any, variable: str) -> None:
    ops = fd._record.ops
    if variable and ops and ops[-1].result == getattr(result, "_name", ""):
        fd._names.discard(result._name)
        result._name = fd._new_name(variable)
        ops[-1] = replace(ops[-1], result=result._name)
