"""A graph of ATen ops as a program: one function per op, found by the op's name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ..definition import FusionDefinition
from ..dtypes import DataType
from ..errors import InvalidArgument
from ..infer.value_type import FLOATS, LIMITS
from ..layouts import stride_order_of
from ..location import location_text, on_behalf_of
from ..values import Tensor

DATA_TYPES = {
    torch.bool: DataType.Bool,
    torch.uint8: DataType.Byte,
    torch.int8: DataType.Char,
    torch.int32: DataType.Int32,
    torch.int64: DataType.Int,
    torch.float16: DataType.Half,
    torch.bfloat16: DataType.BFloat16,
    torch.float32: DataType.Float,
    torch.float64: DataType.Double,
}

Lowered = Callable[..., Any]
Refusal = Callable[[torch.fx.Node], str]

_TABLE: dict[str, Lowered] = {}
_REFUSALS: dict[str, Refusal] = {}


def lowers(*names: str, unless: Refusal | None = None) -> Callable[[Lowered], Lowered]:
    """Registers ``function(lowering, out, *args, **kwargs)`` for ops by name, "add.Tensor": ``out`` is the result as
    the graph describes it, arguments are the op's. ``unless`` says why a node is not to be lowered; empty: it is."""

    def register(function: Lowered) -> Lowered:
        for name in names:
            _TABLE[name] = function
            if unless is not None:
                _REFUSALS[name] = unless
        return function

    return register


def name_of(target: Any) -> str:
    """The op's name in the table: "add.Tensor" of ATen, "prims.convert_element_type.default" of others."""
    return str(target).removeprefix("aten.")


def _each_of(name: str) -> str:
    """The op that one of PyTorch's on lists of tensors, "_foreach_add.List", does to each; empty: it is none."""
    if not name.startswith("_foreach_"):
        return ""
    op, overload = name.removeprefix("_foreach_").split(".")
    if op in ("addcmul", "addcdiv"):
        return f"{op}.default"
    if overload == "ScalarAndTensor":
        return f"{op}.Scalar"
    own = {"List": "Tensor", "ScalarList": "Scalar", "Scalar": "Scalar", "Tensor": "Tensor"}.get(overload, "default")
    return "pow.Tensor_Scalar" if (op, own) == ("pow", "Scalar") else f"{op}.{own}"


def _on_each(function: Lowered) -> Lowered:
    """``function`` of each element of the lists among the arguments."""

    def lower(low: Lowering, out: Any, *arguments: Any, **options: Any) -> list[Any]:
        def at(place: int, argument: Any) -> Any:
            return argument[place] if isinstance(argument, list) else argument

        return [
            function(low, each, *(at(k, a) for a in arguments), **{n: at(k, o) for n, o in options.items()})
            for k, each in enumerate(out)
        ]

    return lower


def refusal(node: torch.fx.Node) -> str:
    """Why a node cannot be a part of a program; empty: it can."""
    name = name_of(node.target)
    if _each_of(name) in _TABLE:
        name = _each_of(name)
    if name not in _TABLE:
        return "no such op"
    if any("val" not in each.meta for each in node.all_input_nodes):  # As of draws that a checkpoint repeats.
        return "PyTorch does not say what it reads"
    for value in tensors_in([node.meta.get("val"), [arg.meta.get("val") for arg in node.all_input_nodes]]):
        if value.dtype not in DATA_TYPES:
            return f"{str(value.dtype).removeprefix('torch.')} is no element type of programs"
        if value.layout != torch.strided:
            return "a tensor that is not dense"
    why = _REFUSALS.get(name)
    return why(node) if why is not None else ""


