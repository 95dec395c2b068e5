"""`hostir.jax.jit`: a function of JAX as programs of hostir, one for each set of types of its arguments."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ..array import Array
from ..client import Client
from ..connecting import default_client
from ..definition import FusionDefinition
from ..errors import InvalidArgument
from ..location import invalid, located
from ..sharding import Sharding
from .layouts import broadcast, device_mesh
from .traced import NUMBERS, Argument, Traced, static_arguments


def jit(
    function: Callable[..., Any],
    *,
    client: Client | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    mesh: Any = None,
    donate_argnums: int | Sequence[int] = (),
    static_argnums: int | Sequence[int] = (),
) -> Jitted:
    """``function``, as JAX's jit has it, on the devices of a daemon: traced by JAX and planned once for each set of
    shapes and types of its arguments.

    Arguments: trees of arrays of JAX, NumPy and hostir, and numbers. Results are Arrays of hostir, in the tree that
    ``function`` returns; they stay on the devices, and may be the arguments of the next call, without a copy.

    client: where it runs. None: that of the first Array among the arguments, else the one of ``fd.execute``.

    in_shardings, out_shardings: how arguments and results lie on devices, as of JAX's jit: a PartitionSpec, a
    NamedSharding or a Sharding of hostir for each, or for whole trees of them. None: an Array as it lies, with a mesh
    all else whole on every device of it; of results as their operands suggest.

    mesh: of PartitionSpecs, here and inside of ``function``: a DeviceMesh with names, or a mesh of JAX, also abstract.

    donate_argnums: arguments, by place, whose Arrays a call uses up: results of their types and layouts take their
    memory. One that no result fits stays.

    static_argnums: arguments, by place, that are Python values: each has a program of its own. They are hashable.

    Raises Unimplemented for a primitive or type that hostir has not, with the line of ``function`` it is in, and what
    ``Client.run`` raises.

    >>> double = hostir.jax.jit(lambda x: 2 * x)
    >>> double(np.ones(3, np.float32))  # hostir.Array([2., 2., 2.], dtype=float32)
    """
    return Jitted(function, client, in_shardings, out_shardings, mesh, donate_argnums, static_argnums)


class Jitted:
    """The result of ``jit``: called as the function is. Threads: any may call.

    >>> double = hostir.jax.jit(lambda x: 2 * x)
    >>> isinstance(double, hostir.jax.Jitted)  # True
    """

    def __init__(
        self,
        function: Callable[..., Any],
        client: Client | None,
        in_shardings: Any,
        out_shardings: Any,
        mesh: Any,
        donate_argnums: int | Sequence[int],
        static_argnums: int | Sequence[int],
    ) -> None:
        if not callable(function):
            raise invalid(f"jit: {function!r} is no function")
        functools.update_wrapper(self, function)
        self._function = function
        self._client = client
        self._in_shardings, self._out_shardings = in_shardings, out_shardings
        self._mesh = device_mesh(mesh)
        self._usual = Sharding([0] if self._mesh is None else self._mesh)  # How host arrays come to lie.
        self._donated = _places("donate_argnums", donate_argnums)
        self._static = _places("static_argnums", static_argnums)
        if both := self._donated & self._static:
            raise invalid(f"jit: argument {min(both)} is donated and static; a static one has no memory")
        self._traced: dict[Any, Traced] = {}
        self._told: dict[Any, list[bool]] = {}  # By structure, for each leaf whether in_shardings says how it lies.
        self._tracing = threading.RLock()  # A function may call itself with what is known.

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs it: the results as Arrays, which may be pending, in the tree that the function returns.

        >>> add = hostir.jax.jit(lambda x, y: x + y)
        >>> add.__call__(1, 2).item()  # 3
        """
        traced, leaves = self._of(args, kwargs)
        return traced.run(self._client or _client_of(leaves), leaves)

    def definition(self, *args: Any, **kwargs: Any) -> FusionDefinition:
        """The program for these arguments, to print, or for ``client.explain``. For an array a
        ``jax.ShapeDtypeStruct`` will do.

        >>> double = hostir.jax.jit(lambda x: 2 * x)
        >>> print(double.definition(np.ones(3, np.float32)))
        """
        return self._of(args, kwargs)[0].definition

    def _signature(self, leaf: Any, is_told: bool) -> Any:
        """The part of an argument's leaf on which it depends which program runs."""
        kind = type(leaf)
        if kind is Array:
            layout = leaf.sharding
            if is_told or layout is self._usual:
                return leaf.shape, leaf.dtype, False, None
            if layout == self._usual:
                self._usual = layout  # The same object, most likely, next time.
                return leaf.shape, leaf.dtype, False, None
            return leaf.shape, leaf.dtype, False, layout
        if kind in NUMBERS:
            return kind
        if isinstance(leaf, jax.core.Tracer):
            raise InvalidArgument(  # A line would be one of JAX.
                "hostir.jax.jit is called inside of a transformation of JAX (grad, vmap, jit); transform what is inside"
                " of it: hostir.jax.jit(jax.grad(f))"
            )
        if isinstance(leaf, jax.Array):
            return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False), None  # Keys have none.
        if isinstance(leaf, (np.ndarray, jax.ShapeDtypeStruct)):
            return leaf.shape, _canonical(leaf.dtype), False, None
        if isinstance(leaf, np.generic):
            return leaf.dtype
        raise TypeError(
            located(
                f"hostir.jax.jit: an argument is a {kind.__name__}; arguments are trees of arrays and numbers, others"
                " are static (static_argnums)"
            )
        )

    def _of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Traced, list[Any]]:
        statics: dict[int, Any] = {}
        given = args
        if self._static:
            statics = {k: arg for k, arg in enumerate(args) if k in self._static}
            args = tuple(arg for k, arg in enumerate(args) if k not in self._static)
        leaves, tree = jax.tree_util.tree_flatten((args, kwargs))
        told = self._told.get(tree)
        if told is None:
            told = self._told[tree] = [each is not None for each in self._layouts(args, len(leaves))]
        key: Any = (tree, jax.config.jax_enable_x64, *map(self._signature, leaves, told))
        if statics:
            key = (key, tuple((k, type(value), value) for k, value in sorted(statics.items())))
        try:
            traced = self._traced.get(key)
        except TypeError as error:
            raise invalid(f"jit: a static argument is not hashable: {error}") from None
        if traced is None:
            with self._tracing:
                traced = self._traced.get(key)
                if traced is None:
                    traced = self._traced[key] = self._trace(given, args, kwargs, statics)
        return traced, leaves

    def _trace(
        self, given: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any], statics: dict[int, Any]
    ) -> Traced:
        names = self._names(given)
        places = [k for k in range(len(given)) if k not in statics]
        found, tree = jax.tree_util.tree_flatten_with_path((args, kwargs))
        arguments, donated = [], []
        for path, leaf in found:
            by_place = path[0].idx == 0
            root = names[places[path[1].idx]] if by_place else str(path[1].key)
            rest = [_key_text(key) for key in path[2:]]
            arguments.append(Argument(".".join([root, *rest]), leaf, self._usual))
            donated.append(by_place and places[path[1].idx] in self._donated)
        return Traced(
            static_arguments(self._function, statics, len(given)),
            _program_name(self._function),
            arguments,
            tree,
            mesh=self._mesh,
            in_shardings=self._layouts(args, len(found)),
            out_shardings=self._out_shardings,
            donated=donated,
        )

    def _layouts(self, args: tuple[Any, ...], count: int) -> list[Any]:
        """For each of ``count`` leaves what ``in_shardings`` says; those of keywords, which come last, have nothing."""
        found = []
        if self._in_shardings is not None:
            found = broadcast(self._in_shardings, jax.tree_util.tree_structure(args), "in_shardings")
        return [*found, *[None] * (count - len(found))]

    def _names(self, args: tuple[Any, ...]) -> list[str]:
        """Names of the positional arguments."""
        try:
            parameters = list(inspect.signature(self._function).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        return [plain[k] if k < len(plain) else f"arg{k}" for k in range(len(args))]

    def __repr__(self) -> str:
        return f"<hostir.jax.jit of {_program_name(self._function)}: {len(self._traced)} programs>"


@functools.lru_cache(maxsize=64)
def _cut(dtype: np.dtype[Any], has_64_bits: bool) -> np.dtype[Any]:
    cut: np.dtype[Any] = jax.dtypes.canonicalize_dtype(dtype)
    return cut


def _canonical(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """As JAX takes a host array: without jax_enable_x64 it has 32 bits of 64."""
    return _cut(dtype, jax.config.jax_enable_x64) if dtype.itemsize >= 8 else dtype


def _client_of(leaves: Sequence[Any]) -> Client:
    for leaf in leaves:
        if type(leaf) is Array:
            return leaf._client
    return default_client()


def _places(what: str, given: Any) -> frozenset[int]:
    places = (given,) if isinstance(given, int) else tuple(given)
    for place in places:
        if not isinstance(place, int) or place < 0:
            raise invalid(f"jit: {what}={given!r}; it names arguments by place, counted from 0")
    return frozenset(places)


def _key_text(key: Any) -> str:
    for name in ("key", "idx", "name"):
        if hasattr(key, name):
            return str(getattr(key, name))
    return str(key)


def _program_name(function: Any) -> str:
    name = str(getattr(function, "__name__", type(function).__name__))
    return name if name.isidentifier() else "main"
