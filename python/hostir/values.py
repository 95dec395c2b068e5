"""The values of a definition: tensors and host scalars. Arithmetic and comparisons on them record operations."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from .errors import FailedPrecondition, Unimplemented
from .location import caller_location, invalid, located
from .mesh import DeviceMesh, ParallelType, as_parallel_type
from .record import AnnotationRecord

if TYPE_CHECKING:
    from .definition import FusionDefinition
    from .infer import ValueType


def as_number(value: Any) -> bool | int | float | None:
    """A Python or NumPy number, or an array without axes, as a Python number; None for anything else."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (np.bool_, np.integer, np.floating)):
        number: bool | int | float = value.item()
        return number
    if isinstance(value, ml_dtypes.bfloat16):
        return float(value)
    return None


def number_text(number: float) -> str:
    """For messages: an integer of hundreds of digits by its size."""
    if isinstance(number, int) and abs(number) >= 2**128:
        return f"an integer of {number.bit_length()} bits"
    return str(number)


def as_axis(op: str, axis: Any) -> int:
    try:
        number = operator.index(axis)
    except TypeError:
        raise invalid(f"{op}: axis {axis!r} is not an integer") from None
    if not -(2**63) <= number < 2**63:
        raise invalid(f"{op}: {number_text(number)} does not fit 64 bits")
    return number


