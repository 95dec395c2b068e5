"""What moves elements: permutes, cat, pads and slices, among chains of pointwise ops."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from drawing import Draw, Drawn
from op_spaces import along
from workloads import Array, Shape

Step = Callable[[Any, Any], Any]  # Of ops and a tensor.


def sizes(shape: Shape) -> str:
    return "x".join(map(str, shape))


def listed(axes: tuple[int, ...]) -> str:
    return ",".join(map(str, axes)) or "all"


def gelu(ops: Any, x: Any) -> Any:
    return 0.5 * x * (1 + ops.erf(x * 0.5**0.5))


STEPS: dict[str, Step] = {
    "scale": lambda ops, x: x * 1.25 + 0.5,
    "relu": lambda ops, x: ops.where(x > 0.0, x, 0.0),
    "tanh": lambda ops, x: ops.tanh(x),
    "sigmoid": lambda ops, x: ops.sigmoid(x),
    "silu": lambda ops, x: x * ops.sigmoid(x),
    "gelu": gelu,
    "square": lambda ops, x: x * x,
    "decay": lambda ops, x: ops.exp(-ops.abs(x)),
}


def chain(d: Draw, most: int) -> tuple[str, Step]:
    """One to `most` steps."""
    names = [d.pick(list(STEPS)) for _ in range(d.rank(1, most))]

    def run(ops: Any, x: Any) -> Any:
        for name in names:
            x = STEPS[name](ops, x)
        return x

    return " ".join(names), run


def permute(d: Draw) -> Drawn:
    added, biased, both = d.chance(0.3), d.chance(0.3), d.chance(0.15)
    shape = d.shape(d.rank(2, 4), 2 + added + both)
    order = list(range(len(shape)))
    while order == sorted(order):
        d.random.shuffle(order)
    there = tuple(shape[k] for k in order)
    axis = d.axis(there)
    before, first = chain(d, 3)
    after, second = chain(d, 2)
    inputs = [Array("x", d.dtype, shape)]
    inputs += [Array("added", d.dtype, there)] if added else []
    inputs += [Array("bias", d.dtype, (there[axis],))] if biased else []

    def formula(ops: Any, x: Any, *others: Any) -> list[Any]:
        rest = list(others)
        here = first(ops, x)
        y = ops.permute(here, order)
        y = y + rest.pop(0) if added else y
        y = y + rest.pop(0)[along(axis, len(there))] if biased else y
        return [second(ops, y), here] if both else [second(ops, y)]

    extras = f"{', added' if added else ''}{', bias' if biased else ''}{', both' if both else ''}"
    details = f"{sizes(shape)} to {listed(tuple(order))}: {before}, {after}{extras}"
    return Drawn(d.index, "permute", details, inputs, [d.dtype] * (1 + both), formula, d.symbolic)


def cat(d: Draw) -> Drawn:
    added = d.chance(0.3)
    whole = d.shape(d.rank(1, 4), 3 if added else 2)
    axis = d.axis(whole)
    count = min(d.rank(2, 4), whole[axis])
    cuts = [0, *sorted(d.random.sample(range(1, whole[axis]), count - 1)), whole[axis]]
    lengths = [b - a for a, b in itertools.pairwise(cuts)]
    chains = [chain(d, 2) for _ in lengths]
    after, last = chain(d, 2)
    parts = [(*whole[:axis], length, *whole[axis + 1 :]) for length in lengths]
    inputs = [Array(f"part{k}", d.dtype, shape) for k, shape in enumerate(parts)]
    inputs += [Array("added", d.dtype, whole)] if added else []

    def formula(ops: Any, *given: Any) -> list[Any]:
        y = ops.cat([run(ops, x) for (_, run), x in zip(chains, given, strict=False)], axis)
        return [last(ops, y + given[-1] if added else y)]

    each = ", ".join(f"{length} {names}" for length, (names, _) in zip(lengths, chains, strict=True))
    details = f"{sizes(whole)} along {axis} of {each}: {after}{', added' if added else ''}"
    return Drawn(d.index, "cat", details, inputs, [d.dtype], formula, d.symbolic)


def windows(d: Draw) -> Drawn:
    """Pads and slices, alone and together, behind and in front of pointwise ops."""
    shape = d.shape(d.rank(1, 4), 2)
    axis, kind = d.axis(shape), d.pick(["pad", "crop", "every other", "difference", "shift", "halves turned"])
    extent, before = shape[axis], d.random.randint(0, 3)
    names, run = chain(d, 3)
    by = 1 + d.random.randrange(min(8, extent - 1))

    def at(begin: int | None, end: int | None, step: int = 1) -> tuple[slice, ...]:
        return tuple(slice(begin, end, step) if k == axis else slice(None) for k in range(len(shape)))

    def widths(front: int, behind: int) -> list[tuple[int, int]]:
        return [(front, behind) if k == axis else (0, 0) for k in range(len(shape))]

    forms: dict[str, Step] = {
        "pad": lambda ops, x: run(ops, ops.pad(x, widths(before, by), 1.0)),
        "crop": lambda ops, x: run(ops, x)[at(by // 2, extent - (by - by // 2))],
        "every other": lambda ops, x: run(ops, x[at(by % 2, None, 2)]),
        "difference": lambda ops, x: run(ops, x[at(by, None)] - x[at(None, extent - by)]),
        "shift": lambda ops, x: run(ops, x) + ops.pad(x[at(None, extent - by)], widths(by, 0), 0.0),
        "halves turned": lambda ops, x: (
            run(ops, x) * ops.cat([-x[at(extent // 2, None)], x[at(None, extent // 2)]], axis)
        ),
    }
    inputs = [Array("x", d.dtype, shape)]
    details = f"{sizes(shape)} along {axis}{f' by {before}+{by}' if kind == 'pad' else f' by {by}'}: {names}"
    return Drawn(d.index, kind, details, inputs, [d.dtype], lambda ops, x: [forms[kind](ops, x)], d.symbolic)
