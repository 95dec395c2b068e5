"""``x[...]``: what NumPy's basic indices record, and one list of indices among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .compose import composed
from .errors import Unimplemented
from .location import invalid, located
from .numbers import as_number

if TYPE_CHECKING:
    from .tensor import Tensor

_END = 2**63 - 1  # Of a slice: the end, however long the axis is.


@composed
def index(x: Tensor, key: Any) -> Tensor:
    """Slices first, then what takes an axis away, last ones first, then new axes."""
    entries = _whole(x, key)
    ops = x._definition.ops
    slices = [entry if isinstance(entry, slice) else slice(None) for entry in entries if entry is not None]
    if any(s != slice(None) for s in slices):
        starts, ends, steps = zip(*map(_bounds, slices), strict=True)
        x = ops.slice(x, list(starts), list(ends), [*steps])
    axes = [entry for entry in entries if entry is not None]
    for axis in reversed(range(len(axes))):
        if not isinstance(axes[axis], slice):
            x = _take(x, axes[axis], axis)
    # An index that is one number takes its axis away; a list of them and a slice leave one.
    flags = [entry is None for entry in entries if entry is None or _stays(entry)]
    return ops.broadcast(x, flags) if any(flags) else x


def _whole(x: Tensor, key: Any) -> list[Any]:
    """One entry for each axis, and None for each new one: without an ellipsis."""
    entries = list(key) if isinstance(key, tuple) else [key]
    count = sum(entry is not None and entry is not ... for entry in entries)
    dots = [k for k, entry in enumerate(entries) if entry is ...]
    if len(dots) > 1:
        raise invalid("index: ... stands for all other axes; it is written once")
    if count > x.ndim:
        raise invalid(f"index: {count} indices; %{x._name} has {x.ndim} axes")
    at = dots[0] if dots else len(entries)
    return [*entries[:at], *[slice(None)] * (x.ndim - count), *entries[at + 1 :]]


def _bounds(s: slice) -> tuple[Any, Any, Any]:
    step = 1 if s.step is None else s.step
    if isinstance(step, int) and step < 1:
        raise Unimplemented(located(f"index: step {step}; steps are at least 1 (nothing runs backwards)"))
    return 0 if s.start is None else s.start, _END if s.stop is None else s.stop, step


def _stays(entry: Any) -> bool:
    return isinstance(entry, slice) or _is_list(entry)


def _is_list(entry: Any) -> bool:
    return getattr(entry, "ndim", 0) == 1 and hasattr(entry, "_definition")


def _take(x: Tensor, entry: Any, axis: int) -> Tensor:
    ops = x._definition.ops
    if _is_list(entry) and entry.dtype.kind == "i":
        return ops.index_select(x, entry, axis)
    number = as_number(entry)
    if isinstance(number, int) and not isinstance(number, bool):
        return ops.select(x, number, axis)
    if hasattr(entry, "_definition") and not hasattr(entry, "ndim"):
        return ops.select(x, entry, axis)
    raise Unimplemented(
        located(
            f"index: {entry!r} is no index of axis {axis} of %{x._name}; there are integers, slices, None, ... and "
            "tensors of integers with one axis; fd.ops.take_along_axis and fd.ops.where do what others do"
        )
    )
