"""PyTorch models on hostir: ``torch.compile(model, backend="hostir")``.

Forward and backward graphs, as AOTAutograd makes them, become programs of the daemon; ops that programs do not have run
in PyTorch, between them, and ``report()`` names them. Importing this module registers the backend; where the package is
installed PyTorch finds it by itself.

>>> import torch, hostir.torch
>>> model = torch.compile(torch.nn.Linear(8, 8), backend="hostir")
>>> model(torch.ones(2, 8)).sum().backward()
>>> print(hostir.torch.report())
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._dynamo import register_backend
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..client import Client
from . import clients, staging
from .attention import attend
from .counts import Counts, Report
from .draws import dropout
from .graphs import Graph
from .norms import group_norm, group_norm_backward
from .parallel import parallelize_module
from .residency import Residency

__all__ = ["Report", "backend", "forget", "parallelize_module", "report", "reset", "use"]

# Beside those of core ATen.
_DECOMPOSED = """
    native_layer_norm native_layer_norm_backward native_batch_norm_backward
    _softmax _softmax_backward_data _log_softmax _log_softmax_backward_data nll_loss_forward nll_loss_backward
    elu elu_backward gelu_backward glu_backward hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh
    hardtanh_backward leaky_relu_backward mish_backward sigmoid_backward silu_backward softplus softplus_backward
    tanh_backward threshold threshold_backward log_sigmoid_forward log_sigmoid_backward
    mse_loss mse_loss_backward huber_loss huber_loss_backward smooth_l1_loss smooth_l1_loss_backward
    binary_cross_entropy binary_cross_entropy_backward native_dropout_backward
    addmv split unbind linalg_vector_norm slice_backward select_backward masked_fill
"""

_residency = Residency()
_compiled: list[Counts] = []


def use(client: Client | None) -> None:
    """The client whose daemon runs what is compiled. None: that of ``$HOSTIR_ADDRESS``; else a private daemon's, which
    is started on the GPU where a graph's tensors are, or on CPUs as of ``FusionDefinition.execute``.

    >>> hostir.torch.use(client)
    """
    clients.use(client)
    _residency.forget()
    staging.clear()


def report() -> Report:
    """All graphs that this process has compiled, the share of FLOPs and bytes that run on hostir, and the ops that fell
    back to PyTorch with reasons: ``print(hostir.torch.report())``."""
    return Report(list(_compiled))


def forget(tensor: torch.Tensor | None = None) -> None:
    """Has a parameter, or all, sent again: after a change that PyTorch's version counter does not see, through
    ``.data`` or NumPy: ``hostir.torch.forget(weight)``."""
    _residency.forget(tensor)


def reset() -> None:
    """Starts the report anew, as ``torch._dynamo.reset()`` the compiled graphs: ``hostir.torch.reset()``."""
    _compiled.clear()
    _residency.forget()
    staging.clear()


def _decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    more = [getattr(aten, name) for name in _DECOMPOSED.split() if hasattr(aten, name)]
    found = {**core_aten_decompositions(), **get_decompositions(more)}
    found.pop(aten.embedding_dense_backward.default, None)  # A sum of rows, not an index_put of zeros.
    found[aten.native_dropout.default] = dropout
    found[aten.native_group_norm.default] = group_norm
    found[aten.native_group_norm_backward.default] = group_norm_backward
    return found


def _graph(
    client: Callable[[], Client],
    module: torch.fx.GraphModule,
    name: str,
    parameters: set[int],
    follows: bool,
    saved: range,
) -> Graph:
    counts = Counts(f"{name}{len(_compiled)}", client)
    _compiled.append(counts)
    options: dict[str, Any] = {"parameters": parameters, "follows": follows, "saved": saved}
    return Graph(module, client, _residency, counts, counts.name, **options)


def _metadata() -> Any:
    """What AOTAutograd knows of the graph that it has compiled now."""
    context = TracingContext.try_get()
    return None if context is None else context.fw_metadata


def _parameters() -> set[int]:
    return set(getattr(_metadata(), "static_input_indices", None) or ())


def _forward(client: Callable[[], Client], module: torch.fx.GraphModule, _: Sequence[Any]) -> Graph:
    (output,) = [node for node in module.graph.nodes if node.op == "output"]
    count = len(output.args[0])
    metadata = _metadata()
    visible = count if metadata is None else int(metadata.num_forward_returns)
    return _graph(client, module, "forward", _parameters(), False, range(visible, count))


def _inference(client: Callable[[], Client], module: torch.fx.GraphModule, _: Sequence[Any]) -> Graph:
    return _graph(client, module, "inference", _parameters(), False, range(0))


def _backward(client: Callable[[], Client], module: torch.fx.GraphModule, _: Sequence[Any]) -> Graph:
    return _graph(client, module, "backward", set(), True, range(0))


def _partition(module: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
    """Matrices of groups are saved as they lie in memory: a transposed view of them would be written out."""
    has_groups = any("grouped_mm" in str(node.target) for node in module.graph.nodes)
    with functorch.patch(recompute_views=has_groups):
        return min_cut_rematerialization_partition(module, inputs, **options)


def _autograd(client: Callable[[], Client]) -> Callable[..., Any]:
    compiler: Callable[..., Any] = aot_autograd(
        fw_compiler=functools.partial(_forward, client),
        bw_compiler=functools.partial(_backward, client),
        inference_compiler=functools.partial(_inference, client),
        decompositions=_decompositions,
        partition_fn=_partition,
        keep_inference_input_mutations=True,
    )
    return compiler


def backend(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """What ``torch.compile(model, backend="hostir")`` calls for each graph:
    ``torch.compile(model, backend=hostir.torch.backend)``."""
    attend(module)
    with sdpa_kernel([SDPBackend.MATH]):  # Other attention in ops that can be fused, not PyTorch's own kernels.
        compiled: Callable[..., Any] = _autograd(clients.client_of(module, inputs))(module, inputs)
    return compiled


register_backend(backend, name="hostir")
