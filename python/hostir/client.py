"""The client: tensors to and from a daemon, programs run on its devices."""

from __future__ import annotations

import asyncio
import atexit
import collections
import contextlib
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
import numpy as np
from google.protobuf.message import Message

from . import cuda, forks, gpu_array, private_daemon, program, tracing, wire
from . import inputs as inputs_
from .address import addresses, socket_path
from .array import Array
from .backlog import Backlog, ends_with_runs, is_full_queue, pauses
from .definition import FusionDefinition
from .dlpack import as_numpy
from .dtypes import DataType, as_data_type
from .errors import (
    DeadlineExceeded,
    FailedPrecondition,
    HostirError,
    NotFound,
    ResourceExhausted,
    Unavailable,
    from_code,
    from_rpc,
)
from .layouts import stride_order_of
from .location import caller_location, invalid, located
from .named_program import NamedProgram
from .nodes import Nodes
from .plan import Plan
from .profile import Profile
from .progress import Display, PlanProgress
from .reach import Reach
from .replay import WrittenRun
from .session import Session
from .sharding import Sharding, assemble, elements
from .transfer import Transfers
from .tree import flatten, unflatten
from .values import Tensor
from .wire import service_pb2 as pb
from .wire import tensor_pb2 as pb_tensor

Runnable = FusionDefinition | NamedProgram

CONNECT_SECONDS = 10.0
LEASE_SECONDS = 30.0  # Of a session over TCP.
_CHANNEL = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # A daemon that is stopped, or a network that swallows everything, is noticed within 30 s.
    ("grpc.keepalive_time_ms", 10000),
    ("grpc.keepalive_timeout_ms", 20000),
    ("grpc.http2.ping_timeout_ms", 20000),  # Newer gRPC reads this one, and waits a minute without it.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
_LETTING_GO_SECONDS = 0.02  # A run lets go of what it used a little after its results are ready.
_PROGRAMS_KEPT = 1024
_VALUES_BYTES = 1 << 20  # Of all inputs of a run.
_PEEK_SECONDS = 0.2  # That repr waits for an array.
_HAS_LOCATION = re.compile(r"\((?!uid:)[^()\s]+:\d+[:)]")  # "(uid:0)" is who.
_STATES = {
    pb_tensor.TENSOR_STATE_READY: "ready",
    pb_tensor.TENSOR_STATE_POISONED: "poisoned",
    pb_tensor.TENSOR_STATE_LOST: "lost",
}
_CUT_SECONDS = 5.0  # Until the session of a connection that is gone has ended, too, on a slow link.
_CUT_OFF = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)  # How requests end with their connection.
# Ends of a request that may have been carried out.
# How a request to free ends of which a handle is freed already, or never was.
_KNOWN_TO_BE_GONE = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION)
_FREED = (None, *_KNOWN_TO_BE_GONE)
_UNKNOWN_ENDS = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)


class _Signature:
    """What runs ask of a compiled program, read once."""

    def __init__(self, compiled: pb.CompileReply) -> None:
        self.numbers = [bool(each.scalar) for each in compiled.inputs]  # Which of its inputs are.
        self.takes_numbers = any(self.numbers)
        self.aliases = [each.alias_input if each.HasField("alias_input") else None for each in compiled.outputs]


