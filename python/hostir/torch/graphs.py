"""Compiled graphs: which of their nodes are programs, which are PyTorch's, and how a call goes through them."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import operator
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Node

from .. import wire
from ..array import Array
from ..definition import FusionDefinition
from ..errors import FailedPrecondition, HostirError, InvalidArgument, ResourceExhausted, Unimplemented
from ..inputs import VALUE_BYTES
from ..layouts import stride_order_of
from ..sharding import Sharding
from . import draws, groups, indices, parallel, pointwise, reductions, shapes, staging
from .counts import Counts
from .lowering import Lowering, refusal
from .memory import dense_order, mapped, memory_order, sent_bytes, strided, take_over, tensor_of, with_stride
from .on_host import OnHost, on_host
from .parallel import sharding_of
from .residency import Kind, Residency
from .staging import Slot, Staging

_TABLES = (draws, groups, indices, parallel, pointwise, reductions, shapes)  # They register what they lower.

# Kinds of arrays that a graph takes for its arguments: any; for its parameters; or for the results of earlier steps and
# of the graph before it.
_AT_ONCE, _BEFORE, _BEHIND = frozenset[Kind](), frozenset({Kind.COPY}), frozenset({Kind.COPY, Kind.SENT})
_SCALARS = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32)  # A float64 has each exactly.
_LEAST_ZEROS = 16 << 10  # Bytes that take longer to send than to look at.
_DEFINITIONS_KEPT = 256  # Of a graph whose sizes change.
_WHOLE = "whole"  # Among the values of a call: of nodes whose arrays lie in parts, those that do not.
_UNDER_WAY = object()  # The key of runs that may not be over.
_OVERLAPPED = 8  # Outputs from which on their tensors are made while the run goes on: fewer are not worth a request.
_IN_PLACE = object()  # The key of results that were made where the tensors are that they are written to.
# They make no element: a program of nothing else is left to PyTorch.
_MOVES = (
    "view _unsafe_view reshape unsqueeze squeeze expand permute t transpose slice select split_with_sizes split alias "
    "detach clone lift_fresh_copy full full_like scalar_tensor zeros ones empty empty_permuted arange getitem"
)
_TRANSPOSED = ("permute", "t", "transpose")


class Stored(NamedTuple):
    """How an input of a program lies on the devices."""

    shape: tuple[int, ...] = ()  # Empty: that of the graph.
    once: tuple[bool, ...] = ()  # Axes of which one element is stored; empty: none is.
    sharding: Sharding | None = None  # None: on device 0.
    memory_order: tuple[int, ...] = ()  # Its axes, the outermost first; empty: row-major.


@dataclasses.dataclass
class Program:
    """Nodes that run on hostir together."""

    name: str
    nodes: list[Node]
    inputs: list[Node] = dataclasses.field(default_factory=list)
    scalars: list[Node] = dataclasses.field(default_factory=list)  # Inputs that are numbers on the host.
    outputs: list[Node] = dataclasses.field(default_factory=list)
    saved: set[Node] = dataclasses.field(default_factory=set)  # Of them: what only the graph behind reads.
    written: dict[Node, int] = dataclasses.field(
        default_factory=dict
    )  # Of them: those that replace an input, by place.
    is_random: bool = False
    follows: bool = False  # As of Graph.
    refused: str = ""  # Why PyTorch carries it out after all.
    definitions: dict[Any, FusionDefinition] = dataclasses.field(default_factory=dict)
    wanted: weakref.WeakKeyDictionary[FusionDefinition, list[Sharding]] = dataclasses.field(
        default_factory=weakref.WeakKeyDictionary
    )  # How its inputs are to lie; empty: on device 0, all of them.
    shared: weakref.WeakKeyDictionary[FusionDefinition, tuple[int, ...]] = dataclasses.field(
        default_factory=weakref.WeakKeyDictionary
    )  # Its outputs that are another one, or an input.
    gathered: weakref.WeakKeyDictionary[FusionDefinition, tuple[tuple[int, int], ...]] = dataclasses.field(
        default_factory=weakref.WeakKeyDictionary
    )  # Its outputs that lie on a mesh, and the device that has PyTorch's tensor.
    staging: Staging = dataclasses.field(default_factory=Staging)

    def definition(
        self,
        sizes: dict[Any, int],
        numbers: dict[Node, Any],
        stored: tuple[Stored, ...],
        replaced: tuple[int, ...] = (),
        apart: tuple[int, ...] = (),
        gathered: tuple[tuple[int, int], ...] = (),
    ) -> FusionDefinition:
        """The program for these sizes and numbers of the graph, and for inputs that are so stored; ``replaced``: those
        of them, by place, whose memory the outputs take over that are written there; ``apart``: outputs that would be
        another one, or an input; ``gathered``: outputs of which there is another one, behind all, whole on a device."""
        key = (*sizes.values(), *numbers.values(), stored, replaced, apart, gathered)
        made = self.definitions.pop(key, None) or self._define(sizes, numbers, stored, replaced, apart, gathered)
        self.definitions[key] = made  # The latest last.
        if len(self.definitions) > _DEFINITIONS_KEPT:
            del self.definitions[next(iter(self.definitions))]
        return made

    def _define(
        self,
        sizes: dict[Any, int],
        numbers: dict[Node, Any],
        stored: tuple[Stored, ...],
        replaced: tuple[int, ...],
        apart: tuple[int, ...],
        gathered: tuple[tuple[int, int], ...],
    ) -> FusionDefinition:
        aliases = {source: place for source, place in self.written.items() if place in replaced}
        on_mesh = any(each.sharding is not None for each in stored) or any("laid_out" in n.name for n in self.nodes)
        lowering = Lowering(self.name, sizes, on_mesh)
        with lowering.fd as fd:
            for node, each in zip(self.inputs, stored, strict=True):
                parameter = lowering.parameter(node, each.shape, each.once, each.memory_order)
                if each.sharding is not None:
                    parameter.lay_out(each.sharding)
            for node in self.scalars:
                lowering.scalar(node)
            if self.is_random:
                lowering.seeded()
            for node, number in numbers.items():
                lowering.bind(node, number)
            for node in self.nodes:
                lowering.call(node)
            made = set()
            outputs = []
            for place, node in enumerate(self.outputs):
                value = lowering.value(node)
                if node in self.saved:
                    value = lowering.unmerged(value)
                if value.name in made or any(value is lowering.value(each) for each in self.inputs):
                    value = fd.ops.set(value)
                if place in apart:
                    value = fd.ops.segment_set(value)  # Which is no other's, whatever they are made of.
                made.add(value.name)
                alias = lowering.value(self.inputs[aliases[node]]) if node in aliases else None
                has_order = (
                    node not in self.saved and not on_mesh and alias is None
                )  # Else it lies as what it replaces.
                if has_order and (order := _order_of_result(node, sizes, self.follows)):
                    value._annotate("stride_order", order=stride_order_of(order))
                fd.add_output(value, alias_input=alias)
                outputs.append(value)
            for place, device in gathered:
                whole = fd.ops.set(outputs[place])
                whole.lay_out(Sharding([device]))
                fd.add_output(whole)
        return fd


@dataclasses.dataclass
class UnderWay:
    """A run that has been accepted."""

    program: Program
    arrays: list[Array | None]  # Its inputs.
    replaced: dict[int, torch.Tensor]  # Of these: those whose memory it writes, by place.
    slots: dict[int, Slot]
    made: Sequence[Array]


_PLAIN = Stored()


class _Form:
    """A tensor as the graph says it is: what is asked of its own description at each call takes longer."""

    def __init__(self, meta: torch.Tensor) -> None:
        self.dtype = meta.dtype
        self.device = meta.device
        self.ndim = meta.dim()
        self._shape, self._stride = tuple(meta.shape), tuple(meta.stride())
        self._is_constant = not any(isinstance(each, torch.SymInt) for each in (*self._shape, *self._stride))

    def shape(self, sizes: dict[Any, int]) -> tuple[int, ...]:
        return self._shape if self._is_constant else _numbers(self._shape, sizes)

    def stride(self, sizes: dict[Any, int]) -> tuple[int, ...]:
        return self._stride if self._is_constant else _numbers(self._stride, sizes)


def _form(node: Node) -> _Form:
    found = node.meta.get("hostir_form")
    if found is None:
        found = node.meta["hostir_form"] = _Form(node.meta["val"])
    return found


@dataclasses.dataclass
class Writes:
    """Arguments that the graph changes, as its last step."""

    copies: list[tuple[Node, Node, Node]]  # Each with its target and its source.

    @property
    def nodes(self) -> list[Node]:
        return [node for node, _, _ in self.copies]


class Graph:
    """What a graph is compiled to: ``graph(arguments)`` empties the list, and returns a list."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        client: Callable[[], Any],
        residency: Residency,
        counts: Counts,
        name: str,
        *,
        parameters: set[int],
        follows: bool,
        saved: range,
    ) -> None:
        """``parameters``: places of arguments that stay from call to call; ``follows``: the others are what the graph
        before this one had, so that arrays that have their values serve; ``saved``: results that only the graph behind
        this one reads."""
        self._boxed_call = True  # AOTAutograd's sign of a function that takes a list; wrappers copy the object's dict.
        self._client = client
        self._residency = residency
        self._counts = counts
        graph = module.graph
        self._arguments = [node for node in graph.nodes if node.op == "placeholder"]
        self._parameters = {self._arguments[place] for place in parameters}
        self._follows = follows
        (output,) = [node for node in graph.nodes if node.op == "output"]
        self._results: list[Any] = list(output.args[0])
        self._saved = saved
        self._constants = {n: _attribute(module, str(n.target)) for n in graph.nodes if n.op == "get_attr"}
        sources = [node.args[1] for node in graph.nodes if node.op == "call_function" and _name(node) == "copy_"]
        self._shared = {each for each in sources if each in self._results or sources.count(each) > 1}
        self._symbols = _symbols(self._arguments)
        # There may be no values of what a forward graph has saved.
        apart = set() if follows else on_host(graph, _is_number)
        self._steps = _steps(graph, name, self._results, saved, apart)
        for step in self._steps:
            if isinstance(step, Program):
                step.follows = follows
        self._has_numbers = any(_is_number(node) for node in graph.nodes)
        counts.definitions = _definitions_of(weakref.ref(self))
        for step in self._steps:
            nodes = [step] if isinstance(step, Node) else step.nodes
            for node in nodes:
                if node not in apart:
                    why = "" if isinstance(step, Program) else refusal(node) or "a program of moves alone"
                    self._counts.add(node, why)

    def __call__(self, arguments: list[Any]) -> list[Any]:
        values: dict[Any, Any] = dict(zip(self._arguments, arguments, strict=True))
        arguments.clear()
        values.update(self._constants)
        sizes = {
            symbol: int(values[node] if axis is None else values[node].shape[axis])
            for symbol, (node, axis) in self._symbols.items()
        }
        self._counts.runs += 1
        self._residency.sweep()
        if not self._follows:  # What an earlier call sent may have changed since, past all counters.
            for node in self._arguments:
                if node not in self._parameters and isinstance(values[node], torch.Tensor):
                    self._residency.forget_copy(values[node])
        try:
            with torch.no_grad():
                for step in self._steps:
                    self._take(step, values, sizes)
                results = self._made(values, sizes)
            self._settle(values)
        except BaseException:  # What a run writes meanwhile is not for the caller to see.
            while values.get(_UNDER_WAY):
                with contextlib.suppress(HostirError):
                    self._settle(values)
            raise
        return results

    def _take(self, step: Program | OnHost | Writes | Node, values: dict[Any, Any], sizes: dict[Any, int]) -> None:
        if isinstance(step, Program):
            return self._run(step, values, sizes)
        if isinstance(step, Writes):
            return self._write(step.copies, values, sizes)
        self._settle(values)
        if isinstance(step, OnHost):
            made_so = step(*(values[node] for node in step.inputs))
            values.update(zip(step.outputs, made_so, strict=True))
        else:
            self._call(step, values, sizes)

    def _settle(self, values: dict[Any, Any]) -> None:
        """Returns when no run of this call is under way: before anything reads what one makes, or writes."""
        runs = values.get(_UNDER_WAY, [])
        while runs:  # Where one fails, those behind it are still to be waited for.
            run = runs.pop(0)
            try:
                run.made[0].wait()
            except BaseException:  # An interrupt, too.
                self._failed(run.arrays, run.replaced)
                raise
            run.program.staging.give_back(run.slots)

    def _failed(self, arrays: Sequence[Array | None], replaced: dict[int, torch.Tensor]) -> None:
        """Of a run, which was to write to the memory of ``replaced``."""
        staging.clear()  # A rank may have died, with what lay there: of all programs, lest each fails once for it.
        for place, tensor in replaced.items():
            array = arrays[place]
            with contextlib.suppress(HostirError):
                if array is not None and array.state in ("ready", "pending"):  # The run was refused,
                    continue  # or goes on. Else the tensor holds something, but the array nothing for programs.
            self._residency.forget(tensor)

    def _run_in_pytorch(self, program: Program, values: dict[Node, Any], sizes: dict[Any, int]) -> None:
        self._settle(values)
        for node in program.nodes:
            self._call(node, values, sizes)

    def _run(self, program: Program, values: dict[Any, Any], sizes: dict[Any, int]) -> None:
        if program.refused:
            self._run_in_pytorch(program, values, sizes)
            return
        numbers = {n: values[n] for n in _inputs_of(program.nodes) if _is_number(n)} if self._has_numbers else {}
        client = self._client()
        arrays, in_memory = self._arrays(program, values, client)
        read = {node: values[node] for node in program.inputs}
        if self._follows:
            for node, array in zip(program.inputs, arrays, strict=True):
                if array is None and node.op == "placeholder":
                    read[node] = _of_nothing(read[node])
        stored = _stored(program.inputs, arrays, read)
        read_in = collections.Counter(map(id, arrays)) if program.written else {}
        replaced = tuple(
            place
            for place in program.written.values()
            if arrays[place] is not None
            and read_in[id(arrays[place])] == 1
            and stored[place]._replace(memory_order=()) == _PLAIN
            and place in in_memory
        )
        try:
            definition = program.definition(sizes, numbers, stored, replaced)
        except (InvalidArgument, Unimplemented) as error:  # Of an op that takes less than PyTorch's.
            program.refused = str(error)
            self._counts.move(program.nodes, program.refused)
            self._run_in_pytorch(program, values, sizes)
            return
        shared = program.shared.get(definition)
        if shared is None:
            shared = program.shared[definition] = tuple(
                place
                for place, output in enumerate(client._compile(definition).outputs)
                if output.HasField("same_as_output") or output.HasField("same_as_input")
            )
        if shared:  # No two tensors have memory in common: what is written to one would change the other.
            definition = program.definition(sizes, numbers, stored, replaced, shared)
        in_parts, gathered = definition, self._gathered(program, definition, client)
        if gathered:
            definition = program.definition(sizes, numbers, stored, replaced, shared, gathered)
        self._move(program, definition, arrays, read, client)
        given: list[Any] = [*arrays, *(values[node].item() for node in program.scalars)]
        if program.is_random:
            given.append(draws.seed())
        slots = self._send(program, definition, stored, arrays, read, given, client)
        written = {place: values[program.inputs[place]] for place in replaced}
        overlaps = len(program.outputs) >= _OVERLAPPED and not gathered
        try:
            try:
                made, _ = client._run(definition, given, not overlaps, False, None, None, keeps_inputs=bool(replaced))
            except ResourceExhausted:
                if not gathered:
                    raise
                gathered = ()  # One after the other they may fit.
                program.wanted[in_parts] = program.wanted[definition]
                made, _ = client._run(in_parts, given, True, False, None, None, keeps_inputs=bool(replaced))
        except BaseException:  # An interrupt, too.
            self._failed(arrays, written)
            raise
        if overlaps:
            values.setdefault(_UNDER_WAY, []).append(UnderWay(program, arrays, written, slots, made))
        else:
            program.staging.give_back(slots)
        values.update(zip(program.outputs, made, strict=False))
        whole = zip((program.outputs[place] for place, _ in gathered), made[len(program.outputs) :], strict=True)
        values.setdefault(_WHOLE, {}).update(whole)
        if replaced:
            there = {id(given[place]) for place in replaced}
            values.setdefault(_IN_PLACE, set()).update(n for n in program.written if id(values[n]) in there)

    def _send(
        self,
        program: Program,
        definition: FusionDefinition,
        stored: tuple[Stored, ...],
        arrays: list[Array | None],
        values: dict[Node, Any],
        given: list[Any],
        client: Any,
    ) -> dict[int, Slot]:
        """Puts into ``given`` what inputs without an array are sent as. The slots that it has filled, by input."""
        slots: dict[int, Slot] = {}
        on_mesh = bool(program.wanted.get(definition))
        for place, node in enumerate(program.inputs):
            if arrays[place] is not None:
                continue
            value = values[node]
            put = functools.partial(_put, client, value, definition.fusion.inputs()[place])
            if node not in self._parameters:
                slot = None if on_mesh else program.staging.fill(place, value, client, put, stored[place].memory_order)
                if slot is not None:
                    given[place], slots[place] = slot.array, slot
                    continue
                if sent_bytes(value) <= VALUE_BYTES:  # The run brings it along.
                    given[place] = value.detach()
                    continue
            given[place] = sent = put()
            kind = Kind.SENT
            if node in self._parameters:  # A parameter: from now on it is where programs read it, if it can move.
                kind, own = Kind.COPY, mapped(sent)
                if own is not None:
                    kind = Kind.MAPPED if take_over(value, own, False) else Kind.SENT
            self._residency.keep(value, sent, kind)
        return slots

    def _move(
        self,
        program: Program,
        definition: FusionDefinition,
        arrays: list[Array | None],
        values: dict[Node, Any],
        client: Any,
    ) -> None:
        """Puts copies in the place of arrays on device 0 that a program wants on a mesh, which nothing but the layouts
        inside of it names: parameters that an optimizer has changed on device 0. One run a sharding."""
        if definition not in program.wanted:
            wanted = [wire.sharding_of(each.sharding) for each in client._compile(definition).inputs]
            program.wanted[definition] = wanted if any(each.mesh.size > 1 for each in wanted) else []
        misplaced: dict[Sharding, list[int]] = {}
        for place, (array, sharding) in enumerate(zip(arrays, program.wanted[definition], strict=False)):
            if array is not None and array.sharding.mesh.size < sharding.mesh.size:
                misplaced.setdefault(sharding, []).append(place)
        for sharding, places in misplaced.items():
            old = [array for array in (arrays[place] for place in places) if array is not None]
            for place, copy in zip(places, client.run(client._resharding(old, sharding), old, wait=True), strict=True):
                arrays[place] = copy
                value = values[program.inputs[place]]
                if isinstance(value, torch.Tensor) and self._residency.values_of(value) is None:
                    self._residency.keep(value, copy, Kind.COPY)

    def _gathered(self, program: Program, definition: FusionDefinition, client: Any) -> tuple[tuple[int, int], ...]:
        """Outputs that are to be tensors, and lie on a mesh: by place, and the device on which the same run makes them
        whole. Tensors are views of that, in place of a request each that copies the parts."""
        found = program.gathered.get(definition)
        if found is None:
            shardings = [wire.sharding_of(each.sharding) for each in client._compile(definition).outputs]
            found = program.gathered[definition] = tuple(
                (place, _device_of(node.meta["val"].device, sharding, client))
                for place, (node, sharding) in enumerate(zip(program.outputs, shardings, strict=True))
                if node not in program.saved and sharding.mesh.size > 1
            )
        return found

    def _arrays(self, program: Program, values: dict[Node, Any], client: Any) -> tuple[list[Array | None], set[int]]:
        """The arrays of inputs, where there are some, and which inputs are tensors in the memory of theirs."""
        arrays: list[Array | None] = []
        in_memory = set()
        for place, node in enumerate(program.inputs):
            value = values[node]
            if not isinstance(value, Array):
                found = self._there(node, value, client)
                value, kind = (None, None) if found is None else found
                if kind is Kind.MAPPED:
                    in_memory.add(place)
            arrays.append(value)
        return arrays, in_memory

    def _there(self, node: Node, value: torch.Tensor, client: Any) -> tuple[Array, Kind] | None:
        """The array of a tensor, where there is one, and how the two go together."""
        trusted = _BEHIND if self._follows or node.op != "placeholder" else _AT_ONCE
        found = self._residency.find(value, _BEFORE if trusted is _AT_ONCE and node in self._parameters else trusted)
        if found is not None and found[0]._client is client:
            return found
        if self._residency.values_of(value) is not None:
            raise FailedPrecondition(
                "what a forward graph has saved is with another client than hostir.torch.use() says"
            )
        return None

    def _call(self, node: Node, values: dict[Node, Any], sizes: dict[Any, int]) -> None:
        def load(argument: Node) -> Any:
            value = self._known(values[argument])
            return self._tensor(value, argument, values, sizes)[0] if isinstance(value, Array) else value

        arguments, options = torch.fx.node.map_arg((node.args, node.kwargs), load)
        values[node] = node.target(*arguments, **options)

    def _known(self, value: Any) -> Any:
        """The array of a tensor that has no values of its own; else ``value``."""
        array = self._residency.values_of(value) if isinstance(value, torch.Tensor) else None
        return value if array is None else array

    def _write(self, copies: Sequence[tuple[Node, Node, Node]], values: dict[Any, Any], sizes: dict[Any, int]) -> None:
        in_place = values.get(_IN_PLACE, ())
        made: dict[Node, tuple[torch.Tensor, bool]] = {}
        for _, target, source in copies:  # Their tensors, while the run goes on.
            value = None if source in in_place else self._known(values[source])
            if isinstance(value, Array) and source not in made and source not in self._shared:
                given = values.get(_WHOLE, {}).get(source, value)
                made[source] = self._tensor(given, source, values, sizes, not values[target].is_contiguous())
        self._settle(values)
        changed = [values[target] for _, target, source in copies if source in in_place]
        torch.autograd.graph.increment_version([tensor for tensor in changed if not tensor.is_inference()])
        numbers: tuple[list[torch.Tensor], list[torch.Tensor]] = [], []
        for node, target, source in copies:
            tensor = values[node] = values[target]
            if source in in_place:
                continue
            value = self._known(values[source])
            if source in made:
                self._write_array(tensor, value, source in values.get(_WHOLE, {}), *made[source])
            elif isinstance(value, Array):  # No two tensors have memory in common.
                tensor.copy_(self._tensor(value, source, values, sizes)[0])
            elif tensor.dim() == 0 and tensor.device.type == "cpu" and not tensor.is_inference():
                numbers[0].append(tensor)
                numbers[1].append(value)
            else:
                tensor.copy_(value)
        if numbers[0]:
            torch._foreach_copy_(*numbers)

    def _write_array(
        self, tensor: torch.Tensor, array: Array, is_gathered: bool, made: torch.Tensor, is_mapped: bool
    ) -> None:
        """``made`` has the array's values; ``is_gathered``: those of one that lies in parts."""
        is_arrays = self._residency.is_mapped(tensor)
        if is_mapped and take_over(tensor, made, is_arrays):
            self._residency.keep(tensor, array, Kind.COPY if is_gathered else Kind.MAPPED)
            return
        tensor.copy_(made)
        if not is_arrays:  # Else that array has the values now.
            self._residency.keep(tensor, array, Kind.COPY)

    def _made(self, values: dict[Any, Any], sizes: dict[Any, int]) -> list[Any]:
        """Its results."""
        saved = range(0) if _has_saving_hooks() else self._saved
        made: dict[Node, torch.Tensor] = {}
        return [self._result(node, place in saved, values, sizes, made) for place, node in enumerate(self._results)]

    def _result(
        self, node: Any, is_saved: bool, values: dict[Any, Any], sizes: dict[Any, int], made: dict[Node, torch.Tensor]
    ) -> Any:
        if not isinstance(node, Node):
            return node
        value = self._known(values[node])
        if not isinstance(value, Array):
            return value
        if node in made:  # One tensor, whose changes autograd sees wherever it is saved.
            return made[node]
        if is_saved:
            form = _form(node)
            shape = form.shape(sizes)
            tensor = torch.empty_strided(shape, (0,) * len(shape), dtype=form.dtype, device=form.device)
            self._residency.keep(tensor, value, Kind.STAND_IN)
            return tensor
        # Autograd takes gradients of any strides, and likes those of the parameters best.
        whole = values.get(_WHOLE, {}).get(node)
        given = value if whole is None else whole
        made[node], is_mapped = self._tensor(given, node, values, sizes, is_strided=not self._follows)
        self._residency.keep(made[node], value, Kind.MAPPED if is_mapped and whole is None else Kind.COPY)
        return made[node]

    def _tensor(
        self, array: Array, node: Node, values: dict[Any, Any], sizes: dict[Any, int], is_strided: bool = True
    ) -> tuple[torch.Tensor, bool]:
        """The values, strided as the graph says, or contiguous; and whether they are the array's own. These may not be
        there yet: of a run that is under way. A copy is."""
        form = _form(node)
        own = mapped(array)
        if own is None:
            self._settle(values)
        tensor, is_mapped = tensor_of(array) if own is None else (own, True)
        if tensor.device != form.device:
            self._settle(values)
            tensor, is_mapped = tensor.to(form.device), False
        if tensor.dim() != form.ndim:  # Its leading axes were not made one.
            tensor = strided(tensor, tensor.dtype, form.shape(sizes))
        if not is_strided:
            return tensor, is_mapped
        stride = form.stride(sizes)
        as_wanted = with_stride(tensor, stride)
        if as_wanted is not None:
            return as_wanted, is_mapped
        self._settle(values)
        return _strided_copy(tensor, stride), False


