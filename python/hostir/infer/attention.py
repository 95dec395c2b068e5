"""Attention and its gradients. Follows csrc/fusion/ops/attention.cc."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgument
from .extents import Extent
from .operand import Operand, axis_name, broadcast_axes, extents_of, stored, tensor_axes, type_of
from .sizes import Sizes
from .value_type import FLOATS, REDUCTION, Axis, ValueType, tensor

# Roles of the axes behind the leading ones: m, n, d, e.
_QUERY, _KEY, _SIZE, _OUT = range(4)
_FORWARD = (("q", (_QUERY, _SIZE)), ("k", (_KEY, _SIZE)), ("v", (_KEY, _OUT)))
_BACKWARD = (*_FORWARD, ("gradient", (_QUERY, _OUT)), ("lse", (_QUERY,)), ("values", (_QUERY, _OUT)))
_MASK = ("mask", (_QUERY, _KEY))
# By op and result: its axes, and the one that it is a sum over.
_RESULTS: dict[str, dict[str, tuple[tuple[int, ...], int | None]]] = {
    "attention": {"values": ((_QUERY, _OUT), None), "lse": ((_QUERY,), None)},
    "attention_grad": {
        "q": ((_QUERY, _SIZE), _KEY),
        "k": ((_KEY, _SIZE), _QUERY),
        "v": ((_KEY, _OUT), _QUERY),
    },
}


def _wide(dtype: str) -> str:
    return "f64" if dtype == "f64" else "f32"


def _check_types(operands: Sequence[Operand], names: Sequence[str]) -> None:
    first = operands[0]
    dtype = type_of(first).dtype
    if dtype not in FLOATS:
        raise InvalidArgument(f"%{first._name} is {dtype}; queries are floats: cast them first")
    for operand, name in zip(operands[1:], names[1:], strict=True):
        given = type_of(operand).dtype
        wanted = _wide(dtype) if name == "lse" else dtype
        if given == wanted or (name == "mask" and (given == "bool" or given in FLOATS)):
            continue
        if name == "mask":
            raise InvalidArgument(
                f"%{operand._name} is {given}; a mask is of bools, true where a key takes part, or of floats that are "
                "added"
            )
        raise InvalidArgument(f"%{operand._name} is {given}; with queries of {dtype} {name} is {wanted}")


def _attention(op: str, operands: Sequence[Operand], attrs: dict[str, Any], sizes: Sizes) -> ValueType:
    forms = _FORWARD if op == "attention" else _BACKWARD
    if len(operands) not in (len(forms), len(forms) + 1):
        more = "" if op == "attention" else ", gradient, lse, values"
        raise InvalidArgument(f"{len(operands)} operands; it takes q, k, v{more} and perhaps a mask")
    if attrs["result"] not in _RESULTS[op]:
        wanted = "values or lse" if op == "attention" else "q, k or v"
        raise InvalidArgument(f"result is {wanted}, not {attrs['result']}")
    if not math.isfinite(attrs["scale"]):
        raise InvalidArgument(f"scale={attrs['scale']} is not finite")
    roles, summed = _RESULTS[op][attrs["result"]]
    leading: list[tuple[Operand, Sequence[Axis]]] = []
    extents: dict[int, tuple[Extent, str]] = {}
    for operand, (name, own) in zip(operands, (*forms, _MASK), strict=False):
        axes = tensor_axes(operand, sizes)
        if len(axes) < len(own):
            count = "1 axis" if len(axes) == 1 else f"{len(axes)} axes"
            raise InvalidArgument(f"%{operand._name} has {count}; {name} has {len(own)} or more")
        batch = len(axes) - len(own)
        for k, role in enumerate(own):
            extent, said = axes[batch + k][1], axis_name(operand, batch + k)
            if role not in extents:
                extents[role] = (extent, said)
            elif name != "mask" or extent != 1:
                sizes.unify(extents[role][0], extent, extents[role][1], said)
        leading.append((operand, axes[:batch]))
    _check_types(operands, [name for name, _ in (*forms, _MASK)][: len(operands)])
    made = stored([*broadcast_axes(leading, sizes), *[(0, extents[role][0]) for role in roles]])
    if summed is not None:
        made.append((REDUCTION, extents[summed][0]))
    offsets = extents_of(attrs["offset"], sizes)
    if len(offsets) != len(made):
        raise InvalidArgument(
            f"offset has {len(offsets)} entries; the result has {len(made)} axes, reduced ones too",
        )
    dtype = type_of(operands[0]).dtype
    return tensor(
        _wide(dtype) if attrs["result"] == "lse" else dtype,
        [(kind, sizes.resolve(extent)) for kind, extent in made],
    )


INFER = {"attention": _attention, "attention_grad": _attention}
