"""The values of a definition. Arithmetic and comparisons on them record operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .dtypes import DataType
from .errors import FailedPrecondition, Unimplemented
from .location import located
from .numbers import Number
from .operators import ScalarOperators

if TYPE_CHECKING:
    from .definition import FusionDefinition
    from .infer import ValueType


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
        """What plans and errors call it: the variable it was assigned to, where there was one.

        >>> total = x.sum()
        >>> total.name  # 'total'
        """
        return self._name

    @property
    def data_type(self) -> DataType:
        """The element type: ``x.data_type  # <DataType.Float: 'f32'>``. Raises Unimplemented where only the service
        knows it."""
        return DataType(self._known("data_type").dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type as NumPy's: ``x.dtype == np.float32``."""
        return self.data_type.numpy

    def _known(self, what: str) -> ValueType:
        if self._type is None:
            raise Unimplemented(located(f"{what}: only the service knows the type of %{self._name}"))
        return self._type

    def __repr__(self) -> str:
        return f"{type(self).__name__}(%{self._name})"

    __hash__ = object.__hash__

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise FailedPrecondition(located(f"%{self._name} has no elements while a program is defined: a run makes them"))

    def __bool__(self) -> bool:
        what = f"%{self._name} has no value while a program is being defined; fd.ops.where chooses by it"
        raise FailedPrecondition(located(what))


class Scalar(ScalarOperators, Value):
    """A host scalar: one number, known when a program runs. ``value`` is its number when it is a constant, else None.

    Operators of scalars alone make scalars, beside a tensor a tensor, whose type a scalar seldom changes
    (docs/data_types.md).

    >>> half: Scalar = fd.define_scalar(0.5)
    >>> half.value  # 0.5
    >>> x * half  # [[0.5, 1, 1.5], [2, 2.5, 3]]
    """

    extent: int | str | None = None  # Of what ops.size made: the same size for ``shape=`` arguments.

    def __init__(self, definition: FusionDefinition, name: str, value: bool | int | float | None) -> None:
        super().__init__(definition, name)
        self.value = value

    __hash__ = object.__hash__


Operand = Value | Number  # Of an operation on elements.