def _put(client: Any, value: torch.Tensor, of: Any) -> Array:
    array: Array = client.put(value.detach(), of)
    return array


def _device_of(device: torch.device, sharding: Sharding, client: Any) -> int:
    """The daemon's device that is PyTorch's; its first one that has a part, where none is."""
    devices = sharding.mesh.devices
    ordinal = torch.cuda.current_device() if device.type == "cuda" and device.index is None else device.index
    return int(
        next((each for each in devices if device.type == "cuda" and client._gpu_of(each) == ordinal), devices[0])
    )


def _stored(nodes: Sequence[Node], arrays: Sequence[Array | None], values: dict[Node, Any]) -> tuple[Stored, ...]:
    """How inputs lie, or are to. Where one is on a mesh, all are."""
    for array, node in zip(arrays, nodes, strict=True):
        if array is None or not _is_plain(array, node):
            break
    else:
        return (_PLAIN,) * len(nodes)
    shardings = [
        sharding_of(values[node]) if array is None else array.sharding if array.sharding.mesh.size > 1 else None
        for array, node in zip(arrays, nodes, strict=True)
    ]
    mesh = next((each.mesh for each in shardings if each is not None), None)
    return tuple(
        Stored(
            array.shape if array is not None and array.ndim != _form(node).ndim else (),
            _once(array, values[node]),
            Sharding(mesh) if sharding is None and array is None and mesh is not None else sharding,
            _order(array, values[node]) if mesh is None or array is not None else (),
        )
        for array, sharding, node in zip(arrays, shardings, nodes, strict=True)
    )


