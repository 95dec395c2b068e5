"""A jaxpr, equation by equation, as operations of a FusionDefinition.

A value is a tensor of the definition, or `Known`: its elements are known while the program is made. What is known is
computed by JAX at once; it becomes a number in the operations that use it, a few operations, or else an input that the
program brings itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from jax.extend import core as jax_core

from ..definition import FusionDefinition
from ..dtypes import DataType
from ..errors import HostirError
from ..location import on_behalf_of
from ..mesh import DeviceMesh
from ..ops import Ops
from ..values import Tensor
from .refusals import is_key, line_of, numpy_dtype, refused, type_text

KNOWN_SIZE_MAX = 1 << 22  # Elements of a value that JAX computes while the program is made.
_EXACT_INTEGER = 2**53  # Beyond it numbers in a program are rounded.
TYPES = {data_type.numpy: data_type for data_type in DataType if data_type is not DataType.Null}

# Operations that cost a kernel next to nothing: what only these make of numbers is made anew where it is read.
_CHEAP = frozenset(
    {
        "add",
        "add_any",
        "and",
        "broadcast_in_dim",
        "clamp",
        "concatenate",
        "convert_element_type",
        "copy",
        "copy_p",
        "eq",
        "expand_dims",
        "ge",
        "gt",
        "iota",
        "le",
        "lt",
        "max",
        "min",
        "mul",
        "ne",
        "neg",
        "not",
        "or",
        "reshape",
        "select_n",
        "slice",
        "squeeze",
        "stop_gradient",
        "sub",
        "transpose",
        "xor",
    }
)


class Known:
    """A value whose elements are known: an array of NumPy, or random keys of JAX."""

    def __init__(self, array: Any, make: Callable[[], Tensor] | None = None) -> None:
        self.array = array
        self.make = make  # By operations that are cheap; None: there are none.
        self._tensor: Tensor | None = None

    @property
    def number(self) -> Any:
        """Its element, where all are the same; else None."""
        array = self.array
        if is_key(array.dtype) or array.size == 0:
            return None
        same = array.size == 1 or all(
            stride == 0 or n == 1 for n, stride in zip(array.shape, array.strides, strict=True)
        )
        return array[(0,) * array.ndim] if same else None

    def tensor(self, make: Callable[[], Tensor]) -> Tensor:
        """As a tensor of the program, which ``make`` records the first time."""
        if self._tensor is None:
            self._tensor = make()
        return self._tensor


Value = Tensor | Known
Rule = Callable[["Walk", Any, list[Value]], Any]  # What an equation makes of values: a value, or a list of them.
RULES: dict[str, Rule] = {}
INLINED: set[str] = set()  # Their own equations are walked, or some of them: nothing is computed before.


def rule(*primitives: str, inlined: bool = False) -> Callable[[Rule], Rule]:
    """The function lowers these primitives of JAX."""

    def register(function: Rule) -> Rule:
        for primitive in primitives:
            RULES[primitive] = function
            if inlined:
                INLINED.add(primitive)
        return function

    return register


class Walk:
    """Records the equations of jaxprs in a definition that is open. ``brought``: inputs with their elements, which each
    run has to be given besides the user's."""

    def __init__(self, definition: FusionDefinition, mesh: DeviceMesh | None) -> None:
        self.definition = definition
        self.mesh = mesh
        self.ops: Ops = definition.ops
        self.brought: list[tuple[Tensor, np.ndarray[Any, Any]]] = []
        self._brought_by_content: dict[Any, Tensor] = {}
        self._constants: dict[int, Known] = {}  # Of jaxprs, by id: one that several use is brought once.
        self._kept: list[Any] = []  # So that no id is used anew.

    # --- values -------------------------------------------------------------------------------------------------

    def constant(self, array: Any) -> Known:
        known = self._constants.get(id(array))
        if known is None:
            self._kept.append(array)
            value = array if hasattr(array, "dtype") and is_key(array.dtype) else np.asarray(array)
            known = self._constants[id(array)] = Known(value)
        return known

    def tensor(self, value: Value) -> Tensor:
        """``value`` as a tensor of the program."""
        if isinstance(value, Tensor):
            return value
        return value.tensor(lambda: self._tensor_of(value))

    def _tensor_of(self, known: Known) -> Tensor:
        number = known.number
        if number is not None and is_exact(number):
            return self.full(known.array.shape, number, known.array.dtype)
        if known.make is not None:
            return known.make()
        return self._bring(np.ascontiguousarray(known.array).reshape(known.array.shape))

    def _bring(self, array: np.ndarray[Any, Any]) -> Tensor:
        """As an input of its own, which equal arrays share."""
        key = array.dtype, array.shape, hashlib.sha256(array.reshape(-1).view(np.uint8).data).digest()
        tensor = self._brought_by_content.get(key)
        if tensor is None:
            name = f"constant.{len(self.brought)}"
            tensor = self.definition.define_tensor(array.shape, True, array.dtype, name=name)
            self._brought_by_content[key] = tensor
            self.brought.append((tensor, array))
        return tensor

    def full(self, shape: Sequence[int], number: Any, dtype: Any) -> Tensor:
        value = as_number(number)
        return self.ops.full(list(shape), value, np.dtype(dtype))

    def operand(self, value: Value) -> Any:
        """``value`` for an operation on elements beside a tensor of the result's shape: a number where all of it is."""
        if isinstance(value, Tensor):
            return value
        number = value.number
        return as_number(number) if number is not None and is_exact(number) else self.tensor(value)

    def operands(self, equation: Any, values: Sequence[Value]) -> list[Any]:
        """Those of an equation on elements: numbers where they are, if the tensors make the result's shape."""
        operands = [self.operand(value) for value in values]
        shape = equation.outvars[0].aval.shape
        given = [extents(operand) for operand in operands if isinstance(operand, Tensor)]
        if np.broadcast_shapes(*given) != shape:
            operands[0] = self.stretched(self.tensor(values[0]), shape)
        return operands

    def stretched(self, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        """As NumPy broadcasts it to ``shape``."""
        if tensor.shape == tuple(shape):
            return tensor
        return self.ops.broadcast_in_dim(tensor, list(shape), list(range(len(shape) - tensor.ndim, len(shape))))

    def iota(self, shape: Sequence[int], axis: int, dtype: Any = np.int32) -> Tensor:
        """The place along ``axis``."""
        line = self.ops.iota(shape[axis], dtype=np.dtype(dtype))
        return line if len(shape) == 1 else self.ops.broadcast_in_dim(line, list(shape), [axis])

    # --- equations ----------------------------------------------------------------------------------------------

    def run(self, jaxpr: Any, constants: Sequence[Any], values: Sequence[Value]) -> list[Value]:
        """The results of a jaxpr (not closed) of ``values``."""
        found: dict[Any, Value] = {}

        def read(atom: Any) -> Value:
            return Known(np.asarray(atom.val, atom.aval.dtype)) if isinstance(atom, jax_core.Literal) else found[atom]

        found.update(zip(jaxpr.constvars, map(self.constant, constants), strict=True))
        found.update(zip(jaxpr.invars, values, strict=True))
        for equation in jaxpr.eqns:
            made = self._equation(equation, [read(atom) for atom in equation.invars])
            found.update(zip(equation.outvars, made, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _equation(self, equation: Any, values: list[Value]) -> list[Value]:
        name = equation.primitive.name
        if name in INLINED:
            with _on_its_line(equation):
                return as_list(RULES[name](self, equation, values))
        knows = not equation.effects and name != "sharding_constraint"
        if knows and all(isinstance(value, Known) for value in values) and self._is_small(equation, values):
            return self._known(equation, cast("list[Known]", values))
        return self._recorded(equation, values)

    def _recorded(self, equation: Any, values: list[Value]) -> list[Value]:
        name = equation.primitive.name
        for variable in (*equation.invars, *equation.outvars):
            if numpy_dtype(variable.aval.dtype) not in TYPES:
                refuse_type(equation, variable.aval)
        if name not in RULES:
            raise refused(equation, "there is no such operation in hostir")
        fd, made = self.definition, []
        composing, fd._composing = fd._composing, re.sub(r"\W", "_", name)  # What values are called.
        try:
            with _on_its_line(equation):
                if all(0 in variable.aval.shape for variable in equation.outvars):
                    made = [self.full(v.aval.shape, 0, v.aval.dtype) for v in equation.outvars]
                else:
                    made = as_list(RULES[name](self, equation, values))
                return [
                    self._of_type(value, variable.aval) for value, variable in zip(made, equation.outvars, strict=True)
                ]
        except HostirError as error:
            if str(error).startswith("hostir.jax"):
                raise
            raise type(error)(f"hostir.jax: {name}: {error}") from None
        finally:
            fd._composing = composing

    def _of_type(self, value: Value, aval: Any) -> Value:
        """Of the element type that the jaxpr says: sums of integers, and numbers beside bools, have another one."""
        if isinstance(value, Tensor) and value.dtype != aval.dtype:
            value = self.ops.cast(value, np.dtype(aval.dtype))
        if isinstance(value, Tensor) and value.shape != aval.shape:
            raise AssertionError(f"a rule made {value.shape} of {type_text(aval)}")
        return value

    # --- what is known ------------------------------------------------------------------------------------------

    def _is_small(self, equation: Any, values: list[Value]) -> bool:
        """Whether JAX may compute it now: it is small, or of a type that only JAX has."""
        avals = [variable.aval for variable in (*equation.invars, *equation.outvars)]
        if any(numpy_dtype(aval.dtype) not in TYPES for aval in avals):
            return True
        if equation.primitive.name == "broadcast_in_dim" and cast("Known", values[0]).number is not None:
            return True
        return all(np.prod(aval.shape, dtype=np.int64) <= KNOWN_SIZE_MAX for aval in avals)

    def _known(self, equation: Any, values: list[Known]) -> list[Value]:
        name, outvars = equation.primitive.name, equation.outvars
        number = values[0].number if values else None
        if name == "broadcast_in_dim" and number is not None and not is_key(number.dtype):
            return [Known(np.broadcast_to(number, outvars[0].aval.shape))]
        results = equation.primitive.bind(*[value.array for value in values], **equation.params)
        made: list[Value] = []
        is_ours = all(numpy_dtype(v.aval.dtype) in TYPES for v in (*equation.invars, *outvars))
        largest = max((value.array.size for value in values if value.number is None), default=0)
        made_of_made = all(value.number is not None or value.make is not None for value in values)
        for place, result in enumerate(as_list(results)):
            make = None
            if is_ours and name in _CHEAP and (made_of_made or result.size > largest):  # Else what is brought grows.
                make = self._maker(equation, values, place)
            made.append(Known(result if is_key(result.dtype) else _shortened(np.asarray(result)), make))
        return made

    def _maker(self, equation: Any, values: list[Known], place: int) -> Callable[[], Tensor]:
        return lambda: self.tensor(self._recorded(equation, cast("list[Value]", values))[place])


def _shortened(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """One element in place of equal ones."""
    if array.size > 1:
        first = array.reshape(-1)[:1]
        if (array == first).all() and (first != 0 or not np.signbit(array).any()):  # 0 and -0 are equal.
            return np.broadcast_to(first.reshape(()), array.shape)
    return array


def _on_its_line(equation: Any) -> contextlib.AbstractContextManager[None]:
    """What an equation without a line of its own records is on the line of the one that it is in."""
    line = line_of(equation)
    return on_behalf_of(line) if line else contextlib.nullcontext()


def extents(tensor: Tensor) -> list[int]:
    """The extents, which are numbers in what is traced."""
    return [int(extent) for extent in tensor.shape]


def as_list(made: Any) -> list[Any]:
    return list(made) if isinstance(made, (list, tuple)) else [made]


def as_number(number: Any) -> bool | int | float:
    """An element as a number of Python's."""
    value = number.item() if isinstance(number, (np.generic, np.ndarray)) else number
    return value if isinstance(value, (bool, int, float)) else float(value)


def is_exact(number: Any) -> bool:
    """Whether a program can hold it as a number."""
    dtype = np.dtype(number.dtype)
    return dtype in TYPES and (dtype.kind != "i" or abs(int(number)) <= _EXACT_INTEGER)


def refuse_type(equation: Any, aval: Any) -> None:
    if is_key(aval.dtype):
        raise refused(equation, "a random key that is no constant")
    known = "float32, float64, float16, bfloat16, int32, int64 and bool"
    raise refused(
        equation,
        f"hostir has no {aval.dtype}, only {known}",
        f"convert it to one of these before: x.astype({_nearest(aval.dtype)})",
    )


def _nearest(dtype: Any) -> str:
    return "jnp.int32" if np.dtype(dtype).kind in "iu" else "jnp.float32"
