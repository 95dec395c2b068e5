"""Extents: 64-bit integers, or expressions over symbols in one canonical form. Follows csrc/ir/expr.cc.

An extent is an ``int`` or an ``Expr``; equal extents are equal values. Sums and products are polynomials with sorted
terms, ``/`` rounds down.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import InvalidArgument, ResourceExhausted

CONST, SYMBOL, FLOOR_DIV, MOD, CEIL_DIV, MIN, MAX, MUL, ADD = range(9)
NODES_MAX = 4096
DEPTH_MAX = 128


class Expr(NamedTuple):
    """Compared as tuples are, which is the canonical order. Constants are Exprs only as arguments of others."""

    kind: int
    symbol: str
    args: tuple[Expr, ...]
    value: int  # CONST: the number. MUL: the coefficient. ADD: the constant term.
    nodes: int = 1
    depth: int = 1


Extent = int | Expr
_Atoms = tuple[Expr, ...]
_Terms = dict[_Atoms, int]


def symbol(name: str) -> Expr:
    return Expr(SYMBOL, name, (), 0)


def checked(value: int) -> int:
    if not -(2**63) < value < 2**63:
        raise InvalidArgument("an extent overflows 64 bits")
    return value


def _lift(extent: Extent) -> Expr:
    return Expr(CONST, "", (), extent) if isinstance(extent, int) else extent


def _make(kind: int, value: int, args: tuple[Expr, ...]) -> Expr:
    nodes = 1 + sum(arg.nodes for arg in args)
    depth = 1 + max(arg.depth for arg in args)
    if nodes > NODES_MAX:
        raise ResourceExhausted(f"an extent has more than {NODES_MAX} terms and factors")
    if depth > DEPTH_MAX:
        raise ResourceExhausted(f"an extent is nested deeper than {DEPTH_MAX}")
    return Expr(kind, "", args, value, nodes, depth)


def _polynomial(extent: Extent) -> tuple[_Terms, int]:
    """Coefficients by atoms, and the constant term."""
    if isinstance(extent, int):
        return {}, extent
    terms: _Terms = {}
    for term in extent.args if extent.kind == ADD else (extent,):
        if term.kind == MUL:
            terms[term.args] = term.value
        else:
            terms[(term,)] = 1
    return terms, extent.value if extent.kind == ADD else 0


def _extent(terms: _Terms, constant: int) -> Extent:
    made = []
    for atoms in sorted(terms):
        coefficient = checked(terms[atoms])
        if coefficient == 0:
            continue
        made.append(atoms[0] if coefficient == 1 and len(atoms) == 1 else _make(MUL, coefficient, atoms))
    if not made:
        return checked(constant)
    if len(made) == 1 and constant == 0:
        return made[0]
    return _make(ADD, checked(constant), tuple(made))


def add(a: Extent, b: Extent) -> Extent:
    if isinstance(a, int) and isinstance(b, int):
        return checked(a + b)
    terms, constant = _polynomial(a)
    others, more = _polynomial(b)
    for atoms, coefficient in others.items():
        terms[atoms] = terms.get(atoms, 0) + coefficient
    return _extent(terms, constant + more)


def sub(a: Extent, b: Extent) -> Extent:
    return add(a, mul(-1, b))


def mul(a: Extent, b: Extent) -> Extent:
    if isinstance(a, int) and isinstance(b, int):
        return checked(a * b)
    if a == 1:
        return b
    if b == 1:
        return a
    left, c = _polynomial(a)
    right, d = _polynomial(b)
    if (len(left) + 1) * (len(right) + 1) > NODES_MAX:
        raise ResourceExhausted(f"an extent has more than {NODES_MAX} terms and factors")
    product: _Terms = {}
    for x, cx in [*left.items(), *([((), c)] if c else [])]:
        for y, cy in [*right.items(), *([((), d)] if d else [])]:
            atoms = tuple(sorted(x + y))
            product[atoms] = product.get(atoms, 0) + cx * cy
    constant = product.pop((), 0)
    return _extent(product, constant)


def product(extents: list[Extent]) -> Extent:
    result: Extent = 1
    for extent in extents:
        result = mul(result, extent)
    return result


def _divisible(b: Extent) -> bool:
    if b == 0:
        raise InvalidArgument("an extent divides by zero")
    return isinstance(b, int) and b > 0


def floor_div(a: Extent, b: Extent) -> Extent:
    known = _divisible(b)
    if b == 1 or a == 0:
        return a
    if a == b:
        return 1  # Extents are divided by positive extents only.
    if not known:
        return _make(FLOOR_DIV, 0, (_lift(a), _lift(b)))
    assert isinstance(b, int)
    terms, constant = _polynomial(a)
    # c*q + r over c is q + r/c: split off the terms whose coefficient c divides.
    quotient = _extent({atoms: n // b for atoms, n in terms.items() if n % b == 0}, constant // b)
    rest = {atoms: n for atoms, n in terms.items() if n % b}
    if not rest:
        return quotient
    remainder = _extent(rest, constant % b)
    assert isinstance(remainder, Expr)
    if remainder.kind == FLOOR_DIV and remainder.args[1].kind == CONST:  # (x / c1) / c2 is x / (c1*c2)
        both = remainder.args[1].value * b
        if -(2**63) <= both < 2**63:
            return add(quotient, floor_div(lowered(remainder.args[0]), both))
    return add(quotient, _make(FLOOR_DIV, 0, (remainder, _lift(b))))


def mod(a: Extent, b: Extent) -> Extent:
    known = _divisible(b)
    if b == 1 or a == b or a == 0:
        return 0
    if not known:
        return _make(MOD, 0, (_lift(a), _lift(b)))
    assert isinstance(b, int)
    terms, constant = _polynomial(a)
    rest = {atoms: n % b for atoms, n in terms.items() if n % b}
    if not rest:
        return constant % b
    return _make(MOD, 0, (_lift(_extent(rest, constant % b)), _lift(b)))


def ceil_div(a: Extent, b: Extent) -> Extent:
    known = _divisible(b)
    if b == 1:
        return a
    if known and isinstance(a, int) and isinstance(b, int):
        return -(-a // b)
    if isinstance(b, int) and mod(a, b) == 0:
        return floor_div(a, b)
    return _make(CEIL_DIV, 0, (_lift(a), _lift(b)))


def difference(a: Extent, b: Extent) -> int | None:
    """a - b where that is one number whatever the symbols are."""
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    left, c = _polynomial(a)
    right, d = _polynomial(b)
    return c - d if left == right else None


def _either(kind: int, a: Extent, b: Extent) -> Extent:
    known = difference(a, b)
    if known is not None:
        return a if (known <= 0) == (kind == MIN) else b
    args = _lift(a), _lift(b)
    return _make(kind, 0, args if args[0] < args[1] else args[::-1])


def minimum(a: Extent, b: Extent) -> Extent:
    return _either(MIN, a, b)


def maximum(a: Extent, b: Extent) -> Extent:
    known = difference(a, b)
    if known is not None:
        return a if known >= 0 else b
    return _either(MAX, a, b)


def lowered(expr: Expr) -> Extent:
    return expr.value if expr.kind == CONST else expr


_MADE_BY = {FLOOR_DIV: floor_div, MOD: mod, CEIL_DIV: ceil_div, MIN: minimum, MAX: maximum}


def symbols(extent: Extent) -> set[str]:
    if isinstance(extent, int):
        return set()
    if extent.kind == SYMBOL:
        return {extent.symbol}
    return set().union(*(symbols(arg) for arg in extent.args))


def substitute(extent: Extent, by: dict[str, Extent]) -> Extent:
    """``extent`` with symbols replaced."""
    if isinstance(extent, int):
        return extent
    if extent.kind == SYMBOL:
        return by.get(extent.symbol, extent)
    args = [substitute(lowered(arg), by) for arg in extent.args]
    if extent.kind == MUL:
        return mul(extent.value, product(args))
    if extent.kind == ADD:
        total: Extent = extent.value
        for arg in args:
            total = add(total, arg)
        return total
    return _MADE_BY[extent.kind](args[0], args[1])
