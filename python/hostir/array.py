"""Arrays that live on the devices of a daemon."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from .dtypes import DataType
from .mesh import DeviceMesh

if TYPE_CHECKING:
    from .client import Client


class Sharding:
    """On which devices an array lies: ``axes`` maps a mesh dimension ("mesh_x") to the axis it splits.

    A mesh dimension that is not in ``axes`` holds copies.
    """

    def __init__(self, mesh: DeviceMesh, axes: dict[str, int]) -> None:
        self.mesh = mesh
        self.axes = dict(axes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sharding) and (self.mesh, self.axes) == (other.mesh, other.axes)

    def __hash__(self) -> int:
        return hash((self.mesh, tuple(sorted(self.axes.items()))))

    def __repr__(self) -> str:
        split = ", ".join(f"axis {axis} over {name}" for name, axis in sorted(self.axes.items()))
        return f"Sharding({self.mesh!r}, {split or 'replicated'})"


class Array:
    """A global array on the devices: immutable, known by a random handle, freed with its last reference.

    The result of a run may still be pending; the first read waits, and raises the run's error if it failed.
    """

    def __init__(self, client: Client, handle: str, shape: tuple[int, ...], dtype: DataType, sharding: Sharding) -> None:
        self._client = client
        self._handle = handle
        self._freed = False
        self.shape = shape
        self.data_type = dtype
        self.sharding = sharding
        # Only the handle is kept: the callback must not hold the array or run any request.
        self._finalizer = weakref.finalize(self, client._collected.append, handle)
        self._finalizer.atexit = False

    @property
    def dtype(self) -> np.dtype:
        return self.data_type.numpy

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def state(self) -> str:
        """"pending", "ready", "poisoned" or "freed"."""
        return "freed" if self._freed else self._client._state(self)

    def wait(self) -> Array:
        """Returns when the array is ready; raises what poisoned it."""
        self._client._wait([self])
        return self

    def numpy(self) -> np.ndarray:
        """The global value, gathered: same shape and dtype."""
        return self._client._download(self)

    @property
    def shards(self) -> list[tuple[int, tuple[slice, ...], np.ndarray]]:
        """(rank, slices of the global array, values) for each device that holds a part."""
        return self._client._shards(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        value = self.numpy()
        return value if dtype is None else value.astype(dtype, copy=False)

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.numpy().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # gathered into host memory

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a zero-dimensional array")
        return self.shape[0]

    def __repr__(self) -> str:
        state = ", freed" if self._freed else ""
        return f"hostir.Array(shape={self.shape}, dtype={self.dtype}, {self.sharding!r}{state})"
