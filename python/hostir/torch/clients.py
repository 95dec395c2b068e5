"""Which daemon runs a graph: the one that was chosen, or one on the GPU where the graph's tensors are."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable

import torch

from ..client import Client
from ..connecting import connect, default_client
from ..errors import FailedPrecondition, HostirError, Unavailable

_chosen: list[Client] = []
_on_gpus: dict[int, Client] = {}  # Private daemons, by GPU.
_refused: dict[int, HostirError] = {}


def use(client: Client | None) -> None:
    """As ``hostir.torch.use``, but for what is known of arrays."""
    _chosen[:] = [] if client is None else [client]


def client_of(module: torch.fx.GraphModule) -> Callable[[], Client]:
    """A function that finds it when the graph runs."""
    found = (node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder")
    gpus = [each.device.index or 0 for each in found if isinstance(each, torch.Tensor) and each.is_cuda]
    return functools.partial(client_on, gpus[0] if gpus else None)


def client_on(gpu: int | None) -> Client:
    """The chosen client, or that of ``$HOSTIR_ADDRESS``; else a private daemon's: on ``gpu``, with a warning on CPUs
    where none can be started there; on CPUs for None."""
    if _chosen:
        return _chosen[0]
    if gpu is None or gpu in _refused or os.environ.get("HOSTIR_ADDRESS"):
        return default_client()
    client = _on_gpus.get(gpu)
    if client is None or client.closed or not client._session_.is_open():
        try:
            client = _on_gpus[gpu] = connect(devices=f"cuda:{gpu}")
        except (FailedPrecondition, Unavailable) as error:
            _refused[gpu] = error
            warnings.warn(
                f"hostir.torch: programs of cuda:{gpu} run on CPUs, and their tensors are copied there and back: no "
                f"daemon could be started on that GPU: {error}",
                stacklevel=2,
            )
            return default_client()
    return client
