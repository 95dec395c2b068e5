"""What a run will do, before it does it."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .errors import HostirError
from .picture import draw


@dataclass(frozen=True)
class KernelCost:
    """How long a kernel takes by the reckoning that segmentation decides with, in bytes: those that pass through the
    device's memory in that time. A symbol without a size counts 1024.

    >>> for s in plan.segments:
    ...     if s.cost:  # A KernelCost: s is a kernel.
    ...         print(s.name, s.cost.total, s.cost.idle)
    """

    bytes: int  # read, as far as they are, and written: each tensor once
    again: int  # read again by further loops, and workspaces
    arithmetic: int  # functions; goes on beside those two
    idle: int  # more, where few processors or lanes have work
    of_launches: int
    total: int  # the larger of bytes + again and arithmetic, idle and of_launches

    def __str__(self) -> str:
        parts = {
            "again": self.again,
            "of functions": self.arithmetic - self.bytes - self.again,
            "idle": self.idle,
            "of launches": self.of_launches,
        }
        reasons = ", ".join(f"{_amount(amount)} {reason}" for reason, amount in parts.items() if amount > 0)
        return f"{_amount(self.total)}: {reasons}" if reasons else _amount(self.total)


@dataclass(frozen=True)
class Segment:
    """Ops that run together. kind: "kernel", "library", "communication", "view" (no work at all) or "loop": a stream
    loop, whose parts follow it, with its name in ``loop``.

    >>> for s in plan.segments:  # Each is a Segment.
    ...     print(s.name, s.kind, s.launches, s.bytes)
    """

    name: str
    kind: str
    # of a kernel; of a library call what it does behind its sums ("gelu, tf32"); of a loop what it goes through, and on
    # how many streams ("axis 0 in 4 chunks, 3 streams")
    schedule: str
    ops: list[str]
    launches: int
    inputs: list[str]
    outputs: list[str]
    bytes: int | str  # read and written per rank: a number where the sizes are known, else an expression
    loop: str = ""  # the loop that it is a part of; launches and bytes are then those of one iteration
    iterations: str = ""  # of that loop: a number or an expression
    cost: KernelCost | None = None  # of kernels alone; of one iteration


@dataclass(frozen=True)
class Communication:
    """One communication of the plan. team: the lists of ranks that run it side by side.

    >>> for c in plan.communications:  # Each is a Communication.
    ...     print(c.type, c.tensor, c.bytes)
    """

    # "Gather", "Allgather", "Scatter", "Reduce", "Allreduce", "ReduceScatter", "Broadcast", "SendRecv", "AllToAll",
    # "CollectivePermute"
    type: str
    team: list[list[int]]
    bytes: int | str  # per rank
    tensor: str
    number: int  # in queue order, as in the host program ("seq"), in pictures and in errors: "allreduce #2"


@dataclass(frozen=True)
class Memory:
    """Bytes that a run needs on each of the ranks, beside what libraries and communicators hold."""

    ranks: list[int]
    inputs: int
    outputs: int  # beside the inputs: also of those that take over an input, until the run is over
    intermediates: int  # reserved for them; one pool serves all programs of a device
    live: int  # of intermediates at most at once, by their lives: what a pool needs at least
    peak: int  # of inputs, outputs and what is reserved


@dataclass(frozen=True)
class Time:
    """Microseconds of a run, from its turn to its end: predicted by what was measured of the devices, and taken.

    >>> print(plan.time.predicted_us, plan.time.least_us)
    """

    predicted_us: float | None  # None: unknown says why.
    unknown: str
    work_us: float  # Of the predicted: kernels and products, one behind the other,
    communication_us: float  # and communications; what is more than predicted_us goes on at the same time.
    rates: str  # "NVIDIA H100 80GB HBM3, 2 ranks"
    # Predicted: names, in the order of the plan, without views; loops have 0. Behind them what is of no segment.
    segments: list[tuple[str, float]]
    runs: int  # That were heard of, of this plan with these sizes.
    least_us: float
    last_us: float

    def lines(self) -> list[str]:
        """As ``print(plan)`` and ``hostir explain`` say it."""
        if self.predicted_us is None:
            lines = [f"the time of a run is not predicted: {self.unknown}"]
        else:
            parts = (
                f"{_micros(self.work_us)} of kernels and products, {_micros(self.communication_us)} of communications"
            )
            lines = [f"a run should take {_micros(self.predicted_us)} (by {self.rates}): {parts}"]
        if self.runs:
            runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
            lines.append(f"{runs} took {_micros(self.least_us)} or more, the last {_micros(self.last_us)}")
        return lines


@dataclass(frozen=True)
class Traffic:
    """Bytes that a rank's kernels and library calls read and write in a run, with the sizes the plan was made for.

    >>> print(plan.traffic.bytes / plan.traffic.least)
    """

    bytes: int
    least: int  # with the same calls and communications, as host_ir/pipeline/traffic.h reckons it


def _cost(segment: Any) -> KernelCost | None:
    c = segment.cost
    if not segment.HasField("cost"):
        return None
    return KernelCost(c.bytes, c.again, c.arithmetic, c.idle, c.of_launches, c.total)


def _time(explanation: Any) -> Time:
    time = explanation.time
    unknown = time.unknown if explanation.HasField("time") else "the daemon is older than this client"
    return Time(
        predicted_us=None if unknown else time.predicted_us,
        unknown=unknown,
        work_us=time.work_us,
        communication_us=time.communication_us,
        rates=time.rates,
        segments=[(row.name, row.rank_us[0]) for row in time.segments],
        runs=time.runs,
        least_us=time.least_us,
        last_us=time.last_us,
    )


class Plan:
    """The plan of a program. The plan explained is the plan executed.

    ``segments`` and ``communications`` are lists. In text form, ``fusion`` is the program with its shardings and
    reshardings, ``host_ir`` the host program, one for all ranks. ``guards`` are the conditions on sizes under which the
    plan holds; ``pool_bytes`` are the bytes of intermediates on a rank: a number where sizes are known, else an
    expression of them.

    >>> plan: hostir.Plan = client.explain(fd)  # A notebook shows its picture and its tables,
    >>> print(plan)  # and this the tables.
    """

    def __init__(self, reply: Any, name: str = "plan", sizes: Mapping[str, int] | None = None) -> None:
        self._reply: bytes = reply.SerializeToString()
        self._title = (name, dict(sizes or {}))
        explanation = reply.explanation
        self.program_id: str = reply.program_id
        self.segments = [
            Segment(
                *(s.name, s.kind, s.schedule, list(s.ops), s.launches, list(s.inputs), list(s.outputs), _bytes(s)),
                *(s.loop, s.iterations, _cost(s)),
            )
            for s in explanation.segments
        ]
        self.communications = [
            Communication(c.type, [list(r.ranks) for r in c.team], _bytes(c), c.tensor, c.number)
            for c in explanation.communications
        ]
        self.host_ir: str = explanation.host_ir
        self.fusion: str = explanation.fusion
        self.guards = [f"{g.condition} ({g.reason})" if g.reason else g.condition for g in reply.guards]
        self.inputs = [f"{p.name}: {p.type}" for p in reply.inputs]
        self.outputs = [f"{p.name}: {p.type}" for p in reply.outputs]
        # One for each set of ranks that need as much; empty where not all sizes are known: memory_unknown says why.
        self.memory = [
            Memory(list(m.ranks), m.input_bytes, m.output_bytes, m.pool_bytes, m.live_bytes, m.peak_bytes)
            for m in explanation.memory
        ]
        self.memory_unknown: str = explanation.memory_unknown
        # None where the plan was made without some size, blocks are not even, or ops run in loops on the host.
        self.traffic: Traffic | None = None
        if explanation.HasField("traffic"):
            self.traffic = Traffic(explanation.traffic.bytes, explanation.traffic.least)
        self.notes = list(explanation.notes)
        self.time = _time(explanation)

    def json(self) -> str:
        """Everything above as one JSON object, keys sorted: ``json.loads(plan.json())["guards"]``."""
        fields: dict[str, Any] = {name: value for name, value in vars(self).items() if name[0] != "_"}
        fields["segments"] = [asdict(s) for s in self.segments]
        fields["communications"] = [vars(c) for c in self.communications]
        fields["memory"] = [vars(m) for m in self.memory]
        fields["time"] = vars(self.time)
        fields["traffic"] = self.traffic and vars(self.traffic)
        return json.dumps(fields, indent=2, sort_keys=True)

    def svg(self) -> str:
        """The picture of ``hostir explain --svg``, as a document: ``Path("plan.svg").write_text(plan.svg())``.

        A lane for each stream, a box for each kernel, library call, communication and copy; no daemon is asked. Raises
        Unavailable where the command ``hostir``, which draws it, is neither beside hostird nor on ``$PATH``.
        """
        return draw(self._reply, *self._title)

    def _repr_html_(self) -> str:
        """For notebooks: the picture, where it can be drawn, above the tables."""
        tables = f"<pre>{html.escape(str(self))}</pre>"
        try:
            picture = base64.b64encode(self.svg().encode()).decode()
        except HostirError:
            return tables
        # As an image, so that its styles are not the page's.
        return f'<img alt="the plan" style="max-width: 100%" src="data:image/svg+xml;base64,{picture}">{tables}'

    def __str__(self) -> str:
        predicted = self.time.segments
        times = iter(predicted)
        rows: list[tuple[str, ...]] = [("segment", "kind", "work", "reads", "writes", "bytes a rank")]
        has_costs = any(s.cost and isinstance(s.bytes, int) for s in self.segments)
        if has_costs:
            rows = [(*rows[0], "takes as long as")]
        if predicted:
            rows = [(*rows[0], "predicted")]
        for s in self.segments:
            ops = ", ".join(op.split("= ")[-1] for op in s.ops)
            work = f"{ops}, {s.schedule}" if s.kind == "library" and s.schedule else s.schedule or ops
            name, amount = s.name, _amount(s.bytes)
            if s.loop:
                name, amount = f"{s.loop}.{name}", f"{amount} x {s.iterations}"
            row: tuple[str, ...] = (name, s.kind, work, _short(s.inputs), _short(s.outputs), amount)
            if has_costs:
                row = (*row, str(s.cost) if s.cost and isinstance(s.bytes, int) else "")
            if predicted:
                us = 0.0 if s.kind == "view" else next(times)[1]
                row = (*row, "" if s.kind in ("view", "loop") else _micros(us))
            rows.append(row)
        lines = _columns(rows)
        if self.communications:
            lines.append("")
            table = [("communication", "tensor", "team", "bytes a rank")]
            for c in self.communications:
                teams = "; ".join(str(ranks) for ranks in c.team)
                table.append((f"{c.type} #{c.number}", c.tensor, teams, _amount(c.bytes)))
            lines += _columns(table)
        else:
            lines.append("no communication")
        if self.guards:
            lines += ["", "holds for sizes with: " + "; ".join(self.guards)]
        lines.append("")
        if self.memory:
            header = ("memory of rank", "inputs", "outputs", "intermediates", "live at once", "in all")
            of_rank: list[tuple[str, ...]] = [header]
            for m in self.memory:
                amounts = (m.inputs, m.outputs, m.intermediates, m.live, m.peak)
                of_rank.append((", ".join(map(str, m.ranks)), *map(_amount, amounts)))
            lines += _columns(of_rank)
        else:
            lines.append(f"memory is not known: {self.memory_unknown}")
        if self.traffic and self.traffic.least:
            ratio = self.traffic.bytes / self.traffic.least
            lines.append(f"kernels and library calls move {ratio:.2f} times the bytes that they must")
        return "\n".join(lines + self.time.lines() + self.notes)

    def __repr__(self) -> str:
        return f"<hostir.Plan: {len(self.segments)} segments, {len(self.communications)} communications>"


def _micros(us: float) -> str:
    return f"{us:.3g} us" if us < 1000 else f"{us / 1000:.4g} ms"


def _bytes(record: Any) -> int | str:
    return int(record.bytes_value) if record.HasField("bytes_value") else str(record.bytes)


def _amount(amount: int | str) -> str:
    if isinstance(amount, str):
        return amount
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if amount >= size:
            return f"{amount / size:.1f} {unit}"
    return f"{amount} B"


def _short(names: list[str]) -> str:
    shown = [name.split(":")[0] for name in names]
    return ", ".join(shown[:4]) + (f", +{len(shown) - 4}" if len(shown) > 4 else "")


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]
