"""Which sizes of a program are equal, and what is demanded of them. Follows csrc/ir/unify.cc and graph_types.cc."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidArgument
from . import extent_text, extents
from .extents import SYMBOL, Expr, Extent
from .value_type import REDUCTION, Axis, ValueType, check

_EQUAL, _AT_MOST = " is not ", " is more than "


class Sizes:
    """Symbols that took the place of others, and guards: conditions on sizes that each run is held to."""

    def __init__(self) -> None:
        self._replaced: dict[str, Extent] = {}
        self._guards: dict[tuple[str, Extent, Extent], str] = {}  # With the reason.
        self._order: dict[str, int] = {}  # Of symbols, as they were made.
        self._inputs: list[ValueType] = []
        self._types: dict[ValueType, None] = {}  # Those with symbols, in the order that they were made.
        self._axes: dict[ValueType, tuple[Axis, ...]] = {}  # Resolved.
        # Results of ops that demand nothing new, by op, types of operands and attributes: layers repeat.
        self.known: dict[tuple[Any, ...], ValueType] = {}
        self._before: tuple[dict[str, Extent], dict[tuple[str, Extent, Extent], str]] | None = None

    def add_input(self, of: ValueType) -> None:
        self._inputs.append(of)
        self.add(of)
        for _, extent in of.axes or ():
            if not isinstance(extent, int):
                for name in sorted(extents.symbols(extent)):
                    self._order.setdefault(name, len(self._order))

    def add(self, of: ValueType) -> None:
        """A type of the program: it is checked again when its symbols become numbers."""
        if of.symbolic:
            self._types[of] = None

    # --- an op that fails leaves nothing behind ---------------------------------------------------------------

    def begin(self) -> None:
        self._before = None

    def _changes(self) -> None:
        if self._before is None:
            self._before = dict(self._replaced), dict(self._guards)

    def rollback(self) -> None:
        if self._before is not None:
            self._replaced, self._guards = self._before
            self._before = None
            self._forget()

    @property
    def untouched(self) -> bool:
        """Since ``begin`` nothing was demanded that is not so for all sizes."""
        return self._before is None

    def _forget(self) -> None:
        """What was resolved before a symbol was replaced."""
        self._axes.clear()
        self.known.clear()

    # --- reading ----------------------------------------------------------------------------------------------

    def resolve(self, extent: Extent) -> Extent:
        """``extent`` with the symbols that are left."""
        if isinstance(extent, int) or not self._replaced:
            return extent
        while not isinstance(extent, int) and not self._replaced.keys().isdisjoint(extents.symbols(extent)):
            extent = extents.substitute(extent, self._replaced)
        return extent

    def axes(self, of: ValueType) -> tuple[Axis, ...]:
        """All axes of a tensor, those just reduced included."""
        if not self._replaced:
            return of.axes or ()
        axes = self._axes.get(of)
        if axes is None:
            axes = tuple([(kind, self.resolve(extent)) for kind, extent in of.axes or ()])
            self._axes[of] = axes
        return axes

    def value_axes(self, of: ValueType) -> tuple[Axis, ...]:
        """The axes that readers see."""
        axes = self.axes(of)
        return tuple([axis for axis in axes if axis[0] != REDUCTION]) if of.reduced else axes

    # --- demands ----------------------------------------------------------------------------------------------

    def unify(self, a: Extent, b: Extent, name_a: str, name_b: str) -> None:
        """Makes two extents one: a symbol goes, or a guard stays."""
        a, b = self.resolve(a), self.resolve(b)
        if a == b:
            return
        if isinstance(a, int) and isinstance(b, int):
            raise InvalidArgument(f"{name_a} has extent {a}, {name_b} has extent {b}")
        a, b = self._ordered(a, b)
        if not self._may_replace(a, b):
            self.equal(a, b, f"{name_a} and {name_b}")
            return
        self._replace(a, b)
        self._settle_guards()

    def equal(self, left: Extent, right: Extent, reason: str) -> None:
        if left != right:
            self._guard(_EQUAL, left, right, reason)

    def at_most(self, left: Extent, right: Extent, reason: str) -> None:
        if not (isinstance(left, int) and isinstance(right, int) and left <= right):
            self._guard(_AT_MOST, left, right, reason)

    def _guard(self, kind: str, left: Extent, right: Extent, reason: str) -> None:
        key = (kind, self.resolve(left), self.resolve(right))
        if key not in self._guards and not self._holds(*key, reason):
            self._changes()
            self._guards[key] = reason

    def _holds(self, kind: str, left: Extent, right: Extent, reason: str) -> bool:
        """Whether it holds for all sizes. Raises where it does for none."""
        difference = extents.difference(left, right)
        if difference is None:
            return False
        if difference == 0 or (difference < 0 and kind == _AT_MOST):
            return True
        raise InvalidArgument(f"{reason}: {extent_text.text(left)}{kind}{extent_text.text(right)}")

    def _ordered(self, a: Extent, b: Extent) -> tuple[Extent, Extent]:
        """The one to replace first: a symbol, of two the one that was named later."""
        if _is_symbol(a) and _is_symbol(b) and self._place(a) < self._place(b):
            a, b = b, a
        return (a, b) if _is_symbol(a) else (b, a)

    def _may_replace(self, symbol: Extent, by: Extent) -> bool:
        if not _is_symbol(symbol) or symbol in [extents.symbol(name) for name in extents.symbols(by)]:
            return False
        if isinstance(by, int) or _is_symbol(by):
            return True
        # The extents of inputs are where sizes come from: one becomes an expression only of others that are.
        known = {e for of in self._inputs for _, e in self.axes(of) if _is_symbol(e)}
        return symbol not in known or all(extents.symbol(name) in known for name in extents.symbols(by))

    def _place(self, symbol: Extent) -> int:
        assert isinstance(symbol, Expr)
        return self._order.setdefault(symbol.symbol, len(self._order))

    def _replace(self, symbol: Extent, by: Extent) -> None:
        assert isinstance(symbol, Expr)
        self._changes()
        self._replaced[symbol.symbol] = by
        before = dict(self._axes)
        self._forget()
        for of in self._types:
            axes = self.axes(of)
            if axes != before.get(of, of.axes):
                check(of.dtype, axes)
        guards, self._guards = self._guards, {}
        for (kind, left, right), reason in guards.items():
            key = (kind, self.resolve(left), self.resolve(right))
            if not self._holds(*key, reason):
                self._guards[key] = reason

    def _settle_guards(self) -> None:
        """A replacement may have made another one possible that had to stay a guard."""
        again = True
        while again:
            again = False
            for kind, left, right in self._guards:
                symbol, by = self._ordered(left, right)
                if kind == _EQUAL and self._may_replace(symbol, by):
                    self._replace(symbol, by)
                    again = True
                    break


def _is_symbol(extent: Extent) -> bool:
    return not isinstance(extent, int) and extent.kind == SYMBOL
