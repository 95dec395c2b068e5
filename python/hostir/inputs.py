"""The inputs of a run: found by place or by name, and host values as the program's types."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from . import gpu_array, wire
from .array import Array
from .definition import FusionDefinition
from .dlpack import as_numpy
from .dtypes import DataType, as_data_type
from .location import invalid
from .named_program import NamedProgram
from .values import Value, as_number

_NAMES_SHOWN = 8
_SIZE_MAX = 1 << 62
VALUE_BYTES = 256 << 10  # Of an input, up to which a run brings it along; beyond, the message is copied too often.
Values = np.ndarray[Any, Any] | gpu_array.GpuView  # On the host, or on a GPU.


def names(fd: FusionDefinition | NamedProgram) -> list[str]:
    """Of its inputs, in order."""
    return list(fd.inputs) if isinstance(fd, NamedProgram) else fd._input_names()


def bind(fd: FusionDefinition | NamedProgram, inputs: Any) -> Sequence[Any]:
    """``inputs`` in the order in which ``fd`` declares its own.

    A dict gives inputs by name, ``{"x": x, "w": w}``, and what is nested in it by names joined with dots
    (``{"mlp": {"w": w}}`` is input ``mlp.w``); a named tuple does, too. What a list or tuple holds besides these takes
    the places that are left, in order. Lists and tuples of numbers alone are arrays. Raises InvalidArgument.
    """
    declared = names(fd)
    flat = isinstance(inputs, (list, tuple)) and not hasattr(inputs, "_fields")
    if flat and len(inputs) == len(declared) and not any(type(v) is not Array and _is_nested(v) for v in inputs):
        return inputs  # type: ignore[no-any-return]
    named: dict[str, Any] = {}
    placed: list[Any] = []
    for tree in inputs if flat else [inputs]:
        for name, value in _leaves(tree, ""):
            if not name:
                placed.append(value)
            elif name not in declared:
                close = difflib.get_close_matches(name, declared, 1)
                remedy = f"did you mean {close[0]}?" if close else f"it has {_listed(declared)}"
                raise invalid(f"{fd.name} has no input {name}; {remedy}")
            elif name in named:
                raise invalid(f"input {name} of {fd.name} is given twice")
            else:
                named[name] = value
    left = [name for name in declared if name not in named]
    if len(placed) != len(left):
        if named and len(placed) < len(left):
            raise invalid(f"{fd.name} misses {_listed(left[len(placed) :])}")
        raise invalid(f"{fd.name} has {len(declared)} inputs, {len(named) + len(placed)} were given")
    named.update(zip(left, placed, strict=True))
    return [named[name] for name in declared]


def _leaves(tree: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The values in ``tree`` with their names; those that no dict is around have none."""
    if isinstance(tree, tuple) and (fields := getattr(tree, "_fields", None)):
        tree = dict(zip(fields, tree, strict=True))
    if isinstance(tree, Mapping):
        for key, entry in tree.items():
            yield from _leaves(entry, f"{name}.{key}" if name else str(key))
    elif isinstance(tree, (list, tuple)) and (bool(name) if not tree else not _is_plain(tree)):
        for key, entry in enumerate(tree):
            yield from _leaves(entry, f"{name}.{key}" if name else "")
    else:
        yield name, tree


def _is_nested(value: Any) -> bool:
    return isinstance(value, (list, tuple, Mapping))


