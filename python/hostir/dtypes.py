"""Element types, under nvFuser's names, and what they are called in NumPy and on the wire."""

from __future__ import annotations

import enum

import ml_dtypes
import numpy as np


class DataType(enum.Enum):
    """The element type of a tensor or scalar. ``Null`` means: let the operation decide.

    NumPy dtypes are accepted wherever a DataType is.
    """

    Double = "f64"
    Float = "f32"
    Half = "f16"
    BFloat16 = "bf16"
    Int = "i64"
    Int32 = "i32"
    Bool = "bool"
    Null = "null"

    @property
    def numpy(self) -> np.dtype:
        """The NumPy dtype; bfloat16 is ``ml_dtypes.bfloat16``. Raises ValueError for Null."""
        if self is DataType.Null:
            raise ValueError("DataType.Null has no NumPy dtype")
        return _NUMPY[self]


_NUMPY = {
    DataType.Double: np.dtype(np.float64),
    DataType.Float: np.dtype(np.float32),
    DataType.Half: np.dtype(np.float16),
    DataType.BFloat16: np.dtype(ml_dtypes.bfloat16),
    DataType.Int: np.dtype(np.int64),
    DataType.Int32: np.dtype(np.int32),
    DataType.Bool: np.dtype(np.bool_),
}
_FROM_NUMPY = {dtype: data_type for data_type, dtype in _NUMPY.items()}


def as_data_type(dtype: DataType | object) -> DataType:
    """``dtype`` (a DataType, a NumPy dtype, or what ``np.dtype`` takes) as a DataType."""
    if isinstance(dtype, DataType):
        return dtype
    try:
        return _FROM_NUMPY[np.dtype(dtype)]  # type: ignore[call-overload]
    except (KeyError, TypeError):
        known = ", ".join(str(d) for d in _FROM_NUMPY)
        raise TypeError(f"hostir has no element type {dtype!r}; it has {known}") from None


def from_wire(name: str) -> DataType:
    return DataType(name)
