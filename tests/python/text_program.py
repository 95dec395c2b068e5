"""Fusion programs in text form (docs/ir.md), read for what types they say and what the client infers for them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from hostir.infer import Sizes, ValueType, extent_text, infer
from hostir.infer.value_type import BROADCAST, ITERATION, ONE, REDUCTION, Axis, text

_FUSION = re.compile(r"^fusion @[\w.]+\((.*?)\) \{\n(.*?)^\}", re.M | re.S)
_OP = re.compile(r"^ *%([\w.]+)(?:: ([a-z]\w+(?:\[.*?\])?))?(?: \{.*?\})? = (\w+)\((.*?)\)(?: \{(.*)\})?$")
_PARAM = re.compile(r"%([\w.]+): ([a-z]\w+(?:\[.*?\])?)")
_ATTR = re.compile(r"(\w+)=(\[.*?\]|[^,]+)")
_KINDS = {"b": BROADCAST, "r": REDUCTION}


@dataclass
class Named:
    """A value: infer.Operand."""

    _name: str
    _type: ValueType | None
    _constant: float | None = None


@dataclass
class Op:
    result: str
    declared: str | None
    name: str
    operands: list[str]
    attrs: dict[str, Any]


@dataclass
class Program:
    params: dict[str, str]
    ops: list[Op] = field(default_factory=list)
    sizes: Sizes = field(default_factory=Sizes)

    def types(self) -> tuple[dict[str, str], int]:
        """The type of every value as text, and how many of them were inferred: again until nothing changes. Raises
        what the service refuses, be it what an operation does later to the sizes of an earlier one."""
        self.sizes = sizes = Sizes()
        values = {name: Named(name, type_of(given)) for name, given in self.params.items()}
        for value in values.values():
            assert value._type is not None
            sizes.add_input(value._type)
        before: dict[str, str] = {}
        while True:
            inferred = sum(self._infer(op, values, sizes) for op in self.ops)
            after = {name: _text(value, sizes) for name, value in values.items()}
            if after == before:
                return after, inferred
            before = after
            if sizes._replaced:
                sizes._settle_guards()  # As the service does when it has read all.

    def _infer(self, op: Op, values: dict[str, Named], sizes: Sizes) -> bool:
        of = infer(op.name, [values[name] for name in op.operands], op.attrs, sizes)
        number = float(op.attrs["value"]) if op.name == "constant" else None
        declared = type_of(op.declared) if of is None and op.declared is not None else of
        values[op.result] = Named(op.result, declared, number)
        return of is not None


def _text(value: Named, sizes: Sizes) -> str:
    of = value._type
    return "" if of is None else text(of.dtype, None if of.axes is None else sizes.axes(of))


def type_of(given: str) -> ValueType | None:
    """None for an extent that is not one of a user's program."""
    dtype, _, axes = given.partition("[")
    try:
        return ValueType(dtype, tuple(map(_axis, _entries(axes.removesuffix("]")))) if axes else None)
    except ValueError:
        return None


def _axis(given: str) -> Axis:
    if given == "b":
        return ONE
    kind, colon, extent = given.rpartition(":")
    return (_KINDS[kind] if colon else ITERATION), extent_text.parse(extent)


def _entries(given: str) -> list[str]:
    """What stands between commas outside of parentheses."""
    return [entry.strip() for entry in re.split(r",(?![^(]*\))", given) if entry.strip()]


def _attribute(given: str) -> Any:
    if given.startswith("["):
        return [int(e) if re.fullmatch(r"-?\d+", e) else e for e in _entries(given[1:-1])]
    if given in ("true", "false"):
        return given == "true"
    if re.fullmatch(r"-?\d+", given):
        return int(given)
    try:
        return float(given)
    except ValueError:
        return given


def programs(given: str) -> list[Program]:
    """Every fusion program of a text; those are left out that this does not read, or that read what is not defined."""
    given = re.sub(r" *//.*", "", given)
    found = []
    for match in _FUSION.finditer(given):
        program = Program(dict(_PARAM.findall(match[1])))
        lines = [line for line in match[2].splitlines() if line.strip() and not line.strip().startswith("return")]
        for line in lines:
            op = _OP.match(line)
            defined = {*program.params, *(made.result for made in program.ops)}
            if op is None or not defined.issuperset(re.findall(r"%([\w.]+)", op[4])):
                break
            attrs = {name: _attribute(value) for name, value in _ATTR.findall(op[5] or "")}
            program.ops.append(Op(op[1], op[2], op[3], re.findall(r"%([\w.]+)", op[4]), attrs))
        else:
            found.append(program)
    return found
