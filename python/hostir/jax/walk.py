"""A jaxpr, equation by equation, as operations of a FusionDefinition.

A value is a tensor of the definition, or `Known`: its elements are known while the program is made, and JAX computes
them. It becomes a number in the operations that use it, a few operations, or else an input that the program brings
itself.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from jax.extend import core as jax_core

from ..definition import FusionDefinition
from ..errors import HostirError
from ..location import on_behalf_of
from ..mesh import DeviceMesh
from ..ops import Ops
from ..values import Tensor
from .known import (
    TYPES,
    UNSIGNED,
    Computed,
    Known,
    as_list,
    as_number,
    compute,
    is_exact,
    is_taken,
    stored_shape,
    stored_type,
)
from .primitives import CHEAP, MOVES
from .refusals import is_key, line_of, numpy_dtype, refused, refused_type, type_text

KNOWN_SIZE_MAX = 1 << 22  # Elements of a value that JAX computes while the program is made.


Value = Tensor | Known
Rule = Callable[["Walk", Any, list[Value]], Any]  # From an equation and its values to one, or a list of them.
RULES: dict[str, Rule] = {}
INLINED: set[str] = set()  # Their own equations are walked, or some of them: nothing is computed before.
ELEMENTWISE: set[str] = set()  # From numbers they make a number.


def rule(*primitives: str, inlined: bool = False, elementwise: bool = False) -> Callable[[Rule], Rule]:
    """The function lowers these primitives of JAX."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(primitives, function))
        INLINED.update(primitives if inlined else ())
        ELEMENTWISE.update(primitives if elementwise else ())
        return function

    return register


class Walk:
    """Records the equations of jaxprs in a definition that is open."""

    def __init__(self, definition: FusionDefinition, mesh: DeviceMesh | None) -> None:
        self.definition = definition
        self.mesh = mesh
        self._is_inside = False
        self.ops: Ops = definition.ops
        self._brought: list[tuple[Tensor, Known]] = []
        self._brought_by_identity: dict[bytes, Tensor] = {}
        self._constants: dict[int, Known] = {}  # By id: one that several jaxprs use is brought once.
        self._tables: dict[str, Known] = {}
        self._kept: list[Any] = []  # So that no id is used anew.

    # --- values -------------------------------------------------------------------------------------------------

    def constant(self, array: Any) -> Known:
        known = self._constants.get(id(array))
        if known is None:
            self._kept.append(array)
            value = array if hasattr(array, "dtype") and is_key(array.dtype) else np.asarray(array)
            known = self._constants[id(array)] = Known(value)
        return known

    def constant_of(self, name: str, make: Callable[[], np.ndarray[Any, Any]]) -> Known:
        """A table of a rule's, made once."""
        if name not in self._tables:
            self._tables[name] = Known(make())
        return self._tables[name]

    def tensor(self, value: Value) -> Tensor:
        """``value`` as a tensor of the program."""
        if isinstance(value, Tensor):
            return value
        return value.tensor(lambda: self._tensor_of(value))

    def _tensor_of(self, known: Known) -> Tensor:
        number = known.number
        if number is not None and is_exact(number):
            return self.full(known.shape, number, stored_type(known.dtype))
        if known.make is not None:
            return known.make()
        key = known.identity()
        tensor = self._brought_by_identity.get(key)
        if tensor is None:
            name = free_name(self.definition, f"constant.{len(self._brought)}")
            tensor = self.definition.define_tensor(stored_shape(known), True, stored_type(known.dtype), name=name)
            self._brought_by_identity[key] = tensor
            self._brought.append((tensor, known))
        return tensor

    def brought(self) -> list[tuple[Tensor, np.ndarray[Any, Any]]]:
        """Inputs with their elements, which each run has to be given besides the user's."""
        compute([known for _, known in self._brought])
        return [(tensor, known.stored) for tensor, known in self._brought]

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

    def run_inside(self, closed: Any, values: Sequence[Value]) -> list[Value]:
        """The results of a jaxpr that was traced for a rule: its lines are not the user's."""
        before, self._is_inside = self._is_inside, True
        try:
            return self.run(closed.jaxpr, closed.consts, values)
        finally:
            self._is_inside = before

    def _on_its_line(self, equation: Any) -> contextlib.AbstractContextManager[None]:
        """An equation without a line of its own is on the line of the one that it is in."""
        line = "" if self._is_inside else line_of(equation)
        return on_behalf_of(line) if line else contextlib.nullcontext()

    def _equation(self, equation: Any, values: list[Value]) -> list[Value]:
        name = equation.primitive.name
        if name in INLINED:
            with self._on_its_line(equation):
                return as_list(RULES[name](self, equation, values))
        knows = not equation.effects and name != "sharding_constraint"
        if knows and all(isinstance(value, Known) for value in values) and self._is_small(equation, values):
            return self._known(equation, cast("list[Known]", values))
        return self._recorded(equation, values)

    def _recorded(self, equation: Any, values: list[Value]) -> list[Value]:
        name = equation.primitive.name
        variables = (*equation.invars, *equation.outvars)
        for variable in variables:
            if not is_taken(name, variable.aval.dtype):
                raise refused_type(equation, variable.aval)
        if any(is_key(variable.aval.dtype) for variable in variables):
            equation = _on_bits(equation)
        if name not in RULES:
            raise refused(equation, "there is no such operation in hostir")
        fd, made = self.definition, []
        composing, fd._composing = fd._composing, re.sub(r"\W", "_", name)  # Their values are called so.
        try:
            with self._on_its_line(equation):
                if all(0 in variable.aval.shape for variable in equation.outvars):
                    made = [self.full(v.aval.shape, 0, stored_type(v.aval.dtype)) for v in equation.outvars]
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
        """With the element type that the jaxpr says: sums of integers, and numbers beside bools, have another one."""
        dtype = stored_type(aval.dtype)
        if isinstance(value, Tensor) and value.dtype != dtype:
            value = self.ops.cast(value, dtype)
        if isinstance(value, Tensor) and value.shape != stored_shape(aval):
            raise AssertionError(f"a rule made {value.shape} of {type_text(aval)}")
        return value

    # --- what is known ------------------------------------------------------------------------------------------

    def _is_small(self, equation: Any, values: list[Value]) -> bool:
        """Whether JAX may compute it now: it is small, or of a type that only JAX has."""
        avals = [variable.aval for variable in (*equation.invars, *equation.outvars)]
        if any(numpy_dtype(aval.dtype) not in TYPES for aval in avals):
            return True
        if _is_number(equation, cast("list[Known]", values)):
            return True
        return all(np.prod(aval.shape, dtype=np.int64) <= KNOWN_SIZE_MAX for aval in avals)

    def _known(self, equation: Any, values: list[Known]) -> list[Value]:
        name, avals = equation.primitive.name, [variable.aval for variable in equation.outvars]
        if _is_number(equation, values):
            number = values[0].number
            if name in ELEMENTWISE:
                (number,) = as_list(equation.primitive.bind(*[v.number for v in values], **equation.params))
            return [Known(np.broadcast_to(np.asarray(number), avals[0].shape))]
        is_ours = all(is_taken(name, variable.aval.dtype) for variable in (*equation.invars, *equation.outvars))
        largest = max((value.size for value in values if value.number is None), default=0)
        is_made = all(value.number is not None or value.make is not None for value in values)
        computed = Computed(equation, values)
        made: list[Value] = []
        for place, aval in enumerate(avals):
            known = Known(aval=aval, computed=computed, place=place)
            if is_ours and name in CHEAP and (is_made or known.size > largest):  # Else what is brought grows.
                known.make = self._maker(equation, values, place)
            made.append(known)
        return made

    def _maker(self, equation: Any, values: list[Known], place: int) -> Callable[[], Tensor]:
        return lambda: self.tensor(self._recorded(equation, cast("list[Value]", values))[place])


