"""Arrays in memory of this process's GPUs: those of PyTorch and JAX on their way in, and results on their way out."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import ml_dtypes
import numpy as np

from . import cuda
from .dlpack import CUDA, REFUSALS, device_capsule, tensor_of
from .errors import FailedPrecondition
from .location import invalid, located

_DEFAULT_STREAM = 1  # Of DLPack: what is asked of a producer is done before what that stream does next.
_DTYPES = {  # By the type code and bits of DLPack.
    (6, 8): np.dtype(np.bool_),
    (1, 8): np.dtype(np.uint8),
    (0, 8): np.dtype(np.int8),
    (0, 32): np.dtype(np.int32),
    (0, 64): np.dtype(np.int64),
    (2, 16): np.dtype(np.float16),
    (4, 16): np.dtype(ml_dtypes.bfloat16),
    (2, 32): np.dtype(np.float32),
    (2, 64): np.dtype(np.float64),
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


def code_of(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Type code and bits of DLPack."""
    return _CODES[dtype]


class GpuView:
    """Elements at an address of a GPU, by strides in bytes; they live as long as this does."""

    def __init__(
        self, address: int, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any], ordinal: int, keep: Any
    ) -> None:
        self.address = address
        self.shape = tuple(shape)
        self.strides = tuple(strides)
        self.dtype = dtype
        self.ordinal = ordinal
        self._keep = keep

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def has_repeats(self) -> bool:
        return any(n > 1 and stride == 0 for n, stride in zip(self.shape, self.strides, strict=True))

    def stretched(self, shape: Sequence[int]) -> GpuView:
        """Of that shape: where this one has one element along an axis, it stands for all."""
        strides = [step if n == own else 0 for n, own, step in zip(shape, self.shape, self.strides, strict=True)]
        return GpuView(self.address, shape, strides, self.dtype, self.ordinal, self._keep)

    def transposed(self, axes: Sequence[int]) -> GpuView:
        """With its axes in that order; none: as they are."""
        if not axes:
            return self
        shape, strides = [self.shape[axis] for axis in axes], [self.strides[axis] for axis in axes]
        return GpuView(self.address, shape, strides, self.dtype, self.ordinal, self._keep)

    def part(self, slices: Sequence[slice]) -> GpuView:
        """Of those elements alone: starts and steps that are not negative."""
        bounds = [part.indices(n) for part, n in zip(slices, self.shape, strict=True)]
        at = sum(start * stride for (start, _, _), stride in zip(bounds, self.strides, strict=True))
        return GpuView(
            self.address + at,
            [len(range(*bound)) for bound in bounds],
            [step * stride for (_, _, step), stride in zip(bounds, self.strides, strict=True)],
            self.dtype,
            self.ordinal,
            self._keep,
        )

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """A copy on the host, in which repeated elements are repeated."""
        once = self.part([slice(0, 1) if stride == 0 else slice(None) for stride in self.strides])
        values = np.empty(once.shape, self.dtype)
        driver = _driver()
        with driver.copying(self.ordinal):
            for row in rows(values.shape, values.strides, once.strides, self.dtype.itemsize):
                driver.copy(values.ctypes.data + row[0], once.address + row[1], *row[2:], host="target")
        return np.broadcast_to(values, self.shape)


def view_of(array: Any) -> GpuView | None:
    """Where the elements of an array on a GPU are, once they are there; None: it is on no GPU. Raises InvalidArgument
    for an array that no program can have."""
    if getattr(array, "requires_grad", False) is True and callable(getattr(array, "detach", None)):
        array = array.detach()
    if isinstance(array, CudaArray):
        return array.view
    if not _is_on_gpu(array):
        return None
    try:
        capsule = array.__dlpack__(stream=_DEFAULT_STREAM)  # Not renamed: its destructor frees what the producer holds.
    except REFUSALS as error:
        raise invalid(f"the {type(array).__name__} cannot be read: {error}") from error
    tensor = tensor_of(capsule)
    dtype = _DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        raise invalid(f"the {type(array).__name__} has elements of DLPack type {tensor.code} with {tensor.bits} bits")
    shape = tensor.shape[: tensor.ndim]
    strides = [stride * dtype.itemsize for stride in tensor.strides[: tensor.ndim]] if tensor.strides else None
    return GpuView(
        (tensor.data or 0) + tensor.byte_offset,
        shape,
        strides_of(shape, dtype) if strides is None else strides,
        dtype,
        int(tensor.device_id),
        (capsule, array),
    )


def _is_on_gpu(array: Any) -> bool:
    device = getattr(array, "__dlpack_device__", None)
    if device is None or isinstance(array, np.ndarray):
        return False
    try:
        return int(device()[0]) == CUDA
    except REFUSALS:  # It cannot be read as it is: whoever reads it from the host says why.
        return False


