"""The client: tensors to and from a daemon, programs run on its devices."""

from __future__ import annotations

import atexit
import collections
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import grpc
import numpy as np

from . import private_daemon, program, wire
from .array import Array, Sharding
from .definition import FusionDefinition, Scalar, Tensor, Value
from .dtypes import DataType, as_data_type
from .errors import FailedPrecondition, HostirError, InvalidArgument, from_code, from_rpc
from .mesh import DeviceMesh
from .plan import Plan
from .wire import service_pb2 as pb
from .wire import service_pb2_grpc as rpc
from .wire import tensor_pb2 as pb_tensor

CONNECT_SECONDS = 10.0
_CHUNK_BYTES = 1 << 20
_default: Client | None = None


def connect(address: str | None = None, *, devices: str | None = None, timeout: float = CONNECT_SECONDS) -> Client:
    """A client of a daemon that is ready to serve.

    address: "unix:/path" or "host:port". Without it: ``$HOSTIR_ADDRESS`` if set, unless ``devices`` is given; else a private
    daemon is started on ``devices`` ("cpu:4"), which ends with its workers when this process does, however it does.
    Raises Unavailable within ``timeout`` seconds, with the daemon's last log lines.
    """
    if address is None and devices is None:
        address = os.environ.get("HOSTIR_ADDRESS")
    if address is not None:
        return Client(address, timeout=timeout)
    daemon = private_daemon.start(devices or private_daemon.DEFAULT_DEVICES, timeout)
    try:
        return Client(daemon.address, daemon=daemon, timeout=timeout)
    except HostirError:
        daemon.stop()
        raise


def default_client() -> Client:
    """The client that ``fd.execute`` runs on: made at first use, closed when the process ends."""
    global _default
    if _default is None or _default.closed:
        _default = connect()
        atexit.register(_default.close)
    return _default