def _is_plain(array: Array, node: Node) -> bool:
    is_whole = len(array.sharding.mesh.devices) == 1 and True not in array._stored_once and not array._memory_order
    return is_whole and len(array.shape) == _form(node).ndim


def _once(array: Array | None, value: Any) -> tuple[bool, ...]:
    """The axes of which one element is stored, or is to be; empty: none."""
    strides = [] if array is not None else zip(value.shape, value.stride(), strict=True)
    once = tuple(array._stored_once) if array is not None else tuple(n > 1 and step == 0 for n, step in strides)
    return once if any(once) else ()


def _order(array: Array | None, value: Any) -> tuple[int, ...]:
    """How the axes lie in memory, or are to: as PyTorch has them, where that is dense."""
    return (memory_order(value) or ()) if array is None else array._memory_order


def _order_of_result(node: Node, sizes: dict[Any, int], follows: bool) -> tuple[int, ...]:
    """As the graph says; where that is not dense, row-major. ``follows``: as of Graph."""
    if follows and _name(node) in _TRANSPOSED:  # Autograd takes it row-major, as products make it for nothing.
        return ()
    form = _form(node)
    return dense_order(form.shape(sizes), form.stride(sizes)) or ()


def _of_nothing(value: Any) -> Any:
    """Zeros, which autograd makes for results that the loss does not know, as one zero; else ``value``."""
    if sent_bytes(value) <= _LEAST_ZEROS or not value.is_floating_point():
        return value
    first = value[(0,) * (value.dim() - 1)]  # Which says it of most that are none.
    if first.any() or value.any():
        return value
    return value.new_zeros(()).expand(value.shape)


