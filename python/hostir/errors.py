"""What hostir raises: one class for each status code a request can end with; checks made here raise the same ones."""

from __future__ import annotations

import grpc


class HostirError(Exception):
    """A request that failed. The message names the operation, the value seen, the limit and the user's line.

    Its subclasses are the status codes of gRPC; ``code`` is the name of the code.

    >>> try:
    ...     client.run(fd, [x[0]])
    ... except hostir.HostirError as error:
    ...     print(error.code, error)
    """

    code: str = "UNKNOWN"


class Cancelled(HostirError):
    """The run was cancelled (``Array.cancel``), or the client left before the answer: it was closed meanwhile."""

    code = "CANCELLED"


class InvalidArgument(HostirError, ValueError):
    """The program or the call is wrong; the same call will fail again."""

    code = "INVALID_ARGUMENT"


class DeadlineExceeded(HostirError):
    """A run did not end in its time, or by its deadline, or a rank did not take part in it."""

    code = "DEADLINE_EXCEEDED"


class NotFound(HostirError):
    """A handle that the daemon does not know in this session."""

    code = "NOT_FOUND"


class PermissionDenied(HostirError):
    """The daemon may not serve there: a socket in a folder that others may enter, TCP beyond loopback."""

    code = "PERMISSION_DENIED"


class ResourceExhausted(HostirError):
    """A named limit was reached."""

    code = "RESOURCE_EXHAUSTED"


class FailedPrecondition(HostirError):
    """Right call, wrong state: a freed handle, a definition that is still open."""

    code = "FAILED_PRECONDITION"


class Aborted(HostirError):
    """The run was stopped by another failure, which the message names."""

    code = "ABORTED"


class Unimplemented(HostirError, NotImplementedError):
    """Not built: an operation, type or layout; the message names another way."""

    code = "UNIMPLEMENTED"


class Internal(HostirError):
    """A bug of hostir's."""

    code = "INTERNAL"


class Unavailable(HostirError):
    """A rank, the planner or the daemon went away; the daemon heals, so a retry may succeed."""

    code = "UNAVAILABLE"


class DataLoss(HostirError):
    """The tensor is gone, with the GPU process whose memory held it: put it again, or run again what made it."""

    code = "DATA_LOSS"


class Unauthenticated(HostirError):
    """By TCP: one side does not take the other's certificate, or only one of them speaks TLS; the message says which
    file to change."""

    code = "UNAUTHENTICATED"


_CLASSES = {cls.code: cls for cls in HostirError.__subclasses__()}
for _class in (HostirError, *_CLASSES.values()):
    _class.__module__ = "hostir"  # Tracebacks name what users write.

_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


def from_code(code: str | int, message: str) -> HostirError:
    """The error for a status code, by name or by gRPC's number."""
    name = _NAMES.get(code, "UNKNOWN") if isinstance(code, int) else code
    error = _CLASSES.get(name, HostirError)(message)
    error.code = name
    return error


def from_rpc(error: grpc.RpcError) -> HostirError:
    """The hostir error for a failed gRPC call."""
    code = error.code() if callable(getattr(error, "code", None)) else None
    message = error.details() if callable(getattr(error, "details", None)) else str(error)
    return from_code(code.name if code is not None else "UNKNOWN", message or str(error))
