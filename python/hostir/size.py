"""Sizes that each run brings, as numbers to calculate with."""

from __future__ import annotations

from collections.abc import Callable

from .infer import extent_text, extents
from .infer.extents import Extent


class Size(str):
    """The extent of an axis that is not known yet: a text that prints as its name, and that ``+ - * // %`` with
    numbers and other sizes make new sizes of. It counts elements, and serves in ``shape=`` arguments.

    >>> rows: Size = x.shape[0]
    >>> rows + 2  # i0 + 2
    >>> x.reshape(rows // 2, 6)  # [[1, 2, 3, 4, 5, 6]]
    """

    __slots__ = ("_extent",)
    _extent: Extent

    @classmethod
    def _of(cls, extent: Extent) -> int | Size:
        if isinstance(extent, int):
            return extent
        size = cls(extent_text.text(extent))
        size._extent = extent
        return size

    def __repr__(self) -> str:
        return str(self)

    def _with(self, made: Callable[[Extent, Extent], Extent], other: object, swap: bool = False) -> int | Size:
        extent = getattr(other, "_extent", other)
        if isinstance(extent, bool) or not isinstance(extent, (int, extents.Expr)):
            return NotImplemented  # type: ignore[no-any-return]
        return Size._of(made(extent, self._extent) if swap else made(self._extent, extent))

    def __add__(self, other: int | Size) -> int | Size:  # type: ignore[override]
        return self._with(extents.add, other)

    def __radd__(self, other: int | Size) -> int | Size:
        return self._with(extents.add, other, swap=True)

    def __sub__(self, other: int | Size) -> int | Size:
        return self._with(extents.sub, other)

    def __rsub__(self, other: int | Size) -> int | Size:
        return self._with(extents.sub, other, swap=True)

    def __mul__(self, other: int | Size) -> int | Size:  # type: ignore[override]
        return self._with(extents.mul, other)

    def __rmul__(self, other: int | Size) -> int | Size:  # type: ignore[override]
        return self._with(extents.mul, other, swap=True)

    def __floordiv__(self, other: int | Size) -> int | Size:
        return self._with(extents.floor_div, other)

    def __rfloordiv__(self, other: int | Size) -> int | Size:
        return self._with(extents.floor_div, other, swap=True)

    def __mod__(self, other: int | Size) -> int | Size:  # type: ignore[override]
        return self._with(extents.mod, other)

    def __rmod__(self, other: int | Size) -> int | Size:
        return self._with(extents.mod, other, swap=True)
