"""The trace that requests belong to, as W3C Trace Context names it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

from .location import invalid

Traceparent = str | Callable[[], str | None]
Metadata = tuple[tuple[str, str], ...] | None  # As gRPC takes it.
_FORM = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def checked(traceparent: Traceparent | None) -> Traceparent | None:
    """``traceparent`` as ``hostir.connect`` takes it. Raises InvalidArgument for anything else."""
    if traceparent is None or callable(traceparent):
        return traceparent
    if not isinstance(traceparent, str) or _FORM.fullmatch(traceparent) is None:
        raise invalid(
            f"traceparent = {traceparent!r}: want a function, or a text as 00-0af7651916cd43dd8448eb211c80319c-"
            "b7ad6b7169203331-01 (W3C Trace Context)"
        )
    return traceparent


def metadata(given: Traceparent | None) -> Metadata:
    """The trace of a request made now: OpenTelemetry's current span, else ``given``; None: nothing."""
    traceparent = _of_current_span() or (given() if callable(given) else given)
    if traceparent is None or not isinstance(traceparent, str) or _FORM.fullmatch(traceparent) is None:
        return None
    return (("traceparent", traceparent),)


def _of_current_span() -> str | None:
    # Where there is a span somebody has imported this: looking for it costs nothing, and imports nothing.
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