def _is_number(equation: Any, values: Sequence[Known]) -> bool:
    """Whether all elements of the result are plainly the same."""
    name = equation.primitive.name
    if name not in ELEMENTWISE and name not in MOVES:
        return False
    return bool(values) and all(value.number is not None for value in values)


def _on_bits(equation: Any) -> Any:
    """An equation about keys as one about their bits, which have a last axis more."""
    params = dict(equation.params)
    name = equation.primitive.name
    if name == "slice":
        params["start_indices"], params["limit_indices"] = (*params["start_indices"], 0), (*params["limit_indices"], 2)
        params["strides"] = None if params["strides"] is None else (*params["strides"], 1)
    elif name == "broadcast_in_dim":
        params["broadcast_dimensions"] = (*params["broadcast_dimensions"], len(equation.outvars[0].aval.shape))

    def on_bits(variable: Any) -> Any:
        dtype = UNSIGNED if is_key(variable.aval.dtype) else variable.aval.dtype
        return SimpleNamespace(aval=SimpleNamespace(shape=stored_shape(variable.aval), dtype=dtype))

    if name not in ("slice", "squeeze", "reshape", "broadcast_in_dim"):
        return equation
    return SimpleNamespace(
        primitive=equation.primitive,
        params=params,
        invars=equation.invars,
        outvars=list(map(on_bits, equation.outvars)),
        source_info=equation.source_info,
    )


def free_name(definition: FusionDefinition, wanted: str) -> str:
    """``wanted``, or with a number behind it where a value has that name."""
    name, count = wanted, 0
    while name in definition._names:
        count += 1
        name = f"{wanted}_{count}"
    return name


def extents(tensor: Tensor) -> list[int]:
    """The extents, which are numbers in what is traced."""
    return [int(extent) for extent in tensor.shape]
