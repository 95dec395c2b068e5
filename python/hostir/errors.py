"""What hostir raises: one class for each status code a request can end with."""

from __future__ import annotations

import grpc


class HostirError(Exception):
    """A request that failed. ``str(error)`` names the operation, the value seen, the limit and the remedy."""

    code: str = "UNKNOWN"


class Cancelled(HostirError):
    code = "CANCELLED"


class InvalidArgument(HostirError):
    """The program or the call is wrong; the same call will fail again."""

    code = "INVALID_ARGUMENT"


class DeadlineExceeded(HostirError):
    code = "DEADLINE_EXCEEDED"


class NotFound(HostirError):
    """A handle or program the daemon does not know in this session."""

    code = "NOT_FOUND"


class ResourceExhausted(HostirError):
    """A named limit was reached."""

    code = "RESOURCE_EXHAUSTED"


class FailedPrecondition(HostirError):
    """Right call, wrong state: a freed handle, a lost shard."""

    code = "FAILED_PRECONDITION"


class Aborted(HostirError):
    """The run was poisoned by another failure, which the message names."""

    code = "ABORTED"


class Unimplemented(HostirError):
    code = "UNIMPLEMENTED"


class Internal(HostirError):
    """A bug of hostir's."""

    code = "INTERNAL"


class Unavailable(HostirError):
    """A rank, the planner or the daemon went away; the daemon heals, so a retry may succeed."""

    code = "UNAVAILABLE"


class Unauthenticated(HostirError):
    code = "UNAUTHENTICATED"


class PermissionDenied(HostirError):
    code = "PERMISSION_DENIED"


_CLASSES = {cls.code: cls for cls in HostirError.__subclasses__()}


def from_code(code: str, message: str) -> HostirError:
    return _CLASSES.get(code, HostirError)(message)


def from_rpc(error: grpc.RpcError) -> HostirError:
    """The hostir error for a failed gRPC call."""
    code = error.code() if callable(getattr(error, "code", None)) else None
    message = error.details() if callable(getattr(error, "details", None)) else str(error)
    return from_code(code.name if code is not None else "UNKNOWN", message or str(error))
