"""Types of values: an element type by its name in the text form, and axes. Follows csrc/ir/type.cc and promote.cc."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from ..errors import InvalidArgument, ResourceExhausted
from . import extent_text
from .extents import Extent

ITERATION, BROADCAST, REDUCTION = range(3)
Axis = tuple[int, Extent]  # Its kind and extent.
ONE: Axis = (BROADCAST, 1)

AXES_MAX = 16
ORDER = ("bool", "u8", "i8", "i32", "i64", "f16", "bf16", "f32", "f64")  # Of promotion.
FLOATS = frozenset(("f16", "bf16", "f32", "f64"))
LIMITS = {"u8": (0, 2**8 - 1), "i8": (-(2**7), 2**7 - 1), "i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1)}
INTS = frozenset(LIMITS)
INDICES = frozenset(("i32", "i64"))
_PREFIX = {ITERATION: "", BROADCAST: "b:", REDUCTION: "r:"}


class ValueType:
    """Equal types are one object, made by ``tensor`` and ``scalar``. Axes are as they were inferred: Sizes.axes has
    them with what is known by now."""

    __slots__ = ("axes", "dtype", "reduced", "symbolic")

    def __init__(self, dtype: str, axes: tuple[Axis, ...] | None) -> None:
        self.dtype = dtype
        self.axes = axes  # None: a host scalar.
        self.reduced = any(kind == REDUCTION for kind, _ in axes or ())
        self.symbolic = any(not isinstance(extent, int) for _, extent in axes or ())

    @property
    def is_tensor(self) -> bool:
        return self.axes is not None


@functools.cache
def scalar(dtype: str) -> ValueType:
    """The one of all host scalars of an element type."""
    return ValueType(dtype, None)


def text(dtype: str, axes: tuple[Axis, ...] | None) -> str:
    """``f32[i0, b, r:4]``, or ``f64`` for a host scalar."""
    if axes is None:
        return dtype
    parts = ("b" if axis == ONE else _PREFIX[axis[0]] + extent_text.text(axis[1]) for axis in axes)
    return f"{dtype}[{', '.join(parts)}]"


def check(dtype: str, axes: tuple[Axis, ...]) -> None:
    """Raises for too many axes, a negative extent, and more elements than an integer counts bytes of."""
    if len(axes) > AXES_MAX:
        raise ResourceExhausted(f"a tensor has {len(axes)} axes; the limit is {AXES_MAX}")
    size = 1
    for _, extent in axes:
        if not isinstance(extent, int):
            continue
        if extent < 0:
            raise InvalidArgument(f"{text(dtype, axes)}: extent {extent} is negative")
        size *= max(extent, 1)
        if size >= 2**60:
            raise InvalidArgument(f"{text(dtype, axes)} has more than 2^60 - 1 elements")


@functools.lru_cache(maxsize=1 << 14)
def _tensor(dtype: str, axes: tuple[Axis, ...]) -> ValueType:
    check(dtype, axes)
    return ValueType(dtype, axes)


def tensor(dtype: str, axes: Iterable[Axis]) -> ValueType:
    """The one type of its kind. Raises as ``check`` does."""
    return _tensor(dtype, tuple(axes))


@functools.cache
def promote(a: str, b: str) -> str:
    """The least type that holds both. Raises for u8 with i8, of which none does."""
    low, high = sorted((ORDER.index(a), ORDER.index(b)))
    if (ORDER[low], ORDER[high]) == ("u8", "i8"):
        raise InvalidArgument("u8 and i8 together need i16, which is no element type: cast one of them, as to i32")
    return "f32" if (ORDER[low], ORDER[high]) == ("f16", "bf16") else ORDER[high]


def category(dtype: str) -> int:
    return 2 if dtype in FLOATS else 1 if dtype in INTS else 0


@functools.cache
def promoted(operands: tuple[tuple[str, bool], ...]) -> str:
    """Of operands, each an element type and whether it is a tensor: a host scalar counts only where its category is
    above that of all tensors."""
    tensors = [dtype for dtype, is_tensor in operands if is_tensor]
    scalars = [dtype for dtype, is_tensor in operands if not is_tensor]
    common = functools.reduce(promote, tensors) if tensors else functools.reduce(promote, scalars)
    if tensors and scalars:
        above = category(functools.reduce(promote, scalars))
        if above > category(common):
            return ("bool", "i64", "f32")[above]
    return common
