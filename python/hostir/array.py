"""Arrays that live on the devices of a daemon."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from . import dlpack
from .dtypes import DataType
from .sharding import Sharding

if TYPE_CHECKING:
    from .client import Client


class Array:
    """A global array on the devices: immutable, known by a random handle, freed with its last reference.

    The result of a run may still be pending; the first read waits, and raises the run's error if it failed.
    """

    def __init__(
        self,
        client: Client,
        handle: str,
        shape: tuple[int, ...],
        data_type: DataType,
        sharding: Sharding,
        stored_once: tuple[bool, ...] = (),
        origin: str = "",
    ) -> None:
        self._client = client
        self._handle = handle
        self._stored_once = stored_once or (False,) * len(shape)
        self._origin = origin  # Where it was made, for errors.
        self._gone = ""  # Why it can no longer be used: "was freed", "was consumed by ...".
        self.shape = shape
        self.data_type = data_type
        self.sharding = sharding
        # Only the handle is kept: the callback must not hold the array or run any request.
        self._finalizer = weakref.finalize(self, client._collected.append, handle)
        self._finalizer.atexit = False

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data_type.numpy

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Of the global value; an axis of stride 0 counts in full."""
        return self.size * self.dtype.itemsize

    @property
    def state(self) -> str:
        """ "pending", "ready", "poisoned", "lost" or "freed", without waiting. Lost: a GPU's process died with it."""
        return "freed" if self._gone else self._client._state(self)

    def wait(self) -> Array:
        """Returns itself when it is ready; raises what poisoned it."""
        self._client._wait([self])
        return self

    def numpy(self) -> np.ndarray[Any, Any]:
        """The global value, gathered: same shape and dtype."""
        return self._client._download(self)

    @property
    def shards(self) -> list[tuple[int, tuple[slice, ...], np.ndarray[Any, Any]]]:
        """(rank, slices of the global array, values) for each device that holds a part, in mesh order."""
        return self._client._shards(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("a hostir.Array is on devices: its value is always a copy")
        value = self.numpy()
        return value if dtype is None else value.astype(dtype, copy=False)

    def __dlpack__(self, **kwargs: Any) -> Any:
        return dlpack.to_capsule(self.numpy(), **kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # Gathered into host memory.

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __repr__(self) -> str:
        gone = f", {self._gone}" if self._gone else ""
        return f"hostir.Array(shape={self.shape}, dtype={self.dtype}, {self.sharding!r}{gone})"

    def _lose(self, why: str) -> None:
        """The daemon has no such handle any more."""
        self._gone = why
        self._finalizer.detach()
