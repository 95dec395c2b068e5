"""Which part of an array each device holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .location import invalid
from .mesh import DeviceMesh, as_parallel_type


class Sharding:
    """On which devices an array lies, and how they split it.

    ``axes`` maps an axis of the array to the mesh dimension that splits it into equal blocks: ``{0: "mesh_x"}``, or
    ``{0: ("mesh_y", "mesh_x")}``, the outer one first. A mesh dimension that is not named holds copies.
    """

    def __init__(self, mesh: DeviceMesh | Any, axes: Mapping[int, Any] | None = None) -> None:
        self.mesh = mesh if isinstance(mesh, DeviceMesh) else DeviceMesh(mesh)
        self._axis_of: dict[str, int] = {}
        for axis, given in (axes or {}).items():
            several = isinstance(given, Sequence) and not isinstance(given, str)
            names = [as_parallel_type(name).value for name in (given if several else (given,))]
            for name in names:
                if name not in self.mesh.dimensions:
                    have = ", ".join(self.mesh.dimensions)
                    raise invalid(f"axis {axis} is split over {name}; {self.mesh!r} has {have}")
                if name in self._axis_of:
                    raise invalid(f"{name} splits axis {self._axis_of[name]} and axis {axis}")
                self._axis_of[name] = int(axis)
            if names != [name for name in self.mesh.dimensions if name in names]:
                given_order = ", ".join(names)
                raise invalid(
                    f"axis {axis} is split over {given_order}; the outer one is first: mesh_z, mesh_y, mesh_x"
                )

    @property
    def axes(self) -> dict[int, str | tuple[str, ...]]:
        by_axis: dict[int, tuple[str, ...]] = {}
        for name in self.mesh.dimensions:
            if name in self._axis_of:
                axis = self._axis_of[name]
                by_axis[axis] = (*by_axis.get(axis, ()), name)
        return {axis: names if len(names) > 1 else names[0] for axis, names in sorted(by_axis.items())}

    def axis_of(self, dimension: str) -> int | None:
        """The axis that a mesh dimension splits, or None where it holds copies."""
        return self._axis_of.get(dimension)

    def global_shape(self, local: tuple[int, ...]) -> tuple[int, ...]:
        shape = list(local)
        for name, axis in self._axis_of.items():
            if not -len(local) <= axis < len(local):
                raise invalid(f"axis {axis} is split over {name}, but the array has {len(local)} axes")
            shape[axis] *= self.mesh.shape[self.mesh.dimensions.index(name)]
        return tuple(shape)

    def block(self, position: int, local: tuple[int, ...]) -> tuple[slice, ...]:
        """What the device at ``position`` of the mesh (row-major) holds, when each holds a block of shape ``local``."""
        coordinates = np.unravel_index(position, self.mesh.shape)
        index = [0] * len(local)
        for name, size, at in zip(self.mesh.dimensions, self.mesh.shape, coordinates, strict=True):
            axis = self._axis_of.get(name)
            if axis is not None:
                index[axis] = index[axis] * size + int(at)
        return tuple(slice(i * n, (i + 1) * n) for i, n in zip(index, local, strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sharding) and (self.mesh, self._axis_of) == (other.mesh, other._axis_of)

    def __hash__(self) -> int:
        return hash((self.mesh, frozenset(self._axis_of.items())))

    def __repr__(self) -> str:
        return f"Sharding({self.mesh!r}, {self.axes})"


def assemble(shards: Sequence[np.ndarray[Any, Any]], sharding: Sharding) -> np.ndarray[Any, Any]:
    """The global array whose blocks, in mesh order, are ``shards``. Of copies the last one is taken."""
    if len(shards) != sharding.mesh.size:
        raise invalid(f"{len(shards)} shards for {sharding.mesh!r}, which has {sharding.mesh.size} devices")
    first = shards[0]
    out = np.empty(sharding.global_shape(first.shape), first.dtype)
    for position, shard in enumerate(shards):
        if (shard.shape, shard.dtype) != (first.shape, first.dtype):
            one, other = f"{first.dtype}{list(first.shape)}", f"{shard.dtype}{list(shard.shape)}"
            raise invalid(f"shard 0 is {one}, shard {position} is {other}; shards are alike")
        out[sharding.block(position, first.shape)] = shard
    return out
