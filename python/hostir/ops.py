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
from .record import Attribute, ExtentText, OpRecord
from .values import Number, Scalar, Tensor, Value, as_axis, as_number, number_text

if TYPE_CHECKING:
    from .definition import FusionDefinition


class Ops(PointwiseOps):  # type: ignore[misc]
    """The operations of a definition. Each records itself, and knows the shape and element type of its result.

    Axes are numbered from 0, negative ones from the end. Each raises InvalidArgument, naming the user's line, for
    shapes, types and axes that do not fit, and FailedPrecondition when the definition's block has ended; a demand on a
    size that is not known yet is checked by each run. In the examples x is [[1, 2, 3], [4, 5, 6]], of float32 and shape
    [-1, 3], and i is [[2, 0], [1, 1]], of int64; comments show results.

    >>> fd.ops.minimum(x, 4.5)  # [[1, 2, 3], [4, 4.5, 4.5]]
    """

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
        """``arg`` converted to ``dtype``: a DataType, or what NumPy, PyTorch or JAX call one.

        To a smaller float it rounds to nearest, ties to even. Floats become integers by truncation, clamped to the
        type's range, and NaN becomes 0; integers wrap; as a bool all but 0 is true.

        >>> fd.ops.cast(x / 2, np.int32)  # [[0, 1, 1], [2, 2, 3]]
        """
        return self._record("cast", [arg], {"dtype": element_type(dtype).value})

    def set(self, arg: Tensor) -> Tensor:
        """A copy; where its layout differs from that of ``arg``, a resharding.

        >>> y = fd.ops.set(x)
        >>> x.shard([0, 1], {0: "mesh_x"})
        >>> y.set_device_mesh([0, 1])  # Gathered: each device has all rows.
        """
        return self._tensor("set", [arg])

    def segment_set(self, arg: Tensor) -> Tensor:
        """A copy that always ends a segment: no kernel both makes ``arg`` and reads the copy.

        >>> fd.ops.exp(fd.ops.segment_set(x * 0))  # [[1, 1, 1], [1, 1, 1]]
        """
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
        """The sum over axes ``dims``, one or a list (None: all). They go; with ``keepdim`` they stay, with extent 1.

        ``dtype``: of the result, to which elements are converted before they are added; without it floats keep their
        type, and integers and bools are added as int64. 16-bit floats are added in float32. Of nothing the sum is 0.

        >>> fd.ops.sum(x, [0])  # [5, 7, 9]
        >>> fd.ops.sum(x, -1, keepdim=True)  # [[6], [15]]
        """
        return self._reduce("sum", arg, dims, keepdim, dtype)

    def prod(self, arg: Tensor, dims: Any = None, keepdim: bool = False, dtype: Any = DataType.Null) -> Tensor:
        """The product over axes ``dims``, with arguments and types as of ``sum``; of nothing it is 1.

        >>> fd.ops.prod(x, [0])  # [4, 10, 18]
        """
        return self._reduce("prod", arg, dims, keepdim, dtype)

    def max(self, arg: Tensor, dims: Any = None, keepdim: bool = False, dtype: Any = DataType.Null) -> Tensor:
        """The greatest element over axes ``dims``, with arguments as of ``sum``; NaN if any is. Without ``dtype`` the
        type stays. An axis without elements is refused.

        >>> fd.ops.max(x, 1)  # [3, 6]
        """
        return self._reduce("max", arg, dims, keepdim, dtype)

    def min(self, arg: Tensor, dims: Any = None, keepdim: bool = False, dtype: Any = DataType.Null) -> Tensor:
        """The least element over axes ``dims``, with arguments as of ``sum``; NaN if any is. Without ``dtype`` the type
        stays. An axis without elements is refused.

        >>> fd.ops.min(x)  # 1
        """
        return self._reduce("min", arg, dims, keepdim, dtype)

    def any(self, arg: Tensor, dims: Any = None, keepdim: bool = False) -> Tensor:
        """Whether some element over axes ``dims``, with arguments as of ``sum``, differs from 0, as NaN does: bools, of
        any type. It is false of nothing.

        >>> fd.ops.any(fd.ops.gt(x, 3), [1])  # [False, True]
        """
        return self._tensor("any", [arg], {"axes": _reduced_axes("any", dims), "keepdim": bool(keepdim)})

    def all(self, arg: Tensor, dims: Any = None, keepdim: bool = False) -> Tensor:
        """Whether every element over axes ``dims`` differs from 0, with arguments as of ``any``. It is true of nothing.

        >>> fd.ops.all(fd.ops.gt(x, 1), [0])  # [False, True, True]
        """
        return self._tensor("all", [arg], {"axes": _reduced_axes("all", dims), "keepdim": bool(keepdim)})

    def argmax(self, arg: Tensor, dim: int, keepdim: bool = False) -> Tensor:
        """The index, int64, of the greatest element along axis ``dim``, which goes or, with ``keepdim``, stays with
        extent 1. It names the first of equal elements; where there is NaN, the first of those. An axis without elements
        is refused.

        >>> fd.ops.argmax(x, 1)  # [2, 2]
        """
        return self._tensor("argmax", [arg], {"axis": as_axis("argmax", dim), "keepdim": bool(keepdim)})

    def argmin(self, arg: Tensor, dim: int, keepdim: bool = False) -> Tensor:
        """The index of the least element along axis ``dim``, with arguments as of ``argmax``.

        >>> fd.ops.argmin(-x, 0)  # [1, 1, 1]
        """
        return self._tensor("argmin", [arg], {"axis": as_axis("argmin", dim), "keepdim": bool(keepdim)})

    def mean(self, arg: Tensor, dims: Any = None, keepdim: bool = False) -> Tensor:
        """The mean over axes ``dims``, with arguments as of ``sum``. A float keeps its type, of integers and bools the
        mean is float32; 16-bit floats are added in float32. Of nothing it is NaN.

        >>> fd.ops.mean(x, [0], keepdim=True)  # [[2.5, 3.5, 4.5]]
        """
        return self._tensor("mean", [arg], {"axes": _reduced_axes("mean", dims), "keepdim": bool(keepdim)})

    def var(self, arg: Tensor, dims: Any = None, correction: int = 1, keepdim: bool = False) -> Tensor:
        """The sum of squared deviations from the mean over axes ``dims``, over the count less ``correction``: 1, as of
        PyTorch, is the unbiased estimate, 0, as of NumPy, the variance of what is there. Types as of ``mean``.

        >>> fd.ops.var(x, [1])  # [1, 1]
        >>> fd.ops.var(x, [0], correction=0)  # [2.25, 2.25, 2.25]
        """
        attrs: dict[str, Attribute] = {"axes": _reduced_axes("var", dims), "correction": as_axis("var", correction)}
        return self._tensor("var", [arg], {**attrs, "keepdim": bool(keepdim)})

    def var_mean(
        self, arg: Tensor, dims: Any = None, correction: int = 1, keepdim: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Variance and mean; recorded as the two operations ``var`` and ``mean``, with their arguments.

        >>> fd.ops.var_mean(x, [1])  # ([1, 1], [2, 5])
        """
        var = self._part(0, lambda: self.var(arg, dims, correction, keepdim))
        return var, self._part(1, lambda: self.mean(arg, dims, keepdim))

    def var_sum(self, arg: Tensor, dims: Any = None, keepdim: bool = False) -> Tensor:
        """The sum of squared deviations from the mean over axes ``dims``: ``var``, undivided.

        >>> fd.ops.var_sum(x, [1])  # [2, 2]
        """
        return self._tensor("var_sum", [arg], {"axes": _reduced_axes("var_sum", dims), "keepdim": bool(keepdim)})

    def welford(self, arg: Tensor, dims: Any) -> tuple[Tensor, Tensor, Scalar]:
        """(mean, sum of squared deviations, count) over axes ``dims``, not None; the count is a host scalar.
        Recorded as ``mean``, ``var_sum`` and sizes.

        >>> mean, deviations, count = fd.ops.welford(x, [1])
        >>> deviations / (count - 1)  # [1, 1]
        """
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
        """New axes of extent 1 wherever ``is_broadcast_dim``, one flag for each axis of the result, is true.

        >>> fd.ops.broadcast(x, [False, True, False]).shape  # (i0, 1, 3)
        """
        flags = [int(bool(flag)) for flag in _listed("broadcast", is_broadcast_dim, "bools")]
        return self._tensor("broadcast", [arg], {"is_broadcast_dim": flags})

    def broadcast_in_dim(self, arg: Tensor, shape: Sequence[Any], broadcast_dims: Sequence[int]) -> Tensor:
        """``arg`` as a tensor of ``shape``, its axis k at ``broadcast_dims[k]``, which ascend. Axes that are new, or
        longer than those of ``arg``, which are 1 there, repeat its elements and are stored once.

        >>> fd.ops.broadcast_in_dim(fd.ops.sum(x, [1]), [x.size(0), 3], [0])  # [[6, 6, 6], [15, 15, 15]]
        """
        attrs: dict[str, Attribute] = {"shape": _extents("broadcast_in_dim", shape)}
        attrs["dims"] = _ints("broadcast_in_dim", broadcast_dims)
        return self._tensor("broadcast_in_dim", [arg], attrs)

    def reshape(self, arg: Tensor, new_shape: Sequence[Any]) -> Tensor:
        """The elements of ``arg`` in row-major order, of ``new_shape``; one extent may be -1. Entries are numbers,
        sizes (``Tensor.shape``), host scalars that ``size`` makes, or constant ones.

        >>> fd.ops.reshape(x, [3, -1])  # [[1, 2], [3, 4], [5, 6]]
        """
        return self._tensor("reshape", [arg], {"shape": _extents("reshape", new_shape)})

    def permute(self, arg: Tensor, dims: Sequence[int]) -> Tensor:
        """Axis k of the result is axis ``dims[k]`` of ``arg``.

        >>> fd.ops.permute(x, [1, 0])  # [[1, 4], [2, 5], [3, 6]]
        """
        return self._tensor("permute", [arg], {"dims": _ints("permute", dims)})

    def expand(self, arg: Tensor, shape: Sequence[Any]) -> Tensor:
        """Axes of extent 1 repeated to ``shape``, which has an entry for each axis, and stored once; -1 keeps an axis.

        >>> fd.ops.expand(fd.ops.max(x, [1], keepdim=True), [-1, 2])  # [[3, 3], [6, 6]]
        """
        return self._tensor("expand", [arg], {"shape": _extents("expand", shape)})

    def squeeze(self, arg: Tensor, dims: Sequence[int], squeeze_expanded: bool = False) -> Tensor:
        """``arg`` without axes ``dims``, whose extent is known to be 1; with ``squeeze_expanded`` also without
        broadcast ones of any extent.

        >>> fd.ops.squeeze(fd.ops.max(x, [1], keepdim=True), [1])  # [3, 6]
        """
        if squeeze_expanded:
            return self._tensor("squeeze_expanded", [arg], {"axes": _ints("squeeze", dims)})
        return self._tensor("squeeze", [arg], {"axes": _ints("squeeze", dims)})

    def size(self, arg: Tensor, dim: int) -> Scalar:
        """The extent of axis ``dim`` as a host scalar, which also serves in ``shape=`` arguments; of a tensor that is
        sharded that of the whole.

        >>> fd.ops.sum(x, [0]) / fd.ops.size(x, 0)  # [2.5, 3.5, 4.5]
        """
        size: Scalar = self._append("size", [self._value("size", arg)], {"axis": as_axis("size", dim)}, True)
        if isinstance(arg, Tensor) and arg._type is not None:
            size.extent = arg.size(dim)
        return size

    def shape(self, arg: Tensor) -> list[Scalar]:
        """The extents of a tensor, each as ``size`` gives it.

        >>> rows, columns = fd.ops.shape(x)
        >>> fd.ops.sum(x) / (rows * columns)  # 3.5
        """
        return [self.size(arg, dim) for dim in range(arg.ndim)]

    def stride_order(self, arg: Tensor, order: Sequence[int]) -> Tensor:
        """A copy with the stride order ``order``: recorded as ``set`` and that annotation (docs/ir.md, "Layouts"). An
        output with it lies on devices so; what is no output lies as planning wants.

        >>> fd.ops.stride_order(x, [0, 1]).shape  # (i0, 3)
        """
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
        """``arg[start:end:stride]`` on every axis, as in NumPy: negative indices count from the end. Strides are at
        least 1, which they are where left out. Where a size is not known yet, an index beyond the end is not clamped:
        the run is refused.

        >>> fd.ops.slice(x, [0, 1], [2, 3])  # [[2, 3], [5, 6]]
        >>> fd.ops.slice(x, [-1, 0], [2, 3], strides=[1, 2])  # [[4, 6]]
        """
        del manual_normalization  # Indices are normalized in either case.
        start = _extents("slice", start_indices)
        steps = _ints("slice", strides) if strides is not None else [1] * len(start)
        return self._tensor("slice", [arg], {"start": start, "end": _extents("slice", end_indices), "strides": steps})

    def pad(self, arg: Tensor, pad_widths: Sequence[Any], value: float | Scalar | None = None) -> Tensor:
        """``value`` (0) around ``arg``, converted to its type. ``pad_widths`` holds (before, after) pairs from the last
        axis backwards; pairs that are missing are 0, negative widths crop.

        >>> fd.ops.pad(x, [1, -1], value=9)  # [[9, 1, 2], [9, 4, 5]]
        """
        widths = _ints("pad", _extents("pad", pad_widths))
        return self._tensor("pad", [arg], {"widths": widths, "value": 0.0 if value is None else _number("pad", value)})

    def flip(self, arg: Tensor, dims: Any = None) -> Tensor:
        """``arg`` backwards along axes ``dims``, one or a list (None: all).

        >>> fd.ops.flip(x, [1])  # [[3, 2, 1], [6, 5, 4]]
        """
        return self._tensor("flip", [arg], {"axes": _reduced_axes("flip", dims)})

    def cat(self, tensors: Sequence[Tensor], dim: int = 0, manual_padding: bool = False) -> Tensor:
        """The tensors, whose other axes are equally long, one after the other along axis ``dim``; their types promote.

        With ``manual_padding`` they are results of ``pad``, each as long as all of them together; recorded as ``cat``
        of what was padded.

        >>> fd.ops.cat([x, -x[:1]])  # [[1, 2, 3], [4, 5, 6], [-1, -2, -3]]
        """
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

    def tril(self, arg: Tensor, diagonal: int = 0) -> Tensor:
        """``arg`` on and below a diagonal of its last two axes, 0 above it, with arguments as of ``triu``.

        >>> fd.ops.tril(x)  # [[1, 0, 0], [4, 5, 0]]
        """
        return self._tensor("tril", [arg], {"diagonal": as_axis("tril", diagonal)})

    def triu(self, arg: Tensor, diagonal: int = 0) -> Tensor:
        """``arg`` on and above a diagonal of its last two axes, 0 below it: the main one, or that many places right of
        it.

        >>> fd.ops.triu(x, diagonal=1)  # [[0, 2, 3], [0, 0, 6]]
        """
        return self._tensor("triu", [arg], {"diagonal": as_axis("triu", diagonal)})

    # --- indices that are data ----------------------------------------------------------------------------------

    def select(self, arg: Tensor, index: int | Scalar, dim: int) -> Tensor:
        """``arg`` at ``index`` along axis ``dim``, which goes. Negative indices count from the end. A number outside is
        refused; a host scalar outside takes the nearer end.

        >>> fd.ops.select(x, -1, 0)  # [4, 5, 6]
        """
        return self._tensor("select", [arg, index], {"axis": as_axis("select", dim)})

    def index_select(self, arg: Tensor, index: Tensor, dim: int) -> Tensor:
        """``arg`` along axis ``dim`` at each of ``index``, int32 or int64 of one axis. Negative indices count from the
        end; outside the nearer end is taken.

        >>> fd.ops.index_select(x, i[0], 1)  # [[3, 1], [6, 4]]
        """
        return self._tensor("index_select", [arg, index], {"axis": as_axis("index_select", dim)})

    def gather(self, arg: Tensor, index: Tensor, dim: int) -> Tensor:
        """``arg`` along axis ``dim`` at the integers ``index``, as of PyTorch: the result has the shape of ``index``,
        whose other axes are at most as long as those of ``arg``. Indices count as for ``index_select``.

        >>> fd.ops.gather(x, i, 1)  # [[3, 1], [5, 5]]
        """
        return self._tensor("gather", [arg, index], {"axis": as_axis("gather", dim)})

    def index_sum(self, arg: Tensor, index: Tensor, size: Any, dim: int = 0) -> Tensor:
        """Zeros with extent ``size`` along axis ``dim``, to which each row of ``arg`` along that axis is added at its
        place in ``index``, int32 or int64 of one axis: the gradient of ``index_select``, as which indices count. A sum
        is made in the order of ``index``, on every device and in every run, of 16-bit floats in float32. It takes time
        for each element of ``arg`` and of the result.

        Raises InvalidArgument for a bool ``arg``, and an ``index`` that is not as long as its axis.

        >>> fd.ops.index_sum(x, fd.ops.reshape(i[:, :1], [2]), 4, dim=0)  # [[0, 0, 0], [4, 5, 6], [1, 2, 3], [0, 0, 0]]
        """
        (extent,) = _extents("index_sum", [size])
        attrs: dict[str, Attribute] = {
            "axis": as_axis("index_sum", dim),
            "size": ExtentText(extent) if isinstance(extent, str) else extent,
        }
        return self._tensor("index_sum", [arg, index], attrs)

    def scatter(self, arg: Tensor, index: Tensor, src: Tensor, dim: int) -> Tensor:
        """``arg`` with the elements of ``src``, of its type, at the integers ``index`` along axis ``dim``. Of equal
        indices the last counts; negative ones count from the end, and what is outside is put nowhere.

        >>> fd.ops.scatter(x, i, -x[:, :2], 1)  # [[-2, 2, -1], [4, -5, 6]]
        """
        return self._tensor("scatter", [arg, index, src], {"axis": as_axis("scatter", dim)})

    def take_along_axis(self, arg: Tensor, index: Tensor, dim: int) -> Tensor:
        """``arg`` along axis ``dim`` at the integers ``index``, as of NumPy: along ``dim`` the result is as long as
        ``index``, the other axes broadcast. Indices count as for ``index_select``.

        >>> fd.ops.take_along_axis(x, i[:1], 1)  # [[3, 1], [6, 4]]
        """
        return self._tensor("take_along_axis", [arg, index], {"axis": as_axis("take_along_axis", dim)})

    # --- along an axis ------------------------------------------------------------------------------------------

    def argsort(self, arg: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        """The indices, int64, that bring ``arg`` in order along axis ``dim``. Equal elements stay in their order,
        ``stable`` or not; NaN is greater than all numbers. It takes n^2 steps for n elements: meant for experts and
        beams, not for a vocabulary.

        >>> fd.ops.argsort(i, 1)  # [[1, 0], [0, 1]]
        """
        del stable  # There is no other order.
        return self._tensor("argsort", [arg], {"axis": as_axis("argsort", dim), "descending": bool(descending)})

    def sort(self, arg: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
        """``arg`` in order along axis ``dim``; recorded as ``argsort``, with its arguments, and ``take_along_axis``.

        >>> fd.ops.sort(i, 1)  # [[0, 2], [1, 1]]
        """
        places = self._inside("sort", lambda: self.argsort(arg, dim, descending))
        return self._at_places("sort", arg, places, dim)

    def topk(
        self, arg: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
    ) -> tuple[Tensor, Tensor]:
        """The ``k`` greatest elements along axis ``dim``, or the least, and their indices, in order; of equal elements
        the first come first. Recorded as ``argsort``, ``slice`` and ``take_along_axis``.

        Raises InvalidArgument for a ``k`` beyond the axis; where its size is not known yet, the run is refused.

        >>> fd.ops.topk(x, 2)  # ([[3, 2], [6, 5]], [[2, 1], [2, 1]])
        """
        del sorted  # They are in either case.
        places = self._inside("topk", lambda: self.argsort(arg, dim, largest))
        extent, count = places.shape[dim], as_axis("topk", k)
        if count < 0 or (isinstance(extent, int) and count > extent):
            raise invalid(f"topk: k={count}, and axis {dim} of %{arg.name} has extent {extent}")
        ends: list[Any] = list(places.shape)
        ends[dim] = count
        indices = self._part(1, lambda: self.slice(places, [0] * places.ndim, ends))
        return self._part(0, lambda: self._at_places("topk", arg, indices, dim)), indices

    def _at_places(self, name: str, arg: Tensor, places: Tensor, dim: int) -> Tensor:
        """``take_along_axis`` at places that are inside; so it may be of nothing, which that refuses."""
        extent = arg.shape[dim]
        if extent == 0:
            return self.set(arg)
        if isinstance(extent, str):
            behind = [0, 0] * (-1 - dim if dim < 0 else arg.ndim - 1 - dim)
            padded = self._inside(name, lambda: self.pad(arg, [*behind, 0, 1]))
            return self.take_along_axis(padded, places, dim)
        return self.take_along_axis(arg, places, dim)

    def _inside(self, name: str, record: Callable[[], Tensor]) -> Tensor:
        """A value that only the operation ``name`` reads is called after it."""
        before = self._definition._composing
        self._definition._composing = before or name
        try:
            return record()
        finally:
            self._definition._composing = before

    def cumsum(self, arg: Tensor, dim: int, dtype: Any = DataType.Null) -> Tensor:
        """The sum of each element and all before it along axis ``dim``, with ``dtype`` as of ``sum``. It takes n^1.5
        steps for n elements, n^2 where the size of the axis is not known before the run.

        >>> fd.ops.cumsum(x, 1)  # [[1, 3, 6], [4, 9, 15]]
        """
        attrs: dict[str, Attribute] = {
            "axis": as_axis("cumsum", dim),
            "dtype": as_data_type(dtype or DataType.Null).value,
        }
        return self._tensor("cumsum", [arg], attrs)

    def cumprod(self, arg: Tensor, dim: int, dtype: Any = DataType.Null) -> Tensor:
        """The product of each element and all before it along axis ``dim``, with arguments as of ``cumsum``.

        >>> fd.ops.cumprod(x, 0)  # [[1, 2, 3], [4, 10, 18]]
        """
        attrs: dict[str, Attribute] = {
            "axis": as_axis("cumprod", dim),
            "dtype": as_data_type(dtype or DataType.Null).value,
        }
        return self._tensor("cumprod", [arg], attrs)

    # --- new values ---------------------------------------------------------------------------------------------

    def full(self, shape: Sequence[Any], fill_value: Any, dtype: DataType | object) -> Tensor:
        """``fill_value``, a number or a constant scalar, everywhere, converted to ``dtype``.

        >>> fd.ops.full([2, x.size(1)], 7, np.int32)  # [[7, 7, 7], [7, 7, 7]]
        """
        attrs: dict[str, Attribute] = {"shape": _extents("full", shape), "value": _number("full", fill_value)}
        return self._tensor("full", [], {**attrs, "dtype": element_type(dtype).value})

    def iota(self, length: Any, start: Any = 0, step: Any = 1, dtype: DataType | object = DataType.Int) -> Tensor:
        """``start + k * step`` for k below ``length``, a size; start and step are numbers or host scalars, integers
        where ``dtype`` is an integer type.

        >>> fd.ops.iota(3, start=1, step=2)  # [1, 3, 5]
        """
        attrs: dict[str, Attribute] = {"shape": _extents("iota", [length]), "offset": _extents("iota", [0])}
        operands = [self._value("iota", start), self._value("iota", step)]
        result: Tensor = self._append("iota", operands, {**attrs, "dtype": element_type(dtype).value}, False)
        return result

    def one_hot(self, arg: Tensor, classes: int, dtype: DataType | object = DataType.Int) -> Tensor:
        """1, of ``dtype``, at the class that each of ``arg``, int32 or int64, names, and 0 at the others, along a new
        last axis of ``classes``. An integer that is no class makes zeros only.

        >>> fd.ops.one_hot(i[0], 3)  # [[0, 0, 1], [1, 0, 0]]
        """
        attrs: dict[str, Attribute] = {"classes": as_axis("one_hot", classes), "dtype": element_type(dtype).value}
        return self._tensor("one_hot", [arg], attrs)

    # --- random numbers -----------------------------------------------------------------------------------------

    def uniform(
        self,
        minval: Any,
        maxval: Any,
        shape: Sequence[Any],
        rng_seed: Any,
        rng_offset: Any,
        dtype: DataType | object = DataType.Float,
    ) -> Tensor:
        """Random numbers from ``minval`` to ``maxval``, which are numbers or host scalars. They depend on ``rng_seed``,
        ``rng_offset``, integers or host scalars of integers, which may change from run to run, and their places alone:
        they are the same however they are split, and on every kind of device (docs/ops.md, "Random numbers").

        From 0 to 1 it is recorded as ``uniform``, where 1 never comes; else a product and a sum follow, which round.

        >>> u = fd.ops.uniform(0, 1, x.shape, 7, fd.define_scalar(dtype=np.int64))  # The offset: a step's number.
        >>> fd.ops.uniform(2, 4, [3], 0, 0).shape  # (3,)
        """
        return self._random("uniform", (rng_seed, rng_offset), shape, dtype, maxval - minval, minval)

    def normal(
        self,
        mean: Any,
        std: Any,
        shape: Sequence[Any],
        rng_seed: Any,
        rng_offset: Any,
        dtype: DataType | object = DataType.Float,
    ) -> Tensor:
        """Random numbers of a normal distribution, with the other arguments as of ``uniform``. On another kind of
        device the last bits may differ, as those of ``log`` do.

        >>> fd.ops.normal(0, 0.02, [64, x.shape[1]], 7, 0).shape  # (64, 3)
        """
        return self._random("normal", (rng_seed, rng_offset), shape, dtype, std, mean)

    def _random(
        self, op: str, state: tuple[Any, Any], shape: Sequence[Any], dtype: Any, scale: Any, least: Any
    ) -> Tensor:
        attrs: dict[str, Attribute] = {"shape": _extents(op, shape), "dtype": element_type(dtype).value}
        operands = [self._value(op, number) for number in state]
        if as_number(scale) == 1 and as_number(least) == 0:
            made: Tensor = self._append(op, operands, attrs, False)
            return made
        made = self._inside(op, lambda: self._append(op, operands, attrs, False))
        scaled = self._inside(op, lambda: self.mul(made, scale))
        shifted: Tensor = self.add(scaled, least)
        return shifted

    # --- contractions -------------------------------------------------------------------------------------------

    def matmul(self, a: Tensor, b: Tensor, *, precision: str = "full") -> Tensor:
        """As NumPy's matmul: [..., m, k] times [..., k, n], leading axes broadcast, one axis is a row or a column.

        Both have one element type, no bools; 16-bit floats are added in float32. ``precision="tf32"`` allows products
        of float32 to round their operands to 10 bits of mantissa, which GPUs multiply several times as fast; CPUs
        multiply in full either way.

        >>> fd.ops.matmul(x, fd.ops.permute(x, [1, 0]))  # [[14, 32], [32, 77]]
        """
        return self._tensor("matmul", [a, b], _precision(precision))

    def linear(self, a: Tensor, b: Tensor, bias: Tensor | None = None, *, precision: str = "full") -> Tensor:
        """``a @ b.T + bias`` for ``a`` [..., in], ``b`` [out, in] and ``bias`` [out]. Types and ``precision`` as of
        ``matmul``.

        >>> fd.ops.linear(x, x, fd.ops.sum(x, [1]))  # [[20, 47], [38, 92]]
        """
        return self._tensor("linear", [a, b] if bias is None else [a, b, bias], _precision(precision))

    def grouped_matmul(self, a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
        """Each row of ``a`` [rows, k] times the matrix of its group in ``b`` [groups, k, n], as of a mixture of
        experts: [rows, n]. Row i is of the first group whose end, of ``ends`` [groups], int32 or int64, is above i:
        groups lie one after the other. Rows behind all ends are 0. Types as of ``matmul``.

        >>> ends = fd.ops.add(fd.ops.iota(2, dtype=hostir.DataType.Int), 1)  # Groups of one row: [1, 2].
        >>> fd.ops.grouped_matmul(x, fd.ops.reshape(x, [2, 3, 1]), ends)  # [[14], [77]]
        """
        return self._tensor("grouped_matmul", [a, b, ends], {"offset": [0, 0, 0]})

    def grouped_outer(self, a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
        """By group the sum over its rows of the outer products of a row of ``a`` [rows, k] and one of ``b`` [rows, n]:
        [groups, k, n], 0 of a group without rows. Rows have groups as for ``grouped_matmul``, whose gradient for its
        ``b`` this is: of its ``a``, and the gradient of the result.

        >>> ends = fd.ops.add(fd.ops.iota(2, dtype=hostir.DataType.Int), 1)
        >>> fd.ops.grouped_outer(x, fd.ops.sum(x, [1], keepdim=True), ends)  # [[[6], [12], [18]], [[60], [75], [90]]]
        """
        return self._tensor("grouped_outer", [a, b, ends], {"offset": [0, 0, 0, 0]})

    # --- attention ----------------------------------------------------------------------------------------------

    def attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        *,
        result: str = "values",
        causal: bool = False,
        offset: Any = 0,
        scale: float = 1.0,
    ) -> Tensor:
        """``softmax(scale * q @ k.T + mask) @ v`` for floats ``q`` [..., m, d], ``k`` [..., n, d] and ``v``
        [..., n, e], whose scores are never all in memory on a CPU: it takes memory for what goes in and comes out.
        Leading axes broadcast, so that several heads of q share one of k and v.

        ``mask`` is of bools, true where a key takes part, or of floats that are added; it broadcasts to [..., m, n].
        ``causal``: query i sees keys 0 to i + ``offset``, a size. A query that sees no key has values of 0.
        ``result="lse"``: the logarithm of the sum that the softmax divides by, [..., m], float32 (float64 of float64),
        which ``attention_grad`` asks for; both results of the same operands are one call.

        Raises InvalidArgument for other types, and sizes that do not fit.

        >>> fd.ops.attention(x, x, x, causal=True)  # [[1, 2, 3], [4, 5, 6]]
        """
        operands = [q, k, v] if mask is None else [q, k, v, mask]
        if result not in ("values", "lse"):
            raise invalid(f"attention: result is 'values' or 'lse', not {result!r}")
        attrs = _attention_attrs("attention", operands, result, causal, offset, scale)
        return self._tensor("attention", operands, attrs)

    def attention_grad(
        self,
        result: str,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        gradient: Tensor,
        lse: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        offset: Any = 0,
        scale: float = 1.0,
    ) -> Tensor:
        """The gradient of ``attention`` by its ``"q"``, ``"k"`` or ``"v"``, as ``result`` says: of ``gradient``
        [..., m, e], that of its values, its ``lse`` [..., m] and ``values`` [..., m, e]. All other arguments are those
        of ``attention``. It has all leading axes: where an operand lacks some, or has extent 1 there, its gradient is
        the sum along them. Several results of the same operands are one call.

        >>> values, lse = (fd.ops.attention(x, x, x, result=name, scale=8.0) for name in ("values", "lse"))
        >>> fd.ops.attention_grad("v", x, x, x, x, lse, values, scale=8.0)  # [[0, 0, 0], [5, 7, 9]]
        """
        if result not in ("q", "k", "v"):
            raise invalid(f"attention_grad: result is 'q', 'k' or 'v', not {result!r}")
        operands = [q, k, v, gradient, lse, values, *([] if mask is None else [mask])]
        attrs = _attention_attrs("attention_grad", operands, result, causal, offset, scale)
        return self._tensor("attention_grad", operands, attrs)


def _attention_attrs(
    op: str, operands: Sequence[Tensor], result: str, causal: bool, offset: Any, scale: float
) -> dict[str, Attribute]:
    """``offset`` has an entry for each axis of the result, reduced ones too: that of the queries counts."""
    own = [2, 2, 2, 2, 1, 2, 2] if op == "attention_grad" else [2, 2, 2, 2]
    leading = max([operand.ndim - count for operand, count in zip(operands, own, strict=False)], default=0)
    behind = {"values": (0, 1), "lse": (0, 0), "q": (0, 2), "k": (2, 0), "v": (2, 0)}[result]
    (first,) = _extents(op, [offset])
    return {
        "result": result,
        "causal": bool(causal),
        "offset": [*[0] * (max(leading, 0) + behind[0]), first, *[0] * behind[1]],
        "scale": _number(op, scale),
    }


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
            sizes = "a number, a constant scalar, Tensor.size or define_size"
            raise invalid(f"{op}: %{entry.name} is not known yet; a size is {sizes}")
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
