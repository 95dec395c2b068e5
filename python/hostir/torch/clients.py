"""Which daemon runs a graph: the one that was chosen, or one on the GPU where the graph's tensors are."""

from __future__ import annotations

import functools
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..client import Client
from ..connecting import connect, default_client
from ..errors import FailedPrecondition, HostirError, Unavailable

_chosen: list[Client] = []
_on_gpus: dict[int, Client] = {}  # Private daemons, by GPU.
_refused: dict[int, HostirError] = {}
_starting = threading.Lock()


def use(client: Client | None) -> None:
    """As ``hostir.torch.use``, but for what is known of arrays."""
    _chosen[:] = [] if client is None else [client]
    _refused.clear()


def client_of(module: torch.nn.Module, inputs: Sequence[Any]) -> Callable[[], Client]:
    """A function that finds it when a graph runs: the same one for a forward graph and the one behind it."""
    found = [*inputs, *module.parameters(), *module.buffers()]
    gpus = [each.device.index or 0 for each in found if isinstance(each, torch.Tensor) and each.is_cuda]
    return functools.partial(client_on, gpus[0] if gpus else None)


def client_on(gpu: int | None) -> Client:
    """The chosen client, or that of ``$HOSTIR_ADDRESS``; else a private daemon's: on ``gpu``, with a warning on CPUs
    where none can be started there; on CPUs for None."""
    if _chosen:
        return _chosen[0]
    if gpu is None or gpu in _refused or os.environ.get("HOSTIR_ADDRESS"):
        return default_client()
    with _starting:
        client = _on_gpus.get(gpu)
        if client is not None and not client.closed and client._session_.is_open():
            return client
        try:
            client = _on_gpus[gpu] = connect(devices=f"cuda:{gpu}")
            return client
        except (FailedPrecondition, Unavailable) as error:
            _refused[gpu] = error
    warnings.warn(
        f"hostir.torch: programs of cuda:{gpu} run on CPUs, and their tensors are copied there and back, until "
        f"hostir.torch.use() is called: no daemon could be started on that GPU: {_refused[gpu]}",
        stacklevel=2,
    )
    return default_client()
