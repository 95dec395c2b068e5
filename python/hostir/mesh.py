"""Device meshes and what runs along an axis."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np


class ParallelType(enum.Enum):
    """What one axis of a loop domain runs over: a dimension of the device mesh, or streams."""

    serial = "serial"
    mesh_x = "mesh_x"  # the last dimension of the mesh
    mesh_y = "mesh_y"
    mesh_z = "mesh_z"
    stream = "stream"


def as_parallel_type(value: ParallelType | str) -> ParallelType:
    if isinstance(value, ParallelType):
        return value
    try:
        return ParallelType(value)
    except ValueError:
        names = ", ".join(t.value for t in ParallelType)
        raise ValueError(f"no parallel type {value!r}; there are {names}") from None


class DeviceMesh:
    """Devices of the daemon, by number, in a grid of one to three dimensions.

    The order of the devices is the order of the shards. The last dimension is ``mesh_x``, the one before it ``mesh_y``,
    then ``mesh_z``. Meshes with equal devices and shape are the same mesh.
    """

    def __init__(self, devices: Sequence | np.ndarray) -> None:
        array = np.asarray(devices)
        if array.ndim < 1 or array.ndim > 3:
            raise ValueError(f"a mesh has 1 to 3 dimensions, {devices!r} has {array.ndim}")
        if array.size == 0 or not np.issubdtype(array.dtype, np.integer):
            raise ValueError(f"a mesh is made of device numbers, not {devices!r}")
        self._shape = tuple(int(n) for n in array.shape)
        self._devices = tuple(int(d) for d in array.reshape(-1))

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def devices(self) -> tuple[int, ...]:
        """In row-major order."""
        return self._devices

    @property
    def size(self) -> int:
        return len(self._devices)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and (self._shape, self._devices) == (other._shape, other._devices)

    def __hash__(self) -> int:
        return hash((self._shape, self._devices))

    def __repr__(self) -> str:
        return f"DeviceMesh({np.reshape(self._devices, self._shape).tolist()})"
