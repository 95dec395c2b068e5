"""PyTorch's tensor parallelism on a mesh of hostir's: plans of ``parallelize_module`` as shardings of whole tensors."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..location import invalid
from ..mesh import DeviceMesh
from ..sharding import Sharding
from ..values import Tensor
from .lowering import Lowering, lowers

_ATTRIBUTE = "_hostir_sharding"  # Of a parameter.
_meshes: list[DeviceMesh] = []


@torch.library.custom_op("hostir::laid_out", mutates_args=())
def _laid_out(x: torch.Tensor, mesh: int, axes: list[int], back: list[int]) -> torch.Tensor:
    """``x``, laid out on a mesh: for each of its dimensions the axis that it splits, or -1. ``back``: the same of its
    gradient, when that comes; empty: that lies as it comes."""
    return x.clone()


@_laid_out.register_fake
def _(x: torch.Tensor, mesh: int, axes: list[int], back: list[int]) -> torch.Tensor:
    return torch.empty_like(x)


def _keep_layout(ctx: Any, inputs: Any, output: Any) -> None:
    _, ctx.mesh, ctx.axes, ctx.back = inputs


def _backward(ctx: Any, gradient: torch.Tensor) -> Any:
    laid_out = _laid_out(gradient, ctx.mesh, ctx.back, ctx.axes) if ctx.back else gradient
    return laid_out, None, None, None


_laid_out.register_autograd(_backward, setup_context=_keep_layout)


@lowers("hostir.laid_out.default")
def _lower(low: Lowering, out: Any, x: Tensor, mesh: int, axes: list[int], back: list[int]) -> Tensor:
    made = low.ops.set(x)
    made.lay_out(_sharding(_meshes[mesh], axes))
    return made


def _sharding(mesh: DeviceMesh, axes: Sequence[int]) -> Sharding:
    split: dict[int, list[str]] = {}
    for name, axis in zip(mesh.names, axes, strict=True):
        if axis >= 0:
            split.setdefault(axis, []).append(name)
    return Sharding(mesh, {axis: tuple(names) for axis, names in split.items()})


def sharding_of(tensor: torch.Tensor) -> Sharding | None:
    """That which a plan gives a parameter; None: it is copied to all devices."""
    return getattr(tensor, _ATTRIBUTE, None)


def parallelize_module(module: torch.nn.Module, mesh: DeviceMesh | Sequence[int], plan: Any) -> torch.nn.Module:
    """Lays a module out on a mesh as ``torch.distributed.tensor.parallel.parallelize_module`` does: its plans of
    ``ColwiseParallel``, ``RowwiseParallel``, ``SequenceParallel``, ``PrepareModuleInput``, ``PrepareModuleOutput`` and
    ``PrepareModuleInputOutput``, by module name with wildcards.

    This one process sees whole tensors: there is no process group, a module's code keeps the numbers of heads and
    features that it has on one device, and ``state_dict()`` is that of the whole model. Placements become shardings of
    the programs that ``torch.compile(..., backend="hostir")`` makes; communications follow from them.
    Returns the module. Raises InvalidArgument for a style that is not one of these, for a name that no module has, and
    for placements that do not fit the mesh.

    >>> from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
    >>> mlp = hostir.torch.parallelize_module(mlp, [0, 1], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    """
    made = mesh if isinstance(mesh, DeviceMesh) else DeviceMesh(mesh)
    styles = plan if isinstance(plan, dict) else {"": plan}
    modules = dict(module.named_modules())
    for pattern, style in styles.items():
        found = [name for name in modules if fnmatch.fnmatchcase(name, pattern)]
        if not found:
            raise invalid(f"parallelize_module: no module is called {pattern!r}; there are {', '.join(modules)[:200]}")
        for name in found:
            _apply(style, modules[name], _Layouts(made, name))
    return module


class _Layouts:
    """Placements of one module's tensors, on a mesh."""

    def __init__(self, mesh: DeviceMesh, name: str) -> None:
        if mesh not in _meshes:
            _meshes.append(mesh)
        self.mesh, self._number, self._name = mesh, _meshes.index(mesh), name

    def axes(self, placements: Any, rank: int) -> list[int]:
        """The axis that each dimension of the mesh splits."""
        given = placements if isinstance(placements, (list, tuple)) else (placements,)
        if len(given) != len(self.mesh.names):
            raise invalid(f"{self._name}: {len(given)} placements for a mesh of {len(self.mesh.names)} dimensions")
        axes = []
        for placement in given:
            if placement.is_partial():
                raise invalid(f"{self._name}: {placement} is no layout of a whole tensor; Shard and Replicate are")
            axis = placement.dim if placement.is_shard() else -1
            axes.append(axis + rank if placement.is_shard() and axis < 0 else axis)
        return axes

    def parameter(self, tensor: torch.Tensor, placements: Any) -> None:
        """Lays out a parameter."""
        setattr(tensor, _ATTRIBUTE, _sharding(self.mesh, self.axes(placements, tensor.dim())))

    def of(self, value: Any, placements: Any, back: Any = None) -> Any:
        """``value``, laid out, and its gradient as ``back``; without that a gradient is split as the value is, and one
        of a value that all devices have is a sum of parts, which whoever takes it lays out. What is no tensor, or has
        no placements, stays as it is."""
        if placements is None or not isinstance(value, torch.Tensor):
            return value
        axes = self.axes(placements, value.dim())
        split = axes if any(axis >= 0 for axis in axes) else []
        return _laid_out(value, self._number, axes, split if back is None else self.axes(back, value.dim()))

    def each(self, values: Any, placements: Any, back: Any = None) -> Any:
        """As ``of``, of one value or several."""
        if not isinstance(values, tuple):
            return self.of(values, *(each[0] if isinstance(each, tuple) else each for each in (placements, back)))
        backs = back if isinstance(back, tuple) else (back,) * len(values)
        return tuple(self.of(*each) for each in zip(values, placements, backs, strict=True))


def _apply(style: Any, module: torch.nn.Module, layouts: _Layouts) -> None:
    apply = _STYLES.get(type(style).__name__)
    if apply is None:
        raise invalid(f"parallelize_module: {type(style).__name__}; styles are {', '.join(_STYLES)}")
    apply(style, module, layouts)


def _colwise(style: Any, module: torch.nn.Module, layouts: _Layouts) -> None:
    from torch.distributed.tensor import Shard

    axis = 1 if isinstance(module, torch.nn.Embedding) else 0
    for parameter in module.parameters():
        layouts.parameter(parameter, [Shard(min(axis, parameter.dim() - 1))])
    # The gradient of what was gathered is a sum of parts, which goes where the input came from.
    gathers = style.input_layouts != style.desired_input_layouts
    back = style.input_layouts if gathers else None
    _hook(module, layouts, style.desired_input_layouts, style.output_layouts, inputs_back=back)


def _rowwise(style: Any, module: torch.nn.Module, layouts: _Layouts) -> None:
    from torch.distributed.tensor import Replicate, Shard

    is_table = isinstance(module, torch.nn.Embedding)
    for parameter in module.parameters():  # A bias is added once, to what all have summed.
        layouts.parameter(parameter, [Shard(0 if is_table else 1) if parameter.dim() > 1 else Replicate()])
    # The gradient of a sum of parts is needed whole by both products of the backward pass.
    whole = None if is_table else (Replicate(),)
    _hook(module, layouts, (Replicate() if is_table else Shard(-1),), style.output_layouts, outputs_back=whole)


def _sequence(style: Any, module: torch.nn.Module, layouts: _Layouts) -> None:
    _hook(module, layouts, style.sequence_sharding, style.sequence_sharding)


def _input(style: Any, module: torch.nn.Module, layouts: _Layouts) -> None:
    of = getattr(style, "prepare_module_input", style)
    wanted, by_name = of.desired_input_layouts, of.desired_input_kwarg_layouts or {}
    given, given_by_name = of.input_layouts, of.input_kwarg_layouts or {}

    def lay_out(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        named = {key: layouts.of(value, by_name.get(key), given_by_name.get(key)) for key, value in kwargs.items()}
        return (layouts.each(args, wanted, given) if wanted else args), named

    module.register_forward_pre_hook(lay_out, with_kwargs=True)


def _output(style: Any, module: torch.nn.Module, layouts: _Layouts) -> None:
    wanted = getattr(style, "prepare_module_output", style).desired_output_layouts
    module.register_forward_hook(lambda _, __, output: layouts.each(output, wanted))


def _input_output(style: Any, module: torch.nn.Module, layouts: _Layouts) -> None:
    _input(style, module, layouts)
    _output(style, module, layouts)


def _hook(
    module: torch.nn.Module,
    layouts: _Layouts,
    inputs: Any,
    outputs: Any,
    inputs_back: Any = None,
    outputs_back: Any = None,
) -> None:
    def before(_: Any, args: Any) -> Any:
        return (layouts.of(args[0], inputs, inputs_back), *args[1:]) if args else args

    module.register_forward_pre_hook(before)
    module.register_forward_hook(lambda _, __, output: layouts.of(output, outputs, outputs_back))


_STYLES: dict[str, Callable[[Any, torch.nn.Module, _Layouts], None]] = {
    "ColwiseParallel": _colwise,
    "RowwiseParallel": _rowwise,
    "SequenceParallel": _sequence,
    "PrepareModuleInput": _input,
    "PrepareModuleOutput": _output,
    "PrepareModuleInputOutput": _input_output,
}
