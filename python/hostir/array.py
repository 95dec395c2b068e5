"""Arrays that live on the devices of a daemon."""

from __future__ import annotations

import math
import operator
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from . import dlpack
from .dtypes import DataType
from .sharding import Sharding

if TYPE_CHECKING:
    from .client import Client
    from .gpu_array import CudaArray


_WHOLE = Sharding([0])
_SHOWN_SIZE, _SHOWN_BYTES = 1000, 16384  # Of values in repr: as many elements as NumPy shows without an ellipsis.


class Array:
    """A global array on the devices: immutable, known by a random handle, freed with its last reference.

    The result of a run may still be pending; the first read waits, and raises the run's error if it failed. What reads
    (``numpy()``, ``a[0]``, ``a == b``, ``float(a)``, ``for row in a``) gathers the whole value on the host each time;
    whoever reads much of one keeps ``values = a.numpy()``. As of NumPy's arrays ``==`` is element by element, so that
    there is no hash. ``shape`` is a tuple of integers, ``data_type`` a DataType, ``sharding`` a Sharding. Threads: any
    may read. In the examples y is [[2, 4, 6], [8, 10, 12]], of float32.

    >>> (y,) = client.run(fd, [x])  # y is a hostir.Array.
    >>> print(y.shape, y.sharding, y[0, :2], float(y[0, 0]), (y == 2 * x).all())
    """

    __hash__ = None  # type: ignore[assignment]
    _gone = "was never made"  # Of one whose ``__init__`` has not run.

    def __init__(
        self,
        client: Client,
        handle: str,
        shape: tuple[int, ...],
        data_type: DataType,
        sharding: Sharding,
        stored_once: tuple[bool, ...] = (),
        memory_order: tuple[int, ...] = (),
        origin: str = "",
        run: int = 0,
        memory: int = 0,
        memory_offset: int = 0,
    ) -> None:
        self._client = client
        self._handle = handle
        self._stored_once = stored_once or (False,) * len(shape)
        self._memory_order = memory_order  # Axes, the outermost in memory first; empty: row-major.
        self._origin = origin  # Where it was made, for errors.
        self._run = run  # The number of the run whose result it is; 0: of none.
        self._memory = memory  # Of the daemon's, that a client on its machine can map, or lent to it; 0: none.
        self._memory_offset = memory_offset  # In bytes.
        self._gone = ""  # Why it can no longer be used: "was freed", "was consumed by ...".
        self.shape = shape
        self.data_type = data_type
        self.sharding = sharding
        self._collected = client._collected  # Freed with a later request: to be collected makes none.

    def __copy__(self) -> Array:
        return self  # Nobody can tell: it is immutable, and its handle is freed once.

    def __del__(self) -> None:
        if not self._gone:
            self._collected.append(self._handle)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type as NumPy's: ``y.dtype  # dtype('float32')``."""
        return self.data_type.numpy

    @property
    def ndim(self) -> int:
        """How many axes it has: ``y.ndim  # 2``."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements the global value has: ``y.size  # 6``."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of the global value; an axis of stride 0 counts in full: ``y.nbytes  # 24``."""
        return self.size * self.dtype.itemsize

    @property
    def state(self) -> str:
        """ "pending", "ready", "poisoned", "lost" or "freed", without waiting: ``y.wait().state  # 'ready'``. Poisoned:
        its run failed. Lost: a GPU's process died with it."""
        return "freed" if self._gone else self._client._state(self)

    def wait(self) -> Array:
        """Returns itself when it is ready; raises what poisoned it: ``y = client.run(fd, [x])[0].wait()``."""
        self._client._wait([self])
        return self

    def cancel(self) -> bool:
        """Ends the run that makes it, for all its results; whether it had not ended: ``y.cancel()``.

        A run that waits for its turn is not carried out. One that runs gets a second from its turn on (the daemon's
        cancel_grace_ms; on GPUs until its timeout) to end by itself, with its results; else its ranks are replaced, for
        which others wait a second or so. Reading raises Cancelled, here and of whatever is made from it; ``wait()``
        tells how it ended. What the run was to replace is gone. An array of ``put`` or ``attach`` has no run: False.
        """
        return self._client._cancel(self)

    def __await__(self) -> Generator[Any, None, Array]:
        """As wait(), without holding up the event loop, or a thread: ``await y``. Cancelling that stops no run, as
        ``cancel`` does."""
        return self._client._wait_async(self).__await__()

    def numpy(self) -> np.ndarray[Any, Any]:
        """The global value, gathered, a copy of the same shape and dtype: ``y.numpy().sum()``."""
        return self._client._download(self)

    @property
    def shards(self) -> list[tuple[int, tuple[slice, ...], np.ndarray[Any, Any]]]:
        """(rank, slices of the global array, values) for each device that holds a part, in mesh order.

        >>> for rank, slices, values in y.shards:
        ...     print(rank, slices, values.shape)
        """
        return self._client._shards(self, lambda rank: self._client._download(self, rank))

    def cuda(self, device: int | None = None) -> CudaArray:
        """The global value in memory of GPU ``device`` of this process, by default the one on which it lies, else 0;
        past the host where the daemon is on this machine: ``torch.from_dlpack(y.cuda())``.

        Raises FailedPrecondition where this process sees no GPU.
        """
        return self._client._to_gpu(self, device)

    def cuda_shards(self) -> list[tuple[int, tuple[slice, ...], CudaArray]]:
        """As ``shards``, each part in memory of the GPU on which it lies:
        ``for rank, slices, part in y.cuda_shards(): ...``."""
        return self._client._shards(self, lambda rank: self._client._to_gpu(self, None, rank))

    def item(self, *index: Any) -> bool | int | float:
        """The only element, or the one at ``index``, as a Python number: ``loss.item()``.

        Raises ValueError, before it reads, for several elements without an index.
        """
        if not index and self.size != 1:
            raise ValueError(f"item() of an array of shape {self.shape}, which has {self.size} elements")
        number: bool | int | float = self.numpy().item(*index)
        return float(number) if self.dtype.kind == "V" else number  # bfloat16 has no number of Python's.

    def tolist(self) -> Any:
        """The elements as Python numbers, in lists as deep as there are axes: ``y.tolist()[0]``."""
        return self.numpy().tolist()

    def __getitem__(self, index: Any) -> Any:
        """NumPy's indexing, of the value on the host: ``a[0, 1:]``. On devices, a program slices."""
        return self.numpy()[index]

    def __iter__(self) -> Iterator[Any]:
        """Rows on the host, gathered together once."""
        if not self.shape:
            raise TypeError("iteration over an array without axes")
        return iter(self.numpy())

    def __contains__(self, value: Any) -> bool:
        return value in self.numpy()

    def __eq__(self, other: object) -> Any:
        return self.numpy() == (other.numpy() if isinstance(other, Array) else other)

    def __ne__(self, other: object) -> Any:
        return self.numpy() != (other.numpy() if isinstance(other, Array) else other)

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(f"an array of shape {self.shape} is neither true nor false; (a == b).all() is, or .any()")
        return bool(self.item())

    def __int__(self) -> int:
        return int(self._number("int"))

    def __float__(self) -> float:
        return float(self._number("float"))

    def __index__(self) -> int:
        if self.shape or self.dtype.kind != "i":
            raise TypeError(f"only an integer without axes is an index, not {self.dtype} of shape {self.shape}")
        return operator.index(self.item())  # type: ignore[arg-type]

    def __format__(self, spec: str) -> str:
        """Of an array without axes as of its number: ``f"{loss:.4f}"``."""
        return format(self.item(), spec) if spec and not self.shape else super().__format__(spec)

    @property
    def _stored_size(self) -> int:
        """Elements that travel."""
        if True not in self._stored_once:
            return self.size
        return math.prod(1 if o else n for n, o in zip(self.shape, self._stored_once, strict=True))

    @property
    def _axes_in_memory(self) -> tuple[int, ...]:
        """For each axis its place in memory, from the outermost one; empty: row-major."""
        return tuple(self._memory_order.index(axis) for axis in range(len(self._memory_order)))

    def _number(self, kind: str) -> bool | int | float:
        if self.size != 1:
            raise TypeError(f"only an array of one element is {kind}; the shape is {self.shape}")
        return self.item()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("a hostir.Array is on devices: its value is always a copy")
        value = self.numpy()
        return value if dtype is None else value.astype(dtype, copy=False)

    def __dlpack__(self, **kwargs: Any) -> Any:
        """On the GPU where it lies, if that is one of this process's, else gathered into host memory; or where
        ``dl_device`` says."""
        kind, number = map(int, kwargs.get("dl_device") or self.__dlpack_device__())
        if kind != dlpack.CUDA:
            return dlpack.to_capsule(self.numpy(), **kwargs)
        return self.cuda(number).__dlpack__(**{**kwargs, "copy": None})

    def __dlpack_device__(self) -> tuple[int, int]:
        ordinal = self._client._gpu_of(self.sharding.mesh.devices[0])
        return (1, 0) if ordinal is None else (dlpack.CUDA, ordinal)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __repr__(self) -> str:
        """NumPy's, where the array is small and ready soon; else its shape, and what it is. Never raises."""
        head = "hostir.Array("
        where = "" if self.sharding == _WHOLE else f", {self.sharding!r}"
        is_small = self.size <= _SHOWN_SIZE and self.nbytes <= _SHOWN_BYTES
        found = self._gone or self._client._peek(self, is_small)
        if isinstance(found, str):
            return f"{head}shape={self.shape}, dtype={self.dtype}{where}{', ' if found else ''}{found})"
        values = np.array2string(found, separator=", ", prefix=head)
        shape = "" if self.size else f", shape={self.shape}"
        return f"{head}{values}{shape}, dtype={self.dtype}{where})"

    def _lose(self, why: str) -> None:
        """The daemon has no such handle any more."""
        self._gone = why