def tensors_in(value: Any) -> Iterable[Any]:
    """The tensors of nested lists and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_in(each)


_LINE = re.compile(r'File "([^"]*)", line (\d+)')


def _line_of(node: torch.fx.Node) -> str:
    """The line of the model that a node comes from, as PyTorch says; empty: it does not."""
    found = _LINE.findall(node.meta.get("stack_trace") or "")
    return location_text(found[-1][0], int(found[-1][1])) if found else ""


class Lowering:
    """One program in the making: what ops of the graph become. ``sizes``: numbers for the graph's symbols."""

    def __init__(self, name: str, sizes: dict[Any, int], on_mesh: bool) -> None:
        self.fd = FusionDefinition(name)
        self.ops = self.fd.ops
        self._sizes = sizes
        self._values: dict[torch.fx.Node, Any] = {}
        self._unmerged: dict[str, Tensor] = {}  # By the name of what was made of it.
        self.on_mesh = on_mesh  # Rows keep their axes, along one of which they may be split.
        self._seed: Any = None
        self._draws = 0

    def number(self, size: Any) -> int:
        """A size of the graph, which may be made of symbols."""
        if isinstance(size, torch.SymInt):
            return int(size.node.expr.xreplace(self._sizes))
        return int(size)

    def shape(self, of: Any) -> list[int]:
        """The shape of a tensor that the graph describes."""
        return [self.number(size) for size in of.shape]

    def data_type(self, of: Any) -> DataType:
        """The element type of a tensor that the graph describes."""
        return DATA_TYPES[of.dtype]

    def parameter(
        self, node: torch.fx.Node, shape: Sequence[int], stored_once: Sequence[bool], memory_order: Sequence[int]
    ) -> Tensor:
        """An input of the program, whole and dense, but for axes of which one element is stored. ``shape`` is the
        graph's, or what that was before leading axes became one; empty: the graph's. ``memory_order``: the axes, the
        outermost in memory first; empty: row-major."""
        value = node.meta["val"]
        own = self.shape(value)
        contiguity: Any = [None if once else True for once in stored_once] or True
        made = self.fd.define_tensor(list(shape) or own, contiguity, self.data_type(value), name=node.name)
        if memory_order:
            made._annotate("stride_order", order=stride_order_of(memory_order))
        self._values[node] = self.reshaped(made, own)
        return made

    def scalar(self, node: torch.fx.Node) -> None:
        """An input of the program that is a number, given with each run, in the place of a tensor without axes."""
        data_type = self.data_type(node.meta["val"])
        number = self.fd.define_scalar(dtype=DataType.Int if data_type is DataType.Int32 else None, name=node.name)
        self.fd._composing = node.name
        one = self.ops.full([], 1, data_type)
        self._values[node] = self.typed(self.ops.mul(one, number), node.meta["val"])
        self.fd._composing = ""

    def seeded(self) -> None:
        """One more input of the program, behind all others: the seed of its random numbers, given with each run."""
        self._seed = self.fd.define_scalar(dtype=DataType.Int, name="seed")

    def draw(self) -> tuple[Any, int]:
        """Seed and offset of the next op that draws random numbers."""
        self._draws += 1
        return self._seed, self._draws - 1

    def bind(self, node: torch.fx.Node, value: Any) -> None:
        """A number that the graph takes for its input."""
        self._values[node] = value

    def value(self, argument: Any) -> Any:
        """An argument of a node: values in the place of nodes, numbers in the place of symbols."""
        if isinstance(argument, torch.fx.Node):
            return self._values[argument]
        if isinstance(argument, (list, tuple)):
            return [self.value(each) for each in argument]
        return self.number(argument) if isinstance(argument, torch.SymInt) else argument

    def call(self, node: torch.fx.Node) -> None:
        """Adds an op. Raises InvalidArgument where the op does not take what it is given."""
        arguments = [self.value(each) for each in node.args]
        options = {name: self.value(each) for name, each in node.kwargs.items()}
        out = node.meta.get("val")
        if not isinstance(node.target, torch._ops.OpOverload):  # Of Python's: on sizes, or one of several results.
            self._values[node] = node.target(*arguments, **options)
            return
        name = name_of(node.target)
        if name.startswith("sym_"):
            self._values[node] = self.number(out)
            return
        self.fd._composing = node.name
        try:
            with on_behalf_of(_line_of(node)):
                make = _TABLE[name] if name in _TABLE else _on_each(_TABLE[_each_of(name)])
                made = make(self, out, *arguments, **options)
                self._values[node] = (
                    [self.typed(*pair) for pair in zip(made, out, strict=True)]
                    if isinstance(out, (list, tuple))
                    else self.typed(made, out)
                )
        finally:
            self.fd._composing = ""

    def typed(self, value: Tensor, out: Any) -> Tensor:
        """``value`` in the element type of the graph, whose promotion knows tensors without axes as numbers."""
        if value is None or out is None:
            return value
        wanted = self.data_type(out)
        if value.data_type.value in FLOATS and wanted in (DataType.Byte, DataType.Char):
            value = self.ops.cast(
                value, DataType.Int
            )  # As PyTorch: a cast to 8 bits saturates, that of integers wraps.
        return value if value.dtype == wanted.numpy else self.ops.cast(value, wanted)

    def held(self, value: Any, data_type: DataType) -> Any:
        """A number that fills a tensor, as its type holds it: of uint8 negative ones count from 256. Raises
        InvalidArgument where PyTorch finds that it does not fit."""
        if data_type.value not in LIMITS or isinstance(value, Tensor):
            return value
        least, greatest = LIMITS[data_type.value]
        number = int(value) if math.isfinite(value) else greatest + 1
        if data_type is DataType.Byte and -greatest <= number < 0:
            return number & greatest
        if not least <= number <= greatest:
            raise InvalidArgument(f"{value!r} does not fit {data_type.value}")
        return number

    def tensor(self, value: Any, dtype: DataType, shape: Sequence[int] = ()) -> Tensor:
        """``value``, where it is a number as a tensor."""
        return value if isinstance(value, Tensor) else self.ops.full(list(shape), self.held(value, dtype), dtype)

    def expanded(self, value: Tensor, shape: Sequence[int]) -> Tensor:
        """``value`` broadcast to ``shape``, whose leading axes it may lack."""
        missing = len(shape) - value.ndim
        if missing:
            value = self.ops.broadcast(value, [True] * missing + [False] * value.ndim)
        return self.ops.expand(value, list(shape)) if tuple(value.shape) != tuple(shape) else value

    def reshaped(self, value: Tensor, shape: Sequence[int]) -> Tensor:
        """``value`` of another shape."""
        if tuple(value.shape) == tuple(shape):
            return value
        wide = self._unmerged.get(value.name)
        if wide is not None and tuple(wide.shape) == tuple(shape):
            return wide
        made = self.ops.reshape(value, list(shape))
        if len(shape) == 3 and value.ndim > 3 and tuple(value.shape[-2:]) == tuple(shape[-2:]):
            self._unmerged[made.name] = value
        if self.on_mesh and len(shape) == 2 and value.ndim > 2 and value.shape[-1] == shape[-1]:
            self._unmerged[made.name] = value
        return made

    def unmerged(self, value: Tensor) -> Tensor:
        """The matrices of ``value`` with all the leading axes that they had before these became one: what is split
        along one of several, heads behind a batch, is split along no block of their product."""
        return self._unmerged.get(value.name, value)

    def merged(self, value: Tensor) -> Tensor:
        """The other way round: three axes, from which ``unmerged`` and ``reshaped`` find back."""
        if value.ndim <= 3:
            return value
        return self.reshaped(value, [math.prod(map(int, value.shape[:-2])), *map(int, value.shape[-2:])])

    def part(self, value: Tensor, axis: int, start: int, end: int, step: int = 1) -> Tensor:
        """``value`` from ``start`` to ``end`` along an axis."""
        starts, ends, steps = [0] * value.ndim, [int(size) for size in value.shape], [1] * value.ndim
        if (start, end, step) == (0, ends[axis], 1):
            return value
        starts[axis], ends[axis], steps[axis] = start, end, step
        return self.ops.slice(value, starts, ends, steps)

    def rows(self, values: Tensor, index: Tensor, axis: int = 0) -> Tensor:
        """``values`` along ``axis`` at ``index``, whose axes take the place of that one."""
        shape = [int(size) for size in values.shape]
        flat = self.reshaped(index, [math.prod(map(int, index.shape))])
        taken = self.ops.index_select(values, flat, axis)
        return self.reshaped(taken, [*shape[:axis], *map(int, index.shape), *shape[axis + 1 :]])