class CudaArray:
    """A result in memory of a GPU of this process, its own: ``torch.from_dlpack(a)``, ``jax.dlpack.from_dlpack(a)`` and
    what reads ``__cuda_array_interface__`` take it as it is. ``shape`` is a tuple of integers, ``dtype`` NumPy's,
    ``device`` the number of the GPU here. Its memory goes when nobody holds it any more. Threads: any may call.

    >>> t = torch.from_dlpack(y.cuda())
    """

    def __init__(self, view: GpuView) -> None:
        self.view = view
        self.shape = view.shape
        self.dtype = view.dtype
        self.device = view.ordinal

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if dl_device is not None and tuple(map(int, dl_device)) != self.__dlpack_device__():
            raise BufferError(f"the array is on DLPack device {self.__dlpack_device__()}, not {dl_device}")
        if copy:
            raise BufferError("the array is the caller's own already: there is no need for a copy")
        code, bits = code_of(self.dtype)
        view = self.view
        return device_capsule(view.address, self.__dlpack_device__(), view.shape, view.strides, code, bits, view)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CUDA, self.device)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype.kind == "V" or self.dtype == ml_dtypes.bfloat16:
            raise AttributeError("__cuda_array_interface__ has no bfloat16: use DLPack")
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.view.address, False),
            "version": 3,
            "strides": self.view.strides,
            "stream": None,
        }

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy on the host."""
        return self.view.to_numpy()

    def __repr__(self) -> str:
        return f"hostir.CudaArray(shape={self.shape}, dtype={self.dtype}, device={self.device})"


def fresh(ordinal: int, shape: Sequence[int], dtype: np.dtype[Any]) -> tuple[GpuView, cuda.Memory]:
    """Memory for elements, row-major; it is freed when the view, and what was made of it, are gone."""
    driver = _driver()
    memory = driver.allocate(ordinal, max(1, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize))
    keep = _Kept()
    weakref.finalize(keep, memory.free)
    return GpuView(memory.address, shape, strides_of(shape, dtype), dtype, ordinal, keep), memory


def copy(target: GpuView, source: GpuView) -> None:
    """Elements of one shape and type, on one GPU."""
    driver = _driver()
    for row in rows(target.shape, target.strides, source.strides, target.dtype.itemsize):
        driver.copy(target.address + row[0], source.address + row[1], *row[2:])


def joined(shape: Sequence[int], parts: Sequence[tuple[tuple[slice, ...], GpuView]]) -> GpuView:
    """All of them, each of which begins its block, as one; a single part as it is."""
    whole = tuple(slice(0, n) for n in shape)
    if len(parts) == 1 and parts[0][0] == whole:
        return parts[0][1].part(whole)
    _, first = parts[0]
    view, memory = fresh(first.ordinal, shape, first.dtype)
    memory.close_descriptor()
    with copying(first.ordinal):
        for slices, block in parts:
            target = view.part(slices)
            copy(target, block.part([slice(0, n) for n in target.shape]))
    return view


def synchronize(ordinal: int) -> None:
    """Waits for all that the GPU has to do in this process."""
    _driver().synchronize(ordinal)


def copying(ordinal: int) -> AbstractContextManager[None]:
    """Copies, which are done when it ends."""
    return _driver().copying(ordinal)


def from_numpy(values: np.ndarray[Any, Any], ordinal: int) -> GpuView:
    view, memory = fresh(ordinal, values.shape, values.dtype)
    memory.close_descriptor()
    values = np.ascontiguousarray(values)
    if values.nbytes:
        driver = _driver()
        with driver.copying(ordinal):
            driver.copy(view.address, values.ctypes.data, values.nbytes, host="source")
    return view


def rows(
    shape: Sequence[int], target: Sequence[int], source: Sequence[int], itemsize: int
) -> Iterator[tuple[int, int, int, int, int, int]]:
    """What copies elements between strides (in bytes) in few copies: (offset in the target, in the source, bytes of a
    row, rows, bytes between rows in the target, in the source)."""
    if 0 in shape:
        return
    axes: list[tuple[int, int, int]] = []  # Outer first.
    for n, t, s in zip(shape, target, source, strict=True):
        if n == 1:
            continue
        if axes and axes[-1][1:] == (n * t, n * s):
            axes[-1] = (axes[-1][0] * n, t, s)
        else:
            axes.append((n, t, s))
    width = itemsize
    if axes and axes[-1][1:] == (itemsize, itemsize):
        width *= axes.pop()[0]
    height, t_pitch, s_pitch = 1, 0, 0
    if axes and all(width <= pitch <= cuda.PITCH_MAX for pitch in axes[-1][1:]):
        height, t_pitch, s_pitch = axes.pop()
    for index in np.ndindex(*(n for n, _, _ in axes)):
        t_at = sum(i * t for i, (_, t, _) in zip(index, axes, strict=True))
        s_at = sum(i * s for i, (_, _, s) in zip(index, axes, strict=True))
        yield t_at, s_at, width, height, t_pitch, s_pitch


class _Kept:
    """What memory lives as long as."""


def strides_of(shape: Sequence[int], dtype: np.dtype[Any]) -> list[int]:
    """In bytes, row-major."""
    strides = [dtype.itemsize] * len(shape)
    for axis in range(len(shape) - 1, 0, -1):
        strides[axis - 1] = strides[axis] * shape[axis]
    return strides


def _driver() -> cuda.Driver:
    found = cuda.driver()
    if found is None:
        raise FailedPrecondition(located("this process sees no GPU: use numpy()"))
    return found


__all__ = [
    "CudaArray",
    "GpuView",
    "code_of",
    "copy",
    "copying",
    "fresh",
    "from_numpy",
    "joined",
    "rows",
    "strides_of",
    "synchronize",
    "view_of",
]