class Value:
    """A value of a definition."""

    __array_ufunc__ = None  # NumPy leaves `np.float32(2) * x` to us.
    _type: ValueType | None = None  # None: only the service knows it.
    _constant: float | None = None

    def __init__(self, definition: FusionDefinition, name: str) -> None:
        self._definition = definition
        self._name = name

    @property
    def name(self) -> str:
        """What plans and errors call it: the variable it was assigned to, where there was one."""
        return self._name

    def __repr__(self) -> str:
        return f"{type(self).__name__}(%{self._name})"

    def _binary(self, op: str, other: Any, swap: bool = False) -> Any:
        if not isinstance(other, Value) and as_number(other) is None:
            return NotImplemented
        operands = [other, self] if swap else [self, other]
        return self._definition.ops._record(op, operands)

    def __add__(self, other: Any) -> Any:
        return self._binary("add", other)

    def __radd__(self, other: Any) -> Any:
        return self._binary("add", other, swap=True)

    def __sub__(self, other: Any) -> Any:
        return self._binary("sub", other)

    def __rsub__(self, other: Any) -> Any:
        return self._binary("sub", other, swap=True)

    def __mul__(self, other: Any) -> Any:
        return self._binary("mul", other)

    def __rmul__(self, other: Any) -> Any:
        return self._binary("mul", other, swap=True)

    def __truediv__(self, other: Any) -> Any:
        return self._binary("truediv", other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._binary("truediv", other, swap=True)

    def __mod__(self, other: Any) -> Any:
        return self._binary("remainder", other)

    def __rmod__(self, other: Any) -> Any:
        return self._binary("remainder", other, swap=True)

    def __pow__(self, other: Any) -> Any:
        return self._binary("pow", other)

    def __rpow__(self, other: Any) -> Any:
        return self._binary("pow", other, swap=True)

    def __and__(self, other: Any) -> Any:
        return self._binary("bitwise_and", other)

    def __rand__(self, other: Any) -> Any:
        return self._binary("bitwise_and", other, swap=True)

    def __or__(self, other: Any) -> Any:
        return self._binary("bitwise_or", other)

    def __ror__(self, other: Any) -> Any:
        return self._binary("bitwise_or", other, swap=True)

    def __xor__(self, other: Any) -> Any:
        return self._binary("bitwise_xor", other)

    def __rxor__(self, other: Any) -> Any:
        return self._binary("bitwise_xor", other, swap=True)

    def __invert__(self) -> Any:
        return self._definition.ops._record("bitwise_not", [self])

    def __neg__(self) -> Any:
        return self._definition.ops._record("neg", [self])

    def __abs__(self) -> Any:
        return self._definition.ops._record("abs", [self])

    def __matmul__(self, other: Any) -> Any:
        if not isinstance(other, Value):
            return NotImplemented
        return self._definition.ops._record("matmul", [self, other])

    def __lt__(self, other: Any) -> Any:
        return self._binary("lt", other)

    def __le__(self, other: Any) -> Any:
        return self._binary("le", other)

    def __gt__(self, other: Any) -> Any:
        return self._binary("gt", other)

    def __ge__(self, other: Any) -> Any:
        return self._binary("ge", other)

    def __eq__(self, other: object) -> Any:
        return self._binary("eq", other)

    def __ne__(self, other: object) -> Any:
        return self._binary("ne", other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        what = f"%{self._name} has no value while a program is being defined; fd.ops.where chooses by it"
        raise FailedPrecondition(located(what))


class Scalar(Value):
    """A host scalar; ``value`` is its number when it is a constant, else None."""

    extent: int | str | None = None  # Of what ops.size made of an input: the same size for ``shape=`` arguments.

    def __init__(self, definition: FusionDefinition, name: str, value: bool | int | float | None) -> None:
        super().__init__(definition, name)
        self.value = value


class LoopAxis:
    """An axis of a tensor's loop domain, by number; see Tensor.axis."""

    def __init__(self, tensor: Tensor, index: int) -> None:
        self._tensor = tensor
        self._index = index

    def parallelize(self, parallel_type: ParallelType | str) -> None:
        """Lets this axis run over a dimension of the tensor's mesh."""
        self._tensor._annotate("parallelize", axis=self._index, parallel_type=as_parallel_type(parallel_type).value)


class Tensor(Value):
    """A tensor of a definition.

    Layout calls number the axes of its current loop domain: first its own axes, those just reduced included, then as
    the splits and merges so far left them. Negative numbers count from the end. They may follow any operation that
    uses the tensor; the service checks them.
    """

    _extents: tuple[int | str, ...] | None = None  # Of an input.

    def size(self, axis: int) -> int | str:
        """The extent of an axis of an input, for ``shape=`` arguments: a number, or the name of the size."""
        if self._extents is None:
            raise Unimplemented(located(f"size: %{self._name} is not an input, and only the service knows its sizes"))
        if not -len(self._extents) <= axis < len(self._extents):
            raise invalid(f"size: axis {axis} of %{self._name}, which has {len(self._extents)} axes")
        return self._extents[axis]

    def set_device_mesh(self, mesh: DeviceMesh | Any) -> None:
        """Says which devices hold the tensor. Without a parallel axis it is replicated on them."""
        self._annotate("mesh", mesh=mesh if isinstance(mesh, DeviceMesh) else DeviceMesh(mesh))

    def axis(self, index: int) -> LoopAxis:
        return LoopAxis(self, as_axis("axis", index))

    def split(self, axis: int, factor: int, inner_split: bool = True) -> None:
        """Splits an axis in two: see outer_split and inner_split."""
        kind = "inner_split" if inner_split else "outer_split"
        self._annotate(kind, axis=as_axis(kind, axis), factor=as_axis(kind, factor))

    def outer_split(self, axis: int, factor: int) -> None:
        """Axis i becomes i with extent ``factor`` and i + 1 with the rest."""
        self.split(axis, factor, inner_split=False)

    def inner_split(self, axis: int, factor: int) -> None:
        """Axis i becomes i with the rest and i + 1 with extent ``factor``."""
        self.split(axis, factor, inner_split=True)

    def merge(self, axis: int) -> None:
        """Axes i and i + 1 become axis i."""
        self._annotate("merge", axis=as_axis("merge", axis))

    def shard(self, mesh: DeviceMesh | Any, axes: Mapping[int, Any]) -> None:
        """Splits value axes over mesh dimensions: ``x.shard(mesh, {0: "mesh_x"})``.

        Value axes are those that operations see: reduced ones do not count. An axis over two dimensions, the outer one
        first: ``{0: ("mesh_y", "mesh_x")}``.
        """
        self.set_device_mesh(mesh)
        if not isinstance(axes, Mapping):
            raise invalid(f"shard: {axes!r} does not map axes to mesh dimensions")
        for axis, given in axes.items():
            several = isinstance(given, Sequence) and not isinstance(given, str)
            for parallel_type in given if several else (given,):
                kind = as_parallel_type(parallel_type).value
                self._annotate("shard", axis=as_axis("shard", axis), parallel_type=kind)

    def _annotate(self, kind: str, **fields: Any) -> None:
        self._definition._check_open()
        record = AnnotationRecord(kind=kind, location=caller_location(), **fields)
        self._definition._record.annotations.setdefault(self._name, []).append(record)
