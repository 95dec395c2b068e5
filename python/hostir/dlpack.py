"""Arrays in and out: NumPy, the buffer protocol, DLPack. NumPy's DLPack lacks bfloat16, which is done here."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from .errors import HostirError
from .location import invalid

_CPU, _CUDA_HOST = 1, 3  # Device types of DLPack whose memory the host can read.
CUDA = 2  # The one of GPUs.
_BFLOAT = 4  # Type code of DLPack.
REFUSALS = (BufferError, RuntimeError, TypeError, ValueError)  # What producers raise: no two libraries agree.


class _Tensor(ctypes.Structure):
    """DLTensor, the head of what a capsule named "dltensor" holds."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_NAME = b"dltensor"
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(  # No other library's prototype.
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _Lent:
    """Memory that NumPy takes for its own kind, and never looks at."""

    def __init__(self, interface: dict[str, Any], keep: Any) -> None:
        self.__array_interface__ = interface
        self._keep = keep


def device_capsule(
    address: int,
    device: tuple[int, int],
    shape: Sequence[int],
    strides: Sequence[int],
    code: int,
    bits: int,
    keep: Any,
) -> Any:
    """A capsule with elements at an address of a device, which live as long as ``keep``. ``strides``: in bytes."""
    interface = {
        "version": 3,
        "shape": tuple(shape),
        "strides": tuple(strides),
        "typestr": f"<u{bits // 8}" if bits > 8 else "|u1",
        "data": (address, False),
    }
    # NumPy's, since what frees it runs when it likes, an error under way or not, which no function of Python's may.
    capsule = np.asarray(_Lent(interface, keep)).__dlpack__()
    tensor = tensor_of(capsule)
    tensor.device_type, tensor.device_id = device
    tensor.code = code
    return capsule


def tensor_of(capsule: Any) -> _Tensor:
    return _Tensor.from_address(_pointer(capsule, _NAME))


def as_numpy(array: Any) -> np.ndarray[Any, Any]:
    """A host array as NumPy's, without a copy where it can be. It may die with ``array``.

    Of a tensor that requires a gradient (``torch.nn.Parameter``) the values are taken, as ``detach()`` does; an object
    with ``__jax_array__`` is the array that it returns.
    """
    if isinstance(array, np.ndarray):
        return array
    if callable(getattr(array, "__jax_array__", None)):
        return as_numpy(array.__jax_array__())
    if getattr(array, "requires_grad", False) is True and callable(getattr(array, "detach", None)):
        array = array.detach()
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        try:
            return _import(array)
        except HostirError:
            raise
        except REFUSALS as error:
            if not hasattr(array, "__array__"):
                raise invalid(f"the {type(array).__name__} cannot be read: {error}") from error
    try:
        return np.asarray(array)
    except HostirError:
        raise
    except REFUSALS as error:
        raise invalid(f"the {type(array).__name__} cannot be read: {error}") from error


def _import(array: Any) -> np.ndarray[Any, Any]:
    kind = int(array.__dlpack_device__()[0])
    if kind not in (_CPU, _CUDA_HOST):
        raise invalid(f"the {type(array).__name__} is on a device (DLPack type {kind}); copy it to the host first")
    try:
        return np.from_dlpack(array)
    except REFUSALS:
        imported = _import_bfloat16(array)
        if imported is None:
            raise
        return imported


def _import_bfloat16(array: Any) -> np.ndarray[Any, Any] | None:
    """A copy of a bfloat16 array, whose axes of stride 0 stay such; None when it is something else."""
    capsule = array.__dlpack__()  # Not renamed, so its destructor frees what the producer holds.
    tensor = tensor_of(capsule)
    if (tensor.code, tensor.bits, tensor.lanes) != (_BFLOAT, 16, 1):
        return None
    shape = tensor.shape[: tensor.ndim]
    if 0 in shape:
        return np.empty(shape, ml_dtypes.bfloat16)
    packed = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    strides = tensor.strides[: tensor.ndim] if tensor.strides else packed
    first = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
    last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0)
    start = tensor.data + tensor.byte_offset + 2 * first
    memory = (ctypes.c_uint16 * (last - first + 1)).from_address(start)
    flat = np.frombuffer(memory, np.uint16)
    view: np.ndarray[Any, Any] = np.lib.stride_tricks.as_strided(flat[-first:], shape, [2 * s for s in strides])
    stored = view[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strides)]
    return np.broadcast_to(stored.copy().view(ml_dtypes.bfloat16), shape)


def to_capsule(array: np.ndarray[Any, Any], **kwargs: Any) -> Any:
    """What ``__dlpack__`` returns for ``array``; for bfloat16, a capsule of the first version of the protocol, which
    every consumer reads whatever ``max_version`` it knows."""
    is_bfloat16 = array.dtype == ml_dtypes.bfloat16
    if is_bfloat16:
        kwargs.pop("max_version", None)
        array = array.view(np.uint16)
    try:
        capsule = array.__dlpack__(**kwargs)
    except TypeError:  # NumPy 1.26 knows `stream` alone, and host memory alone.
        device = kwargs.get("dl_device")
        if device is not None and tuple(map(int, device)) != (_CPU, 0):
            raise BufferError(f"the array is in host memory, DLPack device {(_CPU, 0)}, not {device}") from None
        capsule = (array.copy() if kwargs.get("copy") else array).__dlpack__(stream=kwargs.get("stream"))
    if is_bfloat16:
        tensor_of(capsule).code = _BFLOAT
    return capsule
