"""A recorded program in the text form of docs/ir.md: what ``print(fd)`` shows, and what programs are compared by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .mesh import DeviceMesh
from .record import AnnotationRecord, Attribute, OpRecord, ParamRecord, Record


def meshes_of(record: Record) -> dict[DeviceMesh, str]:
    """The meshes of a program in the order of their first use, with their names: "m", "m1", ..."""
    meshes: dict[DeviceMesh, str] = {}
    for name in values_of(record):
        for annotation in record.annotations.get(name, ()):
            if annotation.mesh is not None:
                meshes.setdefault(annotation.mesh, f"m{len(meshes) or ''}")
    return meshes


def values_of(record: Record) -> Iterator[str]:
    """The names of all values, inputs first."""
    yield from (param.name for param in record.params)
    yield from (op.result for op in record.ops)


def program_text(name: str, record: Record, segmentation: str = "") -> str:
    meshes = meshes_of(record)

    def layout(value: str) -> str:
        commands = ", ".join(_command(annotation, meshes) for annotation in record.annotations.get(value, ()))
        return f" {{{commands}}}" if commands else ""

    lines = [f"mesh @{mesh_name} = {_devices(mesh)}" for mesh, mesh_name in meshes.items()]
    if segmentation:
        lines.append(f"segmentation {segmentation}")
    params = [f"%{p.name}: {_type(p)}{layout(p.name)}" for p in record.params]
    lines.append(f"fusion @{name}({', '.join(params)}) {{")
    lines += [f"  %{op.result}{layout(op.result)} = {_call(op)}" for op in record.ops]
    outputs = [f"%{o.value}" + (f" alias %{o.alias}" if o.alias is not None else "") for o in record.outputs]
    if outputs:
        lines.append(f"  return {', '.join(outputs)}")
    return "\n".join([*lines, "}\n"])


def _devices(mesh: DeviceMesh) -> str:
    def nested(shape: tuple[int, ...], devices: tuple[int, ...]) -> str:
        if len(shape) == 1:
            return _list(devices)
        size = len(devices) // shape[0]
        return _list(nested(shape[1:], devices[i : i + size]) for i in range(0, len(devices), size))

    return nested(mesh.shape, mesh.devices)


def _type(param: ParamRecord) -> str:
    if param.axes is None:
        return param.dtype.value
    texts = {False: "{}", True: "b:{}"}
    axes = ("b" if a.broadcast and a.extent == 1 else texts[a.broadcast].format(a.extent) for a in param.axes)
    return f"{param.dtype.value}{_list(axes)}"


def _call(op: OpRecord) -> str:
    call = f"{op.name}({', '.join(f'%{operand}' for operand in op.operands)})"
    attrs = ", ".join(f"{name}={_attribute(value)}" for name, value in op.attrs.items())
    return f"{call} {{{attrs}}}" if attrs else call


def _attribute(value: Attribute) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _list(value) if isinstance(value, list) else str(value)


def _command(annotation: AnnotationRecord, meshes: dict[DeviceMesh, str]) -> str:
    kind = annotation.kind
    if annotation.mesh is not None:
        return f"mesh=@{meshes[annotation.mesh]}"
    if kind == "stride_order":
        return f"stride_order({', '.join(map(str, annotation.order))})"
    if kind in ("outer_split", "inner_split"):
        return f"{kind}({annotation.axis}, {annotation.factor})"
    return f"{kind}({annotation.axis}" + (f", {annotation.parallel_type})" if annotation.parallel_type else ")")


def _list(values: Iterable[object]) -> str:
    return f"[{', '.join(map(str, values))}]"
