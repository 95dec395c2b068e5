"""What ran where: FLOPs and bytes of the nodes that are programs, and of those that fell back to PyTorch."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from ..client import Client
from ..definition import FusionDefinition
from ..plan import Plan


def flops_of(node: torch.fx.Node) -> int:
    """Of products and convolutions, as PyTorch counts them, and of products of groups, which it does not."""
    packet = getattr(node.target, "overloadpacket", None)
    count = flop_registry.get(packet)
    if count is None:
        return _grouped_flops(node) if "grouped_mm" in str(packet) else 0
    arguments, options = torch.fx.node.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
    return _number(count(*arguments, **options, out_val=node.meta["val"]))


def _grouped_flops(node: torch.fx.Node) -> int:
    """Each row times the matrix of its group; twice that of the gradients."""
    shapes = [each.meta["val"].shape for each in node.all_input_nodes if isinstance(each.meta["val"], torch.Tensor)]
    rows = next((_number(shape[0]) for shape in shapes if len(shape) == 2), 0)
    matrix = next((_number(shape[1]) * _number(shape[2]) for shape in shapes if len(shape) == 3), 0)
    return 2 * rows * matrix * (2 if "backward" in str(node.target) else 1)


def bytes_of(node: torch.fx.Node) -> int:
    """Read and written."""
    values = [node.meta.get("val"), *(each.meta.get("val") for each in node.all_input_nodes)]
    tensors = [each for value in values for each in (value if isinstance(value, (list, tuple)) else [value])]
    return sum(
        math.prod(_number(size) for size in each.shape) * each.dtype.itemsize
        for each in tensors
        if isinstance(each, torch.Tensor)
    )


def _number(size: Any) -> int:
    if isinstance(size, torch.SymInt):
        hint = size.node.hint
        return 0 if hint is None else int(hint)
    return int(size)


class Counts:
    """Of one graph."""

    def __init__(self, name: str, client: Callable[[], Client]) -> None:
        self.name = name
        self.client = client
        self.runs = 0
        self.definitions: Callable[[], list[FusionDefinition]] = list
        self.flops, self.fallen_flops = 0, 0
        self.bytes, self.fallen_bytes = 0, 0
        self.lowered = 0
        self.fallen: collections.Counter[tuple[str, str]] = collections.Counter()  # By op and reason.

    def add(self, node: torch.fx.Node, why: str) -> None:
        """Counts a node that runs on hostir, or, with ``why``, in PyTorch."""
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.__name__.startswith(("copy_.", "sym_")):
            return
        if why:
            self.fallen[str(node.target).removeprefix("aten."), why] += 1
            self.fallen_flops += flops_of(node)
            self.fallen_bytes += bytes_of(node)
        else:
            self.lowered += 1
            self.flops += flops_of(node)
            self.bytes += bytes_of(node)

    def move(self, nodes: Sequence[torch.fx.Node], why: str) -> None:
        """Nodes that were to run on hostir, and do not."""
        for node in nodes:
            if isinstance(node.target, torch._ops.OpOverload) and not node.target.__name__.startswith("sym_"):
                self.lowered -= 1
                self.flops -= flops_of(node)
                self.bytes -= bytes_of(node)
        for node in nodes:
            self.add(node, why)


class Report:
    """What ``report()`` returns; ``str()`` of it is a table.

    ``graphs`` are all that were compiled, ``flops`` and ``bytes`` the shares of hostir in what they do, 0 to 1, and
    ``fallen`` counts ops that PyTorch carries out, by name and reason.
    """

    def __init__(self, graphs: list[Counts]) -> None:
        self.graphs = graphs
        self.flops = _share([g.flops * g.runs for g in graphs], [g.fallen_flops * g.runs for g in graphs])
        self.bytes = _share([g.bytes * g.runs for g in graphs], [g.fallen_bytes * g.runs for g in graphs])
        self.fallen: collections.Counter[tuple[str, str]] = sum((g.fallen for g in graphs), collections.Counter())

    def plans(self) -> list[Plan]:
        """Plans of the programs that have run, in the order of ``graphs``: segments, communications, the host program.

        >>> print(hostir.torch.report().plans())
        """
        return [graph.client().explain(fd) for graph in self.graphs for fd in graph.definitions()]

    def __str__(self) -> str:
        lines = [
            f"{len(self.graphs)} graphs, {sum(g.runs for g in self.graphs)} runs: "
            f"{self.flops:.1%} of the FLOPs and {self.bytes:.1%} of the bytes on hostir"
        ]
        lines += [f"  {g.name}: {g.lowered} ops on hostir, {sum(g.fallen.values())} in PyTorch" for g in self.graphs]
        lines += [f"  in PyTorch: {count} of {op}: {why}" for (op, why), count in self.fallen.most_common()]
        return "\n".join(lines)


def _share(here: list[int], there: list[int]) -> float:
    total = sum(here) + sum(there)
    return sum(here) / total if total else 1.0