def _strided_copy(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    if 0 not in stride:
        return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
    first = tuple(slice(0, 1) if step == 0 else slice(None) for step in stride)
    part = tensor[first].contiguous()
    steps = [0 if step == 0 else own for step, own in zip(stride, part.stride(), strict=True)]
    return strided(part, tensor.dtype, tensor.shape, steps)


def _numbers(extents: Sequence[Any], sizes: dict[Any, int]) -> tuple[int, ...]:
    return tuple(
        int(each.node.expr.xreplace(sizes)) if isinstance(each, torch.SymInt) else int(each) for each in extents
    )


def _has_saving_hooks() -> bool:
    """Whether somebody is to see what is saved for a backward pass."""
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    with contextlib.suppress(TypeError):
        return top is not None and top(False) is not None
    return False


def _definitions_of(graph: weakref.ref[Graph]) -> Callable[[], list[FusionDefinition]]:
    """A function that lists those of a graph that have run, as long as that is there."""

    def listed() -> list[FusionDefinition]:
        there = graph()
        steps = [] if there is None else there._steps
        programs = [step for step in steps if isinstance(step, Program)]
        return [fd for program in programs for fd in program.definitions.values() if fd in program.wanted]

    return listed


def _attribute(module: Any, name: str) -> Any:
    return operator.attrgetter(name)(module)


def _name(node: Node) -> str:
    return str(getattr(node.target, "__name__", node.target)).split(".")[0]


def _is_number(node: Node) -> bool:
    return node.op in ("placeholder", "call_function") and isinstance(
        node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float)
    )


