"""Numbers as operations take them: Python's, and arrays without axes of NumPy, PyTorch and JAX."""

from __future__ import annotations

import operator
from typing import Any, SupportsFloat

import ml_dtypes
import numpy as np

from .location import invalid

# The argument of as_number, as far as types can say it.
Number = SupportsFloat | np.generic


def as_number(value: Any) -> bool | int | float | None:
    """A Python or NumPy number, or an array without axes, as a Python number; None for anything else."""
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, (np.bool_, np.integer, np.floating)):
        number: bool | int | float = value.item()
        return number
    if isinstance(value, ml_dtypes.bfloat16):
        return float(value)
    return None if isinstance(value, (str, np.ndarray, np.generic)) else _item(value)


def _item(value: Any) -> bool | int | float | None:
    """Of an array without axes of another framework. Not of an Array of hostir: reading one waits for its run."""
    ours = type(value).__module__.startswith("hostir.")
    if ours or getattr(value, "shape", None) != () or not hasattr(value, "dtype"):
        return None
    item = getattr(value, "item", None)
    number = item() if callable(item) else None
    return number if isinstance(number, (bool, int, float)) else None


def number_text(number: float) -> str:
    """For messages: an integer of hundreds of digits by its size."""
    if isinstance(number, int) and abs(number) >= 2**128:
        return f"an integer of {number.bit_length()} bits"
    return str(number)


def as_axis(op: str, axis: Any) -> int:
    try:
        number = operator.index(axis)
    except TypeError:
        raise invalid(f"{op}: axis {axis!r} is not an integer") from None
    if not -(2**63) <= number < 2**63:
        raise invalid(f"{op}: {number_text(number)} does not fit 64 bits")
    return number
