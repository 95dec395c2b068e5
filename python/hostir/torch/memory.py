"""Arrays as tensors: in the daemon's own memory where this process can map it, else copied."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..array import Array
from ..gpu_array import CudaArray
from ..layouts import memory_order_of
from .lowering import DATA_TYPES

_DTYPES = {data_type: dtype for dtype, data_type in DATA_TYPES.items()}


class _OnHost(np.ndarray[Any, Any]):
    """Memory of the daemon's, with the array for whose lifetime it makes no other use of it."""

    array: Array


def mapped(array: Array) -> torch.Tensor | None:
    """The values, dense in the array's memory order, in its own memory: each shows what the other becomes. None: that
    cannot be seen from here."""
    client = array._client
    if not array.size or array.sharding.mesh.size > 1:
        return None
    if client.device_kind != "cpu":
        return None if array._stored_size != array.size else _on_gpu(array)
    memory = client._map(array)
    if memory is None:
        return None
    numpy = array.data_type.numpy
    if numpy.kind == "V":  # bfloat16, of which PyTorch takes no array of NumPy's.
        held = _OnHost((array.nbytes,), np.uint8, memory)
        held.array = array
        steps = _steps(array.shape, array._memory_order)
        return strided(torch.from_numpy(held), _DTYPES[array.data_type], array.shape, steps)
    if not array._memory_order:
        held = _OnHost(array.shape, numpy, memory)
        held.array = array
        return torch.from_numpy(held)
    held = _OnHost(tuple(array.shape[axis] for axis in array._memory_order), numpy, memory)
    held.array = array
    return torch.from_numpy(held.transpose(array._axes_in_memory))


def _on_gpu(array: Array) -> torch.Tensor | None:
    """The values in the memory of an array on one GPU, which the tensor keeps, with stride 0 where it stores one."""
    view = array._client._map_on_gpu(array)  # The run is over: no stream of PyTorch's has to wait.
    return None if view is None else torch.from_dlpack(CudaArray(view).__dlpack__())


def tensor_of(array: Array) -> tuple[torch.Tensor, bool]:
    """The values; and whether they are the array's own memory, or a copy."""
    tensor = mapped(array)
    if tensor is not None:
        return tensor, True
    if array.size and array.sharding.mesh.size == 1 and array._client.device_kind != "cpu":
        tensor = _on_gpu(array)
    return (torch.from_dlpack(array) if tensor is None else tensor.contiguous()), False


def sent_bytes(tensor: torch.Tensor) -> int:
    """Of an axis with stride 0 one element is sent."""
    return math.prod(n for n, step in zip(tensor.shape, tensor.stride(), strict=True) if step) * tensor.itemsize


def strided(memory: torch.Tensor, dtype: torch.dtype, shape: Sequence[int], stride: Sequence[int] = ()) -> torch.Tensor:
    """A tensor of its own, no view, of memory that another has; without ``stride`` contiguous."""
    made = torch.empty(0, dtype=dtype, device=memory.device)
    steps = tuple(stride) or _contiguous(tuple(shape))
    return made.set_(memory.untyped_storage(), memory.storage_offset(), torch.Size(shape), steps)


def memory_order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The axes as they lie in memory, the outermost first; empty: row-major. None: it is not dense."""
    return () if tensor.is_contiguous() else dense_order(tuple(tensor.shape), tensor.stride())


@functools.lru_cache(maxsize=1 << 12)
def dense_order(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...] | None:
    """As ``memory_order``, of a tensor of that shape and those strides."""
    order, step = memory_order_of(shape, stride), 1
    for axis in reversed(order or range(len(shape))):
        if shape[axis] != 1 and stride[axis] != step:
            return None
        step *= shape[axis]
    return order


def lies_as(tensor: torch.Tensor, array: Array) -> bool:
    """Whether the tensor's elements lie as those of an array of its shape do, one after the other."""
    if not array._memory_order:
        return tensor.is_contiguous()
    if tensor.stride() == _steps(array.shape, array._memory_order):
        return True
    return memory_order(tensor) == dense_order(array.shape, _steps(array.shape, array._memory_order))


@functools.lru_cache(maxsize=1 << 12)
def _steps(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of dense memory in that order."""
    steps, step = [1] * len(shape), 1
    for axis in reversed(order or range(len(shape))):
        steps[axis] = step
        step *= max(1, shape[axis])
    return tuple(steps)


@functools.lru_cache(maxsize=1 << 12)
def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(torch.empty(shape, device="meta").stride())


def _restrided(dense: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """The same memory with strides that mean the same: those of axes of one element say nothing, but PyTorch tells by
    them how a tensor lies."""
    return strided(dense, dense.dtype, dense.shape, stride)


def with_stride(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor | None:
    """The tensor with such strides, in its memory; None: its elements do not lie so."""
    if tensor.stride() == stride or tensor.numel() <= 1:
        return tensor
    order = memory_order(tensor)
    if order is None or order != dense_order(tuple(tensor.shape), stride):
        return None
    return _restrided(tensor, stride)


def take_over(target: torch.Tensor, source: torch.Tensor, is_arrays: bool) -> bool:
    """Gives ``target`` the values of ``source``, which nobody else has, by its memory; False: somebody else has that of
    ``target``, which is as it was. ``is_arrays``: that is an array's."""
    storage = target.untyped_storage()
    order = memory_order(target)
    is_whole = order is not None and storage.nbytes() == target.nbytes
    # Not NumPy's, nor another process's; PyTorch says of all memory of GPUs that it is shared.
    is_torchs = storage.resizable() and (target.is_cuda or not storage.is_shared())
    is_alone = torch._C._storage_Use_Count(storage._cdata) <= 2  # The tensor, and the object that asks.
    is_same = target.device == source.device and target.dtype == source.dtype and memory_order(source) == order
    if not (is_whole and is_alone and is_same and (is_torchs or is_arrays)):
        return False
    target.data = source if source.stride() == target.stride() else _restrided(source, target.stride())
    if not target.is_inference():
        torch.autograd.graph.increment_version(target)
    return True
