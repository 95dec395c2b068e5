"""Operations on single elements, by the rule of their row in the op table. Follows csrc/fusion/pointwise.cc."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import InvalidArgument
from .operand import Operand, broadcast_axes, dtype_of, tensor_axes, type_of
from .sizes import Sizes
from .value_type import FLOATS, INTS, LIMITS, ORDER, ValueType, promoted, scalar, tensor

try:
    from .._pointwise import RULES
except ImportError as error:
    raise ImportError("hostir: _pointwise.py is missing or old; ./run build python_stubs makes it") from error

_REFUSED: dict[str, tuple[Callable[[str], bool], str]] = {
    "number": (lambda dtype: dtype == "bool", "numbers are needed: cast it first"),
    "bits": (lambda dtype: dtype in FLOATS, "bools or integers are needed"),
    "ints": (lambda dtype: dtype not in INTS, "integers are needed: cast it first"),
}


@functools.cache
def _types(rule: str, operands: tuple[tuple[str, bool], ...]) -> tuple[str, str] | None:
    """What operands, each an element type and whether it is a tensor, are converted to, and the result's type; None
    where the rule refuses one of them."""
    if rule in _REFUSED and any(_REFUSED[rule][0](dtype) for dtype, _ in operands):
        return None
    if rule == "select" and operands[0][0] != "bool":
        return None
    # Two numbers that a bool tensor chooses from promote as a number beside it does.
    of_tensors = rule == "select" and any(is_tensor for _, is_tensor in operands[1:])
    common = promoted(operands[1:] if of_tensors else operands)
    if rule == "float" and common not in FLOATS:
        common = "f32" if any(is_tensor for _, is_tensor in operands) else "f64"
    if rule == "real" and common not in FLOATS:
        return None
    if rule == "logic":
        return "bool", "bool"
    return common, "bool" if rule in ("compare", "test") else common


def _refuse(rule: str, operands: Sequence[Operand]) -> InvalidArgument:
    if rule == "select":
        dtype = type_of(operands[0]).dtype
        return InvalidArgument(f"the condition %{operands[0]._name} is {dtype}; it must be bool")
    if rule == "real":
        common = promoted(tuple((of.dtype, of.is_tensor) for of in map(type_of, operands)))
        return InvalidArgument(f"the operands promote to {common}; floats are needed: cast them first")
    refused, remedy = _REFUSED[rule]
    operand = next(operand for operand in operands if refused(type_of(operand).dtype))
    return InvalidArgument(f"%{operand._name} is {type_of(operand).dtype}; {remedy}")


def _check_constants(operands: Sequence[Operand], dtype: str) -> None:
    """A constant that the operands' type does not hold would wrap, unseen."""
    least, greatest = LIMITS[dtype]
    for operand in operands:
        number = operand._constant
        if number is None or type_of(operand).dtype not in INTS or least <= number <= greatest:
            continue
        raise InvalidArgument(
            f"%{operand._name} is the constant {number!r}, which {dtype}, the operands' type, does not hold: "
            "cast the tensors to i64"
        )


def of_elements(op: str, operands: Sequence[Operand], attrs: dict[str, Any], sizes: Sizes) -> ValueType:
    given = [type_of(operand) for operand in operands]
    types = _types(RULES[op], tuple([(of.dtype, of.axes is not None) for of in given]))
    if types is None:
        raise _refuse(RULES[op], operands)
    is_narrow = types[0] in LIMITS and types[0] != "i64"
    if is_narrow:
        _check_constants(operands, types[0])
    tensors = [(operand, sizes.value_axes(of)) for operand, of in zip(operands, given, strict=True) if of.is_tensor]
    if not tensors:
        return scalar(types[1])
    axes = tensors[0][1]
    if any(other != axes for _, other in tensors):
        axes = tuple(broadcast_axes(tensors, sizes))
    made = tensor(types[1], axes)
    if not is_narrow and sizes.untouched:
        sizes.known[op, tuple(given)] = made
    return made


def _cast(op: str, operands: Sequence[Operand], attrs: dict[str, Any], sizes: Sizes) -> ValueType:
    dtype = dtype_of(attrs)
    if dtype not in ORDER:
        raise InvalidArgument(f"dtype={dtype} is not an element type ({', '.join(ORDER)})")
    if type_of(operands[0]).axes is None:
        return scalar(dtype)
    return tensor(dtype, tensor_axes(operands[0], sizes))


def _set(op: str, operands: Sequence[Operand], attrs: dict[str, Any], sizes: Sizes) -> ValueType:
    return tensor(type_of(operands[0]).dtype, tensor_axes(operands[0], sizes))


INFER = {**dict.fromkeys(RULES, of_elements), "cast": _cast, "set": _set, "segment_set": _set}
