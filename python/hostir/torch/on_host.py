"""Ops of a graph on numbers of the host: an optimizer's counts of steps, and corrections by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Node

from .lowering import tensors_in

_ELEMENTWISE = {torch.ops.aten._to_copy.default, torch.ops.prims.convert_element_type.default}  # Without the tag.


def on_host(graph: torch.fx.Graph, is_number: Any) -> set[Node]:
    """Arguments without axes in the host's memory, and what is made of nothing else. PyTorch computes those, ahead of
    everything; a program takes them for numbers, which cost no array. ``is_number``: whether a node is Python's."""
    found: set[Node] = set()
    for node in graph.nodes:
        value = node.meta.get("val")
        tensors = list(tensors_in(value))
        is_scalar = bool(tensors) and all(each.dim() == 0 and each.device.type == "cpu" for each in tensors)
        if node.op == "placeholder":
            is_made_so = is_scalar and isinstance(value, torch.Tensor)
        else:
            inputs = node.all_input_nodes
            is_made_so = node.op == "call_function" and any(each in found for each in inputs)
            is_made_so &= all(each in found or (is_number(each) and each.op == "placeholder") for each in inputs)
        if is_scalar and is_made_so and "copy_" not in str(node.target):
            found.add(node)
    return found


class _Kind(NamedTuple):
    """A tensor operand, whichever of its batch."""

    batch: int


class _Operand(NamedTuple):
    """A tensor that an op reads: numbers of one batch, by their places in it; None: all, in order."""

    batch: int
    places: list[int] | None


class _Batch:
    """Nodes that do the same to other numbers, as one op on a vector of these. An optimizer has a count for each of its
    parameters, and to call an op takes longer than the op."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.nodes: list[Node] = []
        self.is_raw = not isinstance(node.meta["val"], torch.Tensor)  # Several results, which others take apart.
        is_elementwise = torch.Tag.pointwise in getattr(node.target, "tags", ()) or node.target in _ELEMENTWISE
        self.is_vector = is_elementwise and not self.is_raw
        self.operands: list[_Operand | None] = []  # In the order of _operands; None: of Python's numbers.

    def run(self, made: Sequence[Any], numbers: dict[Node, Any]) -> Any:
        operands = iter(self.operands)

        def load(node: Node) -> Any:
            operand = next(operands)
            if operand is None:
                return numbers[node]
            read = made[operand.batch]
            if not isinstance(read, torch.Tensor):
                return read
            read = read if operand.places is None else read[operand.places]
            return read if self.is_vector else read[0]

        arguments, options = torch.fx.node.map_arg((self.node.args, self.node.kwargs), load)
        result: Any = self.node.target(*arguments, **options)
        return result if self.is_vector or self.is_raw else result.reshape(1)


def _operands(node: Node) -> list[Node]:
    """All that it reads, as often as it does."""
    found: list[Node] = []
    torch.fx.node.map_arg((node.args, node.kwargs), found.append)
    return found


class OnHost:
    """Such nodes, as a function of Python's."""

    def __init__(self, nodes: Sequence[Node], results: Sequence[Any]) -> None:
        own = set(nodes)
        self.nodes = list(nodes)
        self.inputs = list(dict.fromkeys(each for node in nodes for each in node.all_input_nodes if each not in own))
        self.outputs = [node for node in nodes if node in results or not own.issuperset(node.users)]
        self._returned = {node for node in self.outputs if node in results}
        self._read = [node for node in self.inputs if isinstance(node.meta["val"], torch.Tensor)]
        self._sources: list[list[Node]] = []
        for dtype in dict.fromkeys(node.meta["val"].dtype for node in self._read):
            self._sources.append([node for node in self._read if node.meta["val"].dtype == dtype])
        self._place = {node: (b, p) for b, source in enumerate(self._sources) for p, node in enumerate(source)}
        self._batches = self._batched()

    def __call__(self, *given: Any) -> list[Any]:
        numbers = dict(zip(self.inputs, given, strict=True))
        made: list[Any] = [torch.stack([numbers[node] for node in source]) for source in self._sources]
        for batch in self._batches:
            made.append(batch.run(made, numbers))
        parts: dict[int, Sequence[torch.Tensor]] = {}
        found = []
        for node in self.outputs:
            batch_number, place = self._place[node]
            if not isinstance(made[batch_number], torch.Tensor):
                found.append(made[batch_number])
                continue
            if batch_number not in parts:
                parts[batch_number] = made[batch_number].unbind()
            part = parts[batch_number][place]
            found.append(part.clone() if node in self._returned else part)  # No two results share memory.
        return found

    def _batched(self) -> list[_Batch]:
        """Nodes whose operands are of the same batches go together. A batch stands behind those that it reads: the
        first of its nodes does."""
        batches: list[_Batch] = []
        by_kind: dict[Any, int] = {}
        for node in self.nodes:

            def kind(operand: Node) -> Any:
                return _Kind(self._place[operand][0]) if operand in self._place else operand

            batch = _Batch(node)
            arguments = torch.fx.node.map_arg((node.args, node.kwargs), kind)
            key = (node.target, repr(arguments)) if batch.is_vector else node
            number = by_kind.setdefault(key, len(self._sources) + len(batches))
            if number == len(self._sources) + len(batches):
                batches.append(batch)
            nodes = batches[number - len(self._sources)].nodes
            self._place[node] = (number, len(nodes))
            nodes.append(node)
        sizes = [len(source) for source in self._sources] + [len(batch.nodes) for batch in batches]
        for batch in batches:
            for read in zip(*map(_operands, batch.nodes), strict=True):
                if read[0] not in self._place:
                    batch.operands.append(None)
                    continue
                number = self._place[read[0]][0]
                places = [self._place[operand][1] for operand in read]
                is_all = places == list(range(sizes[number]))
                batch.operands.append(_Operand(number, None if is_all else places))
        return batches
