"""GPUs that are the host's memory: what hostir.cuda.Driver does, for ranks that keep memory of their own; and arrays of
another library's on them."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from hostir import ResourceExhausted, dlpack, gpu_array

_SEAL_SHRINK_AND_GROW = 0x2 | 0x4
_ADD_SEALS = 1033
_GRAIN = 1 << 16  # Allocations are a multiple, as on GPUs.


class FakeMemory:
    def __init__(self, driver: FakeDriver, ordinal: int, nbytes: int) -> None:
        self._driver = driver
        self.ordinal = ordinal
        rounded = -(-nbytes // _GRAIN) * _GRAIN
        self.descriptor = os.memfd_create("fake GPU", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.truncate(self.descriptor, rounded)
        if driver.seals:
            fcntl.fcntl(self.descriptor, _ADD_SEALS, _SEAL_SHRINK_AND_GROW)
        self._mapped = mmap.mmap(self.descriptor, rounded)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._mapped))
        np.frombuffer(self._mapped, np.uint8)[:] = 0xA5  # Nobody may take it for zeroed.

    def close_descriptor(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def free(self) -> None:
        self.close_descriptor()
        self._driver.held.remove(self)


class FakeDriver:
    """``held``: the memory that was allocated and not freed; ``waits``: how often somebody waited for a GPU."""

    def __init__(self, gpus: int = 2) -> None:
        self.uuids = [bytes([ordinal]) * 16 for ordinal in range(gpus)]
        self.held: list[FakeMemory] = []
        self.seals = True
        self.is_full = False
        self.waits = 0

    def ordinal_of(self, uuid: bytes) -> int | None:
        return self.uuids.index(uuid) if uuid in self.uuids else None

    def allocate(self, ordinal: int, nbytes: int) -> FakeMemory:
        assert 0 <= ordinal < len(self.uuids) and nbytes > 0
        if self.is_full:
            raise ResourceExhausted(f"GPU {ordinal} has no {nbytes} bytes of memory left")
        self.held.append(FakeMemory(self, ordinal, nbytes))
        return self.held[-1]

    def synchronize(self, ordinal: int) -> None:
        assert 0 <= ordinal < len(self.uuids)
        self.waits += 1

    @contextlib.contextmanager
    def copying(self, ordinal: int) -> Iterator[None]:
        assert 0 <= ordinal < len(self.uuids)
        yield

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
        assert host in ("", "target", "source")
        assert height == 1 or min(target_pitch, source_pitch) >= width > 0
        for row in range(height):
            ctypes.memmove(target + row * target_pitch, source + row * source_pitch, width)


class FakeGpuArray:
    """As PyTorch's or JAX's, in ``values``, which NumPy must not see. ``streams``: that it was asked to be ready on."""

    def __init__(self, values: np.ndarray[Any, Any], ordinal: int = 0) -> None:
        self._values = values
        self._ordinal = ordinal
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return (dlpack.CUDA, self._ordinal)

    def __dlpack__(self, stream: Any = None) -> Any:
        self.streams.append(stream)
        values = self._values
        code, bits = gpu_array.code_of(values.dtype)
        address = values.__array_interface__["data"][0]
        return dlpack.device_capsule(
            address, self.__dlpack_device__(), values.shape, values.strides, code, bits, values
        )


def elements_of(array: Any) -> np.ndarray[Any, Any]:
    """A copy of what a library finds that takes ``array`` by DLPack."""
    view = gpu_array.view_of(_Opaque(array))
    assert view is not None
    return np.array(view.to_numpy())


class _Opaque:
    """Nothing but DLPack is known of it."""

    def __init__(self, array: Any) -> None:
        self.__array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self.__array.__dlpack_device__()
        return int(kind), int(number)

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.__array.__dlpack__(stream=stream)
