"""``fd.ops``: the operations, under nvFuser's names and argument order.

Pointwise operations are methods made from the service's op table (``_op_table.json``, written by the build): their operands
are tensors, scalars of the definition, or Python numbers, which do not promote. The others are below, because their
arguments need translating. What each operation means: docs/ops.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .definition import OpRecord, Scalar, Tensor, Value
from .dtypes import DataType, as_data_type
from .location import caller_location

if TYPE_CHECKING:
    from .definition import FusionDefinition


def _load_table() -> dict[str, dict[str, Any]]:
    """The op table of the service this client was built with: name to {"operands", "pointwise", "doc"}."""
    import hostir

    for folder in hostir.__path__:  # The sources' folder and the build's.
        path = Path(folder) / "_op_table.json"
        if path.exists():
            return {row["name"]: row for row in json.loads(path.read_text())}
    raise ImportError("hostir: _op_table.json is missing; build the target python_stubs, or install the package")


class Ops:
    def __init__(self, definition: FusionDefinition) -> None:
        self._definition = definition

    # --- recording ----------------------------------------------------------------------------------------------

    def _record(self, name: str, operands: Sequence[Any], attrs: dict[str, Any] | None = None) -> Any:
        fd = self._definition
        fd._check_open()
        values = [self._value(name, operand) for operand in operands]
        scalar = bool(values) and all(isinstance(v, Scalar) for v in values)
        result = Scalar(fd, fd._new_name(), None) if scalar else Tensor(fd, fd._new_name())
        fd._record.ops.append(
            OpRecord(name, tuple(v._name for v in values), (result._name,), attrs or {}, caller_location())
        )
        return result

    def _value(self, op: str, operand: Any) -> Value:
        if isinstance(operand, Value):
            if operand._definition is not self._definition:
                raise ValueError(f"{op}: {operand!r} belongs to another definition")
            return operand
        if isinstance(operand, (bool, int, float)):
            return self._definition._constant(operand)
        raise TypeError(f"{op}: operands are tensors, scalars or numbers, not {type(operand).__name__}")

    def _pointwise(self, name: str, count: int, args: Sequence[Any]) -> Any:
        if len(args) != count:
            raise TypeError(f"{name} takes {count} operand{'s' if count != 1 else ''}, got {len(args)}")
        return self._record(name, args)

    # --- conversion and copies ----------------------------------------------------------------------------------

    def cast(self, arg: Value, dtype: DataType | object) -> Any:
        return self._record("cast", [arg], {"dtype": as_data_type(dtype).value})

    def set(self, arg: Tensor) -> Tensor:
        return self._record("set", [arg])

    def segment_set(self, arg: Tensor) -> Tensor:
        """A copy that always ends a segment."""
        return self._record("segment_set", [arg])

    # --- reductions ---------------------------------------------------------------------------------------------

    def _reduce(self, name: str, arg: Tensor, dims: Any, keepdim: bool, dtype: Any) -> Tensor:
        axes = [] if dims is None else [int(d) for d in dims] if isinstance(dims, (list, tuple)) else [int(dims)]
        if dims is not None and not axes:
            raise ValueError(f"{name}: dims is empty; None means all axes")
        data_type = as_data_type(dtype)
        return self._record(name, [arg], {"axes": axes, "keepdim": bool(keepdim), "dtype": data_type.value})

    def sum(self, arg: Tensor, dims: Any = None, keepdim: bool = False, dtype: Any = DataType.Null) -> Tensor:
        return self._reduce("sum", arg, dims, keepdim, dtype)

    def prod(self, arg: Tensor, dims: Any = None, keepdim: bool = False, dtype: Any = DataType.Null) -> Tensor:
        return self._reduce("prod", arg, dims, keepdim, dtype)

    def max(self, arg: Tensor, dims: Any = None, keepdim: bool = False, dtype: Any = DataType.Null) -> Tensor:
        return self._reduce("max", arg, dims, keepdim, dtype)

    def min(self, arg: Tensor, dims: Any = None, keepdim: bool = False, dtype: Any = DataType.Null) -> Tensor:
        return self._reduce("min", arg, dims, keepdim, dtype)

    # --- shape --------------------------------------------------------------------------------------------------

    def broadcast(self, arg: Tensor, is_broadcast_dim: Sequence[bool]) -> Tensor:
        """New axes of extent 1 wherever ``is_broadcast_dim`` is true."""
        return self._record("broadcast", [arg], {"is_broadcast_dim": [int(bool(b)) for b in is_broadcast_dim]})

    def broadcast_in_dim(self, arg: Tensor, shape: Sequence[Any], broadcast_dims: Sequence[int]) -> Tensor:
        """``arg`` as a tensor of ``shape``, its axis k at ``broadcast_dims[k]``."""
        attrs = {"shape": _extents("broadcast_in_dim", shape), "dims": [int(d) for d in broadcast_dims]}
        return self._record("broadcast_in_dim", [arg], attrs)

    def reshape(self, arg: Tensor, new_shape: Sequence[Any]) -> Tensor:
        return self._record("reshape", [arg], {"shape": _extents("reshape", new_shape)})

    def permute(self, arg: Tensor, dims: Sequence[int]) -> Tensor:
        return self._record("permute", [arg], {"dims": [int(d) for d in dims]})

    def expand(self, arg: Tensor, shape: Sequence[Any]) -> Tensor:
        """Axes of extent 1 repeated to ``shape``; -1 keeps an axis."""
        return self._record("expand", [arg], {"shape": _extents("expand", shape)})

    def squeeze(self, arg: Tensor, dims: Sequence[int], squeeze_expanded: bool = False) -> Tensor:
        if squeeze_expanded:
            raise NotImplementedError("squeeze: squeeze_expanded=True; slice the axis to extent 1 first")
        return self._record("squeeze", [arg], {"axes": [int(d) for d in dims]})

    def slice(
        self,
        arg: Tensor,
        start_indices: Sequence[Any],
        end_indices: Sequence[Any],
        strides: Sequence[int] | None = None,
        manual_normalization: bool = False,
    ) -> Tensor:
        del manual_normalization  # The service clamps indices in either case.
        start = _extents("slice", start_indices)
        steps = [int(s) for s in strides] if strides is not None else [1] * len(start)
        return self._record("slice", [arg], {"start": start, "end": _extents("slice", end_indices), "strides": steps})

    def pad(self, arg: Tensor, pad_widths: Sequence[Any], value: float | Scalar | None = None) -> Tensor:
        """``pad_widths`` holds (before, after) pairs from the last axis backwards."""
        number = value.value if isinstance(value, Scalar) else value
        if isinstance(value, Scalar) and number is None:
            raise ValueError("pad: value must be a number or a constant scalar")
        attrs = {"widths": [int(w) for w in _extents("pad", pad_widths)], "value": float(number or 0.0)}
        return self._record("pad", [arg], attrs)

    def cat(self, tensors: Sequence[Tensor], dim: int = 0, manual_padding: bool = False) -> Tensor:
        if manual_padding:
            raise NotImplementedError("cat: manual_padding=True; pass the unpadded tensors")
        return self._record("cat", list(tensors), {"axis": int(dim)})

    # --- new values ---------------------------------------------------------------------------------------------

    def full(self, shape: Sequence[Any], fill_value: Any, dtype: DataType | object) -> Tensor:
        number = fill_value.value if isinstance(fill_value, Scalar) else fill_value
        if number is None:
            raise ValueError("full: fill_value must be a number or a constant scalar")
        attrs = {"shape": _extents("full", shape), "value": float(number), "dtype": as_data_type(dtype).value}
        return self._record("full", [], attrs)

    # --- contractions -------------------------------------------------------------------------------------------

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        return self._record("matmul", [a, b])

    def linear(self, a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
        """``a @ b.T + bias`` with ``b`` of shape [out, in]."""
        return self._record("linear", [a, b] if bias is None else [a, b, bias])


def _extents(op: str, shape: Sequence[Any]) -> list[int]:
    """A shape argument: numbers, or scalars of the definition that are constants."""
    extents = []
    for entry in shape:
        value = entry.value if isinstance(entry, Scalar) else entry
        if value is None:
            raise ValueError(f"{op}: {entry!r} is not a constant; a size must be a number or a constant scalar")
        extents.append(int(value))
    return extents


def _make_method(name: str, count: int, doc: str) -> Callable[..., Any]:
    def method(self: Ops, *args: Any) -> Any:
        return self._pointwise(name, count, args)

    method.__name__ = name
    method.__qualname__ = f"Ops.{name}"
    method.__doc__ = doc
    return method


for _row in _load_table().values():
    if _row["pointwise"] and not hasattr(Ops, _row["name"]):
        setattr(Ops, _row["name"], _make_method(_row["name"], _row["operands"], _row["doc"]))
