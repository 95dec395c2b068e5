"""A function of JAX, traced for arguments of known types, as a FusionDefinition."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ..array import Array
from ..client import Client
from ..definition import FusionDefinition
from ..errors import Unimplemented
from ..mesh import DeviceMesh
from ..sharding import Sharding
from ..values import Scalar, Tensor
from . import attention, control, draws, indices, pointwise, reductions, shapes  # noqa: F401  (Their rules.)
from .known import TYPES, Known, stored_shape, stored_type
from .layouts import broadcast, first_mesh, sharding_of, tracing_on
from .refusals import is_key, nearest, type_text
from .walk import Value, Walk, free_name

NUMBERS = (bool, int, float)
_FIRST = Sharding([0])  # Where what has no layout lies.


class Argument:
    """A leaf of the arguments: what is traced, and how each call's value becomes the program's."""

    def __init__(self, name: str, leaf: Any, usual: Sharding) -> None:
        self.name = name
        self.sharding = leaf.sharding if type(leaf) is Array and leaf.sharding != usual else None
        is_number = type(leaf) in NUMBERS
        given = np.dtype(type(leaf)) if is_number else leaf.dtype
        dtype = given if is_key(given) else jax.dtypes.canonicalize_dtype(given)
        stored = stored_type(dtype)
        if stored is None and is_key(given):
            raise Unimplemented(
                f"hostir.jax: argument {name} is a {given}; hostir has keys of JAX's default generator alone:"
                " jax.random.key(0)"
            )
        if stored is None:
            known = ", ".join(map(str, TYPES))
            raise Unimplemented(
                f"hostir.jax: argument {name} is {type_text(leaf)}; hostir has {known}: convert it before,"
                f" {name}.astype({nearest(dtype)})"
            )
        is_weak = is_number or bool(getattr(leaf, "weak_type", False))
        self.aval = jax.ShapeDtypeStruct(() if is_number else leaf.shape, dtype, weak_type=is_weak)
        self.is_scalar = is_number or isinstance(leaf, np.generic)  # Given with the request.
        self.dtype = np.dtype(given) if type(leaf) is Array else stored
        self.shape = stored_shape(self.aval)

    def value(self, leaf: Any) -> Any:
        """The argument of a run for ``leaf``. Elements of JAX on the host are not copied here."""
        if type(leaf) is Array:
            return leaf
        if self.is_scalar:
            return self._number(leaf)
        if is_key(leaf.dtype):
            leaf = jax.random.key_data(leaf)
        if isinstance(leaf, jax.Array) and getattr(leaf.device, "platform", "") == "cpu":
            leaf = np.asarray(leaf)
        return leaf if leaf.dtype == self.dtype else np.asarray(leaf).astype(self.dtype)  # 64 bits, which JAX cuts.

    def _number(self, leaf: Any) -> Any:
        number = leaf if type(leaf) in NUMBERS else np.asarray(leaf).item()
        if self.dtype.kind == "i" and not np.iinfo(self.dtype).min <= number <= np.iinfo(self.dtype).max:
            raise OverflowError(f"argument {self.name}: {number} does not fit {self.dtype}")
        return number


class Traced:
    """The program of one set of types, and what its runs bring and return."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        arguments: Sequence[Argument],
        tree: Any,
        *,
        mesh: DeviceMesh | None,
        in_shardings: Sequence[Any],
        out_shardings: Any,
        donated: Sequence[bool],
    ) -> None:
        self._arguments = arguments
        self._brought_to: dict[Client, list[Array]] = {}
        ranks = [len(argument.aval.shape) for argument in arguments]
        given = [
            sharding_of(each, mesh, rank, f"argument {argument.name}")
            for each, rank, argument in zip(in_shardings, ranks, arguments, strict=True)
        ]
        layouts = [each or argument.sharding for each, argument in zip(given, arguments, strict=True)]
        avals = jax.tree_util.tree_unflatten(tree, [argument.aval for argument in arguments])
        with tracing_on(mesh):
            closed, shape = jax.make_jaxpr(function, return_shape=True)(*avals[0], **avals[1])
        leaves, self._out_tree = jax.tree_util.tree_flatten(shape)
        wanted = broadcast(out_shardings, self._out_tree, "out_shardings")
        out_layouts = [
            sharding_of(each, mesh, len(leaf.shape), f"result {place}")
            for place, (each, leaf) in enumerate(zip(wanted, leaves, strict=True))
        ]
        self._mesh = mesh or first_mesh([*layouts, *out_layouts])
        whole = Sharding(self._mesh) if self._mesh is not None else None
        with FusionDefinition(name) as fd:
            fd._composing = "value"
            walk = Walk(fd, self._mesh)
            inputs = [
                self._input(fd, argument, layout or whole) for argument, layout in zip(arguments, layouts, strict=True)
            ]
            values = [self._as_traced(walk, argument, value) for argument, value in zip(arguments, inputs, strict=True)]
            results = walk.run(closed.jaxpr, closed.consts, values)
            _check_results(leaves)
            lie = [layout or whole for layout in layouts]
            aliases = _aliases(inputs, lie, arguments, donated, leaves, out_layouts)
            taken: list[Tensor] = [value for value in inputs if isinstance(value, Tensor)]
            for result, alias, told in zip(results, aliases, out_layouts, strict=True):
                tensor = _own(walk, result, taken)
                of_result = told if alias is None else lie[alias]
                if of_result is not None:
                    tensor.lay_out(of_result)
                fd.add_output(tensor, None if alias is None else inputs[alias])
            self._brought = walk.brought()
            for tensor, _ in self._brought:
                if whole is not None:
                    tensor.lay_out(whole)
        self.definition = fd

    def _input(self, fd: FusionDefinition, argument: Argument, layout: Sharding | None) -> Tensor | Scalar:
        name = _input_name(fd, argument.name)
        if argument.is_scalar:
            return fd.define_scalar(dtype=argument.dtype, name=name)
        tensor = fd.define_tensor(argument.shape, True, argument.dtype, name=name)
        if layout is not None:
            tensor.lay_out(layout)
        return tensor

    def _as_traced(self, walk: Walk, argument: Argument, value: Tensor | Scalar) -> Value:
        if isinstance(value, Scalar):
            return walk.ops.full([], 1, argument.dtype) * value
        dtype = stored_type(argument.aval.dtype)
        return value if value.dtype == dtype else walk.ops.cast(value, dtype)

    def run(self, client: Client, leaves: Sequence[Any]) -> Any:
        values = [argument.value(leaf) for argument, leaf in zip(self._arguments, leaves, strict=True)]
        if self._brought:
            values += self._brought_arrays(client)
        if not self._out_tree.num_leaves:
            return jax.tree_util.tree_unflatten(self._out_tree, [])
        results = client.run(self.definition, values)
        return jax.tree_util.tree_unflatten(self._out_tree, results)

    def _brought_arrays(self, client: Client) -> list[Array]:
        arrays = self._brought_to.get(client)
        if arrays is None:
            arrays = [client.put(array, tensor) for tensor, array in self._brought]
            kept = {other: those for other, those in self._brought_to.items() if not other.closed}
            self._brought_to = {**kept, client: arrays}
        return arrays


