"""How long a run took, by the segments of its plan."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from .plan import _amount, _columns


@dataclass(frozen=True)
class SegmentTime:
    """How long one segment or communication of a plan took.

    >>> for s in profile.segments:  # Each is a SegmentTime.
    ...     print(s.name, s.kind, s.bytes, s.rank_us)
    """

    name: str  # as explain names it: "k0", "matmul", "allreduce #0"
    # "kernel", "library", "communication"; "host" for what belongs to no segment of the plan, a fill
    kind: str
    bytes: int | None  # read and written per rank; None where the plan does not say
    rank_us: list[float]  # microseconds by rank, all launches together; 0 where the rank has no part in it

    @property
    def max_us(self) -> float:
        """Microseconds of the slowest rank: ``max(s.max_us for s in profile.segments)``."""
        return max(self.rank_us, default=0.0)

    @property
    def median_us(self) -> float:
        """Microseconds, over the ranks that have a part in it: ``[s.max_us / s.median_us for s in profile.segments]``
        shows where one rank is slower than the others."""
        return median([us for us in self.rank_us if us > 0] or [0.0])


class Profile:
    """The times of a run, and its results.

    ``segments`` are in the order of the plan, without views, which are no work; each time is the median over ``repeat``
    runs. ``run_us`` is a run from its turn to its end as the daemon saw it, in microseconds, messages and the loading
    of a new program included. ``outputs`` are those of the last run, as ``client.run`` gives them.

    >>> profile: hostir.Profile = client.profile(fd, [x], repeat=3)
    >>> print(profile)  # A row for each segment.
    """

    def __init__(self, replies: Sequence[Any], outputs: Any, name: str) -> None:
        """replies: hostir.v1.RunReply, one a run."""
        self.name = name
        self.outputs = outputs
        self.repeat = len(replies)
        self.run_us: float = median(reply.run_us for reply in replies)
        self.segments = [
            SegmentTime(
                rows[0].name,
                rows[0].kind,
                int(rows[0].bytes) if rows[0].HasField("bytes") else None,
                [median(times) for times in zip(*(row.rank_us for row in rows), strict=True)],
            )
            for rows in zip(*(reply.profile.segments for reply in replies), strict=True)
        ]

    @property
    def total_us(self) -> float:
        """The sum of the segments' max_us: ``profile.total_us / profile.run_us``."""
        return sum(segment.max_us for segment in self.segments)

    def __str__(self) -> str:
        rows = [("segment", "kind", "bytes a rank", "slowest us", "median us", "share")]
        total = self.total_us
        for s in self.segments:
            share = f"{100 * s.max_us / total:.1f} %" if total > 0 else ""
            size = "" if s.bytes is None else _amount(s.bytes)
            rows.append((s.name, s.kind, size, f"{s.max_us:.1f}", f"{s.median_us:.1f}", share))
        runs = "a run" if self.repeat == 1 else f"the median of {self.repeat} runs"
        return "\n".join([*_columns(rows), "", f"sum {total:.1f} us, {runs} of {self.name} {self.run_us:.0f} us"])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def __repr__(self) -> str:
        return f"<hostir.Profile of {self.name}: {len(self.segments)} segments, {self.total_us:.0f} us>"
