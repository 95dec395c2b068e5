"""Recording a fusion program.

The client records calls, annotations and where they were made. It infers shapes and element types, so that what does
not fit is refused in its line (infer/); shardings are the service's.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any, cast

from .dtypes import DataType, element_type
from .errors import FailedPrecondition, HostirError, Unimplemented
from .infer import Sizes, ValueType, infer, input_type, scalar_type
from .layouts import memory_order_of, stride_order_of
from .location import caller_location, caller_variable, invalid, located
from .ops import Ops
from .record import Attribute, AxisRecord, OpRecord, OutputRecord, ParamRecord, Record
from .size import Size
from .text import program_text
from .tree import Structure, flatten
from .values import Scalar, Tensor, Value, as_axis, as_number, number_text

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_NAME_LETTERS_MAX = 256


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

    ``fd.ops`` holds the operations, ``fd.define_tensor`` makes inputs, ``fd.add_output`` names results. A call that
    does not fit raises InvalidArgument in its line, a call after the block FailedPrecondition. Threads: one records;
    any may run what is frozen, as often as they like.

    ``segmentation`` names the rule by which kernels are cut: ``"fusing"``, what saves bytes or a launch, unless it is
    given; ``"reshardings"``, whatever one kernel holds between reshardings and library calls; ``"one_op"``, each op on
    its own, to find out which of them is slow or wrong. Results differ by rounding alone. Planning raises
    InvalidArgument for another name.

    >>> with FusionDefinition("scale") as fd:
    ...     x, s = fd.define_tensor(shape=[-1, 3]), fd.define_scalar()
    ...     fd.add_output(x * s)
    >>> print(fd)  # The program in text form.
    """

    def __init__(self, name: str = "main", *, segmentation: str = "") -> None:
        self.name = name
        self.segmentation = segmentation
        self.ops = Ops(self)
        self.fusion = Fusion(self)
        self._record = Record()
        self._inputs: list[Value] = []
        self._outputs: list[Value] = []
        self._output_trees: list[Structure] = []  # Of each add_output.
        self._names: set[str] = set()
        self._suffixes: dict[str, int] = {}  # Of a variable: those tried so far.
        self._num_symbols = 0
        self._sizes = Sizes()
        self._composing = ""  # The function that records, see compose.py.
        self._part: int | None = None  # Of several results the one that is recorded.
        self._frozen = False
        self._kept_tree: tuple[Structure | None] | None = None  # As the next.
        self._kept_names: list[str] | None = None
        self._program: Any = None  # Made once, by program.py.

    def __enter__(self) -> FusionDefinition:
        self._check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self._frozen = True

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
        name: str = "",
    ) -> Tensor:
        """An input tensor.

        shape: one entry an axis: -1 for a size that each run brings, 1 broadcast, or a constant. contiguity: a bool,
        or one entry an axis; None marks a broadcast axis, which is stored once (with -1: expanded to a size that each
        run brings). Beside stride_order its entries are in the order of memory, as nvFuser's are: axis i has the
        ``stride_order[i]``-th smallest stride, the first entry is that of the largest one. So it lies on the devices,
        dense whatever contiguity says, and an array of that order goes there as it is; arrays of others are
        transposed on their way. ``sizes=`` with ``strides=`` describe an array instead: its axes of stride 0 are
        broadcast, and the order is that of its strides. name: what plans, errors and runs by name call it, instead of
        the variable: ``fd.define_tensor(shape=[4, 4], name="layers.0.weight")``.
        """
        self._check_open()
        if sizes is None and _are_strides(contiguity):
            sizes, strides = shape, cast("Sequence[int]", contiguity)  # define_tensor(sizes, strides, dtype)
        if sizes is not None:
            axes = self._axes_of_array(sizes, strides, static_sizes)
            memory_order = memory_order_of(sizes, strides) if strides is not None else ()
            stride_order = stride_order or stride_order_of(memory_order)
        elif shape is not None:
            axes = self._axes_of_shape(shape, contiguity, stride_order)
        else:
            raise TypeError("define_tensor needs shape= or sizes=")
        if is_cpu and axes:
            raise invalid("define_tensor: is_cpu=True is for tensors without axes")
        tensor = Tensor(self, self._input_name(name))
        data_type = element_type(dtype)
        tensor._type = self._type_of(data_type, axes)
        self._record.params.append(ParamRecord(tensor._name, data_type, axes, caller_location()))
        self._inputs.append(tensor)
        if stride_order:
            tensor._annotate("stride_order", order=tuple(as_axis("stride_order", i) for i in stride_order))
        return tensor

    def _infer(self, op: str, operands: Sequence[Value], attrs: dict[str, Attribute]) -> ValueType | None:
        """The type of an op's result. Raises what the service would, naming the op and the user's line."""
        try:
            return infer(op, operands, attrs, self._sizes)
        except HostirError as error:
            raise type(error)(located(f"{op}: {error}")) from None

    def _type_of(self, dtype: DataType, axes: tuple[AxisRecord, ...]) -> ValueType:
        try:
            of = input_type(dtype.value, axes)
        except HostirError as error:
            raise type(error)(located(f"define_tensor: {error}")) from None
        self._sizes.add_input(of)
        return of

    def _axes_of_shape(
        self, shape: Sequence[int], contiguity: Any, stride_order: Sequence[int] | None
    ) -> tuple[AxisRecord, ...]:
        listed = isinstance(contiguity, (list, tuple))
        flags = list(contiguity) if listed else [contiguity] * len(shape)
        if len(flags) != len(shape):
            raise invalid(f"define_tensor: shape has {len(shape)} entries, contiguity {len(flags)}")
        if listed and stride_order and sorted(stride_order) == list(range(len(shape))):  # Else the service refuses it.
            flags = [flags[len(shape) - 1 - place] for place in stride_order]
        axes = []
        for given, flag in zip(shape, flags, strict=True):
            extent = as_axis("define_tensor", given)
            if extent < -1:
                raise invalid(f"define_tensor: extent {extent}; it is -1 (any size) or at least 0")
            broadcast = extent == 1 or (listed and flag is None)
            axes.append(AxisRecord(self._new_symbol() if extent == -1 else extent, broadcast))
        return tuple(axes)

    def _axes_of_array(
        self, sizes: Sequence[int], strides: Sequence[int] | None, static: bool
    ) -> tuple[AxisRecord, ...]:
        if strides is not None and len(strides) != len(sizes):
            raise invalid(f"define_tensor: sizes has {len(sizes)} entries, strides {len(strides)}")
        axes = []
        for i, given in enumerate(sizes):
            size = as_axis("define_tensor", given)
            broadcast = size == 1 or (strides is not None and strides[i] == 0)
            axes.append(AxisRecord(size if static or size == 1 else self._new_symbol(), broadcast))
        return tuple(axes)

    def _input_name(self, given: str) -> str:
        if not given:
            return self._new_name(caller_variable())
        if len(given) > _NAME_LETTERS_MAX or not _NAME.fullmatch(given):
            limit = f"a name is at most {_NAME_LETTERS_MAX} letters, digits, _ and ., a letter or _ first"
            raise invalid(f"name {given!r}: {limit}")
        if given in self._names:
            raise invalid(f"name {given!r}: a value of this definition has it already")
        self._names.add(given)
        return given

    def define_size(self, *, name: str = "") -> Size:
        """A size that no input has: each run brings it, an integer from 0 on. name: as of define_tensor.

        Planning sees an input of one axis, a bool of which one element is stored (``bool[b:i0]``); its values are
        nowhere read. A size that an input has is ``x.shape[0]``, or ``x.size(0)`` as a scalar.

        >>> n = fd.define_size()
        >>> y = fd.ops.iota(n) * 2  # run(fd, [3]) makes n 3.
        """
        counted = self.define_tensor(shape=[-1], contiguity=[None], dtype=DataType.Bool, name=name)
        return cast(Size, counted.shape[0])

    def define_scalar(self, value: Any = None, dtype: DataType | object = None, *, name: str = "") -> Scalar:
        """A host scalar: a constant, or with ``value=None`` an input that is given with each run, a float64 where
        ``dtype`` is left out. A constant without one is a bool, int64 or float64, as its value. name: as of
        define_tensor.

        Raises InvalidArgument for what is no number, or no number of ``dtype``, and for integers beyond 2^53.

        >>> half, s = fd.define_scalar(0.5), fd.define_scalar(dtype=np.float32)
        >>> y = x * half + s  # run(fd, [x, 3.0]) makes s 3.
        """
        self._check_open()
        if value is not None:
            return self._constant(value, dtype, self._input_name(name))
        scalar = Scalar(self, self._input_name(name), None)
        data_type = element_type(DataType.Double if dtype is None else dtype)
        scalar._type = scalar_type(data_type.value)
        self._record.params.append(ParamRecord(scalar._name, data_type, None, caller_location()))
        self._inputs.append(scalar)
        return scalar

    def _constant(self, value: Any, dtype: DataType | object, name: str) -> Scalar:
        number = as_number(value)
        if number is None:
            raise invalid(f"{value!r} is not a number")
        if dtype is None:
            natural = {bool: DataType.Bool, int: DataType.Int}
            dtype = natural.get(type(number), DataType.Double)
        data_type = element_type(dtype)
        kind = {DataType.Bool: bool, DataType.Int: int, DataType.Int32: int}.get(data_type, float)
        if kind is int and number != number // 1:  # Also for infinity and NaN.
            raise invalid(f"{number} is not an integer; the scalar has type {data_type.value}")
        if kind is int and abs(number) > 2**53:
            text = number_text(number)
            raise invalid(f"{text} is beyond 2^53, the limit of constant scalars; make it an input, or write a float")
        if abs(number) > sys.float_info.max and not isinstance(number, float):
            raise invalid(f"{number_text(number)} is beyond {data_type.value}, the scalar's type")
        scalar = Scalar(self, name, kind(number))
        attrs: dict[str, Attribute] = {"value": float(number), "dtype": data_type.value}
        scalar._type, scalar._constant = self._infer("constant", (), attrs), float(number)
        self._record.ops.append(OpRecord("constant", (), name, attrs, caller_location()))
        return scalar

    def define_vector(self, values: Sequence[Any], dtype: DataType | object = DataType.Int) -> list[Any]:
        """A vector of sizes, for ``shape=`` arguments: numbers, sizes and scalars, as a list. Raises Unimplemented for
        anything else: a vector cannot be an input.

        >>> fd.ops.reshape(x, fd.define_vector([3, 2]))  # [[1, 2], [3, 4], [5, 6]]
        """
        if not isinstance(values, (list, tuple)):
            raise Unimplemented(located(f"define_vector: a list of sizes, not {values!r}; a vector cannot be an input"))
        return list(values)

    # --- outputs ------------------------------------------------------------------------------------------------

    def add_output(self, output: Any, alias_input: Any = None) -> None:
        """Makes ``output`` a result of the program. With ``alias_input``, a run consumes that input's array, and
        writes the output in its memory where it reads each element before, and nobody else has the array.

        ``output`` is a tensor, or a dict, list or (named) tuple of such, nested at will: a run then returns its results
        in that structure. ``alias_input`` is nested as ``output`` is. Raises InvalidArgument for host scalars, and for
        what is no value or no input of this definition.

        >>> w = fd.define_tensor(shape=[3], name="w")
        >>> fd.add_output((x * w).sum())
        >>> fd.add_output({"w": w - 0.5}, {"w": w})  # A run returns (Array, {"w": Array}).
        """
        self._check_open()
        outputs, structure = flatten(output)
        aliases, alias_structure = flatten(alias_input)
        if alias_input is None:
            aliases = [None] * len(outputs)
        elif alias_structure != structure:
            raise invalid("add_output: alias_input is not nested as the outputs are")
        for value, alias in zip(outputs, aliases, strict=True):
            self._add_output(value, alias)
        self._output_trees.append(structure)

    def _add_output(self, output: Any, alias_input: Any) -> None:
        if not isinstance(output, Value) or output._definition is not self:
            raise invalid(f"add_output: {output!r} is no value of this definition")
        if isinstance(output, Scalar):
            raise invalid(f"add_output: %{output.name} is a host scalar; outputs are tensors")
        if alias_input is not None and not any(alias_input is value for value in self._inputs):
            raise invalid(f"add_output: {alias_input!r} is no input of this definition")
        alias = alias_input._name if alias_input is not None else None
        self._record.outputs.append(OutputRecord(output._name, alias, caller_location()))
        self._outputs.append(output)

    def _input_names(self) -> list[str]:
        """In order; kept once nothing can change them."""
        if self._kept_names is not None:
            return self._kept_names
        names = [value._name for value in self._inputs]
        self._kept_names = names if self._frozen else None
        return names

    @property
    def _output_tree(self) -> Structure | None:
        """How results are nested: None where each is an output of its own, a tuple of several nested ones."""
        if self._kept_tree is not None:
            return self._kept_tree[0]
        tree = None
        if not all(tree.is_leaf for tree in self._output_trees):
            many = len(self._output_trees) > 1
            tree = Structure(tuple, (), (*self._output_trees,)) if many else self._output_trees[0]
        self._kept_tree = (tree,) if self._frozen else None
        return tree

    # --- running ------------------------------------------------------------------------------------------------

    def execute(self, inputs: Any, **options: Any) -> Any:
        """Runs on the default client: ``$HOSTIR_ADDRESS``, else a private daemon as long as this process lives.

        A list of Arrays, or what ``add_output`` was given with an Array for each tensor. inputs and options (``wait``,
        ``nowait``, ``timeout``, ``deadline``) are those of ``Client.run``. ``device`` may name where a program without
        a mesh runs anyway (0, "cpu", "cuda:0"): ``fd.execute([x], device=0)``. TypeError for any other keyword.
        """
        from .connecting import execute

        return execute(self, inputs, options)

    def __repr__(self) -> str:
        counts = f"{len(self._inputs)} inputs, {len(self._record.ops)} ops, {len(self._outputs)} outputs"
        return f"<hostir.FusionDefinition {self.name}: {counts}>"

    def __str__(self) -> str:
        """The program in the text form of docs/ir.md."""
        return program_text(self.name, self._record, self.segmentation)

    # --- recording ----------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._frozen:
            raise FailedPrecondition(located(f"{self.name} is frozen since its `with` block ended; define another"))

    def _check_frozen(self) -> None:
        if not self._frozen:
            raise FailedPrecondition(located(f"{self.name} is still being defined; end its `with` block first"))

    def _new_name(self, variable: str = "") -> str:
        """A free name: the user's variable ("y", "y.1"), its place in a list ("layers.0.w" for "layers.*.w"), else the
        next of "t0", "t1"."""
        name, count = variable, self._suffixes.get(variable, 0)
        counted = "*" in variable
        while not name or name in self._names or (counted and name == variable):
            name = (
                variable.replace("*", str(count)) if counted else f"{variable}.{count + 1}" if variable else f"t{count}"
            )
            count += 1
        self._suffixes[variable] = count
        self._names.add(name)
        return name

    def _new_symbol(self) -> str:
        self._num_symbols += 1
        return f"i{self._num_symbols - 1}"


def _are_strides(contiguity: Any) -> bool:
    listed = isinstance(contiguity, (list, tuple))
    return listed and any(flag is not None and not isinstance(flag, bool) for flag in contiguity)
