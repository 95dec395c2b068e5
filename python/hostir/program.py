"""A recorded program as the service's message, with the user's lines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from .definition import FusionDefinition
from .location import invalid
from .mesh import DeviceMesh
from .record import AnnotationRecord, Attribute, ExtentText, OpRecord, ParamRecord
from .text import meshes_of, program_text, values_of
from .wire import mesh_message
from .wire import plan_pb2 as pb_plan
from .wire import program_pb2 as pb

_ANNOTATIONS = {
    "mesh": pb.ProgramAnnotation.MESH,
    "outer_split": pb.ProgramAnnotation.OUTER_SPLIT,
    "inner_split": pb.ProgramAnnotation.INNER_SPLIT,
    "merge": pb.ProgramAnnotation.MERGE,
    "parallelize": pb.ProgramAnnotation.PARALLELIZE,
    "shard": pb.ProgramAnnotation.SHARD,
    "stride_order": pb.ProgramAnnotation.STRIDE_ORDER,
}


def source(fd: FusionDefinition) -> Any:
    """The message. Raises FailedPrecondition while ``fd`` is being defined."""
    return _made(fd)[0]


def key(fd: FusionDefinition) -> bytes:
    """The same for programs with the same text; lines do not count."""
    return _made(fd)[1]


def _made(fd: FusionDefinition) -> tuple[Any, bytes]:
    fd._check_frozen()
    if fd._program is None:
        if not fd._outputs:
            raise invalid(f"{fd.name} has no outputs; fd.add_output makes a value one, and nothing is computed without")
        digest = hashlib.sha256(program_text(fd.name, fd._record, fd.segmentation).encode()).digest()
        fd._program = (pb_plan.ProgramSource(program=_message(fd)), digest)
    made: tuple[Any, bytes] = fd._program
    return made


def _message(fd: FusionDefinition) -> Any:
    record = fd._record
    meshes = meshes_of(record)
    message = pb.Program(op_set="fusion", name=fd.name, segmentation=fd.segmentation)
    message.meshes.extend(pb.ProgramMesh(name=name, mesh=mesh_message(mesh)) for mesh, name in meshes.items())
    message.params.extend(_param(param) for param in record.params)
    message.ops.extend(_op(op) for op in record.ops)
    message.outputs.extend(
        pb.ProgramOutput(value=output.value, alias=output.alias or "", location=output.location)
        for output in record.outputs
    )
    for value in values_of(record):
        message.annotations.extend(_annotations(value, record.annotations.get(value, []), meshes))
    return message


def _param(param: ParamRecord) -> Any:
    if param.axes is None:
        kind = pb.ValueType(scalar=param.dtype.value)
        return pb.ProgramParam(name=param.name, type=kind, location=param.location)
    tensor = pb.TensorType(dtype=param.dtype.value)
    for axis in param.axes:
        kind = pb.ProgramAxis.BROADCAST if axis.broadcast else pb.ProgramAxis.ITERATION
        tensor.axes.append(pb.ProgramAxis(kind=kind, extent=_extent(axis.extent)))
    return pb.ProgramParam(name=param.name, type=pb.ValueType(tensor=tensor), location=param.location)


def _op(op: OpRecord) -> Any:
    message = pb.ProgramOp(name=op.name, operands=op.operands, location=op.location)
    message.results.add(name=op.result)
    message.attrs.extend(_attr(name, value) for name, value in op.attrs.items())
    return message


def _attr(name: str, value: Attribute) -> Any:
    if isinstance(value, bool):
        return pb.ProgramAttr(name=name, bool=value)
    if isinstance(value, int):
        return pb.ProgramAttr(name=name, int=value)
    if isinstance(value, float):
        return pb.ProgramAttr(name=name, float=value)
    if isinstance(value, ExtentText):
        return pb.ProgramAttr(name=name, extent=_extent(value))
    if isinstance(value, str):
        return pb.ProgramAttr(name=name, word=value)
    # The service takes numbers as extents for both kinds of lists.
    return pb.ProgramAttr(name=name, extents=pb.ProgramExtents(values=[_extent(entry) for entry in value]))


def _extent(extent: int | str) -> Any:
    return pb.ProgramExtent(text=extent) if isinstance(extent, str) else pb.ProgramExtent(value=extent)


def _annotations(value: str, records: list[AnnotationRecord], meshes: dict[DeviceMesh, str]) -> Iterator[Any]:
    for record in records:
        yield pb.ProgramAnnotation(
            value=value,
            kind=_ANNOTATIONS[record.kind],
            mesh=meshes[record.mesh] if record.mesh is not None else "",
            axis=record.axis,
            factor=record.factor,
            parallel_type=record.parallel_type,
            order=record.order,
            location=record.location,
        )
