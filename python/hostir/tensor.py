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
    ``axis=None`` means all. Layout calls number the axes of its loop domain instead (see TensorLayout).
    """

    __hash__ = object.__hash__
    __iter__ = None  # Rows are x[0], x[1], ...; their number may not be known.

    @property
    def shape(self) -> tuple[int | Size, ...]:
        """The extents of its axes: numbers, and sizes that each run brings. Raises Unimplemented where only the
        service knows them."""
        of = self._known("shape")
        return tuple([Size.of(extent) for _, extent in self._definition._sizes.value_axes(of)])

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self._definition._sizes.value_axes(self._known("ndim")))

    @overload
    def size(self) -> tuple[int | Size, ...]: ...
    @overload
    def size(self, axis: int) -> int | Size: ...
    def size(self, axis: int | None = None) -> tuple[int | Size, ...] | int | Size:
        """As PyTorch's: the extent of an axis, or without one the shape. For ``shape=`` arguments:
        ``fd.ops.expand(t, [x.size(0), -1])``."""
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
        """The axes in reverse order."""
        return self.transpose()

    @property
    def mT(self) -> Tensor:
        """The last two axes exchanged."""
        return self.swapaxes(-1, -2)

    # --- reductions -------------------------------------------------------------------------------------------------

    def sum(self, axis: _Axes = None, dtype: Any = None, *, keepdims: bool = False) -> Tensor:
        """The sum over axes. Of integers and bools: int64."""
        return self._definition.ops.sum(self, axis, keepdims, dtype)

    def prod(self, axis: _Axes = None, dtype: Any = None, *, keepdims: bool = False) -> Tensor:
        """The product over axes. Of integers and bools: int64."""
        return self._definition.ops.prod(self, axis, keepdims, dtype)

    def max(self, axis: _Axes = None, *, keepdims: bool = False) -> Tensor:
        """The greatest element over axes; NaN if any is."""
        return self._definition.ops.max(self, axis, keepdims)

    def min(self, axis: _Axes = None, *, keepdims: bool = False) -> Tensor:
        """The least element over axes; NaN if any is."""
        return self._definition.ops.min(self, axis, keepdims)

    def mean(self, axis: _Axes = None, *, keepdims: bool = False) -> Tensor:
        """The mean over axes. Of integers and bools: float32."""
        return self._definition.ops.mean(self, axis, keepdims)

    def var(self, axis: _Axes = None, *, ddof: int = 0, keepdims: bool = False) -> Tensor:
        """The variance over axes: of what is there, as NumPy's; ``ddof=1`` is the unbiased estimate."""
        return self._definition.ops.var(self, axis, ddof, keepdims)

    @composed
    def std(self, axis: _Axes = None, *, ddof: int = 0, keepdims: bool = False) -> Tensor:
        """The square root of ``var``."""
        deviation: Tensor = self._definition.ops.sqrt(self.var(axis, ddof=ddof, keepdims=keepdims))
        return deviation

    @composed
    def any(self, axis: _Axes = None, *, keepdims: bool = False) -> Tensor:
        """Whether an element over axes is not 0."""
        return self._as_bools().max(axis, keepdims=keepdims)

    @composed
    def all(self, axis: _Axes = None, *, keepdims: bool = False) -> Tensor:
        """Whether no element over axes is 0."""
        return self._as_bools().min(axis, keepdims=keepdims)

    def _as_bools(self) -> Tensor:
        bools: Tensor = self if self.dtype == bool else self != 0
        return bools

    # --- shapes -----------------------------------------------------------------------------------------------------

    def reshape(self, *shape: Any) -> Tensor:
        """The elements in row-major order: ``x.reshape(4, -1)`` or ``x.reshape([4, -1])``."""
        return self._definition.ops.reshape(self, _listed(shape))

    def flatten(self) -> Tensor:
        """One axis of all elements."""
        return self.reshape(-1)

    def transpose(self, *axes: Any) -> Tensor:
        """Axis k of the result is axis ``axes[k]``: ``x.transpose(1, 0, 2)``; without axes, in reverse order."""
        order = _listed(axes) if axes and axes != (None,) else list(range(self.ndim))[::-1]
        return self._definition.ops.permute(self, order)

    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        """Two axes exchanged."""
        order = list(range(self.ndim))
        for axis in (axis1, axis2):
            if not -self.ndim <= axis < self.ndim:
                raise invalid(f"swapaxes: axis {axis} of %{self._name}, which has {self.ndim} axes")
        order[axis1], order[axis2] = order[axis2], order[axis1]
        return self._definition.ops.permute(self, order)

    def squeeze(self, axis: _Axes = None) -> Tensor:
        """Without axes of extent 1; with None without all that are known to be 1."""
        ones = [k for k, extent in enumerate(self.shape) if extent == 1] if axis is None else axis
        return self._definition.ops.squeeze(self, ones)  # type: ignore[arg-type]

    # --- elements ---------------------------------------------------------------------------------------------------

    def astype(self, dtype: Any) -> Tensor:
        """Converted to an element type."""
        return self._definition.ops.cast(self, dtype)

    def copy(self) -> Tensor:
        """A copy, which may have another layout: ``fd.ops.set``."""
        return self._definition.ops.set(self)

    @composed
    def clip(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """At least ``min``, then at most ``max``; None is no bound. NaN stays."""
        at_least = self if min is None else self._definition.ops.maximum(self, min)
        return at_least if max is None else self._definition.ops.minimum(at_least, max)

    def round(self) -> Tensor:
        """The nearest integers, ties to the even one."""
        rounded: Tensor = self._definition.ops.round(self)
        return rounded

    def dot(self, other: Tensor) -> Tensor:
        """``self @ other``."""
        return self._definition.ops.matmul(self, other)


def _listed(entries: tuple[Any, ...]) -> Any:
    """``f(1, 2)`` and ``f([1, 2])`` alike."""
    return list(entries[0]) if len(entries) == 1 and isinstance(entries[0], (list, tuple)) else list(entries)
