"""What an operation makes of its operands, known at the line that records it: element type and shape, or the error.

The op table's Infer functions in csrc/fusion are the definition; this is their rendering in Python, for the line
that is being written. tests/python/test_infer.py holds the two equal. Each module names the C++ file that it follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import HostirError
from ..record import AxisRecord
from . import along, attention, contractions, indices, pointwise, reductions, reshape, shapes
from .extents import symbol
from .operand import Operand
from .sizes import Sizes
from .value_type import BROADCAST, ITERATION, ValueType, tensor
from .value_type import scalar as scalar_type

__all__ = ["Operand", "Sizes", "ValueType", "infer", "input_type", "scalar_type"]

_RULES = {
    **pointwise.INFER,
    **reductions.INFER,
    **shapes.INFER,
    **reshape.INFER,
    **indices.INFER,
    **along.INFER,
    **contractions.INFER,
    **attention.INFER,
}


def input_type(dtype: str, axes: Sequence[AxisRecord]) -> ValueType:
    """Of an input tensor. Raises for more axes or bytes than a tensor has."""
    made = [
        (
            BROADCAST if axis.broadcast else ITERATION,
            symbol(axis.extent) if isinstance(axis.extent, str) else axis.extent,
        )
        for axis in axes
    ]
    return tensor(dtype, made)


def infer(op: str, operands: Sequence[Operand], attrs: dict[str, Any], sizes: Sizes) -> ValueType | None:
    """The type of the result; None where only the service knows it (an op that is not rendered, an operand whose own
    type is not known, an extent that does not parse).

    Raises HostirErrors with the service's message, without op and line; ``sizes`` is then as it was.
    """
    types = tuple([operand._type for operand in operands])
    key: tuple[Any, ...] = (op, types)
    if attrs:
        frozen = [tuple(value) if type(value) is list else value for value in attrs.values()]
        key = (op, types, *frozen, *[operand._constant for operand in operands])
    known = sizes.known.get(key)
    if known is not None:
        return known
    rule = _RULES.get(op)
    if rule is None or None in types:
        return None
    sizes.begin()
    try:
        made = rule(op, operands, attrs, sizes)
    except HostirError:
        sizes.rollback()
        raise
    except (ValueError, KeyError, IndexError, TypeError):  # No call of fd.ops is like that; the service says why.
        sizes.rollback()
        return None
    if made is not None and made.symbolic:
        sizes.add(made)
    if made is not None and sizes.untouched and rule is not pointwise.of_elements:  # That sees to it itself.
        sizes.known[key] = made
    return made
