"""``fd.ops``: the operations, under nvFuser's names and argument order.

Pointwise operations are methods made from the op table by the build (``_pointwise.py``): their operands are tensors,
scalars of the definition, or Python numbers, which do not promote. The others are below, because their arguments need
translating. What each operation means: docs/ops.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

from ._pointwise import PointwiseOps
from .dtypes import DataType, as_data_type, element_type
from .location import caller_location, caller_variable, invalid
from .record import Attribute, OpRecord
from .values import Number, Scalar, Tensor, Value, as_axis, as_number, number_text

if TYPE_CHECKING:
    from .definition import FusionDefinition


class Ops(PointwiseOps):  # type: ignore[misc]
    def __init__(self, definition: FusionDefinition) -> None:
        self._definition = definition

    def _record(self, name: str, operands: Sequence[Any], attrs: dict[str, Attribute] | None = None) -> Any:
        fd = self._definition
        fd._check_open()
        values = [self._value(name, operand) for operand in operands]
        return self._append(name, values, attrs, bool(values) and all(isinstance(v, Scalar) for v in values))

    def _append(self, name: str, values: Sequence[Value], attrs: dict[str, Attribute] | None, scalar: bool) -> Any:
        fd = self._definition
        of = fd._infer(name, values, attrs or {})
        result_name = fd._new_name(fd._composing or caller_variable(fd._part))
        result = Scalar(fd, result_name, None) if scalar else Tensor(fd, result_name)
        result._type = of
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

    @overload
    def cast(self, arg: Tensor, dtype: DataType | object) -> Tensor: ...
    @overload
    def cast(self, arg: Scalar | Number, dtype: DataType | object) -> Scalar: ...
    def cast(self, arg: Any, dtype: DataType | object) -> Any:
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
        attrs: dict[str, Attribute] = {
            "axes": _reduced_axes(name, dims),
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

    def mean(self, arg: Tensor, dims: Any = None, keepdim: bool = False) -> Tensor:
        """The mean over axes ``dims`` (None: all). Of integers and bools: float32."""
        return self._tensor("mean", [arg], {"axes": _reduced_axes("mean", dims), "keepdim": bool(keepdim)})

    def var(self, arg: Tensor, dims: Any = None, correction: int = 1, keepdim: bool = False) -> Tensor:
        """The sum of squared deviations from the mean over axes ``dims``, over the count less ``correction``."""
        attrs: dict[str, Attribute] = {"axes": _reduced_axes("var", dims), "correction": as_axis("var", correction)}
        return self._tensor("var", [arg], {**attrs, "keepdim": bool(keepdim)})

    def var_mean(
        self, arg: Tensor, dims: Any = None, correction: int = 1, keepdim: bool = False
    ) -> tuple[Tensor, Tensor]:
        """``var`` and ``mean`` of the same arguments; recorded as these two."""
        var = self._part(0, lambda: self.var(arg, dims, correction, keepdim))
        return var, self._part(1, lambda: self.mean(arg, dims, keepdim))

    def var_sum(self, arg: Tensor, dims: Any = None, keepdim: bool = False) -> Tensor:
        """The sum of squared deviations from the mean over axes ``dims``."""
        return self._tensor("var_sum", [arg], {"axes": _reduced_axes("var_sum", dims), "keepdim": bool(keepdim)})

    def welford(self, arg: Tensor, dims: Any) -> tuple[Tensor, Tensor, Scalar]:
        """(mean, sum of squared deviations, count) over axes ``dims``; recorded as mean, var_sum and sizes."""
        count: Any = None
        for axis in _reduced_axes("welford", dims):
            size = self.size(arg, axis)
            count = size if count is None else count * size
        if count is None:
            raise invalid("welford: dims is None; it names the axes")
        mean = self._part(0, lambda: self.mean(arg, dims))
        return mean, self._part(1, lambda: self.var_sum(arg, dims)), count

    def _part(self, part: int, record: Callable[[], Tensor]) -> Tensor:
        """One of several results: its name is that of its variable."""
        self._definition._part = part
        try:
            return record()
        finally:
            self._definition._part = None

    # --- shape --------------------------------------------------------------------------------------------------

    def broadcast(self, arg: Tensor, is_broadcast_dim: Sequence[bool]) -> Tensor:
        """New axes of extent 1 wherever ``is_broadcast_dim`` is true."""
        flags = [int(bool(flag)) for flag in _listed("broadcast", is_broadcast_dim, "bools")]
        return self._tensor("broadcast", [arg], {"is_broadcast_dim": flags})

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
        """``arg`` without axes of extent 1; with ``squeeze_expanded`` also without broadcast ones of any extent."""
        if squeeze_expanded:
            return self._tensor("squeeze_expanded", [arg], {"axes": _ints("squeeze", dims)})
        return self._tensor("squeeze", [arg], {"axes": _ints("squeeze", dims)})

    def size(self, arg: Tensor, dim: int) -> Scalar:
        """The extent of axis ``dim`` as a host scalar, which also serves in ``shape=`` arguments."""
        size: Scalar = self._append("size", [self._value("size", arg)], {"axis": as_axis("size", dim)}, True)
        if isinstance(arg, Tensor) and arg._type is not None:
            size.extent = arg.size(dim)
        return size

    def shape(self, arg: Tensor) -> list[Scalar]:
        """The extents of a tensor, each as ``size`` gives it."""
        return [self.size(arg, dim) for dim in range(arg.ndim)]

    def stride_order(self, arg: Tensor, order: Sequence[int]) -> Tensor:
        """A copy with the stride order ``order``: recorded as ``set`` and that annotation (docs/ir.md, "Layouts")."""
        result = self.set(arg)
        result._annotate("stride_order", order=tuple(_ints("stride_order", order)))
        return result

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
        """The tensors one after the other along axis ``dim``. With ``manual_padding`` they are results of ``pad``, each
        as long as all of them together; recorded as ``cat`` of what was padded."""
        tensors = _listed("cat", tensors, "tensors")
        if manual_padding:
            tensors = self._unpadded(tensors, dim)
        return self._tensor("cat", tensors, {"axis": as_axis("cat", dim)})

    def _unpadded(self, tensors: Sequence[Tensor], dim: int) -> list[Tensor]:
        """What was padded, where each pad leaves room for exactly the others."""
        pads = {op.result: op for op in self._definition._record.ops if op.name == "pad"}
        parts: list[Tensor] = []
        before: list[int] = []
        after: list[int] = []
        for tensor in tensors:
            op = pads.get(tensor.name) if isinstance(tensor, Tensor) else None
            if op is None:
                raise invalid(f"cat: manual_padding=True, and {tensor!r} is no result of pad")
            widths = [int(width) for width in op.attrs["widths"]]  # type: ignore[union-attr]
            padded = [k for k in range(len(widths) // 2) if widths[2 * k] or widths[2 * k + 1]] or [-1 - dim]
            if len(padded) > 1 or min(widths) < 0 or (dim < 0 and padded != [-1 - dim]):
                raise invalid(
                    f"cat: manual_padding=True, and %{tensor.name} is padded by {widths}, not along {dim} alone"
                )
            at = 2 * padded[0]
            before.append(widths[at] if 0 <= at < len(widths) else 0)
            after.append(widths[at + 1] if 0 <= at < len(widths) else 0)
            parts.append(Tensor(self._definition, op.operands[0]))
        # The lengths of the parts: the first by what is in front of the next one, the others by what is behind.
        for k in range(1, len(parts) - 1):
            if before[k + 1] - before[k] != after[k - 1] - after[k]:
                raise invalid(f"cat: manual_padding=True, and %{tensors[k].name} does not meet its neighbours")
        if before[:1] != [0] or after[-1:] != [0] or before != sorted(before) or after != sorted(after, reverse=True):
            raise invalid(f"cat: manual_padding=True, with {before} in front and {after} behind; the parts must meet")
        return parts

    def triu(self, arg: Tensor, diagonal: int = 0) -> Tensor:
        """``arg`` on and above a diagonal of its last two axes, 0 below it."""
        return self._tensor("triu", [arg], {"diagonal": as_axis("triu", diagonal)})

    # --- indices that are data ----------------------------------------------------------------------------------

    def select(self, arg: Tensor, index: int | Scalar, dim: int) -> Tensor:
        """``arg`` at ``index``, a number or a host scalar, along axis ``dim``, which goes."""
        return self._tensor("select", [arg, index], {"axis": as_axis("select", dim)})

    def index_select(self, arg: Tensor, index: Tensor, dim: int) -> Tensor:
        """``arg`` at each of a list of indices along axis ``dim``; indices outside are clamped."""
        return self._tensor("index_select", [arg, index], {"axis": as_axis("index_select", dim)})

    def gather(self, arg: Tensor, index: Tensor, dim: int) -> Tensor:
        """``arg``, along axis ``dim`` at the integers ``index``, as PyTorch's; indices outside are clamped."""
        return self._tensor("gather", [arg, index], {"axis": as_axis("gather", dim)})

    def scatter(self, arg: Tensor, index: Tensor, src: Tensor, dim: int) -> Tensor:
        """``arg`` with the elements of ``src`` at ``index`` along axis ``dim``; the last of equal indices counts."""
        return self._tensor("scatter", [arg, index, src], {"axis": as_axis("scatter", dim)})

    def take_along_axis(self, arg: Tensor, index: Tensor, dim: int) -> Tensor:
        """``arg``, along axis ``dim`` at the integers ``index``, as NumPy's; indices outside are clamped."""
        return self._tensor("take_along_axis", [arg, index], {"axis": as_axis("take_along_axis", dim)})

    # --- new values ---------------------------------------------------------------------------------------------

    def full(self, shape: Sequence[Any], fill_value: Any, dtype: DataType | object) -> Tensor:
        """``fill_value``, a number or a constant scalar, everywhere."""
        attrs: dict[str, Attribute] = {"shape": _extents("full", shape), "value": _number("full", fill_value)}
        return self._tensor("full", [], {**attrs, "dtype": element_type(dtype).value})

    def iota(self, length: Any, start: Any = 0, step: Any = 1, dtype: DataType | object = DataType.Int) -> Tensor:
        """``start + k * step`` for k below ``length``, a size; start and step are numbers or host scalars."""
        attrs: dict[str, Attribute] = {"shape": _extents("iota", [length]), "offset": _extents("iota", [0])}
        operands = [self._value("iota", start), self._value("iota", step)]
        result: Tensor = self._append("iota", operands, {**attrs, "dtype": element_type(dtype).value}, False)
        return result

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