def _is_plain(value: Any) -> bool:
    """Whether it is made of Python's numbers alone, which have no element type of their own."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return type(value) in (bool, int, float)


def _listed(names: list[str]) -> str:
    more = f", +{len(names) - _NAMES_SHOWN}" if len(names) > _NAMES_SHOWN else ""
    return f"input{'' if len(names) == 1 else 's'} {', '.join(names[:_NAMES_SHOWN])}{more}"


def index_of(fd: FusionDefinition, tensor: Value) -> int:
    for index, value in enumerate(fd.fusion.inputs()):
        if value is tensor:
            return index
    raise invalid(f"put: %{tensor.name} is not an input of {fd.name}; an array is laid out as an input")


def number(index: int, name: str, value: Any) -> bool | int | float:
    """The number that ``value`` gives a host scalar: Python's, NumPy's, or an array without axes of any library."""
    found = as_number(value)
    if found is None and any(hasattr(value, attribute) for attribute in ("__dlpack__", "__array__", "__jax_array__")):
        found = as_number(as_numpy(value))
    if found is None:
        raise invalid(f"input {index} ({name}): a number is wanted, not a {type(value).__name__}")
    if isinstance(found, int) and not -(2**63) <= found < 2**63:
        raise invalid(f"input {index} ({name}): {found} does not fit 64 bits")
    return found


def host_array(value: Any, data_type: DataType, what: str, name: str) -> np.ndarray[Any, Any]:
    """``value`` as an array of ``data_type``, converted where that holds every value of its own type.

    Numbers of Python, and lists of them, have no type of their own: integers are taken exactly, floats rounded. An axis
    of stride 0 stays one. Raises InvalidArgument about ``what``, with the conversion of ``name`` to ask for.
    """
    given, wanted = as_numpy(value), data_type.numpy
    if given.dtype == wanted:
        return given
    if _is_plain(value):
        return _of_numbers(given, wanted, what)
    if given.dtype.kind in "OSUMm":
        raise invalid(f"{what}: an array of {given.dtype} holds no numbers")
    if not is_exact(given.dtype, wanted):
        module = "ml_dtypes" if data_type is DataType.BFloat16 else "np"
        cast = f"{name}.astype({module}.{wanted})"
        raise invalid(
            f"{what}: the array is {given.dtype}, the program wants {wanted}; only what can change no value is "
            f"converted for you: {cast}"
        )
    sent_once = [n > 1 and stride == 0 for n, stride in zip(given.shape, given.strides, strict=True)]
    stored = given[tuple(slice(0, 1) if once else slice(None) for once in sent_once)]
    return np.broadcast_to(stored.astype(wanted), given.shape)


def _of_numbers(given: np.ndarray[Any, Any], wanted: np.dtype[Any], what: str) -> np.ndarray[Any, Any]:
    with np.errstate(all="ignore"):
        try:
            values: np.ndarray[Any, Any] = given.astype(wanted)
        except OverflowError as error:
            raise invalid(f"{what}: {error}; the program wants {wanted}") from None
    if _float_info(wanted) is None and not np.array_equal(values, given):
        wrong = given[values != given].flat[0]
        raise invalid(f"{what}: {wrong} is no {wanted}, which the program wants")
    return values


def is_exact(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Whether every value of ``source`` is one of ``target``: of int32 in float64, of bfloat16 in float32."""
    source = source.newbyteorder("=")
    if source in (target, np.dtype(np.bool_)):
        return True
    held, holds = _float_info(source), _float_info(target)
    if held is not None:
        if holds is None or held.minexp < holds.minexp:
            return False
        return bool(held.nmant <= holds.nmant and held.maxexp <= holds.maxexp)
    integers, own = _integer_info(source), _integer_info(target)
    if integers is None:
        return False
    if holds is not None:
        return bool(max(-integers[0], integers[1]) <= 2 ** (holds.nmant + 1))
    return own is not None and own[0] <= integers[0] and integers[1] <= own[1]


def _float_info(dtype: np.dtype[Any]) -> Any:
    try:
        return None if dtype.kind == "c" else ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    except ValueError:
        return None


def _integer_info(dtype: np.dtype[Any]) -> tuple[int, int] | None:
    """The least and the greatest value."""
    try:
        info = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    except ValueError:
        return None
    return int(info.min), int(info.max)


def as_input(array: Any, index: int, name: str, data_type: DataType) -> Values:
    """In the element type of a program's input, where no value can change: on the GPU that has it, or on the host."""
    on_gpu = gpu_array.view_of(array)
    if on_gpu is not None and on_gpu.dtype == data_type.numpy:
        return on_gpu
    on_host = array if on_gpu is None else on_gpu.to_numpy()
    return host_array(on_host, data_type, f"input {index} ({name})", name)


def sized(value: Any, index: int, name: str, parameter: Any) -> Any:
    """An integer given for a PlanParam that is a size (``define_size``), as that many elements; all else as it is."""
    if list(parameter.stored_once) != [True] or wire.data_type(parameter.dtype) is not DataType.Bool:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        return value
    if not 0 <= value <= _SIZE_MAX:
        raise invalid(f"input {index} ({name}): {value} is no size; it is from 0 to 2^62")
    return np.broadcast_to(np.zeros((), np.bool_), (int(value),))


def describe(array: np.ndarray[Any, Any], header: Any) -> np.ndarray[Any, Any]:
    """Says in a header, which has the memory order, what is sent, and returns it, its axes in that order: of an axis
    with stride 0 one element."""
    sent_once = [n > 1 and stride == 0 for n, stride in zip(array.shape, array.strides, strict=True)]
    native = array.dtype.newbyteorder("=")
    header.dtype = wire.dtype_number(as_data_type(native))
    header.shape[:] = array.shape
    header.sent_once[:] = sent_once if any(sent_once) else []
    stored = array[tuple(slice(0, 1) if once else slice(None) for once in sent_once)].astype(native, copy=False)
    if len(header.memory_order) != stored.ndim:  # Row-major; or an array that the daemon refuses for its axes.
        return stored
    return stored.transpose(header.memory_order)


def stored_bytes(values: Values) -> int:
    """That are sent."""
    sizes = [n for n, stride in zip(values.shape, values.strides, strict=True) if stride or n == 0]
    return int(math.prod(sizes)) * int(values.dtype.itemsize)
