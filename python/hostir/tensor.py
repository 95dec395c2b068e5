"""Tensors of a definition, with what NumPy has as attributes and methods of arrays: methods record operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from . import indexing
from .compose import composed
from .layouts import TensorLayout
from .location import invalid
from .operators import TensorOperators
from .size import Size
from .value import Operand

_Axes = int | Sequence[int] | None


class Tensor(TensorOperators, TensorLayout):
    """A tensor of a definition.

    Its shape and element type are known at once: ``x.shape`` holds a number or a ``Size`` for each axis. Operators,
    ``x[...]`` and NumPy's methods record operations. Their axes are numbered as in NumPy, negative ones from the end;
    ``axis=None`` means all. Layout calls number the axes of its loop domain instead (see TensorLayout). What does not
    fit raises InvalidArgument in its line; a demand on a size that is not known yet is checked by each run. In the
    examples x is [[1, 2, 3], [4, 5, 6]], of float32 and shape [-1, 3]; comments show results.

    >>> y: Tensor = x[:, 1:] * 2
    >>> y.sum(axis=1)  # [10, 22]
    """

    __hash__ = object.__hash__
    __iter__ = None  # Rows are x[0], x[1], ...; their number may not be known.

    @property
    def shape(self) -> tuple[int | Size, ...]:
        """The extents of its axes: numbers, and sizes that each run brings: ``x.shape  # (i0, 3)``. Raises
        Unimplemented where only the service knows them."""
        of = self._known("shape")
        return tuple([Size._of(extent) for _, extent in self._definition._sizes.value_axes(of)])

    @property
    def ndim(self) -> int:
        """How many axes it has: ``x.ndim  # 2``."""
        return len(self._definition._sizes.value_axes(self._known("ndim")))

    @overload
    def size(self) -> tuple[int | Size, ...]: ...
    @overload
    def size(self, axis: int) -> int | Size: ...
    def size(self, axis: int | None = None) -> tuple[int | Size, ...] | int | Size:
        """As PyTorch's: the extent of an axis, or without one the shape. For ``shape=`` arguments:
        ``fd.ops.full([x.size(0), 1], 0.0, x.dtype)``."""
        shape = self.shape
        if axis is None:
            return shape
        if not -len(shape) <= axis < len(shape):
            raise invalid(f"size: axis {axis} of %{self._name}, which has {len(shape)} axes")
        return shape[axis]

    def __len__(self) -> int:
        """The extent of the first axis, where it is a number; TypeError for one that each run brings."""
        shape = self.shape
        if not shape or isinstance(shape[0], str):
            raise TypeError(f"the length of %{self._name} is not known while a program is defined; its shape: {shape}")
        return shape[0]

    def __getitem__(self, key: Any) -> Tensor:
        """``x[0, :8, None, ...]``: integers, host scalars, slices with steps of 1 and more, new axes, and among them
        tensors of integers with one axis, which list indices. Indices that are numbers must be inside; those that are
        data stop at the ends (docs/ops.md)."""
        return indexing.index(self, key)

    @property
    def T(self) -> Tensor:
        """The axes in reverse order: ``x.T  # [[1, 4], [2, 5], [3, 6]]``."""
        return self.transpose()

    @property
    def mT(self) -> Tensor:
        """The last two axes exchanged: ``x[None].mT.shape  # (1, 3, i0)``."""
        return self.swapaxes(-1, -2)

    # --- reductions -------------------------------------------------------------------------------------------------

    def sum(self, axis: _Axes = None, dtype: Any = None, *, keepdims: bool = False) -> Tensor:
        """The sum over ``axis``, one axis or several, which go; with ``keepdims`` they stay, with extent 1. Elements
        are converted to ``dtype`` first; without it integers and bools are added as int64, 16-bit floats in float32.

        >>> x.sum(axis=0)  # [5, 7, 9]
        >>> x.sum(axis=(0, 1))  # 21
        """
        return self._definition.ops.sum(self, axis, keepdims, dtype)

    def prod(self, axis: _Axes = None, dtype: Any = None, *, keepdims: bool = False) -> Tensor:
        """The product over axes, with arguments and types as of ``sum``: ``x.prod(axis=0)  # [4, 10, 18]``."""
        return self._definition.ops.prod(self, axis, keepdims, dtype)

    def max(self, axis: _Axes = None, *, keepdims: bool = False) -> Tensor:
        """The greatest element over axes, with axes as of ``sum``; NaN if any is: ``x.max(axis=1)  # [3, 6]``. An axis
        without elements is refused."""
        return self._definition.ops.max(self, axis, keepdims)

    def min(self, axis: _Axes = None, *, keepdims: bool = False) -> Tensor:
        """The least element over axes, with axes as of ``sum``; NaN if any is: ``x.min()  # 1``. An axis without
        elements is refused."""
        return self._definition.ops.min(self, axis, keepdims)

    def mean(self, axis: _Axes = None, *, keepdims: bool = False) -> Tensor:
        """The mean over axes, with axes as of ``sum``: ``x.mean(axis=1)  # [2, 5]``. A float keeps its type, of
        integers and bools the mean is float32; of nothing it is NaN."""
        return self._definition.ops.mean(self, axis, keepdims)

    def var(self, axis: _Axes = None, *, ddof: int = 0, keepdims: bool = False) -> Tensor:
        """The variance over axes, with axes and types as of ``mean``: of what is there, as NumPy's; ``ddof=1`` is the
        unbiased estimate.

        >>> x.var(axis=0)  # [2.25, 2.25, 2.25]
        >>> x.var(axis=1, ddof=1)  # [1, 1]
        """
        return self._definition.ops.var(self, axis, ddof, keepdims)

    @composed
    def std(self, axis: _Axes = None, *, ddof: int = 0, keepdims: bool = False) -> Tensor:
        """The square root of ``var``: ``x.std(axis=0)  # [1.5, 1.5, 1.5]``."""
        deviation: Tensor = self._definition.ops.sqrt(self.var(axis, ddof=ddof, keepdims=keepdims))
        return deviation

    def any(self, axis: _Axes = None, *, keepdims: bool = False) -> Tensor:
        """Whether an element over axes is not 0, as bools; of nothing it is false:
        ``(x > 3).any(axis=1)  # [False, True]``."""
        return self._definition.ops.any(self, axis, keepdims)

    def all(self, axis: _Axes = None, *, keepdims: bool = False) -> Tensor:
        """Whether no element over axes is 0, as bools; of nothing it is true:
        ``(x > 1).all(axis=0)  # [False, True, True]``."""
        return self._definition.ops.all(self, axis, keepdims)

    # --- shapes -----------------------------------------------------------------------------------------------------

    def reshape(self, *shape: Any) -> Tensor:
        """The elements in row-major order: ``x.reshape(3, -1)`` or ``x.reshape([3, -1])``."""
        return self._definition.ops.reshape(self, _listed(shape))

    def flatten(self) -> Tensor:
        """One axis of all elements, in row-major order: ``x.flatten()  # [1, 2, 3, 4, 5, 6]``."""
        return self.reshape(-1)

    def transpose(self, *axes: Any) -> Tensor:
        """Axis k of the result is axis ``axes[k]``: ``x.transpose(1, 0)``; without axes, in reverse order."""
        order = _listed(axes) if axes and axes != (None,) else list(range(self.ndim))[::-1]
        return self._definition.ops.permute(self, order)

    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        """Two axes exchanged: ``x.swapaxes(0, -1)  # [[1, 4], [2, 5], [3, 6]]``."""
        order = list(range(self.ndim))
        for axis in (axis1, axis2):
            if not -self.ndim <= axis < self.ndim:
                raise invalid(f"swapaxes: axis {axis} of %{self._name}, which has {self.ndim} axes")
        order[axis1], order[axis2] = order[axis2], order[axis1]
        return self._definition.ops.permute(self, order)

    def squeeze(self, axis: _Axes = None) -> Tensor:
        """Without axes of extent 1; with None without all that are known to be 1:
        ``x[:1, None].squeeze()  # [1, 2, 3]``. Raises InvalidArgument for another axis, also for one whose extent each
        run brings."""
        ones = [k for k, extent in enumerate(self.shape) if extent == 1] if axis is None else axis
        return self._definition.ops.squeeze(self, ones)  # type: ignore[arg-type]

    # --- elements ---------------------------------------------------------------------------------------------------

    def astype(self, dtype: Any) -> Tensor:
        """Converted to an element type, as by ``fd.ops.cast``; DataType, NumPy, PyTorch and JAX have names for them:
        ``(x / 2).astype(np.int32)  # [[0, 1, 1], [2, 2, 3]]``."""
        return self._definition.ops.cast(self, dtype)

    def copy(self) -> Tensor:
        """A copy, which may have another layout: ``fd.ops.set``.

        >>> y = x.copy()
        >>> x.shard([0, 1], {0: "mesh_x"})
        >>> y.set_device_mesh([0, 1])  # The copy gathers.
        """
        return self._definition.ops.set(self)

    @composed
    def clip(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """At least ``min``, then at most ``max``; None is no bound. NaN stays:
        ``x.clip(2, 5)  # [[2, 2, 3], [4, 5, 5]]``."""
        at_least = self if min is None else self._definition.ops.maximum(self, min)
        return at_least if max is None else self._definition.ops.minimum(at_least, max)

    def round(self) -> Tensor:
        """The nearest integers, ties to the even one; the type stays: ``(x / 2).round()  # [[0, 1, 2], [2, 2, 3]]``."""
        rounded: Tensor = self._definition.ops.round(self)
        return rounded

    def dot(self, other: Tensor) -> Tensor:
        """The product of matrices, ``x @ other``, as of ``fd.ops.matmul``: ``x.dot(x.T)  # [[14, 32], [32, 77]]``."""
        return self._definition.ops.matmul(self, other)


def _listed(entries: tuple[Any, ...]) -> Any:
    """``f(1, 2)`` and ``f([1, 2])`` alike."""
    return list(entries[0]) if len(entries) == 1 and isinstance(entries[0], (list, tuple)) else list(entries)