class Client:
    """One session with a daemon. Closing it frees its arrays. ``hostir.connect()`` makes one, and so does
    ``hostir.Client(address)`` for a daemon that runs, at "unix:/run/hostir/socket", say.

    Threads: a client may be shared; every call is a request of its own. Runs happen in the order in which ``run`` was
    called. Processes: a client is that of the process that made it, and refuses to be used by one forked from it, which
    cannot connect either.
    """

    def __init__(
        self,
        address: str,
        *,
        daemon: private_daemon.PrivateDaemon | None = None,
        timeout: float = CONNECT_SECONDS,
        progress: bool | Callable[[PlanProgress], None] | None = None,
        lease: float | None = None,
        deadline: float | None = None,
        ca: str | None = None,
        cert: str | None = None,
        key: str | None = None,
        traceparent: tracing.Traceparent | None = None,
    ) -> None:
        _check_seconds(lease, deadline)
        ends = addresses(address)
        self._stub = Reach(ends, ca, cert, key, _CHANNEL)
        self.closed = False
        self._pid = forks.note_connecting()
        self._daemon = daemon
        self._traceparent = tracing.checked(traceparent)
        self._collected: collections.deque[str] = collections.deque()
        self._backlog = Backlog()
        self._programs: collections.OrderedDict[bytes, pb.CompileReply] = collections.OrderedDict()
        self._signatures: dict[str, _Signature] = {}  # By the program's id.
        self._abandoned: collections.deque[str] = collections.deque()
        self._deadline = deadline
        self._gpus: dict[int, int | None] | None = None  # Those of this process, by device, once somebody asked.
        self._display = Display() if progress is True or (progress is None and _stderr_is_terminal()) else None
        told = progress if callable(progress) else self._display
        try:
            if lease is None:
                lease = 0.0 if len(ends) == 1 and socket_path(address) is not None else LEASE_SECONDS
            self._session_ = Session(self._stub, lease, told, timeout)
        except HostirError:
            self._stub.close()
            raise
        except grpc.RpcError as error:
            self._stub.close()
            failure = from_rpc(error)
            # The first request is the only one that has a deadline.
            if isinstance(failure, DeadlineExceeded) or (len(ends) > 1 and isinstance(failure, Unavailable)):
                failure = Unavailable(f"no daemon answers at {address} within {timeout:g} s{self._log_tail()}")
            raise failure from None
        hello = self._session_.hello
        self._session = self._session_.id
        self._nodes = Nodes(self._stub, ca, cert, key)
        self._transfers = Transfers(
            self._stub,
            self._call,
            self._trace,
            self._session,
            int(hello.chunk_bytes_max),
            self._nodes if hello.at_nodes else None,
            deadline,
        )
        self._message_bytes_max = int(hello.message_bytes_max)
        self._value_bytes = min(int(hello.value_bytes_max), inputs_.VALUE_BYTES)
        self._handles_max = int(hello.request_handles_max) or sys.maxsize
        self._runs_take_handles = bool(hello.framed_calls)
        self.num_devices = int(hello.num_devices)
        self.device_kind = str(hello.device_kind)  # "cpu", "cuda"
        atexit.register(self._close, False)  # Before gRPC's own threads go.

    @property
    def address(self) -> str:
        """Of the daemon; of several, the one that serves, or did last: ``client.address == "unix:/run/h"``."""
        return self._stub.address

    # --- tensors ------------------------------------------------------------------------------------------------

    def put(self, array: Any, tensor: Tensor | None = None, *, sharding: Sharding | None = None) -> Array:
        """Copies an array to the devices, laid out as the input ``tensor`` of its program, or as ``sharding`` says.

        array: anything with the buffer protocol or DLPack, of any strides; of an axis with stride 0 one element moves.
        One of PyTorch's or JAX's on a GPU of the daemon's machine never passes through the host.
        As an input it is converted to the program's type where no value can change (int32 to float64, never float64 to
        float32); Python's numbers are rounded. With neither ``tensor`` nor ``sharding`` it lies whole on device 0, with
        its own type. The array may change once this returns: ``x_dev = client.put(x, sharding=Sharding([0, 1]))``.

        Where the daemon has no memory left it waits for the runs of this client that are under way, as ``run`` does.
        """
        return self._put(array, tensor, sharding, None)

    def _put(self, array: Any, tensor: Tensor | None, sharding: Sharding | None, patience: float | None) -> Array:
        if tensor is not None:
            definition = tensor._definition
            index = inputs_.index_of(definition, tensor)
            data_type = definition._record.params[index].dtype
            return self._put_input(array, definition, index, tensor.name, data_type, patience)
        on_gpu = gpu_array.view_of(array)
        values: np.ndarray[Any, Any] | gpu_array.GpuView = as_numpy(array) if on_gpu is None else on_gpu
        header = pb.UploadHeader(session_id=self._session)
        if sharding is not None:
            header.sharding.CopyFrom(wire.sharding_message(sharding, len(values.shape)))
        return self._upload(values, header, patience)

    def _put_input(
        self, array: Any, of: Runnable, index: int, name: str, data_type: DataType, patience: float | None
    ) -> Array:
        return self._upload_input(inputs_.as_input(array, index, name, data_type), of, index, patience)

    def _upload_input(self, values: inputs_.Values, of: Runnable, index: int, patience: float | None) -> Array:
        header = pb.UploadHeader(session_id=self._session)
        compiled = self._compile(of)
        header.input.program_id = compiled.program_id
        header.input.index = index
        header.memory_order[:] = compiled.inputs[index].memory_order
        try:
            return self._upload(values, header, patience)
        except NotFound:  # The program was evicted.
            header.input.program_id = self._compile_again(of).program_id
            return self._upload(values, header, patience)

    def _upload(self, array: inputs_.Values, header: pb.UploadHeader, patience: float | None) -> Array:
        if isinstance(array, gpu_array.GpuView):
            header.dtype = wire.dtype_number(as_data_type(array.dtype))
            header.shape[:] = array.shape
            view = array.transposed(header.memory_order) if len(header.memory_order) == len(array.shape) else array
            tensor = self._when_there_is_room(lambda: self._transfers.upload_from_gpu(view, header), patience)
            if tensor is not None:
                return self._array(tensor, caller_location())
            array = array.to_numpy()
        stored = inputs_.describe(array, header)
        tensor = self._when_there_is_room(lambda: self._transfers.upload(stored, header), patience)
        return self._array(tensor, caller_location())

    def _download(self, array: Array, device: int | None = None) -> np.ndarray[Any, Any]:
        self._check_live(array)
        self._free_collected()
        try:
            values: np.ndarray[Any, Any] = self._send(
                lambda _, timeout, metadata: self._fetch(array, device, timeout), None, self._deadline
            )
            return values
        except grpc.RpcError as error:
            raise self._error(error, array._origin) from None

    def _to_gpu(self, array: Array, ordinal: int | None, device: int | None = None) -> gpu_array.CudaArray:
        """``device``: the part of that one alone; ``ordinal``: which GPU of this process."""
        self._check_live(array)
        self._free_collected()
        request = pb.DownloadRequest(session_id=self._session, handle=array._handle, device=device)
        if ordinal is None:
            found = self._gpu_of(array.sharding.mesh.devices[0] if device is None else device)
            ordinal = 0 if found is None else found
        there = ordinal
        try:
            view = self._send(
                lambda _, timeout, metadata: self._transfers.download_to_gpu(request, there, timeout),
                None,
                self._deadline,
            )
        except grpc.RpcError as error:
            raise self._error(error, array._origin) from None
        if view is None:
            values = self._download(array, device)
            view = gpu_array.from_numpy(values.transpose(array._memory_order or range(values.ndim)), ordinal)
        return gpu_array.CudaArray(view.transposed(array._axes_in_memory))

    def _gpu_of(self, device: int) -> int | None:
        """Which GPU of this process a device is; None: it is none, or another process's."""
        if self._gpus is None:
            driver = cuda.driver() if self.device_kind == "cuda" and socket_path(self.address) is not None else None
            if driver is None:
                return None
            devices = self._call(self._stub.Status, pb.StatusRequest()).devices
            self._gpus = {int(each.number): driver.ordinal_of(bytes(each.uuid)) for each in devices}
        return self._gpus.get(device)

    def _map(self, array: Array) -> np.ndarray[Any, Any] | None:
        """The bytes of an array that is whole on one CPU device, in the daemon's own memory, which is no other tensor's
        as long as the array lives; None: they are to be copied."""
        if self.device_kind != "cpu" or array._stored_size != array.size:
            return None
        self._check_live(array)
        known = self._transfers.known(array._memory)
        if known is not None:
            return known
        try:
            view: np.ndarray[Any, Any] | None = self._send(
                lambda _, timeout, metadata: self._transfers.map(array._handle, array._memory, timeout),
                None,
                self._deadline,
            )
            return view
        except grpc.RpcError as error:
            raise self._error(error, array._origin) from None

    def _map_on_gpu(self, array: Array) -> gpu_array.GpuView | None:
        """The elements of an array that is whole on one GPU of this process, and whose run is over, where they are,
        with stride 0 where they are stored once: nothing else is there as long as the array lives, which the view
        holds. None: they are to be copied; memory for later ones is lent with the next run."""
        if len(array.sharding.mesh.devices) != 1:
            return None
        (device,) = array.sharding.mesh.devices
        ordinal = self._gpu_of(device)
        if ordinal is None:
            return None
        self._check_live(array)
        lent = self._transfers.lent
        stored = array.shape
        if True in array._stored_once:
            stored = tuple(1 if once else n for n, once in zip(stored, array._stored_once, strict=True))
        if array._memory_order:
            stored = tuple(stored[axis] for axis in array._memory_order)
        view = lent.view(array._memory, array._memory_offset, stored, array.dtype, array)
        if view is None and array._memory == 0 and array._run != 0:  # What comes by the host never lies there.
            lent.want(device, ordinal, array._stored_size * array.dtype.itemsize)
        if view is None:
            return None
        view = view.transposed(array._axes_in_memory)
        return view if view.shape == array.shape else view.stretched(array.shape)

    def _fetch(self, array: Array, device: int | None, seconds: float | None) -> np.ndarray[Any, Any]:
        request = pb.DownloadRequest(session_id=self._session, handle=array._handle, device=device)
        value: np.ndarray[Any, Any]
        value, shape = self._transfers.download(request, array._stored_size * array.dtype.itemsize, seconds)
        if value.shape != shape:
            value = np.broadcast_to(value, shape).copy()
        return value.transpose(array._axes_in_memory) if array._memory_order else value

    def _shards(self, array: Array, read: Callable[[int], Any]) -> list[tuple[int, tuple[slice, ...], Any]]:
        self._check_live(array)
        reply = self._call(self._stub.Shards, pb.ShardsRequest(session_id=self._session, handle=array._handle))
        shards = []
        for shard in reply.shards:
            parts = zip(shard.start, shard.extent, shard.step, strict=True)
            slices = tuple(elements(*part) for part in parts)
            shards.append((int(shard.device), slices, read(int(shard.device))))
        return shards

    def from_shards(self, shards: Sequence[Any], sharding: Sharding) -> Array:
        """The global array made of local ones, one for each device of the mesh in mesh order. Copies must agree:
        ``client.from_shards([x[:1], x[1:]], Sharding([0, 1], {0: "mesh_x"}))``."""
        on_gpus = [gpu_array.view_of(shard) for shard in shards]
        values = [
            as_numpy(shard) if on_gpu is None else on_gpu.to_numpy()
            for shard, on_gpu in zip(shards, on_gpus, strict=True)
        ]
        return self.put(assemble(values, sharding), sharding=sharding)

    def reshard(self, array: Array, sharding: Sharding) -> Array:
        """A copy of ``array`` laid out as ``sharding`` says: ``client.reshard(y, Sharding([0, 1], {1: "mesh_x"}))``."""
        (copy,) = self.run(self._resharding([array], sharding), [array])
        return copy  # type: ignore[no-any-return]

    @staticmethod
    def _resharding(arrays: Sequence[Array], sharding: Sharding) -> FusionDefinition:
        """The program that lays such arrays out as ``sharding`` says."""
        with FusionDefinition("reshard") as fd:
            for array in arrays:
                contiguity = [None if once else True for once in array._stored_once]
                x = fd.define_tensor(shape=[-1] * array.ndim, contiguity=contiguity, dtype=array.data_type)
                y = fd.ops.set(x)
                if array._memory_order:
                    for tensor in (x, y):
                        tensor._annotate("stride_order", order=stride_order_of(array._memory_order))
                fd.add_output(y)
                x.lay_out(array.sharding)
                y.lay_out(sharding)
        return fd

    def free(self, *arrays: Array) -> None:
        """Frees arrays now; queued runs that use them still see them: ``client.free(y)``."""
        for array in arrays:
            self._check_live(array)
        for start in range(0, len(arrays), self._handles_max):
            part = arrays[start : start + self._handles_max]
            handles = [array._handle for array in part]
            self._call(self._stub.Free, pb.FreeRequest(session_id=self._session, handles=handles))
            for array in part:
                array._lose("was freed")

    # --- programs -----------------------------------------------------------------------------------------------

    def run(
        self,
        fd: FusionDefinition | NamedProgram,
        inputs: Any,
        *,
        wait: bool = False,
        nowait: bool = False,
        timeout: float | None = None,
        deadline: float | None = None,
        timeline: str | os.PathLike[str] | None = None,
        record: str | os.PathLike[str] | None = None,
    ) -> Any:
        """Runs a program: a tuple of Arrays, or what ``fd.add_output`` was given, with an Array for each tensor.

        inputs: Arrays, host arrays (which go along with the run, or are put first where they are large, as the program
        wants them, and converted where no value can change) or numbers for scalars (arrays without axes are, too). A
        list or tuple gives them in the program's order, a dict by name, also nested: {"x": x, "mlp": {"w": w}} are the
        inputs x and mlp.w.

        Returns once the run is accepted; the arrays wait, and raise its error, on first read. wait=True returns when
        it is over. Where the daemon has no room (queued_runs_max, or what runs and their results hold), it waits for
        the oldest run of this client that is under way, and tries again; nowait=True raises ResourceExhausted at once.
        timeout: seconds from its turn to its end, at most the daemon's run_timeout_ms, and as many for room before.
        deadline: seconds from now to its end, the wait for room and for its turn included. What has not begun by then
        does not, and its arrays raise DeadlineExceeded; what runs by then is as if cancelled (``Array.cancel``).

        timeline: a file for a trace that ui.perfetto.dev opens: for each rank what the host queued when, and when its
        streams did it, on one clock. Such a run is waited for, replays no graph, and costs two marks for each piece of
        work; 20,000 pieces of a rank are kept. OSError where the file cannot be written.

        record: a folder, which is made, for program, inputs and outputs, or the error: `hostir replay FOLDER` runs it
        again, on CPU ranks of another machine, say. Such a run is waited for, and its arrays are gathered here.

        >>> (y,) = client.run(fd, [x])
        >>> (y,) = client.run(fd, [x], timeline="run.json")
        >>> loss, params = client.run(step, {"x": x, "params": params}, timeout=60)
        """
        if record is not None:
            if isinstance(fd, NamedProgram):
                raise invalid(f"record: {fd.name} is the daemon's program; record a run of its FusionDefinition")
            values = inputs_.bind(fd, inputs)
            with WrittenRun(record, fd, values, self.num_devices, self.device_kind) as written:
                options: dict[str, Any] = {"timeout": timeout, "deadline": deadline, "timeline": timeline}
                outputs = self.run(fd, values, wait=True, nowait=nowait, **options)
                names = [output.name for output in self._compile(fd).outputs]
                written.keep(names, flatten(outputs)[0])
            return outputs
        if timeline is None:
            return self._run(fd, inputs, wait, nowait, timeout, deadline)[0]
        with open(timeline, "wb") as file:
            outputs, reply = self._run(fd, inputs, True, nowait, timeout, deadline, timeline=True)
            file.write(reply.timeline)
        return outputs

    def profile(self, fd: FusionDefinition, inputs: Any, *, repeat: int = 1, timeout: float | None = None) -> Profile:
        """Runs a program and times it: a Profile with the microseconds of each segment and communication, by rank.

        inputs, timeout and errors are those of ``run``; ``profile.outputs`` is what ``run`` returns. The ranks wait for
        each piece of work before they queue the next, so the run takes longer than others: nothing overlaps, a launch's
        own cost is in each time, and a communication waits for the slowest of its team.

        repeat: that many runs, of which each time is the median; the first ones of a program find memory and caches
        cold. timeout is for each. Raises InvalidArgument where repeat is no whole number above 0, or above 1 for a
        program that consumes an input.

        >>> profile = client.profile(fd, [x], repeat=10)
        >>> print(profile)
        >>> slowest = max(profile.segments, key=lambda s: s.max_us)
        """
        if isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 1:
            raise invalid(f"profile: repeat = {repeat!r}; it is a number of runs, 1 or more")
        consumed = [output.alias for output in fd._record.outputs if output.alias is not None]
        if repeat > 1 and consumed:
            raise invalid(f"profile: repeat = {repeat}: a run of {fd.name} consumes {consumed[0]}; leave repeat at 1")
        given = zip(inputs_.bind(fd, inputs), fd.fusion.inputs(), strict=True)
        values = [
            self._put(value, parameter, None, timeout)  # Once for all runs.
            if isinstance(parameter, Tensor) and not isinstance(value, Array)
            else value
            for value, parameter in given
        ]
        replies = []
        for _ in range(repeat):
            outputs, reply = self._run(fd, values, True, False, timeout, None, profile=True)
            replies.append(reply)
        return Profile(replies, outputs, fd.name)

    def _run(
        self,
        fd: Runnable,
        inputs: Any,
        wait: bool,
        nowait: bool,
        timeout: float | None,
        deadline: float | None,
        profile: bool = False,
        timeline: bool = False,
        keeps_inputs: bool = False,
    ) -> tuple[Any, Any]:
        """What ``run`` returns, and the daemon's reply. ``keeps_inputs``: an output that is made in the memory of an
        input is that input's array, and no other input is consumed."""
        end = None if deadline is None else time.monotonic() + _milliseconds(deadline, "deadline") / 1000
        values = inputs_.bind(fd, inputs)
        compiled = self._compile(fd)
        request = pb.RunRequest(session_id=self._session, program_id=compiled.program_id, wait=wait)
        request.keeps_inputs = keeps_inputs
        request.profile, request.timeline = profile, timeline
        request.timeout_ms = _milliseconds(timeout, "timeout") if timeout is not None else 0
        patience = 0.0 if nowait else min((s for s in (timeout, deadline) if s is not None), default=None)
        signature = self._signature(compiled)
        arrays: Sequence[Array | None] | None = self._add_handles(values, signature, request)
        if arrays is None:
            arrays = self._add_arguments(fd, values, compiled, signature, patience, request)
        request.program_id = self._compile(fd).program_id  # Another, perhaps, since one was put.

        def compile_again() -> None:
            request.program_id = self._compile_again(fd).program_id

        location = caller_location()
        self._transfers.lent.prepare()

        def attempt() -> Any:
            if end is not None:
                request.deadline_ms = _left_ms(end, f"a run of {fd.name}", deadline)
            return self._call(self._stub.Run, request, retry=compile_again, location=location)

        result = self._when_there_is_room(attempt, patience)
        outputs = self._outputs(signature, arrays, result, location, None if keeps_inputs else fd.name)
        if not wait:
            self._backlog.add(outputs)
        return outputs if fd._output_tree is None else unflatten(fd._output_tree, outputs), result

    def _signature(self, compiled: pb.CompileReply) -> _Signature:
        found = self._signatures.get(compiled.program_id)
        if found is None:
            if len(self._signatures) >= _PROGRAMS_KEPT:
                self._signatures.clear()
            found = self._signatures[compiled.program_id] = _Signature(compiled)
        return found

    def _add_handles(
        self, values: Sequence[Any], signature: _Signature, request: pb.RunRequest
    ) -> Sequence[Array] | None:
        """Where all inputs are arrays that are here: these, whose handles go into the request. Else None."""
        if signature.takes_numbers or not self._runs_take_handles:
            return None
        for value in values:
            if type(value) is not Array or value._client is not self or value._gone:
                return None
        request.handles.extend([value._handle for value in values])
        return values

    def _add_arguments(
        self,
        fd: Runnable,
        values: Sequence[Any],
        compiled: pb.CompileReply,
        signature: _Signature,
        patience: float | None,
        request: Any,
    ) -> Sequence[Array | None]:
        """The arrays among the inputs, of which all go into the request: large ones are put first."""
        arrays: list[Array | None] = []
        add, names = request.args.add, inputs_.names(fd)
        left = min(_VALUES_BYTES, self._message_bytes_max // 2)
        for index, (value, is_number) in enumerate(zip(values, signature.numbers, strict=True)):
            if is_number:
                if type(value) is float:
                    add(float_value=value)
                else:
                    request.args.append(_number_argument(inputs_.number(index, names[index], value)))
                arrays.append(None)
                continue
            array = value if isinstance(value, Array) else None
            if array is None:
                name, parameter = names[index], compiled.inputs[index]
                value = inputs_.sized(value, index, name, parameter)
                given = inputs_.as_input(value, index, name, wire.data_type(parameter.dtype))
                if self._value_bytes > 0 and inputs_.stored_bytes(given) <= min(self._value_bytes, left):
                    brought = add().tensor
                    brought.memory_order[:] = parameter.memory_order
                    stored = inputs_.describe(given if isinstance(given, np.ndarray) else given.to_numpy(), brought)
                    brought.elements = stored.tobytes()
                    left -= stored.nbytes
                    arrays.append(None)
                    continue
                array = self._upload_input(given, fd, index, patience)
            if array._client is not self or array._gone:
                self._check_live(array)
            arrays.append(array)
            add(handle=array._handle)
        return arrays

    def _when_there_is_room(self, attempt: Callable[[], Any], patience: float | None) -> Any:
        """What ``attempt`` answers, after at most ``patience`` seconds (None: any) in which the daemon had no room."""
        until = None if patience is None else time.monotonic() + patience
        pause = pauses()
        while True:
            try:
                return attempt()
            except ResourceExhausted as refused:
                left = None if until is None else until - time.monotonic()
                if not ends_with_runs(str(refused)) or (left is not None and left <= 0):
                    raise
                oldest = self._backlog.oldest(self._handles_max, self._are_pending)
                if oldest is not None:
                    with contextlib.suppress(DeadlineExceeded, FailedPrecondition, NotFound):  # Late, or freed since.
                        self._wait_for([oldest], left)
                    pause = pauses()
                    continue
                seconds = next(pause)
                if not is_full_queue(str(refused)) and seconds > _LETTING_GO_SECONDS:
                    raise
                time.sleep(seconds if left is None else min(seconds, left))

    def explain(self, fd: FusionDefinition, sizes: Mapping[str, int] | None = None) -> Plan:
        """What a run will do: segments, communications, the host program. ``sizes`` gives sizes numbers:
        ``print(client.explain(fd, sizes={"i0": 512}))``."""
        source = program.source(fd)
        numbers = {str(name): _size(name, size) for name, size in (sizes or {}).items()}
        request = pb.ExplainRequest(session_id=self._session, program=source, sizes=numbers)
        return Plan(self._call(self._stub.Explain, request), fd.name, numbers)

    def _compile(self, fd: Runnable) -> pb.CompileReply:
        if isinstance(fd, NamedProgram):
            if fd._client is not self:
                raise FailedPrecondition(located(f"the program {fd.name} belongs to another client; attach it here"))
            return fd._reply
        key = program.key(fd)
        reply = self._programs.get(key)
        if reply is None:
            request = pb.CompileRequest(session_id=self._session, program=program.source(fd))
            reply = self._programs[key] = self._call(self._stub.Compile, request)
            while len(self._programs) > _PROGRAMS_KEPT:
                self._programs.popitem(last=False)
        return reply

    def _compile_again(self, fd: Runnable) -> pb.CompileReply:
        """The daemon no longer knows it by the id that it had."""
        if isinstance(fd, NamedProgram):
            fd._reply = self._attach(fd.name, fd._owner).program
        else:
            self._programs.pop(program.key(fd), None)
        return self._compile(fd)

    # --- names --------------------------------------------------------------------------------------------------

    def publish(self, array: Array | FusionDefinition, name: str, *, everyone: bool = False) -> None:
        """Gives an array or a program a name, under which other clients find it: ``client.publish(y, "wq")``.

        It outlives the array, this client and its process, until it is withdrawn or the daemon ends: weights are on the
        devices once, not once a process. What had the name loses it; whoever attached that keeps it. name: 1 to 256
        letters, digits and ``_-./:``. It is there for clients of the same user, or of every user of the daemon, who
        then may read it; nobody can change an array. Of a program its text is kept: see ``program``.
        """
        if isinstance(array, FusionDefinition):
            compiled = pb.PublishRequest(session_id=self._session, name=name, everyone=everyone)
            compiled.program_id = self._compile(array).program_id

            def compile_again() -> None:
                compiled.program_id = self._compile_again(array).program_id

            self._call(self._stub.Publish, compiled, retry=compile_again)
            return
        self._check_live(array)
        request = pb.PublishRequest(session_id=self._session, handle=array._handle, name=name, everyone=everyone)
        self._call(self._stub.Publish, request)

    def attach(self, name: str, *, owner: str | None = None) -> Array:
        """The array that a client of the same user, or ``owner`` ("uid:1000"), has published: nothing is copied. Waits
        for a run that makes it. Raises NotFound where there is none.

        >>> client.publish(y, "llama/wq")
        >>> w = client.attach("llama/wq")
        """
        found = self._attach(name, owner or "")
        if found.HasField("program"):
            raise invalid(f"attach: {name} is a program: client.program({name!r})")
        return self._array(found.tensor, caller_location())

    def program(self, name: str, *, owner: str | None = None) -> NamedProgram:
        """The program that a client of the same user, or ``owner``, has published, as a function. Raises NotFound.

        >>> client.publish(fd, "mlp/forward")
        >>> forward = client.program("mlp/forward")
        >>> (y,) = forward(x)
        """
        found = self._attach(name, owner or "")
        if not found.HasField("program"):
            self._collected.append(found.tensor.handle)
            raise invalid(f"program: {name} is an array: client.attach({name!r})")
        return NamedProgram(self, name, owner or "", found.program)

    def _attach(self, name: str, owner: str) -> pb.AttachReply:
        return self._call(self._stub.Attach, pb.AttachRequest(session_id=self._session, name=name, owner=owner))

    def withdraw(self, name: str) -> None:
        """Takes a name back, which frees what only it held. Raises NotFound.

        >>> client.publish(y, "llama/wk")
        >>> client.withdraw("llama/wk")
        """
        self._call(self._stub.Withdraw, pb.WithdrawRequest(session_id=self._session, name=name))

    def names(self) -> list[dict[str, Any]]:
        """Arrays ("tensor") and programs ("program_bytes" above 0) that can be attached, by owner and name:
        ``[n["name"] for n in client.names()]``."""
        reply = self._call(self._stub.Names, pb.NamesRequest(session_id=self._session))
        return [wire.as_dict(named) for named in reply.tensors]

    # --- state --------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Devices, processes, generation, memory, limits, as the daemon says: ``client.status()["devices"]``."""
        return wire.as_dict(self._call(self._stub.Status, pb.StatusRequest()))

    def drain(self, node: int | str, *, back: bool = False) -> str:
        """Has a node of a cluster, by its number or address, leave the mesh once what is under way is over, or, with
        ``back``, have a part in it again: ``client.drain(1)``. Returns its address, at once; who is away has an error
        in ``status()["devices"]``. Raises NotFound for no node, FailedPrecondition where none would be left."""
        request = pb.DrainNodeRequest(node=str(node), back=back)
        return str(self._call(self._stub.DrainNode, request).node)

    def events(self) -> list[dict[str, Any]]:
        """The latest 4096 things that the daemon did, the oldest first: runs with wait and time, requests that failed,
        plans, failures of the mesh: ``[e for e in client.events() if e["code"]]``."""
        return [wire.as_dict(event) for event in self._call(self._stub.Events, pb.EventsRequest()).events]

    def _state(self, array: Array) -> str:
        self._check_live(array)
        request = pb.WaitRequest(session_id=self._session, handles=[array._handle], poll=True)
        return _STATES.get(self._call(self._stub.Wait, request).tensors[0].state, "pending")

    def _are_pending(self, arrays: Sequence[Array]) -> list[bool]:
        request = pb.WaitRequest(session_id=self._session, handles=[array._handle for array in arrays], poll=True)
        try:
            tensors = self._call(self._stub.Wait, request).tensors
        except (FailedPrecondition, NotFound):  # One was freed meanwhile.
            return [False] * len(arrays)
        return [tensor.state not in _STATES for tensor in tensors]

    def _wait_for(self, arrays: Sequence[Array], seconds: float | None = None) -> Any:
        """Returns when all are ready or poisoned. Raises DeadlineExceeded after ``seconds``."""
        for array in arrays:
            self._check_live(array)
        request = pb.WaitRequest(session_id=self._session, handles=[array._handle for array in arrays])
        return self._call(self._stub.Wait, request, seconds=seconds).tensors

    def _peek(self, array: Array, wants_values: bool) -> np.ndarray[Any, Any] | str:
        """The values, if they are wanted and soon there; else the state, "" for ready. Raises nothing, waits little."""
        if self.closed:
            return "of a client that is closed"
        if self._pid != os.getpid():
            return "of another process"
        request = pb.WaitRequest(session_id=self._session, handles=[array._handle], poll=not wants_values)
        try:
            (tensor,) = self._stub.Wait(request, timeout=_PEEK_SECONDS).tensors
            if wants_values and tensor.state == pb_tensor.TENSOR_STATE_READY:
                return self._fetch(array, None, _PEEK_SECONDS)
        except grpc.RpcError as error:
            failure = from_rpc(error)
            return "pending" if isinstance(failure, DeadlineExceeded) else failure.code.lower()
        except (HostirError, ValueError):  # Cut off, or closed meanwhile.
            return "unavailable"
        return _STATES.get(tensor.state, "pending").removeprefix("ready")

    def _cancel(self, array: Array) -> bool:
        self._check_live(array)
        if array._run == 0:
            return False
        request = pb.CancelRequest(session_id=self._session, run_id=array._run)
        return bool(self._call(self._stub.Cancel, request).found != pb.CancelReply.FOUND_OVER)

    def _wait(self, arrays: Sequence[Array]) -> None:
        for array, tensor in zip(arrays, self._wait_for(arrays), strict=True):
            _check_sound(tensor, array)

    async def _wait_async(self, array: Array) -> Array:
        self._check_open()
        self._check_live(array)
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()

        def tell() -> None:
            if not over.done():
                over.set_result(None)

        def told(_: Any) -> None:  # On a thread of gRPC's, perhaps after the loop.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(tell)

        request = pb.WaitRequest(session_id=self._session, handles=[array._handle])
        call = self._stub.Wait.future(request, metadata=self._trace())
        call.add_done_callback(told)
        try:
            await over
        finally:
            call.cancel()  # Of one that is over: nothing.
        try:
            (tensor,) = call.result().tensors
        except grpc.RpcError as error:
            raise self._error(error, array._origin) from None
        _check_sound(tensor, array)
        return array

    def _check_live(self, array: Array) -> None:
        if array._client is not self:
            message = f"the array of shape {array.shape} belongs to another client; download it there and put it here"
            raise FailedPrecondition(located(message))
        if array._gone:
            raise FailedPrecondition(located(f"the array of shape {array.shape} {array._gone}"))

    def _outputs(
        self, signature: _Signature, inputs: Sequence[Array | None], reply: Any, location: str, consumer: str | None
    ) -> tuple[Array, ...]:
        """The arrays of a run, which ``consumer``, a program, has made in place of some of its inputs."""
        run = int(reply.run_id)
        made = []
        for tensor, alias in zip(reply.outputs, signature.aliases, strict=True):
            old = None if alias is None else inputs[alias]
            if old is not None and consumer is not None:
                old._lose(f"was consumed by a run of {consumer} ({location})")
            elif old is not None and old._handle == tensor.handle:
                old._run, old._origin = run, location
                made.append(old)
                continue
            made.append(self._array(tensor, location, run))
        return tuple(made)

    def _array(self, tensor: Any, origin: str, run: int = 0) -> Array:
        spec = wire.spec_of(tensor.spec)
        return Array(self, tensor.handle, *spec, origin, run, tensor.memory, tensor.memory_offset)

    def _call(
        self,
        method: Any,
        request: Any,
        retry: Callable[[], None] | None = None,
        location: str | None = None,
        seconds: float | None = None,
        keyed: Message | None = None,
    ) -> Any:
        """The answer to ``request``, which may be a function that makes a stream; ``keyed``: what has its key."""
        self._check_open()
        if isinstance(request, pb.RunRequest) and not self._abandoned:  # It frees for itself; sent again, the same.
            if not request.free:
                request.free.extend(self._take(self._collected))
        else:
            self._free_collected()
        try:
            self._check_size(request, location)
        except ResourceExhausted:
            if isinstance(request, pb.RunRequest):
                self._collected.extend(request.free)
            raise
        key = self._give_key(request if keyed is None else keyed)
        try:
            with self._display or contextlib.nullcontext():
                return self._send(method, request, self._deadline if seconds is None else seconds, once=bool(key))
        except Unavailable:  # Another daemon goes on: it has what this run was to free.
            if isinstance(request, pb.RunRequest):
                self._collected.extend(request.free)
            raise
        except grpc.RpcError as error:
            failure = self._error(error, caller_location() if location is None else location)
            if key and error.code() in _UNKNOWN_ENDS:
                self._abandoned.append(key)
        if retry is None or not isinstance(failure, NotFound) or not str(failure).startswith("no program"):
            try:
                raise failure
            finally:
                del failure  # It knows this frame: the cycle would keep what the frames hold, until it is collected.
        retry()
        return self._call(method, request, location=location)

    def _give_key(self, request: Any) -> str:
        """A key of its own for a request that may have to be sent again, or given up; empty for others."""
        if self._session_.lease <= 0 and self._deadline is None:
            return ""
        if not isinstance(request, Message) or "request_key" not in request.DESCRIPTOR.fields_by_name:
            return ""
        key = secrets.token_hex(16)
        request.request_key = key
        return key

    def _send(self, method: Any, request: Any, seconds: float | None, *, once: bool = False) -> Any:
        """The answer; where the connection was cut off, over another. ``request`` may be what makes a stream of them.
        ``once``: another daemon, which does not know of it, does not get it, too. Raises gRPC's errors, and then
        Unavailable."""
        while True:
            daemon, turn = self._session_.daemon, self._stub.turn
            try:
                made = request() if callable(request) else request
                return method(made, timeout=seconds, metadata=self._trace())
            except grpc.RpcError as error:
                if self._session_.lease <= 0 or not self._is_cut_off(error, turn) or not self._session_.resume():
                    raise
                if once and self._session_.daemon != daemon:
                    raise Unavailable(
                        f"another daemon goes on with this session, at {self.address}: whether the one before carried "
                        "this request out is not known; make it again"
                    ) from None

    def _trace(self) -> tracing.Metadata:
        """The trace that a request made now belongs to."""
        return tracing.metadata(self._traceparent)

    def _is_cut_off(self, error: grpc.RpcError, turn: int | None = None) -> bool:
        """Whether the connection is gone, and not the daemon's own refusal, which leaves the session open. What the
        daemon cancels then may be heard of before that. ``turn``: of the connection, as the request was made; another
        thread may have come back with the session since."""
        if self.closed or error.code() not in _CUT_OFF:
            return False
        if turn is not None and turn != self._stub.turn:
            return True
        # A daemon that cancels says why: without a word it is the transport, whose session may end much later.
        return self._session_.has_ended(*((_CUT_SECONDS,) if error.details() == "CANCELLED" else ()))

    def _error(self, error: grpc.RpcError, location: str) -> HostirError:
        """The error of a request made at ``location``; a location that the daemon names is better."""
        failure = from_rpc(error)
        if isinstance(failure, Unavailable) and self._daemon is not None and (ended := self._daemon.died()):
            return Unavailable(f"the private daemon {ended}{self._log_tail()}")
        message = str(failure)
        if self._is_cut_off(error):
            why = message.rpartition(": ")[2]  # gRPC's last words: "Connection refused".
            failure = Unavailable(message)
            message = f"the daemon at {self.address} has gone ({why}); connect again and put tensors again"
        elif isinstance(failure, FailedPrecondition) and message.startswith("no such session"):
            why = self._session_.why_ended()
            message += f"{f' ({why})' if why else ''}; connect again and put tensors again"
        return from_code(failure.code, _with_origin(message, location))

    def _check_size(self, request: Any, location: str | None) -> None:
        """Refuses what the daemon's transport would, by the limit's name."""
        size = request.ByteSize() if isinstance(request, Message) else 0
        if size > self._message_bytes_max > 0:
            message = f"message_bytes_max = {self._message_bytes_max}: the request has {size} bytes; split it"
            raise ResourceExhausted(_with_origin(message, caller_location() if location is None else location))

    def _log_tail(self) -> str:
        return f"; its log ends:\n{self._daemon.log_tail()}" if self._daemon is not None else ""

    def _check_open(self) -> None:
        forks.check(self._pid)
        if self.closed:
            raise FailedPrecondition("this client is closed")

    def _take(self, queue: collections.deque[str]) -> list[str]:
        """As much of it as one request may free."""
        taken: list[str] = []
        with contextlib.suppress(IndexError):
            while len(taken) < self._handles_max:
                taken.append(queue.popleft())
        return taken

    def _free_collected(self) -> None:
        self._check_open()
        while (handles := self._take(self._collected)) or self._abandoned:
            abandoned = self._take(self._abandoned)
            code = self._try_free(handles, abandoned)
            if code in _KNOWN_TO_BE_GONE:  # All or none: one of them is, the others are not for that.
                codes = [self._try_free([handle], []) for handle in handles]
                handles = [handle for handle, code in zip(handles, codes, strict=True) if code not in _FREED]
                abandoned = []
            elif code is None:
                continue
            if handles or abandoned:  # For the next time. If the daemon went away, the next request says so.
                self._collected.extend(handles)
                self._abandoned.extend(abandoned)
                return

    def _try_free(self, handles: Sequence[str], abandoned: Sequence[str]) -> grpc.StatusCode | None:
        """How the daemon refuses it; None: it does not."""
        request = pb.FreeRequest(session_id=self._session, handles=handles, abandoned=abandoned)
        self._give_key(request)
        try:
            self._send(self._stub.Free, request, self._deadline)
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return None if str(error.details()).startswith("no such session") else code
        return None

    def close(self) -> None:
        """Ends the session, which frees its arrays, and the private daemon if there is one: ``client.close()``.

        In a process forked from the one that made it nothing ends: the session is the other's.
        """
        self._close(True)

    def _close(self, goes_on: bool) -> None:
        """``goes_on``: the process does, with what it has mapped."""
        if self.closed:
            return
        self.closed = True
        atexit.unregister(self._close)
        if self._pid != os.getpid():  # Closing would wait for threads that are not here.
            return
        try:
            if goes_on:
                self._transfers.unmap()
        finally:
            self._session_.end()
            self._nodes.close()
            self._stub.close()
            if self._daemon is not None:
                self._daemon.stop()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.num_devices} {self.device_kind} devices"
        return f"<hostir.Client of {self.address}: {state}>"