def _inputs_of(nodes: Sequence[Node]) -> list[Node]:
    """What nodes read that none of them makes, in order."""
    own = set(nodes)
    return list(dict.fromkeys(each for node in nodes for each in node.all_input_nodes if each not in own))


def _symbols(arguments: Sequence[Node]) -> dict[Any, tuple[Node, int | None]]:
    """Where the graph's symbols are found among the arguments of a call: in a number, or in a tensor's axis."""
    found: dict[Any, tuple[Node, int | None]] = {}
    for node in arguments:
        value = node.meta.get("val")
        sizes: list[tuple[int | None, Any]] = [(None, value)] if isinstance(value, torch.SymInt) else []
        if isinstance(value, torch.Tensor):
            sizes.extend(enumerate(value.shape))
        for axis, size in sizes:
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                found.setdefault(size.node.expr, (node, axis))
    return found


def _written(program: Program, writes: Sequence[Node], results: set[Node]) -> dict[Node, int]:
    """Outputs that nothing but a copy into an input reads, and the place of that input, which nothing else reads."""
    own = set(program.nodes)
    found: dict[Node, int] = {}
    for write in writes:
        target, source = write.args[0], write.args[1]
        assert isinstance(target, Node) and isinstance(source, Node)
        if source not in program.outputs or source in results or source in found or target not in program.inputs:
            continue
        users = [user for user in target.users if user not in own and user is not write and user.op != "output"]
        old, new = target.meta["val"], source.meta["val"]
        is_same = old.dtype == new.dtype and old.shape == new.shape and old.stride() == new.stride()
        if not users and is_same and sum(source in each.all_input_nodes for each in writes) == 1:
            found[source] = program.inputs.index(target)
    return found


