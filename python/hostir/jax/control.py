"""Rules of primitives that hold jaxprs: they are walked where they stand; loops are unrolled."""

from __future__ import annotations

from typing import Any

from ..values import Tensor
from .known import Known, stored_shape, stored_type
from .refusals import refused
from .shapes import part, stacked
from .walk import INLINED, Value, Walk, rule

SCAN_LENGTH_MAX = 64
BRANCH_EQUATIONS_MAX = 256  # Where both branches of a cond are computed.


@rule(
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
    "remat",
    "remat2",
    "checkpoint",
    inlined=True,
)
def _call(walk: Walk, equation: Any, values: list[Value]) -> Any:
    params = equation.params
    inner = next(params[name] for name in ("jaxpr", "call_jaxpr", "fun_jaxpr") if name in params)
    return _inside(walk, inner, values)


def _inside(walk: Walk, inner: Any, values: list[Value]) -> list[Value]:
    if hasattr(inner, "consts"):
        return walk.run(inner.jaxpr, inner.consts, values)
    return walk.run(inner, [], values)


@rule("scan", inlined=True)
def _scan(walk: Walk, equation: Any, values: list[Value]) -> Any:
    params = equation.params
    length, num_constants, num_carried = params["length"], params["num_consts"], params["num_carry"]
    if length > SCAN_LENGTH_MAX:
        why = f"its length is {length}, and at most {SCAN_LENGTH_MAX} turns are unrolled"
        raise refused(equation, why, "call a function that is jitted in a Python loop, with Arrays in between")
    constants = values[:num_constants]
    carried = values[num_constants : num_constants + num_carried]
    sequences = values[num_constants + num_carried :]
    turns: list[list[Value]] = []
    places = range(length)
    for turn in reversed(places) if params["reverse"] else places:
        given = [_row(walk, sequence, turn) for sequence in sequences]
        made = _inside(walk, params["jaxpr"], [*constants, *carried, *given])
        carried = made[:num_carried]
        turns.append(made[num_carried:])
    if params["reverse"]:
        turns.reverse()
    results = equation.outvars[num_carried:]
    return [*carried, *(_stacked(walk, [turn[k] for turn in turns], v.aval) for k, v in enumerate(results))]


def _row(walk: Walk, sequence: Value, place: int) -> Value:
    if isinstance(sequence, Known):
        return Known(sequence.array[place])
    return walk.ops.squeeze(part(walk, sequence, 0, place, 1), [0])


def _stacked(walk: Walk, rows: list[Value], aval: Any) -> Tensor:
    if not rows:
        return walk.full(stored_shape(aval), 0, stored_type(aval.dtype))
    return stacked(walk, rows, 0)


@rule("cond", inlined=True)
def _cond(walk: Walk, equation: Any, values: list[Value]) -> Any:
    branches = equation.params["branches"]
    which, *operands = values
    if isinstance(which, Known):
        return _inside(walk, branches[min(max(int(which.array), 0), len(branches) - 1)], operands)
    for branch in branches:
        if (count := _count(branch.jaxpr)) > BRANCH_EQUATIONS_MAX:
            why = f"both branches are computed, and one has {count} equations, above {BRANCH_EQUATIONS_MAX}"
            raise refused(equation, why, "choose in Python, by an argument in static_argnums")
        if branch.effects:
            raise refused(equation, "both branches are computed, and one has effects", "choose in Python")
    made = [_inside(walk, branch, operands) for branch in branches]
    results: list[Value] = []
    for place, variable in enumerate(equation.outvars):
        shape = variable.aval.shape
        chosen: Any = walk.stretched(walk.tensor(made[-1][place]), shape)
        for branch in reversed(range(len(branches) - 1)):
            chosen = walk.ops.where(walk.ops.le(which, branch), walk.operand(made[branch][place]), chosen)
        results.append(chosen)
    return results


def _count(jaxpr: Any) -> int:
    inner = 0
    for equation in jaxpr.eqns:
        for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
            if equation.primitive.name in INLINED and name in equation.params:
                of = equation.params[name]
                inner += _count(getattr(of, "jaxpr", of)) * equation.params.get("length", 1)
    return len(jaxpr.eqns) + inner


@rule("while", inlined=True)
def _while(walk: Walk, equation: Any, values: list[Value]) -> Any:
    raise refused(equation, "how often it turns is not known while a program is made")