def _stderr_is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()  # None: a process without one.


def _with_origin(message: str, location: str) -> str:
    """``message`` with where the request was made, unless it names a line already."""
    return message if not location or _HAS_LOCATION.search(message) else f"{message} ({location})"


def _check_sound(tensor: Any, array: Array) -> None:
    """Raises what poisoned or lost it."""
    if tensor.error.code != 0:
        raise from_code(tensor.error.code, _with_origin(tensor.error.message, array._origin))


def _size(name: str, size: int) -> int:
    if not isinstance(size, (int, np.integer)) or not -(2**63) <= size < 2**63:
        raise invalid(f"explain: {name} = {size!r}; a size is an integer of 64 bits")
    return int(size)


def _check_seconds(lease: float | None, deadline: float | None) -> None:
    if lease is not None and not 0 <= lease < 2**31:  # Also for NaN.
        raise invalid(f"lease = {lease!r}: it is a number of seconds, 0 for none")
    if deadline is not None and not 0 < deadline < 2**31:
        raise invalid(f"deadline = {deadline!r}: it is a number of seconds above 0, or None")


def _milliseconds(seconds: float, name: str) -> int:
    if not 0 < seconds < 2**53:  # Also for NaN.
        raise invalid(f"run: {name} {seconds}; it is a number of seconds above 0")
    return max(1, int(seconds * 1000))


def _left_ms(end: float, what: str, deadline: float | None) -> int:
    left = int(1000 * (end - time.monotonic()))
    if left <= 0:
        raise DeadlineExceeded(
            located(f"{what}: its deadline of {deadline} s passed before the daemon had room for it")
        )
    return left


def _number_argument(number: bool | int | float) -> pb.RunArg:
    if isinstance(number, bool):
        return pb.RunArg(bool_value=number)
    if isinstance(number, int):
        return pb.RunArg(int_value=number)
    return pb.RunArg(float_value=number)
