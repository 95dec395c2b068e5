"""The CUDA driver, by ctypes: memory of GPUs that another process can map, and copies."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator
from typing import Any

from .errors import FailedPrecondition, ResourceExhausted
from .location import located

PITCH_MAX = (1 << 31) - 1  # Bytes from one row of a copy to the next.
_SUCCESS, _OUT_OF_MEMORY = 0, 2
_PINNED, _DESCRIPTOR, _ON_DEVICE, _READ_AND_WRITE, _RECOMMENDED = 1, 1, 1, 3, 1  # CUmemAllocationProp and its like.
_SHARES_BY_DESCRIPTOR = 103  # CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
_HOST, _DEVICE = 1, 2  # CUmemorytype

_Address = ctypes.c_uint64


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_uint8 * 8),
    ]


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


class _Side(ctypes.Structure):
    _fields_ = [
        ("x", ctypes.c_size_t),
        ("y", ctypes.c_size_t),
        ("type", ctypes.c_uint),
        ("host", ctypes.c_void_p),
        ("device", _Address),
        ("array", ctypes.c_void_p),
        ("pitch", ctypes.c_size_t),
    ]


class _Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = [("source", _Side), ("target", _Side), ("width", ctypes.c_size_t), ("height", ctypes.c_size_t)]


class Memory:
    """Memory of a GPU, with a descriptor by which another process maps it, and this process's address of it."""

    def __init__(self, driver: Any, ordinal: int, address: int, rounded: int, descriptor: int) -> None:
        self._driver = driver
        self.ordinal = ordinal
        self.address = address
        self._rounded = rounded
        self.descriptor = descriptor

    def close_descriptor(self) -> None:
        """Whoever has mapped it keeps the memory."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def free(self) -> None:
        """Once. Waits for what the GPU has to do in this process, which may use it."""
        self.close_descriptor()
        self._driver._unmap(self)


class Driver:
    """What a process does with GPUs here. Threads: any may call."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._check("cuInit", 0)
        count = ctypes.c_int()
        self._check("cuDeviceGetCount", ctypes.byref(count))
        self._contexts: dict[int, ctypes.c_void_p] = {}
        # By number: 16 bytes that are the same in every process of the machine.
        self.uuids = [self._uuid(ordinal) for ordinal in range(count.value)]

    def ordinal_of(self, uuid: bytes) -> int | None:
        """Which GPU of this process that is; None: it sees it not."""
        return self.uuids.index(uuid) if uuid in self.uuids else None

    def allocate(self, ordinal: int, nbytes: int) -> Memory:
        """Memory of at least one byte. Raises ResourceExhausted; FailedPrecondition where the driver exports none."""
        with self._context(ordinal) as device:
            supported = ctypes.c_int()
            self._check("cuDeviceGetAttribute", ctypes.byref(supported), _SHARES_BY_DESCRIPTOR, device)
            if not supported.value:
                raise FailedPrecondition(located(f"the driver of GPU {ordinal} exports no memory by descriptor"))
            properties = _Properties(_PINNED, _DESCRIPTOR, _Location(_ON_DEVICE, ordinal))
            grain = ctypes.c_size_t()
            self._check("cuMemGetAllocationGranularity", ctypes.byref(grain), ctypes.byref(properties), _RECOMMENDED)
            rounded = -(-nbytes // grain.value) * grain.value
            handle = ctypes.c_uint64()
            if self._call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(rounded), ctypes.byref(properties), 0):
                raise ResourceExhausted(located(f"GPU {ordinal} has no {rounded} bytes of memory left"))
            address = _Address()
            try:
                self._check(
                    "cuMemAddressReserve",
                    ctypes.byref(address),
                    ctypes.c_size_t(rounded),
                    ctypes.c_size_t(0),
                    _Address(0),
                    0,
                )
                self._check("cuMemMap", address, ctypes.c_size_t(rounded), ctypes.c_size_t(0), handle, 0)
                access = _Access(_Location(_ON_DEVICE, ordinal), _READ_AND_WRITE)
                self._check(
                    "cuMemSetAccess", address, ctypes.c_size_t(rounded), ctypes.byref(access), ctypes.c_size_t(1)
                )
                descriptor = ctypes.c_int(-1)
                self._check("cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, _DESCRIPTOR, 0)
            except BaseException:
                if address.value:
                    self._call("cuMemUnmap", address, ctypes.c_size_t(rounded))
                    self._call("cuMemAddressFree", address, ctypes.c_size_t(rounded))
                raise
            finally:
                self._call("cuMemRelease", handle)  # The mapping and the descriptor keep the memory.
            return Memory(self, ordinal, int(address.value), rounded, descriptor.value)

    def _unmap(self, memory: Memory) -> None:
        with self._context(memory.ordinal):
            self._call("cuCtxSynchronize")
            self._call("cuMemUnmap", _Address(memory.address), ctypes.c_size_t(memory._rounded))
            self._call("cuMemAddressFree", _Address(memory.address), ctypes.c_size_t(memory._rounded))

    def synchronize(self, ordinal: int) -> None:
        """Waits for all that the GPU has to do in this process."""
        with self._context(ordinal):
            self._check("cuCtxSynchronize")

    @contextlib.contextmanager
    def copying(self, ordinal: int) -> Iterator[None]:
        """Copies of one GPU, behind what the default stream has to do; they are done when it ends."""
        with self._context(ordinal):
            yield
            self._check("cuStreamSynchronize", None)

    def copy(
        self,
        target: int,
        source: int,
        width: int,
        height: int = 1,
        target_pitch: int = 0,
        source_pitch: int = 0,
        host: str = "",
    ) -> None:
        """``height`` rows of ``width`` bytes; ``host``: which side is an address of the host's: "target", "source"."""
        if height == 1:
            way = {"target": "DtoH", "source": "HtoD", "": "DtoD"}[host]
            addresses = (
                ctypes.c_void_p(target) if host == "target" else _Address(target),
                ctypes.c_void_p(source) if host == "source" else _Address(source),
            )
            self._check(f"cuMemcpy{way}Async_v2", *addresses, ctypes.c_size_t(width), None)
            return
        copy = _Copy2D(width=width, height=height)
        for side, address, pitch, name in (
            (copy.target, target, target_pitch, "target"),
            (copy.source, source, source_pitch, "source"),
        ):
            side.type = _HOST if host == name else _DEVICE
            side.host, side.device = (address, 0) if host == name else (None, address)
            side.pitch = pitch
        self._check("cuMemcpy2DAsync_v2", ctypes.byref(copy), None)

    def _uuid(self, ordinal: int) -> bytes:
        uuid = (ctypes.c_uint8 * 16)()
        self._check("cuDeviceGetUuid", ctypes.byref(uuid), ctypes.c_int(ordinal))
        return bytes(uuid)

    @contextlib.contextmanager
    def _context(self, ordinal: int) -> Iterator[ctypes.c_int]:
        """The one of the GPU that PyTorch and JAX use, too, is this thread's meanwhile."""
        device = ctypes.c_int()
        self._check("cuDeviceGet", ctypes.byref(device), ordinal)
        if ordinal not in self._contexts:
            context = ctypes.c_void_p()
            self._check("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self._contexts[ordinal] = context
        self._check("cuCtxPushCurrent_v2", self._contexts[ordinal])
        try:
            yield device
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def _call(self, name: str, *arguments: Any) -> int:
        return int(getattr(self._library, name)(*arguments))

    def _check(self, name: str, *arguments: Any) -> None:
        result = self._call(name, *arguments)
        if result == _SUCCESS:
            return
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(result, ctypes.byref(text))
        said = (text.value or b"").decode()
        kind = ResourceExhausted if result == _OUT_OF_MEMORY else FailedPrecondition
        raise kind(located(f"{name}: {said or 'error'} ({result})"))


@functools.cache
def driver() -> Driver | None:
    """None where this process has no GPU."""
    try:
        return Driver(ctypes.CDLL("libcuda.so.1"))
    except (OSError, FailedPrecondition, ResourceExhausted):
        return None