def _reduced_axes(op: str, dims: Any) -> list[int]:
    axes = [] if dims is None else _ints(op, dims)
    if dims is not None and not axes:
        raise invalid(f"{op}: dims is empty; None means all axes")
    return axes


def _extents(op: str, shape: Sequence[Any]) -> list[int | str]:
    """A shape argument: numbers, constant scalars of the definition, or sizes ("i0", see Tensor.shape)."""
    if not isinstance(shape, (list, tuple)):
        raise invalid(f"{op}: {shape!r} is no list of sizes")
    extents: list[int | str] = []
    for entry in shape:
        value = entry if not isinstance(entry, Scalar) else entry.value if entry.extent is None else entry.extent
        if isinstance(entry, Scalar) and value is None:
            raise invalid(f"{op}: %{entry.name} is not known yet; a size is a number, a constant scalar or Tensor.size")
        extents.append(str(value) if isinstance(value, str) else as_axis(op, value))
    return extents


def _listed(op: str, values: Any, what: str) -> list[Any]:
    try:
        return list(values)
    except TypeError:
        raise invalid(f"{op}: {values!r} is no list of {what}") from None


def _ints(op: str, values: Any) -> list[int]:
    return [as_axis(op, value) for value in (values if isinstance(values, (list, tuple)) else [values])]


def _number(op: str, value: Any) -> float:
    number = value.value if isinstance(value, Scalar) else as_number(value)
    if number is None:
        raise invalid(f"{op}: {value!r} is no number and no constant scalar")
    if isinstance(number, int) and (not -(2**63) <= number < 2**63 or float(number) != number):
        text = number_text(number)
        raise invalid(f"{op}: {text} is beyond 2^53, where constants are rounded; write a float where that is meant")
    return float(number)
