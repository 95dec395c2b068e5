"""Elements of arrays to and from a daemon: in memory that both have where they are on one host, else as a stream, or as
several, where nodes of a cluster keep the shards."""

from __future__ import annotations

import collections
import contextlib
import errno
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc
import numpy as np

from . import gpu_array, shared_memory, tracing, wire
from .address import socket_path
from .dtypes import DataType
from .errors import (
    Aborted,
    DataLoss,
    FailedPrecondition,
    HostirError,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
    Unimplemented,
)
from .lent import Block, LentMemory
from .nodes import LEAST_BYTES, Nodes, NotReached
from .reach import Reach
from .sharding import Sharding
from .wire import service_pb2 as pb
from .wire import tensor_pb2

_CHUNK_BYTES = 1 << 20
_MAPPED_MAX = 8192  # Tensors of the daemon's whose memory is known here; a process has 65,530 mappings.
_UNSHARED = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.PERMISSION_DENIED)


class Transfers:
    """Those of one session. Threads: any may call."""

    def __init__(
        self,
        stub: Reach,
        call: Callable[..., Any],
        trace: Callable[[], tracing.Metadata],
        session: str,
        chunk_bytes: int,
        nodes: Nodes | None,
        deadline: float | None,
    ) -> None:
        self._stub = stub
        self._call = call  # As Client._call.
        self._trace = trace  # As Client._trace.
        self._session = session
        self._shares = True
        self._mapped: collections.OrderedDict[int, np.ndarray[Any, Any]] = collections.OrderedDict()
        self._in_use: weakref.WeakValueDictionary[int, np.ndarray[Any, Any]] = weakref.WeakValueDictionary()
        self._numbers = itertools.count()
        self._mapping = threading.Lock()  # Of the three above.
        self._nodes = nodes  # That keep shards.
        self._deadline = deadline
        self.lent = LentMemory(self._lend, self._take_back)
        self._chunk_bytes = min(_CHUNK_BYTES, chunk_bytes or _CHUNK_BYTES)

    @property
    def _path(self) -> str | None:
        """Of the daemon's socket; None: nothing is shared."""
        return socket_path(self._stub.address) if self._shares else None

    def upload(self, stored: np.ndarray[Any, Any], header: pb.UploadHeader) -> Any:
        """The daemon's word for the tensor made of ``stored``, of an axis that is sent once one element."""
        if self._path is not None and stored.nbytes >= shared_memory.LEAST_BYTES:
            try:
                tensor = self._upload_shared(stored, header)
            except (FailedPrecondition, Unimplemented):  # Not of this tensor; or not in this session: Upload says so.
                tensor = None
            if tensor is not None:
                return tensor
        elif self._path is None and self._nodes is not None and stored.nbytes >= LEAST_BYTES:
            tensor = self._upload_to(self._nodes, stored, header)
            if tensor is not None:
                return tensor
        values = np.ascontiguousarray(stored).reshape(-1).view(np.uint8).data

        def requests() -> Iterator[pb.UploadRequest | memoryview]:
            yield pb.UploadRequest(header=header)
            for start in range(0, values.nbytes, self._chunk_bytes):
                yield values[start : start + self._chunk_bytes]

        return self._call(self._stub.Upload, requests, keyed=header).tensor

    def _upload_to(self, nodes: Nodes, stored: np.ndarray[Any, Any], header: pb.UploadHeader) -> Any:
        """None where it is to go by the head."""
        try:
            reserved = self._call(self._stub.Reserve, pb.ReserveRequest(header=header, at_nodes=True))
        except (ResourceExhausted, Unavailable):  # Upload says more.
            return None
        if not reserved.token:
            return None
        unreached, committed = "", False
        try:
            receipts = nodes.write(stored, reserved.shards, self._deadline)
            request = pb.CommitRequest(session_id=self._session, token=reserved.token, receipts=receipts)
            tensor = self._call(self._stub.Commit, request).tensor
            committed = True
            return tensor
        except NotReached as why:
            unreached = str(why)
            return None
        except (Aborted, DataLoss, NotFound, Unavailable):  # A node has gone since, or the head.
            return None
        finally:
            if not committed:
                self._release(reserved.token, unreached)

    def _upload_shared(self, stored: np.ndarray[Any, Any], header: pb.UploadHeader) -> Any:
        """None where the daemon's memory does not come here."""
        reserved = self._call(self._stub.Reserve, pb.ReserveRequest(header=header))
        committed = False
        try:
            assert self._path is not None
            with shared_memory.descriptors(self._path, reserved.token, reserved.shards) as given:
                if given is None:
                    self._shares = False
                    return None
                shared_memory.write(stored, reserved.shards, given)
            request = pb.CommitRequest(session_id=self._session, token=reserved.token)
            tensor = self._call(self._stub.Commit, request).tensor
            committed = True
            return tensor
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.ENOMEM):
                raise
            raise ResourceExhausted(f"put of {stored.nbytes} bytes: the machine has no memory left") from None
        finally:
            if not committed:
                self._release(reserved.token)

    def download(self, request: pb.DownloadRequest, stored_bytes: int, seconds: float | None) -> Any:
        """(elements, shape, axes sent once), about ``stored_bytes`` of them. Raises gRPC's errors; DataLoss."""
        if self._path is not None and stored_bytes >= shared_memory.LEAST_BYTES:
            found = self._download_shared(request, seconds)
            if found is not None:
                return found
        elif self._path is None and self._nodes is not None and stored_bytes >= LEAST_BYTES:
            found = self._download_from(self._nodes, request, seconds)
            if found is not None:
                return found
        stream = self._stub.Download(request, timeout=seconds, metadata=self._trace())
        try:
            header = next(stream).header
            values = np.empty(header.total_bytes, np.uint8)
            at = 0
            for message in stream:
                chunk = np.frombuffer(message.chunk, np.uint8)
                values[at : at + chunk.size] = chunk
                at += chunk.size
        except grpc.RpcError as error:
            # The stream itself, which raised itself: the cycle would keep what the frames hold until it is collected.
            raise error.with_traceback(None) from None
        finally:
            del stream
        if at != header.total_bytes:
            raise DataLoss(f"the download ended after {at} of {header.total_bytes} bytes")
        shape = tuple(header.shape)
        once = list(header.sent_once) or [False] * len(shape)
        return values.view(wire.data_type(header.dtype).numpy).reshape(_stored(shape, once)), shape

    def _download_from(self, nodes: Nodes, request: pb.DownloadRequest, seconds: float | None) -> Any:
        """None where it is to come by the head."""
        asked = pb.DownloadRequest(at_nodes=True)
        asked.MergeFrom(request)
        try:
            shared = self._stub.Share(asked, timeout=seconds, metadata=self._trace())
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE):  # Download says more.
                return None
            raise
        if not shared.token:
            return None
        unreached = ""
        try:
            shape = tuple(shared.shape)
            values = np.empty(_stored(shape, list(shared.sent_once)), wire.data_type(shared.dtype).numpy)
            nodes.read(values, shared.shards, seconds)
            return values, shape
        except NotReached as why:
            unreached = str(why)
            return None
        finally:
            self._release(shared.token, unreached)

    def _download_shared(self, request: pb.DownloadRequest, seconds: float | None) -> Any:
        try:
            shared = self._stub.Share(request, timeout=seconds, metadata=self._trace())
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.RESOURCE_EXHAUSTED):
                return None
            raise
        try:
            assert self._path is not None
            with shared_memory.descriptors(self._path, shared.token, shared.shards) as given:
                if given is None:
                    self._shares = False
                    return None
                shape = tuple(shared.shape)
                values = np.empty(_stored(shape, list(shared.sent_once)), wire.data_type(shared.dtype).numpy)
                shared_memory.read(values, shared.shards, given)
                return values, shape
        finally:
            self._release(shared.token)

    def map(self, handle: str, memory: int, seconds: float | None) -> np.ndarray[Any, Any] | None:
        """The bytes of a tensor of this session's that is in ``memory``, whole, to be read and written there as long as
        the handle is there; None: nothing can be mapped. Raises gRPC's errors."""
        known = self.known(memory)
        if known is not None:
            return known
        if self._path is None or memory == 0:
            return None
        request = pb.DownloadRequest(session_id=self._session, handle=handle, writable=True)
        try:
            shared = self._stub.Share(request, timeout=seconds, metadata=self._trace())
        except grpc.RpcError as error:
            if error.code() in _UNSHARED:
                return None
            raise
        try:
            with shared_memory.descriptors(self._path, shared.token, shared.shards) as given:
                if given is None:
                    self._shares = False
                    return None
                made = shared_memory.mapped(shared.shards[0], given[0])
        finally:
            self._release(shared.token)
        with self._mapping:
            self._mapped[memory] = self._in_use[next(self._numbers)] = made
            while len(self._mapped) > _MAPPED_MAX:
                self._mapped.popitem(last=False)
        return made

    def known(self, memory: int) -> np.ndarray[Any, Any] | None:
        """What ``map`` has made of it; None: nothing, or not any more."""
        with self._mapping:
            made = self._mapped.get(memory)
            if made is not None:
                self._mapped.move_to_end(memory)
            return made

    def unmap(self) -> None:
        """Whoever still views memory of the daemon's has the same bytes there, of its own: the daemon takes its pages
        back with the session."""
        self.lent.end()
        self._mapped.clear()
        for memory in self._in_use.values():
            shared_memory.make_own(memory)
        self._in_use.clear()

    def upload_from_gpu(self, view: gpu_array.GpuView, header: pb.UploadHeader) -> Any:
        """As upload, past the host. None where it does not go that way."""
        if self._path is None or view.nbytes == 0 or view.has_repeats:
            return None
        try:
            reserved = self._call(self._stub.Reserve, pb.ReserveRequest(header=header, on_devices=True))
        except (FailedPrecondition, Unimplemented):  # Not of this tensor, or these ranks.
            return None
        committed = False
        try:
            target = self.lent.target(reserved.shards, view.dtype)
            if target is not None and target.ordinal == view.ordinal:
                gpu_array.synchronize(view.ordinal)  # Work on other streams may read what was there before.
                with gpu_array.copying(view.ordinal):
                    gpu_array.copy(target, view)
                tensor = self._commit(reserved.token)
            else:
                tensor = self._offered(reserved, view)
            committed = tensor is not None
            return tensor
        finally:
            if not committed:
                self._release(reserved.token)

    def _commit(self, token: str) -> Any:
        return self._call(self._stub.Commit, pb.CommitRequest(session_id=self._session, token=token)).tensor

    def _offered(self, reserved: pb.SharedMemoryReply, view: gpu_array.GpuView) -> Any:
        """The tensor, from memory that is exported for this once; None where the ranks cannot take it."""
        assert self._path is not None
        with contextlib.ExitStack() as stack:
            try:
                given = _filled(view, reserved.shards, stack)
            except (FailedPrecondition, ResourceExhausted):  # That GPU exports no memory, or has none left.
                return None
            if not shared_memory.offer(self._path, reserved.token, [descriptor for _, descriptor in given]):
                return None
            try:
                return self._commit(reserved.token)
            except InvalidArgument:  # The ranks' GPUs cannot reach this one.
                return None

    def _lend(self, device: int, ordinal: int, nbytes: int) -> tuple[int, Block] | None:
        """Lends fresh memory of GPU ``ordinal``, which is the daemon's ``device``: its number there. None where that is
        not possible now."""
        if self._path is None:
            return None
        header = pb.UploadHeader(session_id=self._session, shape=[nbytes])
        header.dtype = wire.dtype_number(DataType.Bool)
        header.sharding.CopyFrom(wire.sharding_message(Sharding([device]), 1))
        token, committed = "", False
        try:
            token = self._call(self._stub.Reserve, pb.ReserveRequest(header=header, on_devices=True, lend=True)).token
            view, memory = gpu_array.fresh(ordinal, [nbytes], np.dtype(np.bool_))
            try:
                if not shared_memory.offer(self._path, token, [memory.descriptor]):
                    return None
                tensor = self._commit(token)
            finally:
                memory.close_descriptor()
            committed = True
            return int(tensor.memory), Block(device, view, tensor.handle)
        except HostirError:  # Of the daemon, of ranks that are restarted, of the GPU: arrays are copied meanwhile.
            return None
        finally:
            if token and not committed:
                self._release(token)

    def _take_back(self, blocks: Sequence[Block]) -> list[bool]:
        """Which blocks the ranks have lost; those are freed there."""
        try:
            handles = [block.handle for block in blocks]
            request = pb.WaitRequest(session_id=self._session, handles=handles, poll=True)
            states = [tensor.state for tensor in self._call(self._stub.Wait, request).tensors]
            lost = [state != tensor_pb2.TENSOR_STATE_READY for state in states]
            handles = [block.handle for block, is_lost in zip(blocks, lost, strict=True) if is_lost]
            if handles:
                self._call(self._stub.Free, pb.FreeRequest(session_id=self._session, handles=handles))
        except HostirError:
            return [False] * len(blocks)
        return lost

    def download_to_gpu(self, request: pb.DownloadRequest, ordinal: int, seconds: float | None) -> Any:
        """The elements in memory of GPU ``ordinal``, past the host. None where they do not go that way. Raises gRPC's
        errors."""
        if self._path is None:
            return None
        request.on_devices = True
        try:
            shared = self._stub.Share(request, timeout=seconds, metadata=self._trace())
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.FAILED_PRECONDITION):
                return None
            raise
        dtype = wire.data_type(shared.dtype).numpy
        done = False
        try:
            with contextlib.ExitStack() as stack:
                parts, given = [], []
                for shard in shared.shards:
                    source, memory = gpu_array.fresh(ordinal, shard.stored, dtype)
                    stack.callback(memory.close_descriptor)
                    given.append(memory.descriptor)
                    parts.append((shared_memory.slices(shard), source))
                if not shared_memory.offer(self._path, shared.token, given):
                    return None
                commit = pb.CommitRequest(session_id=self._session, token=shared.token)
                try:
                    self._stub.Commit(commit, timeout=seconds, metadata=self._trace())
                except grpc.RpcError as error:
                    if error.code() == grpc.StatusCode.INVALID_ARGUMENT:  # The ranks' GPUs cannot reach this one.
                        return None
                    raise
                done = True
            return gpu_array.joined(tuple(shared.shape), parts)
        finally:
            if not done:
                self._release(shared.token)

    def _release(self, token: str, unreached: str = "") -> None:
        # Ended with its session, or with the daemon; else transfer_idle_ms ends it.
        with contextlib.suppress(grpc.RpcError):
            self._stub.Release(pb.ReleaseRequest(session_id=self._session, token=token, unreached=unreached))


def _filled(view: gpu_array.GpuView, shards: Any, stack: contextlib.ExitStack) -> list[tuple[gpu_array.GpuView, int]]:
    """Memory for each shard with its elements of ``view``, and a descriptor, which ``stack`` closes."""
    given = []
    with gpu_array.copying(view.ordinal):
        for shard in shards:
            target, memory = gpu_array.fresh(view.ordinal, shard.stored, view.dtype)
            stack.callback(memory.close_descriptor)
            given.append((target, memory.descriptor))
            part = view.part(shared_memory.slices(shard))
            gpu_array.copy(target.part([slice(0, n) for n in part.shape]), part)
    return given


def _stored(shape: tuple[int, ...], once: list[bool]) -> tuple[int, ...]:
    return tuple(min(n, 1) if o else n for n, o in zip(shape, once, strict=True))