class Client:
    """One session with a daemon. Threads: one at a time. Closing it frees its arrays."""

    def __init__(
        self, address: str, *, daemon: private_daemon.PrivateDaemon | None = None, timeout: float = CONNECT_SECONDS
    ) -> None:
        self.address = address
        self.closed = False
        self._daemon = daemon
        self._collected: collections.deque[str] = collections.deque()
        self._programs: dict[int, tuple[FusionDefinition, pb.CompileReply]] = {}
        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        self._channel = grpc.insecure_channel(address, options=options)
        self._stub = rpc.RuntimeStub(self._channel)
        try:
            grpc.channel_ready_future(self._channel).result(timeout=timeout)
            name = f"python, pid {os.getpid()}"
            self._events = self._stub.Connect(pb.ConnectRequest(client=name))
            hello = next(self._events)
        except (grpc.FutureTimeoutError, grpc.RpcError) as error:
            self._channel.close()
            lines = f"; its log ends:\n{daemon.log_tail()}" if daemon is not None else ""
            raise from_code("UNAVAILABLE", f"no daemon answers at {address} within {timeout:g} s{lines}") from error
        self._session = hello.session_id
        self._chunk_bytes = min(_CHUNK_BYTES, hello.chunk_bytes_max or _CHUNK_BYTES)
        self.num_devices: int = hello.num_devices

    # --- tensors ------------------------------------------------------------------------------------------------

    def put(self, array: Any, tensor: Tensor | None = None, *, sharding: Sharding | None = None) -> Array:
        """Copies a host array to the devices, laid out as the input ``tensor`` of its program, or as ``sharding`` says.

        array: anything with the buffer protocol or DLPack, of any strides; of an axis with stride 0 one element moves.
        With neither, it lies whole on device 0. The array may change once this returns.
        """
        header = pb.UploadHeader(session_id=self._session)
        if tensor is not None:
            definition = tensor._definition
            reply = self._compile(definition)
            header.input.program_id = reply.program_id
            header.input.index = _input_index(definition, tensor)
        elif sharding is not None:
            header.sharding.CopyFrom(wire.sharding_message(sharding))
        return self._upload(_as_numpy(array), header)

    def _upload(self, array: np.ndarray, header: pb.UploadHeader) -> Array:
        sent_once = [n > 1 and stride == 0 for n, stride in zip(array.shape, array.strides)]
        header.dtype = wire.dtype_number(as_data_type(array.dtype))
        header.shape.extend(array.shape)
        if any(sent_once):
            header.sent_once.extend(sent_once)
        stored = array[tuple(slice(0, 1) if once else slice(None) for once in sent_once)]

        def requests() -> Iterator[pb.UploadRequest]:
            yield pb.UploadRequest(header=header)
            flat = np.ascontiguousarray(stored).reshape(-1).view(np.uint8)
            for start in range(0, flat.size, self._chunk_bytes):
                yield pb.UploadRequest(chunk=flat[start : start + self._chunk_bytes].tobytes())

        return self._array(self._call(self._stub.Upload, requests()).tensor)

    def _download(self, array: Array, device: int | None = None) -> np.ndarray:
        self._check_live(array)
        request = pb.DownloadRequest(session_id=self._session, handle=array._handle)
        if device is not None:
            request.device = device
        try:
            stream = self._stub.Download(request)
            header = next(stream).header
            bytes_out = np.empty(header.total_bytes, np.uint8)
            at = 0
            for message in stream:
                chunk = np.frombuffer(message.chunk, np.uint8)
                bytes_out[at : at + chunk.size] = chunk
                at += chunk.size
        except grpc.RpcError as error:
            raise from_rpc(error) from None
        if at != header.total_bytes:
            raise from_code("DATA_LOSS", f"download ended after {at} of {header.total_bytes} bytes")
        shape = tuple(header.shape)
        once = list(header.sent_once) or [False] * len(shape)
        stored = tuple(min(n, 1) if o else n for n, o in zip(shape, once))
        value = bytes_out.view(array.dtype).reshape(stored)
        return value if stored == shape else np.broadcast_to(value, shape).copy()

    def _shards(self, array: Array) -> list[tuple[int, tuple[slice, ...], np.ndarray]]:
        self._check_live(array)
        reply = self._call(self._stub.Shards, pb.ShardsRequest(session_id=self._session, handle=array._handle))
        return [
            (
                shard.device,
                tuple(slice(start, start + extent) for start, extent in zip(shard.start, shard.extent)),
                self._download(array, shard.device),
            )
            for shard in reply.shards
        ]

    def from_shards(self, shards: Sequence[tuple[Any, Any]] | Sequence[Any], sharding: Sharding) -> Array:
        """The global array made of local ones, one for each device of the mesh in mesh order (copies must agree)."""
        return self.put(assemble(shards, sharding), sharding=sharding)

    def reshard(self, array: Array, sharding: Sharding) -> Array:
        """A copy of ``array`` laid out as ``sharding`` says."""
        with FusionDefinition("reshard") as fd:
            x = fd.define_tensor(shape=[-1] * array.ndim, contiguity=[True] * array.ndim, dtype=array.data_type)
            y = fd.ops.set(x)
            fd.add_output(y)
            x.shard(array.sharding.mesh, {axis: name for name, axis in array.sharding.axes.items()})
            y.shard(sharding.mesh, {axis: name for name, axis in sharding.axes.items()})
        return self.run(fd, [array])[0]

    def free(self, *arrays: Array) -> None:
        """Frees arrays now; queued runs that use them still see them."""
        for array in arrays:
            self._check_live(array)
        handles = [array._handle for array in arrays]
        if handles:
            self._call(self._stub.Free, pb.FreeRequest(session_id=self._session, handles=handles))
        for array in arrays:
            array._freed = True
            array._finalizer.detach()

    # --- programs -----------------------------------------------------------------------------------------------

    def run(
        self, fd: FusionDefinition, inputs: Sequence[Any], *, wait: bool = False, timeout: float | None = None
    ) -> tuple[Array, ...]:
        """Runs a program. inputs: Arrays, host arrays (put first, as the program wants them) or numbers for scalars.

        Returns once the run is accepted; the arrays wait on first read. wait=True returns when it is over. timeout: seconds
        from its turn to its end.
        """
        declared = fd.fusion.inputs()
        if len(inputs) != len(declared):
            raise InvalidArgument(f"{fd.name} has {len(declared)} inputs, got {len(inputs)}")
        reply = self._compile(fd)
        request = pb.RunRequest(session_id=self._session, program_id=reply.program_id, wait=wait)
        request.timeout_ms = int(timeout * 1000) if timeout else 0
        temporary = []
        for value, parameter in zip(inputs, declared):
            if isinstance(parameter, Scalar):
                request.args.append(_scalar_argument(value))
                continue
            if not isinstance(value, Array):
                assert isinstance(parameter, Tensor)
                value = self.put(value, parameter)
                temporary.append(value)
            self._check_live(value)
            request.args.append(pb.RunArg(handle=value._handle))
        result = self._call(self._stub.Run, request, retry=lambda: self._compile_again(fd, request))
        self._mark_consumed(fd, inputs)
        if temporary:
            self.free(*(array for array in temporary if not array._freed))
        return tuple(self._array(tensor) for tensor in result.outputs)

    def explain(self, fd: FusionDefinition, sizes: Mapping[str, int] | None = None) -> Plan:
        """What a run will do: segments, communications, the host program. ``sizes`` gives symbols ("i0") numbers."""
        source = program.source(fd)
        request = pb.ExplainRequest(session_id=self._session, program=source, sizes=dict(sizes or {}))
        return Plan(self._call(self._stub.Explain, request))

    def _compile(self, fd: FusionDefinition) -> pb.CompileReply:
        known = self._programs.get(id(fd))
        if known is not None:
            return known[1]
        request = pb.CompileRequest(session_id=self._session, program=program.source(fd))
        reply = self._call(self._stub.Compile, request)
        self._programs[id(fd)] = (fd, reply)  # Keeps fd alive, so that its id stays its own.
        return reply

    def _compile_again(self, fd: FusionDefinition, request: pb.RunRequest) -> None:
        self._programs.pop(id(fd), None)
        request.program_id = self._compile(fd).program_id

    def _mark_consumed(self, fd: FusionDefinition, inputs: Sequence[Any]) -> None:
        names = [parameter._name for parameter in fd.fusion.inputs()]
        for _, alias in fd._record.outputs:
            value = inputs[names.index(alias)] if alias is not None else None
            if isinstance(value, Array):
                value._freed = True
                value._finalizer.detach()

    # --- state --------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Devices, processes, generation, memory, limits: what the daemon says of itself."""
        from google.protobuf.json_format import MessageToDict

        reply = self._call(self._stub.Status, pb.StatusRequest())
        return MessageToDict(reply, preserving_proto_field_name=True, including_default_value_fields=True)

    def _state(self, array: Array) -> str:
        request = pb.WaitRequest(session_id=self._session, handles=[array._handle], poll=True)
        state = self._call(self._stub.Wait, request).tensors[0].state
        return {pb_tensor.TENSOR_STATE_READY: "ready", pb_tensor.TENSOR_STATE_POISONED: "poisoned"}.get(state, "pending")

    def _wait(self, arrays: Sequence[Array]) -> None:
        for array in arrays:
            self._check_live(array)
        request = pb.WaitRequest(session_id=self._session, handles=[array._handle for array in arrays])
        for tensor in self._call(self._stub.Wait, request).tensors:
            if tensor.error.code != 0:
                raise from_code(grpc_code_name(tensor.error.code), tensor.error.message)

    def _check_live(self, array: Array) -> None:
        if array._client is not self:
            raise FailedPrecondition(f"{array!r} belongs to another client; download it and put it here")
        if array._freed:
            raise FailedPrecondition(f"{array!r} has been freed")

    def _array(self, tensor: Any) -> Array:
        spec = tensor.spec
        sharding = wire.sharding_of(spec.sharding)
        return Array(self, tensor.handle, tuple(spec.shape), wire.data_type(spec.dtype), sharding)

    def _call(self, method: Any, request: Any, retry: Any = None) -> Any:
        if self.closed:
            raise FailedPrecondition("this client is closed")
        self._free_collected()
        try:
            return method(request)
        except grpc.RpcError as error:
            if retry is not None and error.code() == grpc.StatusCode.NOT_FOUND and "program" in (error.details() or ""):
                retry()
                return self._call(method, request)
            raise from_rpc(error) from None

    def _free_collected(self) -> None:
        handles = []
        while self._collected:
            handles.append(self._collected.popleft())
        if handles:
            try:
                self._stub.Free(pb.FreeRequest(session_id=self._session, handles=handles))
            except grpc.RpcError:
                pass  # The daemon went away, and its tensors with it: the next request says so.

    def close(self) -> None:
        """Ends the session, which frees its arrays, and the private daemon if there is one."""
        if self.closed:
            return
        self.closed = True
        self._events.cancel()
        self._channel.close()
        if self._daemon is not None:
            self._daemon.stop()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<hostir.Client of {self.address}: {'closed' if self.closed else f'{self.num_devices} devices'}>"