def _sink(level: dict[Node, int], lowered: dict[Node, bool]) -> None:
    """Moves to where they are read first: a weight that is transposed for a product behind PyTorch's op goes in as it
    is, and not as a view which nobody knows."""
    for node in reversed(list(level)):
        is_move = _name(node) in _MOVES.split() and node.target is not operator.getitem
        if not lowered[node] or not is_move or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        readers = [level[user] - (not lowered[user]) for user in node.users if user in level]
        if readers and len(readers) == len(node.users):
            level[node] = max(level[node], min(readers))


def _steps(
    graph: torch.fx.Graph, name: str, results: Sequence[Any], saved: range, apart: set[Node]
) -> list[Program | OnHost | Writes | Node]:
    """Programs and nodes of PyTorch's, in an order in which each finds what it reads. ``saved``: places of results
    that only the graph behind this one reads; ``apart``: as of on_host.on_host.

    A node's level is how often the path to it changes between the two: nodes of one level need none of a later one.
    """
    level: dict[Node, int] = {}
    lowered: dict[Node, bool] = {}
    writes: list[Node] = []
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if _name(node) == "copy_":
            writes.append(node)
            continue
        inputs = [each for each in node.all_input_nodes if each in level]
        if node in apart:
            level[node], lowered[node] = -1, False
            continue
        if _is_number(node):
            lowered[node] = False
        elif node.target is operator.getitem:
            lowered[node] = lowered[node.all_input_nodes[0]]
        else:
            lowered[node] = not refusal(node)
        first = 0 if lowered[node] else 1  # Programs have even levels.
        level[node] = max(
            [first, *(level[each] + (lowered[each] != lowered[node]) for each in inputs if each not in apart)],
        )
    _sink(level, lowered)
    groups: dict[int, list[Node]] = {}
    for node, number in level.items():
        groups.setdefault(number, []).append(node)
    steps: list[Program | OnHost | Writes | Node] = []
    visible = {each for place, each in enumerate(results) if place not in saved}
    for number in sorted(groups):
        nodes = groups[number]
        if nodes[0] in apart:
            steps.append(OnHost(nodes, results))
            continue
        if not lowered[nodes[0]] or all(_name(node) in _MOVES.split() for node in nodes):
            steps.extend(nodes)
            continue
        program = Program(f"{name}_{number // 2}" if number else name, nodes)
        program.is_random = any(draws.is_random(node) for node in nodes)
        own = set(nodes)
        inputs = [each for each in _inputs_of(nodes) if not _is_number(each)]
        program.scalars = [each for each in inputs if each in apart and each.meta["val"].dtype in _SCALARS]
        program.inputs = [each for each in inputs if each not in program.scalars]
        read = {node for node in nodes if any(user not in own and user.op == "call_function" for user in node.users)}
        wanted = {each for each in results if isinstance(each, Node)}
        program.outputs = [
            node
            for node in nodes
            if isinstance(node.meta.get("val"), torch.Tensor) and (node in wanted or node in read)
        ]
        program.saved = {node for node in program.outputs if node not in visible and node not in read}
        program.written = _written(program, writes, wanted)
        steps.append(program)
    return [*steps, Writes([(node, *node.args[:2]) for node in writes])] if writes else steps
