"""Clients: of a daemon that runs, of one that is started, and the one that ``fd.execute`` uses."""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from . import forks, private_daemon, tracing
from .address import addresses
from .array import Array
from .client import CONNECT_SECONDS, Client
from .definition import FusionDefinition
from .errors import FailedPrecondition
from .location import invalid, located
from .progress import PlanProgress
from .sharding import Sharding

CONNECT_GPU_SECONDS = 60.0  # Opening GPUs and connecting them takes a while.
_EXECUTE_OPTIONS = ("device", "wait", "nowait", "timeout", "deadline")
_default: Client | None = None


def connect(
    address: str | None = None,
    *,
    devices: str | None = None,
    timeout: float | None = None,
    progress: bool | Callable[[PlanProgress], None] | None = None,
    log: private_daemon.Log | None = None,
    lease: float | None = None,
    deadline: float | None = None,
    ca: str | None = None,
    cert: str | None = None,
    key: str | None = None,
    traceparent: tracing.Traceparent | None = None,
) -> Client:
    """A client of a daemon that is ready to serve.

    address: "unix:/path" or "tcp:host:port", or, of a cluster that elects its head, those of all its nodes with commas
    between: the client finds the one that heads, and the next one when that has changed. Without it:
    ``$HOSTIR_ADDRESS`` if set, unless ``devices`` is given; else a private daemon is started on ``devices`` ("cpu:4",
    "cuda:all", "cuda:0,2"), which ends with its workers when this process does, however it does. Raises InvalidArgument
    for what is no address and for devices that cannot be asked for; Unavailable within ``timeout`` seconds (10, with
    GPUs 60), with the private daemon's last log lines; FailedPrecondition when it finds no device to use, and in a
    process forked from one that had connected before: gRPC does not work there. Devices that cannot be used beside
    others that can are in ``status()["failed_devices"]``, each with its error.

    ca, cert, key: paths of PEM files, with which a connection to "tcp:host:port" is one of TLS: the authorities that
    sign the daemon's certificate, this client's certificate, and its private key. Without them: ``$HOSTIR_CA``,
    ``$HOSTIR_CERT``, ``$HOSTIR_KEY``; without those, too, only a daemon of this machine is talked to. Raises
    InvalidArgument for files that will not do, and Unauthenticated, at once, when one side does not take the other's
    certificate, or only one speaks TLS.

    progress: whether stderr says what a call waits for when that takes longer than a second ("compiling 3 of 7 kernels,
    1.2 s"); without it, where stderr is a terminal. A function is called instead, on a thread of the client's.

    log: where the log of a private daemon goes, and what its processes print: a path, which is appended to, or a file
    with a descriptor (``sys.stderr``). Without it a file of the daemon's own, which goes with it, and whose end is in
    the errors about its death.

    lease: seconds for which the daemon keeps the session, with its arrays, where the connection is cut off; requests
    made meanwhile wait for it to come back, and are carried out once, whatever was lost. 30 over TCP, 0 on a Unix
    socket, whose other end is gone when it closes; the daemon grants at most session_lease_ms_max.

    deadline: seconds after which a request without an answer raises DeadlineExceeded; what it would have made is freed.
    None: as long as it takes, or until the connection is found dead (30 s).

    traceparent: the trace that requests belong to, as W3C Trace Context writes it, or a function that says which at
    each request (None: of none). It stands in the daemon's logs and in timelines. OpenTelemetry's current span, where
    there is one, comes first. Raises InvalidArgument for another text; what else the function says is left out.

    >>> with hostir.connect(devices="cpu:4", log="hostir.log") as client:
    ...     (y,) = client.run(fd, [x])
    """
    forks.check()
    if address is not None and devices is not None:
        raise invalid("address and devices: a daemon that runs, or one that is started, not both")
    if devices is not None and (not isinstance(devices, str) or not devices):  # hostird says what is wrong with others.
        raise invalid(f"devices = {devices!r}: want cpu:N, cuda:all, or GPUs by number such as cuda:0,2")
    if timeout is None:
        timeout = CONNECT_GPU_SECONDS if devices is not None and devices.startswith("cuda") else CONNECT_SECONDS
    if address is None and devices is None:
        address = os.environ.get("HOSTIR_ADDRESS") or None
        if address is not None:
            addresses(address, "$HOSTIR_ADDRESS")
    if address is not None and log is not None:
        raise invalid(f"log: the daemon at {address} runs already, with a log of its own; devices= starts one")
    tracing.checked(traceparent)  # Before there is a daemon.
    options: dict[str, Any] = {"progress": progress, "lease": lease, "deadline": deadline, "traceparent": traceparent}
    if address is not None:
        return Client(address, timeout=timeout, ca=ca, cert=cert, key=key, **options)
    if ca is not None or cert is not None or key is not None:
        raise invalid("ca, cert and key are for a daemon at tcp:host:port: a private one is this process's alone")
    until = time.monotonic() + timeout
    daemon = private_daemon.start(devices or private_daemon.DEFAULT_DEVICES, timeout, log)
    try:
        left = max(1.0, until - time.monotonic())
        client = Client(daemon.address, daemon=daemon, timeout=left, **options)
    except BaseException:
        daemon.stop()
        raise
    if client.num_devices == 0:
        failure = client.status()["last_failure"]
        client.close()
        raise FailedPrecondition(f"no device for devices={devices!r}: {failure}")
    return client


def default_client() -> Client:
    """The client that ``fd.execute`` runs on: made at first use, closed when the process ends."""
    global _default
    forks.check()
    if _default is not None and not _default._session_.is_open():
        _default.close()
    if _default is None or _default.closed:
        _default = connect()
    return _default


def from_shards(shards: Sequence[Any], sharding: Sharding, client: Client | None = None) -> Array:
    """The global array made of local ones, on ``client`` or that of ``fd.execute``, as Client.from_shards:
    ``hostir.from_shards([x[:1], x[1:]], Sharding([0, 1], {0: "mesh_x"}))``."""
    return (client or default_client()).from_shards(shards, sharding)


def execute(fd: FusionDefinition, inputs: Any, options: dict[str, Any]) -> Any:
    """``fd.execute``, whose keywords are ``options``."""
    for name in options:
        if name not in _EXECUTE_OPTIONS:
            close = difflib.get_close_matches(name, _EXECUTE_OPTIONS, 1)
            remedy = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(_EXECUTE_OPTIONS)}"
            raise TypeError(located(f"execute() got an unexpected keyword argument {name!r}; {remedy}"))
    client = default_client()
    device = options.pop("device", None)
    if device is not None and str(device) not in ("0", client.device_kind, f"{client.device_kind}:0"):
        raise invalid(
            f"execute: device={str(device)!r}: a program without a mesh runs on {client.device_kind}:0 here; "
            "a mesh places it elsewhere: x.set_device_mesh([1])"
        )
    results = client.run(fd, inputs, **options)
    return list(results) if fd._output_tree is None else results