def grpc_code_name(number: int) -> str:
    return next((code.name for code in grpc.StatusCode if code.value[0] == number), "UNKNOWN")


def assemble(shards: Sequence[Any], sharding: Sharding) -> np.ndarray:
    """The global array whose blocks, in mesh order, are ``shards``."""
    mesh = sharding.mesh
    if len(shards) != mesh.size:
        raise InvalidArgument(f"{len(shards)} shards for {mesh!r}, which has {mesh.size} devices")
    blocks = [_as_numpy(shard) for shard in shards]
    dimension = {name: len(mesh.shape) - 1 - i for i, name in enumerate(("mesh_x", "mesh_y", "mesh_z"))}
    shape = list(blocks[0].shape)
    for name, axis in sharding.axes.items():
        shape[axis] *= mesh.shape[dimension[name]]
    out = np.empty(shape, blocks[0].dtype)
    for position, block in enumerate(blocks):
        if block.shape != blocks[0].shape:
            raise InvalidArgument(f"shard {position} has shape {block.shape}, shard 0 has {blocks[0].shape}")
        coordinates = np.unravel_index(position, mesh.shape)
        index = [0] * block.ndim
        for name, axis in sorted(sharding.axes.items(), key=lambda item: dimension[item[0]]):
            index[axis] = index[axis] * mesh.shape[dimension[name]] + int(coordinates[dimension[name]])
        out[tuple(slice(i * n, (i + 1) * n) for i, n in zip(index, block.shape))] = block
    return out


def _as_numpy(array: Any) -> np.ndarray:
    if isinstance(array, np.ndarray):
        return array
    if hasattr(array, "__dlpack__") and not hasattr(array, "__array__"):
        return np.from_dlpack(array)
    return np.asarray(array)


def _input_index(fd: FusionDefinition, tensor: Value) -> int:
    for i, value in enumerate(fd.fusion.inputs()):
        if value is tensor:
            return i
    raise InvalidArgument(f"put: {tensor!r} is not an input of its program; put lays an array out as an input")


def _scalar_argument(value: Any) -> pb.RunArg:
    if isinstance(value, (bool, np.bool_)):
        return pb.RunArg(bool_value=bool(value))
    if isinstance(value, (int, np.integer)):
        return pb.RunArg(int_value=int(value))
    return pb.RunArg(float_value=float(value))


__all__ = ["Client", "DataType", "DeviceMesh", "connect", "default_client"]
