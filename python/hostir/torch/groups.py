"""Products of groups of rows, as mixtures of experts make them: ATen's, and those that ``transformers`` has in its
place."""

from __future__ import annotations

from typing import Any

import torch

from ..values import Tensor
from .lowering import Lowering, lowers


def _refusal(node: torch.fx.Node) -> str:
    if any(each.meta["val"].device.type == "cuda" for each in node.all_input_nodes):
        return "products of groups on a GPU, which PyTorch makes faster"
    return ""


def _transposed(low: Lowering, matrices: Tensor) -> Tensor:
    return low.ops.permute(matrices, [0, 2, 1])


@lowers("transformers.grouped_mm_fallback.default", unless=_refusal)
def _grouped(low: Lowering, out: Any, x: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
    return low.ops.grouped_matmul(x, matrices, ends)


@lowers("transformers.grouped_mm_fallback_backward.default", unless=_refusal)
def _grouped_backward(
    low: Lowering, out: Any, x: Tensor, matrices: Tensor, ends: Tensor, gradient: Tensor
) -> list[Tensor]:
    return [
        low.ops.grouped_matmul(gradient, _transposed(low, matrices), ends),
        low.ops.grouped_outer(x, gradient, ends),
    ]


def _aten_refusal(node: torch.fx.Node) -> str:
    names = ("self", "mat2", "offs", "bias", "out_dtype")
    arguments: dict[str, Any] = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    x, y = arguments["self"].meta["val"], arguments["mat2"].meta["val"]
    if arguments.get("offs") is None or (x.ndim, y.ndim) not in ((2, 2), (2, 3)):
        return f"no groups of rows: products of {x.ndim} and {y.ndim} axes"
    if arguments.get("bias") is not None or arguments.get("out_dtype") not in (None, x.dtype):
        return "a bias, or a result of another element type"
    return _refusal(node)


@lowers("_grouped_mm.default", unless=_aten_refusal)
def _grouped_mm(
    low: Lowering, out: Any, x: Tensor, y: Tensor, offs: Tensor, bias: None = None, out_dtype: Any = None
) -> Tensor:
    """Of two axes and two the groups are those of columns of ``x`` and rows of ``y``."""
    if y.ndim == 2:
        return low.ops.grouped_outer(low.ops.permute(x, [1, 0]), y, offs)
    return low.ops.grouped_matmul(x, y, offs)
