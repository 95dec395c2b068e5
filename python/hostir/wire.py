"""The generated protocol modules, and conversions of the small messages."""

from __future__ import annotations

from typing import Any

from .v1 import service_pb2, service_pb2_grpc, tensor_pb2

from .array import Sharding
from .dtypes import DataType
from .mesh import DeviceMesh

_DTYPES = {
    DataType.Bool: tensor_pb2.DTYPE_BOOL,
    DataType.Int32: tensor_pb2.DTYPE_INT32,
    DataType.Int: tensor_pb2.DTYPE_INT64,
    DataType.Half: tensor_pb2.DTYPE_FLOAT16,
    DataType.BFloat16: tensor_pb2.DTYPE_BFLOAT16,
    DataType.Float: tensor_pb2.DTYPE_FLOAT32,
    DataType.Double: tensor_pb2.DTYPE_FLOAT64,
}
_DATA_TYPES = {number: data_type for data_type, number in _DTYPES.items()}
_DIMENSIONS = ("mesh_x", "mesh_y", "mesh_z")


def dtype_number(data_type: DataType) -> int:
    return _DTYPES[data_type]


def data_type(number: int) -> DataType:
    return _DATA_TYPES[number]


def mesh_message(mesh: DeviceMesh) -> Any:
    return tensor_pb2.Mesh(shape=mesh.shape, devices=mesh.devices)


def sharding_message(sharding: Sharding) -> Any:
    names = _DIMENSIONS[: len(sharding.mesh.shape)][::-1]  # In the order of the mesh's dimensions.
    axes = [sharding.axes.get(name, -1) for name in names]
    return tensor_pb2.Sharding(mesh=mesh_message(sharding.mesh), axis_of_dimension=axes)


def sharding_of(message: Any) -> Sharding:
    """The sharding of a message; an absent one is whole on device 0."""
    import numpy as np

    if not message.mesh.devices:
        return Sharding(DeviceMesh([0]), {})
    mesh = DeviceMesh(np.reshape(list(message.mesh.devices), list(message.mesh.shape)))
    names = _DIMENSIONS[: len(mesh.shape)][::-1]
    return Sharding(mesh, {name: axis for name, axis in zip(names, message.axis_of_dimension) if axis >= 0})


__all__ = ["data_type", "dtype_number", "mesh_message", "service_pb2", "service_pb2_grpc", "sharding_message", "sharding_of", "tensor_pb2"]
