"""The text of extents, both ways. Follows csrc/ir/expr_print.cc and parse_expr.cc."""

from __future__ import annotations

import re

from . import extents
from .extents import ADD, CEIL_DIV, CONST, FLOOR_DIV, MAX, MIN, MOD, MUL, SYMBOL, Expr, Extent

_STRENGTH = {ADD: 0, MOD: 1, MUL: 2, FLOOR_DIV: 2}
_CALLS = {CEIL_DIV: "ceildiv", MIN: "min", MAX: "max"}
_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|(.))")


def text(extent: Extent) -> str:
    """``4*i0 + 3``."""
    return str(extent) if isinstance(extent, int) else _text(extent, 0)


def _text(expr: Expr, at_least: int) -> str:
    kind = expr.kind
    strength = (0 if expr.value < 0 else 3) if kind == CONST else _STRENGTH.get(kind, 3)
    if kind == CONST:
        made = str(expr.value)
    elif kind == SYMBOL:
        made = expr.symbol
    elif kind == ADD:
        made = _sum(expr)
    elif kind == MUL:
        factors = "*".join(_text(arg, 3) for arg in expr.args)
        made = factors if expr.value == 1 else f"{expr.value}*{factors}"
    elif kind in (FLOOR_DIV, MOD):
        made = f"{_text(expr.args[0], 3)} {'mod' if kind == MOD else '/'} {_text(expr.args[1], 3)}"
    else:
        made = f"{_CALLS[kind]}({_text(expr.args[0], 0)}, {_text(expr.args[1], 0)})"
    return f"({made})" if strength < at_least else made


def _sum(expr: Expr) -> str:
    made = ""
    for k, term in enumerate(expr.args):
        if k > 0 and term.kind == MUL and term.value < 0:
            positive = term._replace(value=-term.value)
            lone = positive.value == 1 and len(positive.args) == 1
            made += f" - {_text(positive.args[0] if lone else positive, 2)}"
        else:
            made += (" + " if k > 0 else "") + _text(term, 1)
    if expr.value:
        made += f" {'+' if expr.value > 0 else '-'} {abs(expr.value)}"
    return made


class _Parser:
    """sum := term {(+|-) term}; term := product {mod product}; product := factor {(*|/) factor}."""

    def __init__(self, given: str) -> None:
        self.tokens = [match.group().strip() for match in _TOKEN.finditer(given.strip())]
        self.at = 0

    def accept(self, *tokens: str) -> str:
        if self.at < len(self.tokens) and self.tokens[self.at] in tokens:
            self.at += 1
            return self.tokens[self.at - 1]
        return ""

    def sum(self) -> Extent:
        made = self.term()
        while sign := self.accept("+", "-"):
            made = (extents.add if sign == "+" else extents.sub)(made, self.term())
        return made

    def term(self) -> Extent:
        made = self.product()
        while self.accept("mod"):
            made = extents.mod(made, self.product())
        return made

    def product(self) -> Extent:
        made = self.factor()
        while sign := self.accept("*", "/"):
            made = (extents.mul if sign == "*" else extents.floor_div)(made, self.factor())
        return made

    def factor(self) -> Extent:
        if self.accept("-"):
            return extents.mul(-1, self.factor())
        if self.accept("("):
            made = self.sum()
            return made if self.accept(")") else self.fail()
        if self.at == len(self.tokens):
            return self.fail()
        token = self.tokens[self.at]
        self.at += 1
        if token.isdigit():
            return extents.checked(int(token))
        if token in _CALLS.values():
            call = {"ceildiv": extents.ceil_div, "min": extents.minimum, "max": extents.maximum}[token]
            self.accept("(") or self.fail()
            left = self.sum()
            self.accept(",") or self.fail()
            right = self.sum()
            self.accept(")") or self.fail()
            return call(left, right)
        return extents.symbol(token) if token.isidentifier() and token not in ("b", "r", "mod") else self.fail()

    def fail(self) -> Extent:
        raise ValueError("no extent")


def parse(given: str) -> Extent:
    """The extent that ``given`` says. Raises ValueError for a text that is none."""
    if len(given) > 4096:
        raise ValueError("too long")
    parser = _Parser(given)
    made = parser.sum()
    if parser.at != len(parser.tokens):
        parser.fail()
    return made
