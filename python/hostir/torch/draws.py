"""ATen's random numbers. They are hostir's own, equal on every kind of device and however they are split, and follow
``torch.manual_seed``; eager PyTorch draws others from the same seed, as it does beside every compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp.decompositions import native_dropout
from torch._inductor import config

from ..dtypes import DataType
from ..values import Tensor
from .lowering import Lowered, Lowering, lowers, name_of

_SEEDS = 1 << 62
_NAMES = set[str]()


def is_random(node: torch.fx.Node) -> bool:
    """Whether a program with the node needs a seed."""
    return name_of(node.target) in _NAMES


def seed() -> int:
    """For one run of a program: the next number of PyTorch's generator on the host, which ``manual_seed`` sets and
    checkpoints of activations set back."""
    return int(torch.randint(_SEEDS, (), dtype=torch.int64, device="cpu").item())


def dropout(x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """PyTorch's decomposition draws in the type of ``x``: in bfloat16 0.1 is then 26 of 256. Eager's numbers are those
    of its own op, which is left whole for them."""
    if config.fallback_random:
        return NotImplemented
    if train is False or p in (0, 1):
        made: tuple[torch.Tensor, torch.Tensor] = native_dropout(x, p, train)
        return made
    kept = torch.rand_like(x, dtype=torch.float32) > p
    return kept * x * (1.0 / (1.0 - p)), kept


def _unless(node: torch.fx.Node) -> str:
    if node.kwargs.get("generator") is not None:
        return "a generator of its own"
    return "torch._inductor.config.fallback_random wants eager's numbers" if config.fallback_random else ""


def _draws(*names: str) -> Callable[[Lowered], Lowered]:
    _NAMES.update(names)
    return lowers(*names, unless=_unless)


def _carried(low: Lowering, out: Any) -> DataType:
    return DataType.Double if low.data_type(out) is DataType.Double else DataType.Float


@_draws("rand.default", "rand_like.default")
def _rand(low: Lowering, out: Any, *_: Any, **__: Any) -> Tensor:
    return low.ops.uniform(0, 1, low.shape(out), *low.draw(), low.data_type(out))


@_draws("uniform.default")
def _uniform(low: Lowering, out: Any, _: Any, least: Any = 0.0, beyond: Any = 1.0, **__: Any) -> Tensor:
    drawn = low.ops.uniform(least, beyond, low.shape(out), *low.draw(), _carried(low, out))
    made = low.ops.cast(drawn, low.data_type(out))
    return low.ops.where(low.ops.ge(made, beyond), least, made)  # Rounded up to it.


@_draws("randn.default", "randn_like.default")
def _randn(low: Lowering, out: Any, *_: Any, **__: Any) -> Tensor:
    return low.ops.normal(0, 1, low.shape(out), *low.draw(), low.data_type(out))


@_draws("normal_functional.default")
def _normal(low: Lowering, out: Any, _: Any, mean: Any = 0.0, deviation: Any = 1.0, **__: Any) -> Tensor:
    return low.ops.normal(mean, deviation, low.shape(out), *low.draw(), low.data_type(out))


@_draws("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor", "normal.float_float")
def _normal_around(low: Lowering, out: Any, mean: Any, deviation: Any = 1.0, *_: Any, **__: Any) -> Tensor:
    drawn = low.ops.normal(0, 1, low.shape(out), *low.draw(), low.data_type(out))
    return low.ops.add(low.ops.mul(drawn, deviation), mean)


@_draws("bernoulli.p")
def _bernoulli(low: Lowering, out: Any, _: Any, chance: Any = 0.5, **__: Any) -> Tensor:
    drawn = low.ops.uniform(0, 1, low.shape(out), *low.draw())
    return low.ops.cast(low.ops.lt(drawn, chance), low.data_type(out))


@_draws("exponential.default")
def _exponential(low: Lowering, out: Any, _: Any, rate: Any = 1.0, **__: Any) -> Tensor:
    """None is 0, by which samplers divide: 0 stands for what is below half of a step."""
    carried = _carried(low, out)
    drawn = low.ops.uniform(0, 1, low.shape(out), *low.draw(), carried)
    drawn = low.ops.maximum(drawn, 2.0**-54 if carried is DataType.Double else 2.0**-25)
    made = low.ops.div(low.ops.log1p(low.ops.neg(drawn)), -rate)  # 1 is never drawn: no logarithm of 0.
    return low.ops.maximum(low.ops.cast(made, low.data_type(out)), torch.finfo(out.dtype).smallest_normal)


@_draws("randint.default", "randint.low", "randint_like.default", "randint_like.low_dtype")
def _randint(low: Lowering, out: Any, *arguments: Any, **_: Any) -> Tensor:
    bounds = [each for each in arguments if isinstance(each, int)]  # Beside a size or a tensor.
    least, beyond = bounds if len(bounds) == 2 else (0, bounds[0])
    drawn = low.ops.uniform(0, 1, low.shape(out), *low.draw(), DataType.Double)
    place = low.ops.cast(low.ops.floor(low.ops.mul(drawn, beyond - least)), DataType.Int)
    return low.ops.cast(low.ops.add(place, least), low.data_type(out))
