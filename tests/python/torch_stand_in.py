"""Stands in for PyTorch where it is not installed, as far as DLPack goes: tensors are offered and taken as PyTorch's.

``__dlpack__`` knows ``stream`` alone, an expanded axis has stride 0, bfloat16 has a type code that NumPy refuses, and
what requires a gradient is refused, by NumPy's protocol too.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from hostir.dlpack import tensor_of

float32, float64, float16 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16)
bfloat16, int32, int64 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.int32), np.dtype(np.int64)
bool = np.dtype(np.bool_)

_UINT, _BFLOAT = 1, 4  # Type codes of DLPack.


class Tensor:
    def __init__(self, values: np.ndarray[Any, Any], requires_grad: Any = False) -> None:
        self.values, self.requires_grad = values, requires_grad

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    def to(self, dtype: np.dtype[Any]) -> Tensor:
        return Tensor(self.values.astype(dtype))

    def t(self) -> Tensor:
        return Tensor(self.values.T)

    def __getitem__(self, index: Any) -> Tensor:
        return Tensor(self.values[index])

    def expand(self, *shape: int) -> Tensor:
        strides = [0 if n == 1 else s for n, s in zip(self.values.shape, self.values.strides, strict=True)]
        return Tensor(np.lib.stride_tricks.as_strided(self.values, shape, strides))

    def detach(self) -> Tensor:
        return Tensor(self.values)

    def requires_grad_(self) -> Tensor:
        return Tensor(self.values, True)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, stream: Any = None) -> Any:
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        if self.dtype != bfloat16:
            return self.values.__dlpack__()
        capsule = self.values.view(np.uint16).__dlpack__()
        tensor_of(capsule).code = _BFLOAT
        return capsule

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        if self.requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        if self.dtype == bfloat16:
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.values


def tensor(values: Any) -> Tensor:
    return Tensor(np.array(values))


def relu(given: Tensor) -> Tensor:
    return Tensor(np.maximum(given.values, 0))


def equal(a: Tensor, b: Tensor) -> Any:
    return a.values.shape == b.values.shape and (a.values == b.values).all()


class _Offered:
    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def from_dlpack(producer: Any) -> Tensor:
    assert producer.__dlpack_device__() == (1, 0)
    capsule = producer.__dlpack__()
    head = tensor_of(capsule)
    is_bfloat16 = head.code == _BFLOAT
    if is_bfloat16:
        head.code = _UINT
    values = np.from_dlpack(_Offered(capsule))
    return Tensor(values.view(bfloat16) if is_bfloat16 else values)
