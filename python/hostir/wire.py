"""The generated protocol modules, and conversions of the small messages."""

from __future__ import annotations

import functools
from collections.abc import MutableSequence
from typing import Any, NamedTuple

import numpy as np
from google.protobuf import descriptor_pb2

from .dtypes import DataType
from .mesh import DeviceMesh
from .sharding import Sharding

try:
    from .v1 import plan_pb2, program_pb2, recording_pb2, service_pb2, service_pb2_grpc, shards_pb2, tensor_pb2
except ImportError as error:
    raise ImportError(
        f"hostir: the protocol modules are missing ({error}); ./run build python_stubs makes them"
    ) from error

_DTYPES = {
    DataType.Bool: tensor_pb2.DTYPE_BOOL,
    DataType.Byte: tensor_pb2.DTYPE_UINT8,
    DataType.Char: tensor_pb2.DTYPE_INT8,
    DataType.Int32: tensor_pb2.DTYPE_INT32,
    DataType.Int: tensor_pb2.DTYPE_INT64,
    DataType.Half: tensor_pb2.DTYPE_FLOAT16,
    DataType.BFloat16: tensor_pb2.DTYPE_BFLOAT16,
    DataType.Float: tensor_pb2.DTYPE_FLOAT32,
    DataType.Double: tensor_pb2.DTYPE_FLOAT64,
}
_DATA_TYPES = {number: data_type for data_type, number in _DTYPES.items()}


# Fields of bytes: 2 of UploadRequest, 1 of ShardChunk.
_CHUNK_TAG = b"\x12"
_DATA_TAG = b"\x0a"


def _tagged(tag: bytes, view: memoryview) -> bytes:
    """A message whose only field has these bytes, which are copied once."""
    length, varint = view.nbytes, bytearray()
    while length > 0x7F:
        varint.append(length & 0x7F | 0x80)
        length >>= 7
    varint.append(length)
    return b"".join((tag, varint, view))


def _upload_bytes(request: Any) -> bytes:
    """An UploadRequest, or a view of the bytes of a chunk."""
    return _tagged(_CHUNK_TAG, request) if isinstance(request, memoryview) else bytes(request.SerializeToString())


def runtime_stub(channel: Any) -> Any:
    """The generated stub; its ``Upload`` takes views of bytes as well as messages."""
    stub = service_pb2_grpc.RuntimeStub(channel)
    stub.Upload = channel.stream_unary(
        "/hostir.v1.Runtime/Upload",
        request_serializer=_upload_bytes,
        response_deserializer=service_pb2.UploadReply.FromString,
    )
    return stub


def unary_replies() -> dict[str, Any]:
    """The types of the replies of methods that are no streams, by method."""
    service = descriptor_pb2.ServiceDescriptorProto()
    service_pb2.DESCRIPTOR.services_by_name["Runtime"].CopyToProto(service)
    return {
        method.name: getattr(service_pb2, method.output_type.rpartition(".")[2])
        for method in service.method
        if not method.client_streaming and not method.server_streaming
    }


def shard_methods(channel: Any) -> tuple[Any, Any]:
    """Of the service Shards: Write, of views of bytes, and Read."""
    write = channel.stream_unary(
        "/hostir.v1.Shards/Write",
        request_serializer=functools.partial(_tagged, _DATA_TAG),
        response_deserializer=shards_pb2.WriteReply.FromString,
    )
    read = channel.unary_stream(
        "/hostir.v1.Shards/Read",
        request_serializer=shards_pb2.ReadRequest.SerializeToString,
        response_deserializer=shards_pb2.ShardChunk.FromString,
    )
    return write, read


def dtype_number(data_type: DataType) -> int:
    return int(_DTYPES[data_type])


def data_type(number: int) -> DataType:
    return _DATA_TYPES[number]


_SPECS_KEPT = 2048
_SHARDINGS_KEPT = 256  # Of results: those of a program's next run are equal.


def mesh_message(mesh: DeviceMesh) -> Any:
    return tensor_pb2.Mesh(shape=mesh.shape, devices=mesh.devices)


def sharding_message(sharding: Sharding, rank: int) -> Any:
    """Of an array of ``rank`` axes. Raises InvalidArgument for an axis that it has not."""
    axes = [sharding.axis_of(name, rank) for name in sharding.mesh.dimensions]
    return tensor_pb2.Sharding(
        mesh=mesh_message(sharding.mesh),
        axis_of_dimension=[-1 if axis is None else axis for axis in axes],
        dealt=[axis in sharding.dealt for axis in axes] if sharding.dealt else [],
    )


class Spec(NamedTuple):
    """Of an array."""

    shape: tuple[int, ...]
    data_type: DataType
    sharding: Sharding
    stored_once: tuple[bool, ...]
    memory_order: tuple[int, ...]  # Axes as they lie in memory, the outermost first; empty: row-major.


def spec_of(message: Any) -> Spec:
    """That of a message. Runs of a program return the same ones."""
    return _spec(message.SerializeToString())


@functools.lru_cache(maxsize=_SPECS_KEPT)
def _spec(serialized: bytes) -> Spec:
    spec = tensor_pb2.TensorSpec.FromString(serialized)
    return Spec(
        tuple(spec.shape),
        data_type(spec.dtype),
        sharding_of(spec.sharding),
        tuple(spec.stored_once),
        tuple(spec.memory_order),
    )


def sharding_of(message: Any) -> Sharding:
    """The sharding of a message; an absent one is whole on device 0."""
    return _sharding(message.SerializeToString())


@functools.lru_cache(maxsize=_SHARDINGS_KEPT)
def _sharding(serialized: bytes) -> Sharding:
    message = tensor_pb2.Sharding.FromString(serialized)
    if not message.mesh.devices:
        return Sharding(DeviceMesh([0]))
    mesh = DeviceMesh(np.reshape(list(message.mesh.devices), list(message.mesh.shape)))
    axes: dict[int, tuple[str, ...]] = {}
    for name, axis in zip(mesh.dimensions, message.axis_of_dimension, strict=False):  # Empty: no axis is split.
        if axis >= 0:
            axes[axis] = (*axes.get(axis, ()), name)
    dealt = [axis for axis, is_dealt in zip(message.axis_of_dimension, message.dealt, strict=False) if is_dealt]
    return Sharding(mesh, axes, dealt)


def as_dict(message: Any) -> dict[str, Any]:
    """The fields of a message, in order, those with default values too."""

    def plain(value: Any) -> Any:
        return as_dict(value) if hasattr(value, "DESCRIPTOR") else value

    fields = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        fields[field.name] = [plain(v) for v in value] if isinstance(value, MutableSequence) else plain(value)
    return fields


__all__ = [
    "as_dict",
    "data_type",
    "dtype_number",
    "mesh_message",
    "plan_pb2",
    "program_pb2",
    "recording_pb2",
    "service_pb2",
    "service_pb2_grpc",
    "sharding_message",
    "sharding_of",
    "shards_pb2",
    "tensor_pb2",
]
