"""Which part of an array each device holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from .location import invalid
from .mesh import DeviceMesh, as_parallel_type


def elements(start: int, extent: int, step: int) -> slice:
    """The ``extent`` elements start, start + step, ..."""
    return slice(start, start + extent) if step == 1 else slice(start, start + extent * step, step)


class Sharding:
    """On which devices an array lies, and how they split it.

    ``axes`` maps an axis of the array to the mesh dimension that splits it into blocks: ``{0: "mesh_x"}``, or
    ``{0: ("mesh_y", "mesh_x")}``, the outer one first, by the mesh's own names where it has some. A mesh dimension that
    is not mentioned holds copies.
    The elements of axes in ``dealt`` are dealt in turns instead: device k of d holds k, k + d, k + 2d, ... Raises
    InvalidArgument for what is no mesh, and for dimensions that the mesh lacks, that split two axes or that come in
    another order. Shardings are compared by value, whatever their meshes' dimensions are called.

    >>> x_dev = client.put(x, sharding=Sharding([0, 1], {0: "mesh_x"}))  # A row each.
    >>> x_dev.sharding  # Sharding(DeviceMesh([0, 1]), {0: 'mesh_x'})
    """

    def __init__(
        self, mesh: DeviceMesh | Any, axes: Mapping[int, Any] | None = None, dealt: Collection[int] = ()
    ) -> None:
        self.mesh = mesh if isinstance(mesh, DeviceMesh) else DeviceMesh(mesh)
        self._axis_of: dict[str, int] = {}
        for axis, given in (axes or {}).items():
            several = isinstance(given, Sequence) and not isinstance(given, str)
            names = [as_parallel_type(name, self.mesh).value for name in (given if several else (given,))]
            for name in names:
                if name not in self.mesh.dimensions:
                    have = ", ".join(self.mesh.names)
                    raise invalid(f"axis {axis} is split over {name}; {self.mesh!r} has {have}")
                if name in self._axis_of:
                    raise invalid(f"{name} splits axis {self._axis_of[name]} and axis {axis}")
                self._axis_of[name] = int(axis)
            if names != [name for name in self.mesh.dimensions if name in names]:
                given_order = ", ".join(names)
                raise invalid(
                    f"axis {axis} is split over {given_order}; the outer one is first: mesh_z, mesh_y, mesh_x"
                )
        self._dealt = frozenset(int(axis) for axis in dealt)
        for axis in self._dealt:
            dimensions = sum(split == axis for split in self._axis_of.values())
            if axis < 0:
                raise invalid(f"axis {axis} is dealt; axes that are count from the front")
            if dimensions != 1:
                raise invalid(f"axis {axis} is dealt over {dimensions} mesh dimensions; it is dealt over one")

    @property
    def axes(self) -> dict[int, str | tuple[str, ...]]:
        """The mesh dimension that splits each axis, as the mesh calls it, or several, the outer one first; axes that
        are whole are left out: ``Sharding([0, 1], {1: "mesh_x"}).axes  # {1: 'mesh_x'}``."""
        by_axis: dict[int, tuple[str, ...]] = {}
        for name, dimension in zip(self.mesh.names, self.mesh.dimensions, strict=True):
            if dimension in self._axis_of:
                axis = self._axis_of[dimension]
                by_axis[axis] = (*by_axis.get(axis, ()), name)
        return {axis: names if len(names) > 1 else names[0] for axis, names in sorted(by_axis.items())}

    @property
    def dealt(self) -> tuple[int, ...]:
        """The axes whose elements are dealt in turns: ``Sharding([0, 1], {0: "mesh_x"}, dealt=[0]).dealt  # (0,)``."""
        return tuple(sorted(self._dealt))

    def axis_of(self, dimension: str, rank: int) -> int | None:
        """The axis of an array of ``rank`` axes that a mesh dimension splits, counted from the front, or None where the
        dimension holds copies. Raises InvalidArgument where the array has no such axis.

        >>> Sharding([0, 1], {-1: "mesh_x"}).axis_of("mesh_x", rank=3)  # 2
        """
        return self._value_axis(dimension, rank) if dimension in self._axis_of else None

    def block(self, position: int, shape: tuple[int, ...]) -> tuple[slice, ...]:
        """What the device at ``position`` of the mesh (row-major) holds of an array of ``shape``.

        Blocks are ceil-sized: 10 rows over 4 devices are 3, 3, 3 and 1. Of a dealt axis it is a slice with a step.
        Raises InvalidArgument for a shape without the axes that are split, or with a dealt one not in whole turns.

        >>> Sharding([0, 1], {0: "mesh_x"}).block(1, (10, 3))  # (slice(5, 10, None), slice(0, 3, None))
        """
        at, step = [0] * len(shape), [1] * len(shape)
        block, end = list(shape), list(shape)
        coordinates = np.unravel_index(position, self.mesh.shape)
        for name, size, coordinate in zip(self.mesh.dimensions, self.mesh.shape, coordinates, strict=True):
            if name not in self._axis_of:
                continue
            axis = self._value_axis(name, len(shape))
            if self._axis_of[name] in self._dealt:
                if shape[axis] % size:
                    raise invalid(f"axis {axis} of {shape[axis]} elements is dealt {size} ways, in whole turns")
                at[axis], step[axis] = int(coordinate), size
                end[axis] = at[axis] + shape[axis] // size
                continue
            block[axis] = -(-block[axis] // size)
            at[axis] = min(at[axis] + int(coordinate) * block[axis], end[axis])
            end[axis] = min(at[axis] + block[axis], end[axis])
        return tuple(elements(start, stop - start, every) for start, stop, every in zip(at, end, step, strict=True))

    def _value_axis(self, name: str, rank: int) -> int:
        """The axis that mesh dimension ``name`` splits, counted from the front."""
        axis = self._axis_of[name]
        if not -rank <= axis < rank:
            raise invalid(f"axis {axis} is split over {name}, but the array has {rank} axes")
        return axis % rank

    def _global_shape(self, locals_: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """The shape of the array whose blocks, in mesh order, have those shapes."""
        shape = list(locals_[0])
        splits = {name: self._value_axis(name, len(shape)) for name in self._axis_of}
        for axis in set(splits.values()):
            others = [i for i, name in enumerate(self.mesh.dimensions) if splits.get(name) != axis]
            coordinates = [np.unravel_index(position, self.mesh.shape) for position in range(self.mesh.size)]
            line = [local for local, at in zip(locals_, coordinates, strict=True) if not any(at[i] for i in others)]
            shape[axis] = sum(local[axis] if axis < len(local) else 0 for local in line)
        return tuple(shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sharding) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[DeviceMesh, frozenset[tuple[str, int]], frozenset[int]]:
        return self.mesh, frozenset(self._axis_of.items()), self._dealt

    def __repr__(self) -> str:
        dealt = f", dealt={self.dealt}" if self._dealt else ""
        return f"Sharding({self.mesh!r}, {self.axes}{dealt})"


def assemble(shards: Sequence[np.ndarray[Any, Any]], sharding: Sharding) -> np.ndarray[Any, Any]:
    """The global array whose parts, in mesh order, are ``shards``. Of copies the last one is taken."""
    if len(shards) != sharding.mesh.size:
        raise invalid(f"{len(shards)} shards for {sharding.mesh!r}, which has {sharding.mesh.size} devices")
    shape = sharding._global_shape([shard.shape for shard in shards])
    out = np.empty(shape, shards[0].dtype)
    for position, shard in enumerate(shards):
        part = out[sharding.block(position, shape)]
        if (shard.shape, shard.dtype) != (part.shape, part.dtype):
            is_, wanted = (f"{x.dtype}{list(x.shape)}" for x in (shard, part))
            raise invalid(f"shard {position} is {is_}; of {out.dtype}{list(shape)} it is {wanted}")
        part[...] = shard
    return out
