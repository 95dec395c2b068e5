"""Operations of which each element asks those along an axis. Follows csrc/fusion/ops/cumulative.cc and argsort.cc."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgument
from .operand import Operand, dtype_of, normal_axis, tensor_axes, type_of
from .sizes import Sizes
from .value_type import FLOATS, ITERATION, Axis, ValueType, check, tensor

_Attrs = dict[str, Any]


def _check_asked(axes: Sequence[Axis], along: int) -> None:
    """Whether what all elements ask can be counted, in blocks too."""
    check("i64", ((ITERATION, axes[along][1]), (ITERATION, 1), *axes))


def _cumulative(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    axes = list(tensor_axes(operands[0], sizes))
    along = normal_axis(attrs["axis"], len(axes))
    given = type_of(operands[0]).dtype
    dtype = dtype_of(attrs, null_is=given if given in FLOATS else "i64")
    if dtype == "bool":
        raise InvalidArgument("dtype=bool: a sum or product is a number")
    axes[along] = (ITERATION, axes[along][1])
    _check_asked(axes, along)
    return tensor(dtype, axes)


def _argsort(op: str, operands: Sequence[Operand], attrs: _Attrs, sizes: Sizes) -> ValueType:
    axes = list(tensor_axes(operands[0], sizes))
    along = normal_axis(attrs["axis"], len(axes))
    axes[along] = (ITERATION, axes[along][1])
    _check_asked(axes, along)
    return tensor("i64", axes)


INFER = {"argsort": _argsort, "cumprod": _cumulative, "cumsum": _cumulative}
