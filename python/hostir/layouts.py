"""How a tensor lies on devices: its mesh, and what runs along the axes of its loop domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .location import caller_location, invalid
from .mesh import DeviceMesh, ParallelType, as_parallel_type
from .numbers import as_axis
from .record import AnnotationRecord
from .sharding import Sharding
from .value import Value


def stride_order_of(memory_order: Sequence[int]) -> tuple[int, ...]:
    """For each axis how many strides are smaller, of axes that lie in that order, the outermost first."""
    return tuple(len(memory_order) - 1 - memory_order.index(axis) for axis in range(len(memory_order)))


def memory_order_of(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The axes by their strides, the largest first; empty where they are in order, but for those that have one element
    in memory."""
    lie = [axis for axis, (n, stride) in enumerate(zip(shape, strides, strict=True)) if n != 1 and stride != 0]
    by_stride = sorted(lie, key=lambda axis: -abs(strides[axis]))
    return () if by_stride == lie else (*(axis for axis in range(len(shape)) if axis not in lie), *by_stride)


class LoopAxis:
    """An axis of a tensor's loop domain, by number; see Tensor.axis."""

    def __init__(self, tensor: TensorLayout, index: int) -> None:
        self._tensor = tensor
        self._index = index

    def parallelize(self, parallel_type: ParallelType | str) -> None:
        """Lets this axis run over a dimension of the tensor's mesh, or over streams.

        On ``stream`` the tensor is computed chunk by chunk, in a loop on the host whose iterations are on streams in
        turn; no mesh is needed. Tensors whose stream axes map onto each other share one loop; one without stays
        outside.

        >>> y = x * 2
        >>> y.outer_split(0, 4)  # [i0, 3] becomes [4, i0 / 4, 3].
        >>> y.axis(0).parallelize(ParallelType.stream)  # Four chunks of rows.
        """
        kind = as_parallel_type(parallel_type, self._tensor._mesh())
        self._tensor._annotate("parallelize", axis=self._index, parallel_type=kind.value)


class TensorLayout(Value):
    """Layout calls number the axes of the current loop domain: first the tensor's own axes, those just reduced
    included, then as the splits and merges so far left them. Negative numbers count from the end. The mesh comes before
    what is parallel on it. They may follow any operation that uses the tensor; the service checks them, when the
    program is first explained or run.
    """

    def set_device_mesh(self, mesh: DeviceMesh | Any) -> None:
        """Says which devices hold the tensor: a DeviceMesh, or device numbers in one to three nested lists. Without a
        parallel axis each holds all of it: ``x.set_device_mesh([0, 1])``. Raises InvalidArgument for what is no mesh.
        """
        self._annotate("mesh", mesh=mesh if isinstance(mesh, DeviceMesh) else DeviceMesh(mesh))

    def axis(self, index: int) -> LoopAxis:
        """Axis ``index`` of the loop domain as it is now, to run over a mesh dimension.

        >>> x.set_device_mesh([0, 1])
        >>> x.outer_split(0, 2)  # [i0, 3] becomes [2, i0 / 2, 3].
        >>> x.axis(0).parallelize("mesh_x")  # Blocks of rows, as x.shard([0, 1], {0: "mesh_x"}) makes.
        """
        return LoopAxis(self, as_axis("axis", index))

    def split(self, axis: int, factor: int, inner_split: bool = True) -> None:
        """Splits an axis in two: ``inner_split``, or with ``inner_split=False`` an ``outer_split``.

        >>> x.set_device_mesh([0, 1])
        >>> x.split(0, 2, inner_split=False)  # [i0, 3] becomes [2, i0 / 2, 3].
        """
        kind = "inner_split" if inner_split else "outer_split"
        self._annotate(kind, axis=as_axis(kind, axis), factor=as_axis(kind, factor))

    def outer_split(self, axis: int, factor: int) -> None:
        """Axis i becomes i with extent ``factor`` and i + 1 with the rest. Parallel, the outer one is blocks:
        ceil-sized, the last ones short or empty.

        >>> x.set_device_mesh([0, 1])
        >>> x.outer_split(0, 2)  # [i0, 3] becomes [2, i0 / 2, 3].
        >>> x.axis(0).parallelize("mesh_x")
        """
        self.split(axis, factor, inner_split=False)

    def inner_split(self, axis: int, factor: int) -> None:
        """Axis i becomes i with the rest and i + 1 with extent ``factor``. Parallel, the inner one deals elements in
        whole turns: device k of d holds k, k + d, k + 2d, ...

        >>> x.set_device_mesh([0, 1])
        >>> x.inner_split(0, 2)  # [i0, 3] becomes [i0 / 2, 2, 3].
        >>> x.axis(1).parallelize("mesh_x")  # Device 1 holds rows 1, 3, 5, ...
        """
        self.split(axis, factor, inner_split=True)

    def merge(self, axis: int) -> None:
        """Axes i and i + 1 become axis i, which may be parallel on ``stream``, but on no mesh dimension.

        >>> y = x * 2
        >>> y.merge(0)  # [i0, 3] becomes [3 i0].
        >>> y.axis(0).parallelize("stream")  # Element by element.
        """
        self._annotate("merge", axis=as_axis("merge", axis))

    def shard(self, mesh: DeviceMesh | Any, axes: Mapping[int, Any]) -> None:
        """Splits value axes over mesh dimensions: ``x.shard([0, 1], {0: "mesh_x"})``, or by the mesh's own names.

        Value axes are those that operations see: reduced ones do not count. An axis over two dimensions, the outer one
        first: ``{0: ("mesh_y", "mesh_x")}``. Blocks are ceil-sized: of 10 rows over 4 devices 3, 3, 3 and 1.
        """
        mesh = mesh if isinstance(mesh, DeviceMesh) else DeviceMesh(mesh)
        self.set_device_mesh(mesh)
        if not isinstance(axes, Mapping):
            raise invalid(f"shard: {axes!r} does not map axes to mesh dimensions")
        for axis, given in axes.items():
            several = isinstance(given, Sequence) and not isinstance(given, str)
            for parallel_type in given if several else (given,):
                kind = as_parallel_type(parallel_type, mesh).value
                self._annotate("shard", axis=as_axis("shard", axis), parallel_type=kind)

    def lay_out(self, sharding: Sharding) -> None:
        """Laid out as a Sharding says, that of an array, say: ``x.lay_out(Sharding([0, 1], {0: "mesh_x"}))``."""
        blocks = {axis: names for axis, names in sharding.axes.items() if axis not in sharding.dealt}
        for axis in reversed(sharding.dealt):  # From the last on, so that the numbers of the others hold.
            self.set_device_mesh(sharding.mesh)
            name = str(sharding.axes[axis])
            self.inner_split(axis, sharding.mesh.shape[sharding.mesh.names.index(name)])
            self.axis(axis + 1).parallelize(name)
        self.shard(sharding.mesh, blocks)

    def _mesh(self) -> DeviceMesh | None:
        """As set_device_mesh set it."""
        records = self._definition._record.annotations.get(self._name, ())
        return next((record.mesh for record in records if record.mesh is not None), None)

    def _annotate(self, kind: str, **fields: Any) -> None:
        self._definition._check_open()
        record = AnnotationRecord(kind=kind, location=caller_location(), **fields)
        self._definition._record.annotations.setdefault(self._name, []).append(record)
