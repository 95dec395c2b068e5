"""Recording a fusion program.

The client records calls, annotations and where they were made, and infers nothing: shapes, types and shardings are inferred
once, in the service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .dtypes import DataType, as_data_type
from .location import caller_location
from .mesh import DeviceMesh, ParallelType, as_parallel_type


@dataclass(frozen=True)
class AxisSpec:
    """One axis of a declared tensor: kind is "iteration" or "broadcast"; extent is a number or a symbol."""

    kind: str
    extent: int | str


@dataclass(frozen=True)
class AnnotationRecord:
    kind: str
    mesh: DeviceMesh | None = None
    axis: int = 0
    factor: int = 1
    parallel_type: str = ""
    order: tuple[int, ...] = ()
    location: str = ""


@dataclass
class OpRecord:
    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    attrs: dict[str, Any]
    location: str


@dataclass
class Record:
    """A whole program, as it goes to the service."""

    params: list[tuple[str, DataType, tuple[AxisSpec, ...] | None]] = field(default_factory=list)  # axes None: a scalar
    ops: list[OpRecord] = field(default_factory=list)
    outputs: list[tuple[str, str | None]] = field(default_factory=list)  # (value, aliased input)
    annotations: dict[str, list[AnnotationRecord]] = field(default_factory=dict)


class Value:
    """A value of a definition. Arithmetic and comparisons record operations."""

    def __init__(self, definition: FusionDefinition, name: str) -> None:
        self._definition = definition
        self._name = name

    def __repr__(self) -> str:
        return f"{type(self).__name__}(%{self._name})"

    def _binary(self, op: str, other: Any, swap: bool = False) -> Any:
        if not isinstance(other, (Value, bool, int, float)):
            return NotImplemented
        left, right = (other, self) if swap else (self, other)
        return getattr(self._definition.ops, op)(left, right)

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

    def __pow__(self, other: Any) -> Any:
        return self._binary("pow", other)

    def __rpow__(self, other: Any) -> Any:
        return self._binary("pow", other, swap=True)

    def __neg__(self) -> Any:
        return self._definition.ops.neg(self)

    def __abs__(self) -> Any:
        return self._definition.ops.abs(self)

    def __matmul__(self, other: Any) -> Any:
        if not isinstance(other, Value):
            return NotImplemented
        return self._definition.ops.matmul(self, other)

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
        raise TypeError(f"{self!r} has no value while a program is being defined; use fd.ops.where to choose by it")


class Scalar(Value):
    """A host scalar; ``value`` is its number when it is a constant, else None."""

    def __init__(self, definition: FusionDefinition, name: str, value: bool | int | float | None) -> None:
        super().__init__(definition, name)
        self.value = value


class LoopAxis:
    """An axis of a tensor's loop domain, by number; see Tensor.axis."""

    def __init__(self, tensor: Tensor, index: int) -> None:
        self._tensor = tensor
        self._index = index

    def parallelize(self, parallel_type: ParallelType | str) -> None:
        """Lets this axis run over a dimension of the tensor's mesh. The service checks it."""
        self._tensor._annotate("parallelize", axis=self._index, parallel_type=as_parallel_type(parallel_type).value)


class Tensor(Value):
    """A tensor of a definition. Layout calls number the axes of its current loop domain; reduced axes count.

    They may follow any operation that uses the tensor, and are checked by the service.
    """

    def _annotate(self, kind: str, **fields: Any) -> None:
        self._definition._check_open()
        record = AnnotationRecord(kind=kind, location=caller_location(), **fields)
        self._definition._record.annotations.setdefault(self._name, []).append(record)

    def set_device_mesh(self, mesh: DeviceMesh) -> None:
        """Says which devices hold the tensor. Without a parallel axis it is replicated on them."""
        if not isinstance(mesh, DeviceMesh):
            mesh = DeviceMesh(mesh)
        self._annotate("mesh", mesh=mesh)

    def axis(self, index: int) -> LoopAxis:
        return LoopAxis(self, int(index))

    def split(self, axis: int, factor: int, inner_split: bool = True) -> None:
        self._annotate("inner_split" if inner_split else "outer_split", axis=int(axis), factor=int(factor))

    def outer_split(self, axis: int, factor: int) -> None:
        """Axis i becomes i with extent ``factor`` and i + 1 with the rest."""
        self.split(axis, factor, inner_split=False)

    def inner_split(self, axis: int, factor: int) -> None:
        """Axis i becomes i with the rest and i + 1 with extent ``factor``."""
        self.split(axis, factor, inner_split=True)

    def merge(self, axis: int) -> None:
        """Axes i and i + 1 become axis i."""
        self._annotate("merge", axis=int(axis))

    def shard(self, mesh: DeviceMesh, axes: Mapping[int, ParallelType | str]) -> None:
        """Splits value axes over mesh dimensions: ``x.shard(mesh, {0: "mesh_x"})``."""
        self.set_device_mesh(mesh)
        for axis, parallel_type in axes.items():
            self._annotate("shard", axis=int(axis), parallel_type=as_parallel_type(parallel_type).value)


