"""JAX's words for how arrays lie on devices, as Shardings of hostir."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from ..location import invalid
from ..mesh import DeviceMesh
from ..sharding import Sharding

_SPECS = (Sharding, NamedSharding, PartitionSpec)


def device_mesh(mesh: Any) -> DeviceMesh | None:
    """A mesh of JAX as one of hostir: an abstract one is made of the first devices, in order."""
    if mesh is None or isinstance(mesh, DeviceMesh):
        return mesh
    if isinstance(mesh, AbstractMesh):
        shape = tuple(mesh.axis_sizes)
        return DeviceMesh(np.arange(int(np.prod(shape))).reshape(shape), names=tuple(map(str, mesh.axis_names)))
    if isinstance(mesh, Mesh):
        numbers = np.vectorize(lambda device: device.id, otypes=[np.int64])(mesh.devices)
        return DeviceMesh(numbers, names=tuple(map(str, mesh.axis_names)))
    raise invalid(f"mesh={mesh!r}: it is a hostir.DeviceMesh, or an AbstractMesh or Mesh of jax.sharding")


def tracing_on(mesh: DeviceMesh | None) -> contextlib.AbstractContextManager[Any]:
    """While a function is traced: its PartitionSpecs are of the mesh. JAX before 0.7 has no way to say so without
    devices of its own; there a NamedSharding of an AbstractMesh names it."""
    told = getattr(jax.sharding, "use_abstract_mesh", None)
    if mesh is None or told is None:
        return contextlib.nullcontext()
    auto = (jax.sharding.AxisType.Auto,) * len(mesh.shape)  # From 0.11 on JAX's default has types say shardings.
    context: contextlib.AbstractContextManager[Any] = told(AbstractMesh(mesh.shape, mesh.names, axis_types=auto))
    return context


def sharding_of(given: Any, mesh: DeviceMesh | None, rank: int, what: str) -> Sharding | None:
    """``given`` (a Sharding, NamedSharding, PartitionSpec or None) of an array of ``rank`` axes, which ``what`` names.
    ``mesh``: that of a PartitionSpec, and where it has the shape and names of another mesh that one's devices."""
    if given is None or isinstance(given, Sharding):
        return given
    spec = given
    if isinstance(given, NamedSharding):
        own, spec = device_mesh(given.mesh), given.spec
        assert own is not None
        if mesh is None or (own.shape, own.names) != (mesh.shape, mesh.names):
            mesh = own
    if not isinstance(spec, PartitionSpec):
        raise invalid(f"{what}: {given!r} is no sharding; it is a PartitionSpec, NamedSharding or hostir.Sharding")
    if mesh is None:
        raise invalid(f"{what}: {spec} needs a mesh: hostir.jax.jit(f, mesh=hostir.DeviceMesh([0, 1], names=('x',)))")
    if len(spec) > rank:
        raise invalid(f"{what}: {spec} has {len(spec)} entries, the array {rank} axes")
    axes: dict[int, tuple[str, ...]] = {}
    for axis, entry in enumerate(spec):
        if entry is PartitionSpec.UNCONSTRAINED:
            raise invalid(f"{what}: {spec} leaves axis {axis} open; say None, or how it is split")
        names = (entry,) if isinstance(entry, str) else tuple(entry or ())
        if names:
            axes[axis] = names
    return Sharding(mesh, axes)


def broadcast(prefix: Any, tree: Any, what: str) -> list[Any]:
    """For each leaf of ``tree`` (a structure) the sharding that ``prefix``, of whose leaves each stands for a subtree,
    has for it."""
    full = jax.tree_util.tree_unflatten(tree, [0] * tree.num_leaves)
    found: list[Any] = []

    def spread(given: Any, below: Any) -> None:
        found.extend([given] * jax.tree_util.tree_structure(below).num_leaves)

    try:
        jax.tree_util.tree_map(spread, prefix, full, is_leaf=_is_leaf)
    except ValueError as error:
        raise invalid(f"{what} is not nested as what it is for: {error}") from None
    return found


def _is_leaf(value: Any) -> bool:
    return value is None or isinstance(value, _SPECS)


def first_mesh(shardings: Sequence[Sharding | None]) -> DeviceMesh | None:
    return next((sharding.mesh for sharding in shardings if sharding is not None), None)