def _input_name(fd: FusionDefinition, path: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_.]", "_", path)[:200]
    name = name if re.match(r"[A-Za-z_]", name) else f"_{name}"
    return free_name(fd, name)


def _check_results(types: Sequence[Any]) -> None:
    for place, of in enumerate(types):
        if of.dtype not in TYPES:
            raise Unimplemented(
                f"hostir.jax: result {place} is {type_text(of)}, which no Array is; keep keys on the host, and split"
                " them there or fold the number of the turn into one, jax.random.fold_in(key, turn); of other types"
                " return x.astype(jnp.int32)"
            )


def _aliases(
    inputs: Sequence[Any],
    layouts: Sequence[Sharding | None],
    arguments: Sequence[Argument],
    donated: Sequence[bool],
    results: Sequence[Any],
    wanted: Sequence[Sharding | None],
) -> list[int | None]:
    """For each result the place of the donated input whose memory it takes, the first left of its type; where
    ``wanted`` says how the result lies, of one that lies so."""
    free = [k for k, value in enumerate(inputs) if donated[k] and isinstance(value, Tensor)]
    aliases: list[int | None] = []
    for result, layout in zip(results, wanted, strict=True):
        found = None
        for k in free:
            same = (arguments[k].aval.shape, arguments[k].dtype) == (result.shape, result.dtype)
            if same and (layout is None or layout == (layouts[k] or _FIRST)):
                found = k
                break
        if found is not None:
            free.remove(found)
        aliases.append(found)
    return aliases


def _own(walk: Walk, result: Value, taken: list[Tensor]) -> Tensor:
    """``result`` as a tensor that is no other result's, no input, and not laid out yet."""
    tensor = walk.tensor(result)
    is_laid_out = tensor.name in walk.definition._record.annotations
    if isinstance(result, Known) or is_laid_out or any(tensor is other for other in taken):
        tensor = walk.ops.set(tensor)
    taken.append(tensor)
    return tensor


def static_arguments(function: Callable[..., Any], statics: dict[int, Any], count: int) -> Callable[..., Any]:
    """``function`` of the other arguments; ``statics`` by place among all ``count``."""
    if not statics:
        return function

    def of_the_others(*args: Any, **kwargs: Any) -> Any:
        others = iter(args)
        return function(*[statics[k] if k in statics else next(others) for k in range(count)], **kwargs)

    return of_the_others