class Fusion:
    """The inputs and outputs of a definition."""

    def __init__(self, definition: FusionDefinition) -> None:
        self._definition = definition

    def inputs(self) -> list[Value]:
        return list(self._definition._inputs)

    def outputs(self) -> list[Value]:
        return list(self._definition._outputs)


class FusionDefinition:
    """A program of tensor operations, recorded inside a ``with`` block and frozen when it ends.

    ``fd.ops`` holds the operations, ``fd.define_tensor`` makes inputs, ``fd.add_output`` names results.
    """

    def __init__(self, name: str = "main") -> None:
        from .ops import Ops

        self.name = name
        self.ops = Ops(self)
        self.fusion = Fusion(self)
        self._record = Record()
        self._inputs: list[Value] = []
        self._outputs: list[Value] = []
        self._num_values = 0
        self._num_symbols = 0
        self._frozen = False
        self._program: Any = None  # the protobuf message, made once

    def __enter__(self) -> FusionDefinition:
        self._check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self._frozen = True

    def _check_open(self) -> None:
        if self._frozen:
            raise RuntimeError("this definition is frozen: its `with` block has ended; start a new FusionDefinition")

    def _new_name(self) -> str:
        self._num_values += 1
        return f"t{self._num_values - 1}"

    def _new_symbol(self) -> str:
        self._num_symbols += 1
        return f"i{self._num_symbols - 1}"

    # --- inputs -------------------------------------------------------------------------------------------------

    def define_tensor(
        self,
        shape: Sequence[int] | None = None,
        contiguity: bool | Sequence[bool | None] | None = None,
        dtype: DataType | object = DataType.Float,
        is_cpu: bool = False,
        stride_order: Sequence[int] | None = None,
        *,
        sizes: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        static_sizes: bool = False,
    ) -> Tensor:
        """An input tensor.

        shape: one entry an axis: -1 symbolic, 1 broadcast, or a constant. contiguity: a bool, or one entry an axis; None
        for an axis marks it as broadcast, stored once (of extent -1: expanded at run time). stride_order: as in nvFuser;
        memory on the devices is row-major whatever it says. ``sizes=`` with ``strides=`` describe a concrete array instead.
        """
        self._check_open()
        if sizes is not None:
            axes = self._axes_of_array(sizes, strides, static_sizes)
        elif shape is not None:
            axes = self._axes_of_shape(shape, contiguity)
        else:
            raise TypeError("define_tensor needs shape= or sizes=")
        if is_cpu and axes:
            raise ValueError("is_cpu=True is for zero-dimensional tensors")
        tensor = Tensor(self, self._new_name())
        self._record.params.append((tensor._name, _element_type(dtype), axes))
        self._inputs.append(tensor)
        if stride_order:
            tensor._annotate("stride_order", order=tuple(int(i) for i in stride_order))
        return tensor

    def _axes_of_shape(self, shape: Sequence[int], contiguity: Any) -> tuple[AxisSpec, ...]:
        flags = list(contiguity) if isinstance(contiguity, (list, tuple)) else [contiguity] * len(shape)
        if len(flags) != len(shape):
            raise ValueError(f"define_tensor: {len(shape)} axes in shape but {len(flags)} entries in contiguity")
        listed = isinstance(contiguity, (list, tuple))
        axes = []
        for extent, flag in zip(shape, flags):
            extent = int(extent)
            if extent < -1:
                raise ValueError(f"define_tensor: extent {extent}; it is -1 (symbolic) or at least 0")
            broadcast = extent == 1 or (listed and flag is None)
            axes.append(AxisSpec("broadcast" if broadcast else "iteration", self._new_symbol() if extent == -1 else extent))
        return tuple(axes)

    def _axes_of_array(self, sizes: Sequence[int], strides: Sequence[int] | None, static: bool) -> tuple[AxisSpec, ...]:
        if strides is not None and len(strides) != len(sizes):
            raise ValueError(f"define_tensor: {len(sizes)} sizes but {len(strides)} strides")
        axes = []
        for i, size in enumerate(sizes):
            broadcast = size == 1 or (strides is not None and strides[i] == 0)
            axes.append(
                AxisSpec("broadcast" if broadcast else "iteration", int(size) if static or size == 1 else self._new_symbol())
            )
        return tuple(axes)

    def define_scalar(self, value: bool | int | float | None = None, dtype: DataType | object = None) -> Scalar:
        """A host scalar: a constant, or with ``value=None`` an input that is given with each run."""
        self._check_open()
        if value is None:
            scalar = Scalar(self, self._new_name(), None)
            self._record.params.append((scalar._name, _element_type(dtype or DataType.Double), None))
            self._inputs.append(scalar)
            return scalar
        return self._constant(value, dtype)

    def _constant(self, value: bool | int | float, dtype: DataType | object = None) -> Scalar:
        if dtype is None:
            natural = {bool: DataType.Bool, int: DataType.Int, float: DataType.Double}
            dtype = natural[next(t for t in (bool, int, float) if isinstance(value, t))]
        data_type = _element_type(dtype)
        kind = {DataType.Bool: bool, DataType.Int: int, DataType.Int32: int}.get(data_type, float)
        number = kind(value)
        scalar = Scalar(self, self._new_name(), number)
        attrs = {"value": float(number) if kind is float else int(number), "dtype": data_type.value}
        self._record.ops.append(OpRecord("constant", (), (scalar._name,), attrs, caller_location()))
        return scalar

    def define_vector(self, values: Sequence[Any], dtype: DataType | object = DataType.Int) -> list[Any]:
        """A vector of sizes, for ``shape=`` arguments."""
        return list(values)

    # --- outputs ------------------------------------------------------------------------------------------------

    def add_output(self, output: Value, alias_input: Value | None = None) -> None:
        """Makes ``output`` a result of the program. With ``alias_input``, a run consumes that input's handle."""
        self._check_open()
        if not isinstance(output, Value) or output._definition is not self:
            raise TypeError(f"add_output takes a tensor of this definition, not {output!r}")
        if alias_input is not None and alias_input not in _Identity(self._inputs):
            raise ValueError(f"add_output: {alias_input!r} is not an input of this definition")
        self._record.outputs.append((output._name, alias_input._name if alias_input is not None else None))
        self._outputs.append(output)

    # --- running ------------------------------------------------------------------------------------------------

    def execute(self, inputs: Sequence[Any], **_: Any) -> list[Any]:
        """Runs on the default client (``$HOSTIR_ADDRESS``, else a private daemon that lives as long as this process)."""
        from .client import default_client

        return list(default_client().run(self, list(inputs)))

    def __repr__(self) -> str:
        return f"FusionDefinition({self.name}: {len(self._inputs)} inputs, {len(self._record.ops)} ops, {len(self._outputs)} outputs)"


class _Identity:
    """Membership by identity: ``==`` on values records an operation."""

    def __init__(self, values: Sequence[Value]) -> None:
        self._ids = {id(v) for v in values}

    def __contains__(self, value: object) -> bool:
        return id(value) in self._ids


def _element_type(dtype: DataType | object) -> DataType:
    data_type = as_data_type(dtype)
    if data_type is DataType.Null:
        raise TypeError("DataType.Null says that an operation decides; a definition needs a real element type")
    return data_type
