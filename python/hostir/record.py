"""A program as it was recorded: plain data, turned into the service's message by program.py."""

from __future__ import annotations

from dataclasses import dataclass, field

from .dtypes import DataType
from .mesh import DeviceMesh


class ExtentText(str):
    """An extent that is no number, where an attribute is one extent: "i0 / 4"."""


# A number, a word (an element type), an extent, a list of numbers, or a list of extents (a text is an expression).
Attribute = bool | int | float | str | list[int] | list[int | str]


@dataclass(frozen=True)
class AxisRecord:
    """One axis of an input: a number or a symbol; a broadcast axis is stored once."""

    extent: int | str
    broadcast: bool


@dataclass(frozen=True)
class ParamRecord:
    name: str
    dtype: DataType
    axes: tuple[AxisRecord, ...] | None  # None: a host scalar.
    location: str


@dataclass(frozen=True)
class OpRecord:
    name: str
    operands: tuple[str, ...]
    result: str
    attrs: dict[str, Attribute]
    location: str


@dataclass(frozen=True)
class AnnotationRecord:
    """One layout call: "mesh", "outer_split", "inner_split", "merge", "parallelize", "shard" or "stride_order"."""

    kind: str
    location: str
    mesh: DeviceMesh | None = None
    axis: int = 0
    factor: int = 0
    parallel_type: str = ""
    order: tuple[int, ...] = ()


@dataclass(frozen=True)
class OutputRecord:
    value: str
    alias: str | None  # The input whose memory it takes over.
    location: str


@dataclass
class Record:
    """A whole program."""

    params: list[ParamRecord] = field(default_factory=list)
    ops: list[OpRecord] = field(default_factory=list)
    outputs: list[OutputRecord] = field(default_factory=list)
    annotations: dict[str, list[AnnotationRecord]] = field(default_factory=dict)  # By value, in the order of the calls.
