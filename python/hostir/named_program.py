"""Programs that have a name: another client has published them, and this one runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .array import Array
    from .client import Client


class NamedProgram:
    """A program of the daemon's, as a function of arrays: what ``client.program(name)`` makes.

    ``inputs`` and ``outputs`` are its signature: names with types, in order. A call takes the inputs by place or by
    name, as ``Client.run`` does (Arrays, host arrays, numbers), and returns a tuple of Arrays, one for each output;
    ``client.run(mlp, inputs, timeout=60)`` is the same with the options of ``run``. Threads: any may call.

    >>> client.publish(fd, "double")  # By another client, and long ago.
    >>> double = client.program("double")  # A hostir.NamedProgram.
    >>> (y,) = double(x=x)
    """

    def __init__(self, client: Client, name: str, owner: str, reply: Any) -> None:
        self._client = client
        self._reply = reply  # As of Compile.
        self._owner = owner
        self._output_tree = None
        self.name = name

    @property
    def inputs(self) -> dict[str, str]:
        """Types by name, in order: ``mlp.inputs  # {'x': 'f32[i0, 3]'}``. One that is no array has no axes: "f64"."""
        return {param.name: param.type for param in self._reply.inputs}

    @property
    def outputs(self) -> dict[str, str]:
        """The same of what it returns: ``len(mlp.outputs)  # 1``."""
        return {param.name: param.type for param in self._reply.outputs}

    def __call__(self, *inputs: Any, **by_name: Any) -> Sequence[Array]:
        """As ``client.run(mlp, [x])``, with its errors: ``(y,) = mlp(x)``."""
        arrays: Sequence[Array] = self._client.run(self, [*inputs, by_name] if by_name else list(inputs))
        return arrays

    def __repr__(self) -> str:
        signature = ", ".join(f"{name}: {kind}" for name, kind in self.inputs.items())
        results = ", ".join(self.outputs.values())
        return f"<hostir.NamedProgram {self.name}({signature}) -> ({results})>"
