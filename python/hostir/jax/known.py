"""Values whose elements are known while a program is made: numbers, masks, tables, draws of constant keys."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ..dtypes import DataType
from ..values import Tensor
from .primitives import OF_KEYS, OF_UNSIGNED
from .refusals import is_key, is_threefry

_EXACT_INTEGER = 2**53  # Beyond it numbers in a program are rounded.
TYPES = {data_type.numpy: data_type for data_type in DataType if data_type is not DataType.Null}


UNSIGNED = np.dtype(np.uint32)  # int64 in programs.


def stored_type(dtype: Any) -> np.dtype[Any] | None:
    """The element type in programs; None: there is none."""
    if is_key(dtype):
        return np.dtype(np.int64) if is_threefry(dtype) else None
    found = np.dtype(dtype)
    return np.dtype(np.int64) if found == UNSIGNED else found if found in TYPES else None


def stored_shape(of: Any) -> tuple[int, ...]:
    """The shape in programs of a value or type of JAX."""
    return (*of.shape, 2) if is_key(of.dtype) else tuple(of.shape)


def is_taken(primitive: str, dtype: Any) -> bool:
    """Whether there is the type in programs, and operands of the primitive may have it."""
    if is_key(dtype):
        return is_threefry(dtype) and primitive in OF_KEYS
    return np.dtype(dtype) in TYPES or (np.dtype(dtype) == UNSIGNED and primitive in OF_UNSIGNED)


class Computed:
    """An equation of known operands: JAX computes it when its elements are asked for."""

    def __init__(self, equation: Any, operands: Sequence[Known]) -> None:
        self.equation, self.operands = equation, operands

    def results(self, made: dict[int, list[Any]]) -> list[Any]:
        """As JAX has them while it traces; ``made``: those of others, by id."""
        if id(self) not in made:
            given = [operand._traced(made) for operand in self.operands]
            made[id(self)] = as_list(self.equation.primitive.bind(*given, **self.equation.params))
        return made[id(self)]


class Known:
    """An array of NumPy, or random keys of JAX; or a result of an equation, which is computed when it is looked at.

    ``make`` records operations that are cheap and make it; None: there are none, so that the program brings it."""

    def __init__(
        self,
        array: Any = None,
        *,
        aval: Any = None,
        computed: Computed | None = None,
        place: int = 0,
        make: Callable[[], Tensor] | None = None,
    ) -> None:
        self._array, self._computed, self._place = array, computed, place
        self.make = make
        of = array if aval is None else aval
        self.shape, self.dtype = tuple(of.shape), of.dtype
        self.size = int(np.prod(self.shape, dtype=np.int64))
        self._tensor: Tensor | None = None

    @property
    def array(self) -> Any:
        """The elements."""
        if self._array is None:
            compute([self])
        return self._array

    @property
    def is_key(self) -> bool:
        return is_key(self.dtype)

    @property
    def stored(self) -> np.ndarray[Any, Any]:
        """The elements as programs have them."""
        array = jax.random.key_data(self.array) if self.is_key else self.array
        stored = stored_type(self.dtype)
        assert stored is not None
        return np.asarray(array).astype(stored, copy=False)

    @property
    def number(self) -> Any:
        """Its element, where it is one, or all are plainly the same; else None."""
        if is_key(self.dtype) or self.size == 0 or (self.size > 1 and self._array is None):
            return None
        array = self.array
        same = self.size == 1 or all(
            stride == 0 or n == 1 for n, stride in zip(array.shape, array.strides, strict=True)
        )
        return array[(0,) * array.ndim] if same else None

    def tensor(self, make: Callable[[], Tensor]) -> Tensor:
        """As a tensor of the program, which ``make`` records the first time."""
        if self._tensor is None:
            self._tensor = make()
        return self._tensor

    def identity(self) -> bytes:
        """Equal for those that are equal by how they are made."""
        if self._array is None:
            assert self._computed is not None
            equation = self._computed.equation
            how = f"{equation.primitive.name} {equation.params} {self._place} {self.dtype}{self.shape}".encode()
            parts = [how, *(operand.identity() for operand in self._computed.operands)]
        elif is_key(self.dtype):
            parts = [str(id(self._array)).encode()]
        else:
            parts = [f"{self.dtype}{self.shape}".encode(), np.ascontiguousarray(self._array).tobytes()]
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()

    def _traced(self, made: dict[int, list[Any]]) -> Any:
        if self._array is not None:
            return self._array
        assert self._computed is not None
        return self._computed.results(made)[self._place]


def compute(values: Sequence[Known]) -> None:
    """All at once, since each program of JAX takes it a while."""
    left = [value for value in values if value._array is None]
    if not left:
        return
    made: dict[int, list[Any]] = {}
    arrays = jax.jit(lambda: [value._traced(made) for value in left])()
    for value, array in zip(left, arrays, strict=True):
        value._array = array if is_key(value.dtype) else np.asarray(array)


def as_list(made: Any) -> list[Any]:
    return list(made) if isinstance(made, (list, tuple)) else [made]


def as_number(number: Any) -> bool | int | float:
    """An element as a number of Python's."""
    value = number.item() if isinstance(number, (np.generic, np.ndarray)) else number
    return value if isinstance(value, (bool, int, float)) else float(value)


def is_exact(number: Any) -> bool:
    """Whether a program can hold it as a number."""
    dtype = np.dtype(number.dtype)
    return (dtype in TYPES or dtype == UNSIGNED) and (dtype.kind != "i" or abs(int(number)) <= _EXACT_INTEGER)
