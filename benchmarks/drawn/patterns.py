"""Softmax and its kin, reductions, optimisers, activations, outer products; and the table of all patterns.

A pattern takes the choices of a workload and returns it. Its formula is all that says what is computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from drawing import Draw, Drawn
from moves import Step, cat, listed, permute, sizes, windows
from norms import norm, norm_backward
from op_spaces import along
from workloads import Array, Shape

# --- softmax, cross entropy ---------------------------------------------------------------------------------------


def exponentials(ops: Any, x: Any, axis: int) -> tuple[Any, Any, Any]:
    """x below its greatest element, the exponential of that, and its sum."""
    below = x - ops.max(x, [axis], keep=True)
    e = ops.exp(below)
    return below, e, ops.sum(e, [axis], keep=True)


def softmax(d: Draw) -> Drawn:
    shape = d.shape(d.rank(1, 4), 2)
    axis, logarithm, scaled, masked = d.axis(shape), d.chance(0.35), d.chance(0.3), d.chance(0.2)
    inputs = [Array("x", d.dtype, shape)] + ([Array("mask", d.dtype, (shape[axis],))] if masked else [])

    def formula(ops: Any, x: Any, *mask: Any) -> list[Any]:
        t = x * 0.125 if scaled else x
        t = t + mask[0][along(axis, len(shape))] if masked else t
        below, e, total = exponentials(ops, t, axis)
        return [below - ops.log(total) if logarithm else e / total]

    details = f"{sizes(shape)} along {axis}{', scaled' if scaled else ''}{', masked' if masked else ''}"
    return Drawn(d.index, "log-softmax" if logarithm else "softmax", details, inputs, [d.dtype], formula, d.symbolic)


def softmax_backward(d: Draw) -> Drawn:
    shape = d.shape(d.rank(1, 4), 3)
    axis, logarithm = d.axis(shape), d.chance(0.35)
    inputs = [Array("grad", d.dtype, shape), Array("y", d.dtype, shape, "normal" if logarithm else "positive")]

    def formula(ops: Any, grad: Any, y: Any) -> list[Any]:
        if logarithm:
            return [grad - ops.exp(y) * ops.sum(grad, [axis], keep=True)]
        return [y * (grad - ops.sum(y * grad, [axis], keep=True))]

    pattern = f"{'log-' if logarithm else ''}softmax backward"
    return Drawn(d.index, pattern, f"{sizes(shape)} along {axis}", inputs, [d.dtype], formula, d.symbolic)


def cross_entropy(d: Draw) -> Drawn:
    backward, mean = d.chance(0.7), d.chance(0.5)
    shape = d.shape(d.rank(2, 3), 2 if backward else 1)
    axis = d.pick([k for k in range(1, len(shape)) if shape[k] > 1] or [1])
    rows = tuple(extent for k, extent in enumerate(shape) if k != axis)
    target = Array("target", "i64", rows, f"index:{shape[axis]}")
    inputs = [Array("x", d.dtype, shape), target]
    inputs += [Array("grad", "f32", rows)] if backward and not mean else []
    beside = tuple(None if k == axis else slice(None) for k in range(len(shape)))  # Rows beside x.
    every = tuple(range(len(shape)))

    def forward(ops: Any, x: Any, target: Any) -> list[Any]:
        below, _, total = exponentials(ops, x, axis)
        loss = ops.log(total) - ops.at(below, target[beside], axis)
        return [ops.mean(loss, every) if mean else ops.sum(loss, [axis])]

    def backwards(ops: Any, x: Any, target: Any, *grad: Any) -> list[Any]:
        _, e, total = exponentials(ops, x, axis)
        hit = ops.where(ops.is_class(target[beside], x.shape[axis], axis), 1.0, 0.0)
        by = 1 / math.prod(rows) if mean else grad[0][beside]
        return [(e / total - hit) * by]

    pattern = f"cross entropy{' backward' if backward else ''}"
    details = f"{sizes(shape)} along {axis}, {'mean' if mean else 'rows'}"
    outputs = [d.dtype if backward else "f32"]
    return Drawn(d.index, pattern, details, inputs, outputs, backwards if backward else forward, d.symbolic)


# --- reductions ---------------------------------------------------------------------------------------------------

REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": lambda ops, x, axes, keep: ops.sum(x, axes, keep),
    "mean": lambda ops, x, axes, keep: ops.mean(x, axes, keep),
    "max": lambda ops, x, axes, keep: ops.max(x, axes, keep),
    "var": lambda ops, x, axes, keep: ops.var(x, axes, keep),
}
TERMS: dict[str, Step] = {
    "": lambda ops, x: x,
    "square of ": lambda ops, x: x * x,
    "sqrt of ": lambda ops, x: ops.sqrt(x),
    "log of ": lambda ops, x: ops.log(x + 1.0),
}


def reduced_axes(d: Draw, shape: Shape) -> tuple[int, ...]:
    return tuple(range(len(shape))) if d.chance(0.25) else d.axes(shape, len(shape))


def reduction(d: Draw) -> Drawn:
    """Of positive numbers: sums of both signs may be nearly 0, where no error is small beside them."""
    shape = d.shape(d.rank(1, 4), 1)
    kind, axes, keep = d.pick(list(REDUCTIONS)), reduced_axes(d, shape), d.chance(0.2)
    term, two = d.pick(list(TERMS)), d.chance(0.2)
    inputs = [Array("x", d.dtype, shape, "positive")] + ([Array("y", d.dtype, shape, "positive")] if two else [])

    def formula(ops: Any, x: Any, *y: Any) -> list[Any]:
        return [REDUCTIONS[kind](ops, TERMS[term](ops, x * y[0] if two else x), axes, keep)]

    details = f"of {term}{'x y ' if two else ''}{sizes(shape)} over {listed(axes)}{', kept' if keep else ''}"
    outputs = [d.pick([d.dtype, "f32"])]
    return Drawn(d.index, kind, details, inputs, outputs, formula, d.symbolic)


def reductions(d: Draw) -> Drawn:
    """Several of one input, none of which needs another."""
    shape = d.shape(d.rank(2, 4), 1)
    wanted = [(d.pick(list(REDUCTIONS)), reduced_axes(d, shape), d.pick(list(TERMS))) for _ in range(d.rank(2, 4))]

    def formula(ops: Any, x: Any) -> list[Any]:
        return [REDUCTIONS[kind](ops, TERMS[term](ops, x), axes, False) for kind, axes, term in wanted]

    each = "; ".join(
        f"{kind} {'of ' + term[:-4] + ' ' if term else ''}over {listed(axes)}" for kind, axes, term in wanted
    )
    inputs = [Array("x", d.dtype, shape, "positive")]
    outputs = [d.pick([d.dtype, "f32"])] * len(wanted)
    return Drawn(d.index, "reductions", f"of {sizes(shape)}: {each}", inputs, outputs, formula, d.symbolic)


# --- optimisers ---------------------------------------------------------------------------------------------------


def optimiser(d: Draw) -> Drawn:
    """A step of several tensors, none of them in place: weights in float32, gradients of the drawn type."""
    adam, clipped, count = d.chance(0.6), d.chance(0.25), d.rank(1, 6)
    each = (7 if adam else 5) * count
    shapes = [d.shape(d.rank(1, 3), each) for _ in range(count)]
    inputs: list[Array] = []
    for k, shape in enumerate(shapes):
        inputs += [Array(f"w{k}", "f32", shape), Array(f"grad{k}", d.dtype, shape), Array(f"m{k}", "f32", shape)]
        inputs += [Array(f"v{k}", "f32", shape, "positive")] if adam else []
    states = 4 if adam else 3

    def sgd(ops: Any, w: Any, grad: Any, m: Any) -> list[Any]:
        new_m = 0.9 * m + (grad + 0.0001 * w)
        return [w - 0.01 * new_m, new_m]

    def adam_step(ops: Any, w: Any, grad: Any, m: Any, v: Any) -> list[Any]:
        new_m, new_v = 0.9 * m + 0.1 * grad, 0.999 * v + 0.001 * grad * grad
        # At step 10: the moments over 1 - beta ** 10.
        step = (new_m / (1 - 0.9**10)) / (ops.sqrt(new_v / (1 - 0.999**10)) + 1e-8)
        return [w - 0.001 * (step + 0.01 * w), new_m, new_v]

    def formula(ops: Any, *given: Any) -> list[Any]:
        groups = [list(given[k : k + states]) for k in range(0, len(given), states)]
        if clipped:
            total = None
            for group in groups:
                squares = ops.sum(group[1] * group[1], range(len(group[1].shape)))
                total = squares if total is None else total + squares
            norm = ops.sqrt(total)
            factor = 1 / ops.where(norm > 1.0, norm, 1.0)
            groups = [[group[0], group[1] * factor, *group[2:]] for group in groups]
        return [result for group in groups for result in (adam_step if adam else sgd)(ops, *group)]

    pattern = "Adam" if adam else "SGD with momentum"
    details = f"of {', '.join(map(sizes, shapes))}{', clipped' if clipped else ''}"
    return Drawn(d.index, pattern, details, inputs, ["f32"] * count * (states - 1), formula, d.symbolic)


# --- activations --------------------------------------------------------------------------------------------------


def gelu_backward(d: Draw) -> Drawn:
    """Perhaps behind a bias, whose gradient is a sum over the other axes."""
    shape = d.shape(d.rank(1, 4), 3)
    by_tanh, biased = d.chance(0.5), len(shape) > 1 and d.chance(0.5)
    last = len(shape) - 1
    inputs = [Array("grad", d.dtype, shape), Array("x", d.dtype, shape)]
    inputs += [Array("bias", d.dtype, (shape[-1],))] if biased else []

    def formula(ops: Any, grad: Any, x: Any, *bias: Any) -> list[Any]:
        z = x + bias[0][along(last, len(shape))] if biased else x
        if by_tanh:
            t = ops.tanh(0.7978845608028654 * (z + 0.044715 * z * z * z))
            inner = 0.7978845608028654 * (1 + 3 * 0.044715 * z * z)
            slope = 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * inner
        else:
            slope = 0.5 * (1 + ops.erf(z * 0.5**0.5)) + z * ops.exp(-0.5 * z * z) * 0.3989422804014327
        to_x = grad * slope
        return [to_x, ops.sum(to_x, range(last))] if biased else [to_x]

    pattern = f"{'tanh ' if by_tanh else ''}GELU backward"
    details = f"{sizes(shape)}{', bias' if biased else ''}"
    return Drawn(d.index, pattern, details, inputs, [d.dtype] * (1 + biased), formula, d.symbolic)


def swiglu(d: Draw) -> Drawn:
    """Of two inputs, or of the halves of one; forward or backward."""
    backward, halves = d.chance(0.6), d.chance(0.4)
    shape = d.shape(d.rank(1, 4), 5 if backward else 3)
    last = len(shape) - 1
    both = (*shape[:-1], 2 * shape[-1])
    inputs = [Array("both", d.dtype, both)] if halves else [Array(name, d.dtype, shape) for name in ("x", "gate")]
    inputs += [Array("grad", d.dtype, shape)] if backward else []

    def formula(ops: Any, *given: Any) -> list[Any]:
        if halves:
            front = tuple(slice(None) for _ in range(last))
            x, gate = given[0][(*front, slice(None, shape[-1]))], given[0][(*front, slice(shape[-1], 2 * shape[-1]))]
        else:
            x, gate = given[0], given[1]
        s = ops.sigmoid(gate)
        if not backward:
            return [x * gate * s]
        grad = given[-1]
        to_x, to_gate = grad * gate * s, grad * x * s * (1 + gate * (1 - s))
        return [ops.cat([to_x, to_gate], last)] if halves else [to_x, to_gate]

    pattern = f"SwiGLU{' backward' if backward else ''}"
    outputs = [d.dtype] * (2 if backward and not halves else 1)
    # Where the halves begin is a number of the program: it is for this size of the axis.
    symbolic = d.symbolic and not halves
    return Drawn(
        d.index, pattern, f"{sizes(shape)}{' of halves' if halves else ''}", inputs, outputs, formula, symbolic
    )


# --- outer products -----------------------------------------------------------------------------------------------


def outer(d: Draw) -> Drawn:
    """Two vectors, or two rows of each of a batch, broadcast against each other."""
    batched, added, kept = d.chance(0.4), d.chance(0.4), d.chance(0.75)
    shape = d.shape(3 if batched else 2, 2 if added else 1)
    m, n = len(shape) - 2, len(shape) - 1
    kind = d.pick(["product", "distance", "greater"])
    batch = shape[:m]
    inputs = [Array("x", d.dtype, (*batch, shape[m])), Array("y", d.dtype, (*batch, shape[n]))]
    inputs += [Array("added", d.dtype, shape)] if added else []
    front = (slice(None),) * len(batch)

    def formula(ops: Any, x: Any, y: Any, *others: Any) -> list[Any]:
        row, column = x[(*front, slice(None), None)], y[(*front, None, slice(None))]
        if kind == "product":
            t = row * column
        elif kind == "distance":
            t = ops.exp(-0.5 * (row - column) * (row - column))
        else:
            t = ops.where(row > column, row, column)
        t = t + others[0] if added else t
        return [t] if kept else [ops.sum(t * t, [n])]

    extras = f"{', added' if added else ''}{'' if kept else ', summed'}"
    return Drawn(d.index, f"outer {kind}", f"{sizes(shape)}{extras}", inputs, [d.dtype], formula, d.symbolic)


PATTERNS: dict[Callable[[Draw], Drawn], int] = {
    norm: 4,
    norm_backward: 4,
    softmax: 3,
    softmax_backward: 2,
    cross_entropy: 2,
    reduction: 4,
    reductions: 2,
    permute: 4,
    cat: 2,
    windows: 3,
    optimiser: 3,
    gelu_backward: 2,
    swiglu: 2,
    outer: 2,
}


def drawn(seed: int, index: int, elements: tuple[float, float], bf16: float) -> Drawn:
    d = Draw(seed, index, elements, bf16)
    return d.weighed(PATTERNS)(d)
