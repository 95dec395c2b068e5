"""A recorded program as the service's message."""

from __future__ import annotations

from typing import Any

from . import text
from .definition import FusionDefinition
from .wire import plan_pb2 as pb


def source(fd: FusionDefinition) -> Any:
    """The message, made once. Raises FailedPrecondition while ``fd`` is being defined."""
    fd._check_frozen()
    return pb.ProgramSource(text=key(fd).decode())


def key(fd: FusionDefinition) -> bytes:
    fd._check_frozen()
    return text.program_text(fd.name, fd._record).encode()
