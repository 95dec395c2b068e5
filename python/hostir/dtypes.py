"""Element types, under nvFuser's names, and what they are called in NumPy and in the text form."""

from __future__ import annotations

import enum
from typing import Any, cast

import ml_dtypes
import numpy as np

from .location import invalid


class DataType(enum.Enum):
    """The element type of a tensor or scalar. ``Null`` means: let the operation decide.

    Element types of NumPy, PyTorch and JAX are accepted wherever a DataType is: ``np.float32``, ``torch.bfloat16``,
    ``jnp.int32``.

    >>> x.astype(DataType.Half).dtype  # dtype('float16')
    """

    Double = "f64"
    Float = "f32"
    Half = "f16"
    BFloat16 = "bf16"
    Int = "i64"
    Int32 = "i32"
    Char = "i8"
    Byte = "u8"
    Bool = "bool"
    Null = "null"

    __hash__ = object.__hash__  # An enumeration's own is a call of Python's, and each Array's type is looked up.

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; bfloat16 is ``ml_dtypes.bfloat16``."""
        if self is DataType.Null:
            raise invalid("DataType.Null has no NumPy dtype: it means that an operation decides")
        return _NUMPY[self]


_NUMPY: dict[DataType, np.dtype[Any]] = {
    DataType.Double: np.dtype(np.float64),
    DataType.Float: np.dtype(np.float32),
    DataType.Half: np.dtype(np.float16),
    DataType.BFloat16: np.dtype(ml_dtypes.bfloat16),
    DataType.Int: np.dtype(np.int64),
    DataType.Int32: np.dtype(np.int32),
    DataType.Char: np.dtype(np.int8),
    DataType.Byte: np.dtype(np.uint8),
    DataType.Bool: np.dtype(np.bool_),
}
_FROM_NUMPY = {dtype: data_type for data_type, dtype in _NUMPY.items()}


def as_data_type(dtype: DataType | object) -> DataType:
    """``dtype`` (a DataType, what ``np.dtype`` takes, or a ``torch.dtype``) as a DataType. Raises InvalidArgument."""
    if isinstance(dtype, DataType):
        return dtype
    if isinstance(dtype, np.dtype) and dtype in _FROM_NUMPY:
        return _FROM_NUMPY[dtype]
    name = str(dtype)
    if name.startswith("torch.") and type(dtype).__name__ == "dtype":  # PyTorch need not be there to be known.
        name = name.removeprefix("torch.")
        dtype = ml_dtypes.bfloat16 if name == "bfloat16" else name
    known = ", ".join(str(d) for d in _FROM_NUMPY)
    if dtype is None:  # NumPy takes it for float64.
        raise invalid(f"None is no element type; there are {known}")
    try:
        numpy_dtype = np.dtype(cast("Any", dtype))
    except TypeError:
        raise invalid(f"{dtype!r} is no element type; there are {known}") from None
    if numpy_dtype in _FROM_NUMPY:
        return _FROM_NUMPY[numpy_dtype]
    native = numpy_dtype.newbyteorder("=")
    if native in _FROM_NUMPY:
        raise invalid(f"{numpy_dtype.str} is big-endian; convert it first: array.astype(np.{native})")
    raise invalid(f"{numpy_dtype} is no element type; there are {known}")


def element_type(dtype: DataType | object) -> DataType:
    """As as_data_type; Null is refused."""
    data_type = as_data_type(dtype)
    if data_type is DataType.Null:
        raise invalid("DataType.Null says that an operation decides; here an element type is needed")
    return data_type
