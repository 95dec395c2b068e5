"""Device meshes and what runs along an axis."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from .location import invalid

DIMENSIONS = ("mesh_x", "mesh_y", "mesh_z")  # From the last dimension of a mesh to its first.


class ParallelType(enum.Enum):
    """What one axis of a loop domain runs over: a dimension of the device mesh, or streams. A
    word does as well: ``"mesh_x"``.

    >>> x.set_device_mesh([0, 1])
    >>> x.outer_split(0, 2)
    >>> x.axis(0).parallelize(ParallelType.mesh_x)
    """

    serial = "serial"
    mesh_x = "mesh_x"  # the last dimension of the mesh
    mesh_y = "mesh_y"
    mesh_z = "mesh_z"
    stream = "stream"


def as_parallel_type(value: ParallelType | str, mesh: DeviceMesh | None = None) -> ParallelType:
    """``value`` by its own name, or as ``mesh`` calls its dimensions. Raises InvalidArgument for another word."""
    if isinstance(value, ParallelType):
        return value
    names = mesh.names if mesh is not None else ()
    if mesh is not None and value in names:
        return ParallelType(mesh.dimensions[names.index(value)])
    try:
        return ParallelType(value)
    except ValueError:
        known = dict.fromkeys([*(t.value for t in ParallelType), *names])
        raise invalid(f"{value!r} is no parallel type; there are {', '.join(known)}") from None


class DeviceMesh:
    """Devices of the daemon, by number, in a grid of one to three dimensions.

    The order of the devices is the order of the shards. The last dimension is ``mesh_x``, the one before it
    ``mesh_y``, then ``mesh_z``; ``names``, one a dimension, are other words for these:
    ``DeviceMesh([[0, 1], [2, 3]], names=("dp", "tp"))``. Meshes with equal devices and shape are the same mesh,
    whatever their dimensions are called. Raises InvalidArgument for a list that is none.
    """

    def __init__(self, devices: Any, names: Sequence[str] | None = None) -> None:
        try:
            array = np.asarray(devices)
        except ValueError:
            raise invalid(f"mesh {devices!r}: the nested lists have different lengths") from None
        if array.ndim < 1 or array.ndim > 3:
            raise invalid(f"mesh {devices!r} has {array.ndim} dimensions; it has 1 to 3")
        if array.size == 0 or not np.issubdtype(array.dtype, np.integer):
            raise invalid(f"mesh {devices!r} is not made of device numbers")
        self._shape = tuple(int(n) for n in array.shape)
        self._devices = tuple(int(d) for d in array.reshape(-1))
        seen: set[int] = set()
        for device in self._devices:
            if device < 0:
                raise invalid(f"mesh {array.tolist()} holds device {device}; devices are numbered from 0")
            if device >= 2**31:
                raise invalid(f"mesh {array.tolist()} holds device {device}, which no daemon has")
            if device in seen:
                raise invalid(f"mesh {array.tolist()} holds device {device} twice")
            seen.add(device)
        self._names = self.dimensions if names is None else self._checked(names)

    def _checked(self, names: Sequence[str]) -> tuple[str, ...]:
        given = tuple(names)
        dimensions = len(self._shape)
        if isinstance(names, str) or len(given) != dimensions or len(set(given)) != dimensions:
            raise invalid(f"names={names!r}; a mesh of shape {list(self._shape)} has {dimensions} names, all different")
        for name, dimension in zip(given, self.dimensions, strict=True):
            words = [t.value for t in ParallelType]
            if not isinstance(name, str) or not name.isidentifier() or (name in words and name != dimension):
                raise invalid(f"names={names!r}: {name!r} cannot be one: a word, and none of {', '.join(words)}")
        return given

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of its dimensions, first to last: ``DeviceMesh([[0, 1, 2], [3, 4, 5]]).shape  # (2, 3)``."""
        return self._shape

    @property
    def devices(self) -> tuple[int, ...]:
        """The numbers of its devices, in row-major order: ``DeviceMesh([[3, 2], [1, 0]]).devices  # (3, 2, 1, 0)``."""
        return self._devices

    @property
    def size(self) -> int:
        """How many devices it has: ``DeviceMesh([[0, 1], [2, 3]]).size  # 4``."""
        return len(self._devices)

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The dimensions, first to last, by their own names:
        ``DeviceMesh([[0, 1], [2, 3]]).dimensions  # ('mesh_y', 'mesh_x')``."""
        return DIMENSIONS[: len(self._shape)][::-1]

    @property
    def names(self) -> tuple[str, ...]:
        """What the dimensions are called, first to last: as given, else as ``dimensions``.

        >>> DeviceMesh([[0, 1], [2, 3]], names=("dp", "tp")).names  # ('dp', 'tp')
        """
        return self._names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and (self._shape, self._devices) == (other._shape, other._devices)

    def __hash__(self) -> int:
        return hash((self._shape, self._devices))

    def __repr__(self) -> str:
        names = f", names={self._names!r}" if self._names != self.dimensions else ""
        return f"DeviceMesh({np.reshape(self._devices, self._shape).tolist()}{names})"
