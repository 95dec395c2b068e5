"""``fd.ops``: the operations, under nvFuser's names and argument order.

Pointwise operations are methods made from the op table by the build (``_pointwise.py``): their operands are tensors,
scalars of the definition, or Python numbers, which do not promote. The others are below, because their arguments need
translating. What each operation means: docs/ops.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .dtypes import DataType, as_data_type, element_type
from .errors import Unimplemented
from .location import caller_location, caller_variable, invalid, located
from .record import Attribute, OpRecord
from .values import Scalar, Tensor, Value, as_axis, as_number

try:
    from ._pointwise import PointwiseOps
except ImportError as error:
    raise ImportError("hostir: _pointwise.py is missing; ./run build python_stubs makes it") from error

if TYPE_CHECKING:
    from .definition import FusionDefinition


class Ops(PointwiseOps):  # type: ignore[misc]
    def __init__(self, definition: FusionDefinition) -> None:
        self._definition = definition

    def _record(self, name: str, operands: Sequence[Any], attrs: dict[str, Attribute] | None = None) -> Any:
        fd = self._definition
        fd._check_open()
        values = [self._value(name, operand) for operand in operands]
        scalar = bool(values) and all(isinstance(v, Scalar) for v in values)
        result_name = fd._new_name(caller_variable())
        result = Scalar(fd, result_name, None) if scalar else Tensor(fd, result_name)
        operand_names = tuple(v._name for v in values)
        fd._record.ops.append(OpRecord(name, operand_names, result_name, attrs or {}, caller_location()))
        return result

    def _tensor(self, name: str, operands: Sequence[Any], attrs: dict[str, Attribute] | None = None) -> Tensor:
        result: Tensor = self._record(name, operands, attrs)
        return result

    def _value(self, op: str, operand: Any) -> Value:
        if isinstance(operand, Value):
            if operand._definition is not self._definition:
                raise invalid(f"{op}: {operand!r} is a value of another definition")
            return operand
        if as_number(operand) is not None:
            return self._definition._constant(operand, None, self._definition._new_name())
        raise invalid(f"{op}: an operand is a {type(operand).__name__}; operands are tensors, scalars and numbers")

    # --- conversion and copies ----------------------------------------------------------------------------------

    def cast(self, arg: Value, dtype: DataType | object) -> Any:
        """``arg`` converted to ``dtype``."""
        return self._record("cast", [arg], {"dtype": element_type(dtype).value})

    def set(self, arg: Tensor) -> Tensor:
        """A copy; where its layout differs from that of ``arg``, a resharding."""
        return self._tensor("set", [arg])

    def segment_set(self, arg: Tensor) -> Tensor:
        """A copy that always ends a segment."""
        return self._tensor("segment_set", [arg])

    # --- reductions ---------------------------------------------------------------------------------------------

    def _reduce(self, name: str, arg: Tensor, dims: Any, keepdim: bool, dtype: Any) -> Tensor:
        axes = [] if dims is None else _ints(name, dims)
        if dims is not None and not axes:
            raise invalid(f"{name}: dims is empty; None means all axes")
        attrs: dict[str, Attribute] = {
            "axes": axes,
            "keepdim": bool(keepdim),
            "dtype": as_data_type(dtype or DataType.Null).value,
        }
        return self._tensor(name, [arg], attrs)

    def sum(self, arg: Tensor, dims: Any = None, keepdim: bool = False, dtype: Any = DataType.Null) -> Tensor:
        """The sum over axes ``dims`` (None: all). Of integers and bools: int64."""
        return self._reduce("sum", arg, dims, keepdim, dtype)

    def prod(self, arg: Tensor, dims: Any = None, keepdim: bool = False, dtype: Any = DataType.Null) -> Tensor:
        """The product over axes ``dims`` (None: all)."""
        return self._reduce("prod", arg, dims, keepdim, dtype)

    def max(self, arg: Tensor, dims: Any = None, keepdim: bool = False, dtype: Any = DataType.Null) -> Tensor:
        """The greatest element over axes ``dims`` (None: all); NaN if any is."""
        return self._reduce("max", arg, dims, keepdim, dtype)

    def min(self, arg: Tensor, dims: Any = None, keepdim: bool = False, dtype: Any = DataType.Null) -> Tensor:
        """The least element over axes ``dims`` (None: all); NaN if any is."""
        return self._reduce("min", arg, dims, keepdim, dtype)

    # --- shape --------------------------------------------------------------------------------------------------

    def broadcast(self, arg: Tensor, is_broadcast_dim: Sequence[bool]) -> Tensor:
        """New axes of extent 1 wherever ``is_broadcast_dim`` is true."""
        return self._tensor("broadcast", [arg], {"is_broadcast_dim": [int(bool(b)) for b in is_broadcast_dim]})

    def broadcast_in_dim(self, arg: Tensor, shape: Sequence[Any], broadcast_dims: Sequence[int]) -> Tensor:
        """``arg`` as a tensor of ``shape``, its axis k at ``broadcast_dims[k]``."""
        attrs: dict[str, Attribute] = {"shape": _extents("broadcast_in_dim", shape)}
        attrs["dims"] = _ints("broadcast_in_dim", broadcast_dims)
        return self._tensor("broadcast_in_dim", [arg], attrs)

    def reshape(self, arg: Tensor, new_shape: Sequence[Any]) -> Tensor:
        """The elements of ``arg`` in row-major order, of ``new_shape``; one extent may be -1."""
        return self._tensor("reshape", [arg], {"shape": _extents("reshape", new_shape)})

    def permute(self, arg: Tensor, dims: Sequence[int]) -> Tensor:
        """Axis k of the result is axis ``dims[k]`` of ``arg``."""
        return self._tensor("permute", [arg], {"dims": _ints("permute", dims)})

    def expand(self, arg: Tensor, shape: Sequence[Any]) -> Tensor:
        """Axes of extent 1 repeated to ``shape``; -1 keeps an axis."""
        return self._tensor("expand", [arg], {"shape": _extents("expand", shape)})

    def squeeze(self, arg: Tensor, dims: Sequence[int], squeeze_expanded: bool = False) -> Tensor:
        """``arg`` without axes of extent 1."""
        if squeeze_expanded:
            raise Unimplemented(located("squeeze: squeeze_expanded=True; slice the axis to extent 1 first"))
        return self._tensor("squeeze", [arg], {"axes": _ints("squeeze", dims)})

    def slice(
        self,
        arg: Tensor,
        start_indices: Sequence[Any],
        end_indices: Sequence[Any],
        strides: Sequence[int] | None = None,
        manual_normalization: bool = False,
    ) -> Tensor:
        """``arg[start:end:stride]`` on every axis; negative indices count from the end, as in NumPy."""
        del manual_normalization  # Indices are normalized in either case.
        start = _extents("slice", start_indices)
        steps = _ints("slice", strides) if strides is not None else [1] * len(start)
        return self._tensor("slice", [arg], {"start": start, "end": _extents("slice", end_indices), "strides": steps})

    def pad(self, arg: Tensor, pad_widths: Sequence[Any], value: float | Scalar | None = None) -> Tensor:
        """``pad_widths`` holds (before, after) pairs from the last axis backwards; ``value`` (0) fills them."""
        widths = _ints("pad", _extents("pad", pad_widths))
        return self._tensor("pad", [arg], {"widths": widths, "value": 0.0 if value is None else _number("pad", value)})

    def cat(self, tensors: Sequence[Tensor], dim: int = 0, manual_padding: bool = False) -> Tensor:
        """The tensors one after the other along axis ``dim``."""
        if manual_padding:
            raise Unimplemented(located("cat: manual_padding=True; pass the unpadded tensors"))
        return self._tensor("cat", tensors, {"axis": as_axis("cat", dim)})

    def take_along_axis(self, arg: Tensor, index: Tensor, dim: int) -> Tensor:
        """``arg``, along axis ``dim`` at the integers ``index``, as NumPy's; indices outside are clamped."""
        return self._tensor("take_along_axis", [arg, index], {"axis": as_axis("take_along_axis", dim)})

    # --- new values ---------------------------------------------------------------------------------------------

    def full(self, shape: Sequence[Any], fill_value: Any, dtype: DataType | object) -> Tensor:
        """``fill_value``, a number or a constant scalar, everywhere."""
        attrs: dict[str, Attribute] = {"shape": _extents("full", shape), "value": _number("full", fill_value)}
        return self._tensor("full", [], {**attrs, "dtype": element_type(dtype).value})

    # --- contractions -------------------------------------------------------------------------------------------

    def matmul(self, a: Tensor, b: Tensor, *, precision: str = "full") -> Tensor:
        """As NumPy's matmul. ``precision="tf32"`` allows products of float32 to round their operands to 10 bits of
        mantissa, which GPUs multiply several times as fast; CPUs multiply in full either way."""
        return self._tensor("matmul", [a, b], _precision(precision))

    def linear(self, a: Tensor, b: Tensor, bias: Tensor | None = None, *, precision: str = "full") -> Tensor:
        """``a @ b.T + bias`` with ``b`` of shape [out, in]. ``precision``: as of matmul."""
        return self._tensor("linear", [a, b] if bias is None else [a, b, bias], _precision(precision))


def _precision(precision: str) -> dict[str, Attribute]:
    if precision not in ("full", "tf32"):
        raise invalid(f"precision is 'full' or 'tf32', not {precision!r}")
    return {} if precision == "full" else {"precision": precision}


def _extents(op: str, shape: Sequence[Any]) -> list[int | str]:
    """A shape argument: numbers, constant scalars of the definition, or sizes of inputs ("i0", see Tensor.size)."""
    if not isinstance(shape, (list, tuple)):
        raise invalid(f"{op}: {shape!r} is no list of sizes")
    extents: list[int | str] = []
    for entry in shape:
        value = entry.value if isinstance(entry, Scalar) else entry
        if value is None:
            raise invalid(f"{op}: %{entry.name} is not known yet; a size is a number, a constant scalar or Tensor.size")
        extents.append(value if isinstance(value, str) else as_axis(op, value))
    return extents


def _ints(op: str, values: Any) -> list[int]:
    return [as_axis(op, value) for value in (values if isinstance(values, (list, tuple)) else [values])]


def _number(op: str, value: Any) -> float:
    number = value.value if isinstance(value, Scalar) else as_number(value)
    if number is None:
        raise invalid(f"{op}: {value!r} is no number and no constant scalar")
    return float(number)
