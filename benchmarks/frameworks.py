"""Programs through the service on one CPU rank, beside NumPy and, where installed, JAX and PyTorch on the same cores.

The examples of examples/ and five norms. Every side gets the same data and is checked against float64 before its time
counts. Ours is a run through the client: from handles to handles, the requests included. JAX is jit-compiled; PyTorch
runs as one would write it there, its own fused operators where it has one, and once more through torch.compile.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

import hostir
from hostir import DataType, FusionDefinition

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

import adaptive_layernorm_backward
import rope
import tensor_parallel_mlp
from example import Example, relative_error

Arrays = list[Any]
BF16 = np.dtype(ml_dtypes.bfloat16)

SAMPLE_SECONDS = 0.03  # A sample is the mean of as many calls as take that long.
SETTLE_SECONDS = 0.03  # Before a sample: threads of the other side that wait for work by spinning give up.
ROWS, COLUMNS = 8192, 4096  # Of the norms: 128 MiB a tensor, far more than any cache.


@dataclass(frozen=True)
class Workload:
    """`formula` takes the inputs as the program does, as arrays of any module; what is stored once has extent 1."""

    name: str
    define: Callable[[], FusionDefinition]
    inputs: Callable[[], list[np.ndarray]]
    reference: Callable[[list[np.ndarray]], list[np.ndarray]]  # In float64.
    formula: Callable[..., Arrays]  # (module, *inputs)
    tolerance: float
    torch_formula: Callable[..., Arrays] | None = None  # With PyTorch's own operators, where it has them.


# --- what NumPy, JAX and PyTorch spell differently ----------------------------------------------------------------


def erf(xp: ModuleType, x: Any) -> Any:
    if xp.__name__ == "torch":
        return xp.erf(x)
    if xp.__name__.startswith("jax"):
        import jax

        return jax.scipy.special.erf(x)
    # NumPy has none. Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: within 1.5e-7.
    t = 1 / (1 + np.float32(0.3275911) * np.abs(x))
    series = np.float32(1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = series * t + np.float32(coefficient)
    return np.copysign(1 - series * t * np.exp(-x * x), x)


def as_type(x: Any, like: Any) -> Any:
    return x.to(like.dtype) if hasattr(x, "to") and not isinstance(x, np.ndarray) else x.astype(like.dtype)


def in_float32(xp: ModuleType, x: Any) -> Any:
    return x.float() if xp.__name__ == "torch" else x.astype(np.float32)


# --- the norms ------------------------------------------------------------------------------------------------------


def row_means(x: Any) -> Any:
    return x.mean(1).reshape(-1, 1)


def softmax(xp: ModuleType, x: Any) -> Arrays:
    e = xp.exp(x - xp.amax(x, 1).reshape(-1, 1))
    return [e / e.sum(1).reshape(-1, 1)]


def layer_norm(xp: ModuleType, x: Any, weight: Any, bias: Any) -> Arrays:
    centered = x - row_means(x)
    return [centered / xp.sqrt(row_means(centered * centered) + 1e-5) * weight + bias]


def rms_norm(xp: ModuleType, x: Any, weight: Any) -> Arrays:
    return [x / xp.sqrt(row_means(x * x) + 1e-6) * weight]


def layer_norm_backward(xp: ModuleType, grad: Any, x: Any, mean: Any, rstd: Any, weight: Any) -> Arrays:
    xhat = (x - mean) * rstd
    inner = grad * weight
    grad_x = rstd * (inner - row_means(inner) - xhat * row_means(inner * xhat))
    return [grad_x, (grad * xhat).sum(0), grad.sum(0)]


def torch_softmax(torch: ModuleType, x: Any) -> Arrays:
    return [torch.softmax(x, 1)]


def torch_layer_norm(torch: ModuleType, x: Any, weight: Any, bias: Any) -> Arrays:
    return [torch.nn.functional.layer_norm(x, (x.shape[1],), weight, bias, 1e-5)]


def torch_rms_norm(torch: ModuleType, x: Any, weight: Any) -> Arrays:
    return [torch.nn.functional.rms_norm(x, (x.shape[1],), weight, 1e-6)]


def torch_layer_norm_backward(torch: ModuleType, grad: Any, x: Any, mean: Any, rstd: Any, weight: Any) -> Arrays:
    shape = [x.shape[1]]
    bias = torch.zeros_like(weight)
    return list(torch.ops.aten.native_layer_norm_backward(grad, x, shape, mean, rstd, weight, bias, [True, True, True]))


class Rows:
    """What the definitions of the norms share: [rows, columns] in float32, any number of rows."""

    def __init__(self, fd: FusionDefinition) -> None:
        self.fd, self.ops = fd, fd.ops

    def matrix(self) -> Any:
        return self.fd.define_tensor(shape=[-1, COLUMNS], contiguity=True, dtype=DataType.Float)

    def row(self) -> Any:
        return self.fd.define_tensor(shape=[COLUMNS], contiguity=True, dtype=DataType.Float)

    def column(self) -> Any:
        return self.fd.define_tensor(shape=[-1, 1], contiguity=[True, None], dtype=DataType.Float)

    def mean(self, t: Any) -> Any:
        return self.ops.mul(self.ops.sum(t, dims=[1], keepdim=True), 1.0 / COLUMNS)


def define_softmax() -> FusionDefinition:
    with FusionDefinition("softmax") as fd:
        rows, ops = Rows(fd), fd.ops
        x = rows.matrix()
        e = ops.exp(ops.sub(x, ops.max(x, dims=[1], keepdim=True)))
        fd.add_output(ops.div(e, ops.sum(e, dims=[1], keepdim=True)))
    return fd


def define_layer_norm() -> FusionDefinition:
    with FusionDefinition("layer_norm") as fd:
        rows, ops = Rows(fd), fd.ops
        x, weight, bias = rows.matrix(), rows.row(), rows.row()
        centered = ops.sub(x, rows.mean(x))
        rstd = ops.rsqrt(ops.add(rows.mean(ops.mul(centered, centered)), 1e-5))
        fd.add_output(ops.add(ops.mul(ops.mul(centered, rstd), weight), bias))
    return fd


def define_rms_norm() -> FusionDefinition:
    with FusionDefinition("rms_norm") as fd:
        rows, ops = Rows(fd), fd.ops
        x, weight = rows.matrix(), rows.row()
        rrms = ops.rsqrt(ops.add(rows.mean(ops.mul(x, x)), 1e-6))
        fd.add_output(ops.mul(ops.mul(x, rrms), weight))
    return fd


def define_layer_norm_backward() -> FusionDefinition:
    with FusionDefinition("layer_norm_backward") as fd:
        rows, ops = Rows(fd), fd.ops
        grad, x, mean, rstd, weight = rows.matrix(), rows.matrix(), rows.column(), rows.column(), rows.row()
        xhat = ops.mul(ops.sub(x, mean), rstd)
        inner = ops.mul(grad, weight)
        rest = ops.sub(ops.sub(inner, rows.mean(inner)), ops.mul(xhat, rows.mean(ops.mul(inner, xhat))))
        fd.add_output(ops.mul(rstd, rest))
        fd.add_output(ops.sum(ops.mul(grad, xhat), dims=[0]))
        fd.add_output(ops.sum(grad, dims=[0]))
    return fd


def drawn(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(1729)
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


def layer_norm_backward_inputs() -> list[np.ndarray]:
    grad, x, weight = drawn((ROWS, COLUMNS), (ROWS, COLUMNS), (COLUMNS,))
    mean = x.mean(1, keepdims=True)
    return [grad, x, mean, 1 / np.sqrt(x.var(1, keepdims=True) + np.float32(1e-5)), weight]


def norm(
    name: str,
    define: Callable[[], FusionDefinition],
    inputs: Callable[[], list[np.ndarray]],
    formula: Callable[..., Arrays],
    torch_formula: Callable[..., Arrays],
) -> Workload:
    def reference(arrays: list[np.ndarray]) -> list[np.ndarray]:
        return formula(np, *(array.astype(np.float64) for array in arrays))

    return Workload(f"{name}, {ROWS} x {COLUMNS} f32", define, inputs, reference, formula, 1e-5, torch_formula)


# --- the examples ---------------------------------------------------------------------------------------------------


def mlp(xp: ModuleType, x: Any, up: Any, up_bias: Any, down: Any, down_bias: Any) -> Arrays:
    hidden = x @ up.T + up_bias
    hidden = hidden * 0.5 * (1 + erf(xp, hidden * np.float32(0.5**0.5)))
    return [hidden @ down.T + down_bias]


def torch_mlp(torch: ModuleType, x: Any, up: Any, up_bias: Any, down: Any, down_bias: Any) -> Arrays:
    functional = torch.nn.functional
    return [functional.linear(functional.gelu(functional.linear(x, up, up_bias)), down, down_bias)]


def adaptive_backward(
    xp: ModuleType, weight: Any, bias: Any, scale: Any, grad: Any, mean: Any, rstd: Any, x: Any
) -> Arrays:
    w, b = (in_float32(xp, t[0, 0]) for t in (weight, bias))  # One row of them is stored.
    g = in_float32(xp, grad)
    centered = in_float32(xp, x) - mean.reshape(*mean.shape, 1)
    xhat = centered * rstd
    gain = in_float32(xp, as_type(1 + in_float32(xp, scale), scale))
    grad_gain = ((xhat * w + b) * g).sum(1)
    scaled = gain * g
    inner = w * scaled
    by_variance = -0.5 * (centered * inner).sum(2).reshape(rstd.shape) * rstd**3
    by_mean = -(rstd * inner).sum(2).reshape(rstd.shape)
    grad_x = rstd * inner + (by_mean + 2 * by_variance * centered) * (1 / x.shape[2])
    outputs = [g.sum(1), grad_gain, scaled.sum((0, 1)), (xhat * scaled).sum((0, 1)), grad_x]
    return [as_type(output, x) for output in outputs]


def rotary(xp: ModuleType, cos: Any, sin: Any, qkv: Any) -> Arrays:
    batch, tokens, groups, share = rope.BATCH, rope.TOKENS, rope.GROUPS, rope.SHARE
    split = qkv.reshape(batch, tokens, groups, share + 2, rope.HEAD_SIZE).swapaxes(1, 2).swapaxes(2, 3)
    cos, sin = in_float32(xp, cos), in_float32(xp, sin)

    def part(begin: int, end: int) -> Any:
        shape = (batch, groups, share, tokens, rope.HEAD_SIZE)
        return xp.broadcast_to(split[:, :, begin:end], shape).reshape(batch, rope.HEADS, tokens, rope.HEAD_SIZE)

    def rotate(t: Any) -> Any:
        head = in_float32(xp, t[..., : rope.ROTATED])
        first, second = head[..., : rope.ROTATED // 2], head[..., rope.ROTATED // 2 :]
        turned = xp.concatenate([-second, first], -1)
        return xp.concatenate([as_type(head * cos + turned * sin, t), t[..., rope.ROTATED :]], -1)

    return [rotate(part(0, share)), rotate(part(share, share + 1)), part(share + 1, share + 2)]


def on_one_rank(example: Example, formula: Callable[..., Arrays], torch_formula: Any = None) -> Workload:
    return Workload(
        example.name,
        lambda: example.define(1),
        example.make_inputs,
        example.reference,
        formula,
        example.tolerance,
        torch_formula,
    )


NORMS = [
    norm(
        "layer norm",
        define_layer_norm,
        lambda: drawn((ROWS, COLUMNS), (COLUMNS,), (COLUMNS,)),
        layer_norm,
        torch_layer_norm,
    ),
    norm("RMS norm", define_rms_norm, lambda: drawn((ROWS, COLUMNS), (COLUMNS,)), rms_norm, torch_rms_norm),
    norm("softmax", define_softmax, lambda: drawn((ROWS, COLUMNS)), softmax, torch_softmax),
    norm(
        "layer-norm backward",
        define_layer_norm_backward,
        layer_norm_backward_inputs,
        layer_norm_backward,
        torch_layer_norm_backward,
    ),
]
EXAMPLES = [
    on_one_rank(tensor_parallel_mlp.EXAMPLE, mlp, torch_mlp),
    on_one_rank(rope.EXAMPLE, rotary),
    on_one_rank(adaptive_layernorm_backward.EXAMPLE, adaptive_backward),
]


# --- sides ----------------------------------------------------------------------------------------------------------


@dataclass
class Side:
    """One of those that compute a workload. `call` returns when the outputs are there."""

    name: str
    call: Callable[[], Any]
    to_numpy: Callable[[Any], np.ndarray]
    calls: int = 1  # In a sample.

    def check(self, workload: Workload, expected: Sequence[np.ndarray]) -> None:
        for index, (got, want) in enumerate(zip(self.call(), expected, strict=True)):
            error = relative_error(self.to_numpy(got), want)
            if not error <= workload.tolerance:
                raise ValueError(f"{workload.name} by {self.name}: output {index} is off by {error:.1e}")

    def prepare(self) -> None:
        """Warm already: counts how many calls make a sample. The first after a pause says too few: its threads wake."""
        self.calls = 0
        started = time.perf_counter()
        while time.perf_counter() - started < SAMPLE_SECONDS:
            self.call()
            self.calls += 1

    def sample_ms(self) -> float:
        time.sleep(SETTLE_SECONDS)
        started = time.perf_counter()
        for _ in range(self.calls):
            self.call()
        return (time.perf_counter() - started) / self.calls * 1e3


def hostir_side(client: hostir.Client, workload: Workload, inputs: Sequence[np.ndarray]) -> Side:
    fd = workload.define()
    handles = [client.put(array, tensor) for array, tensor in zip(inputs, fd.fusion.inputs(), strict=True)]
    return Side("hostir", lambda: client.run(fd, handles, wait=True), lambda array: array.numpy())


def numpy_side(workload: Workload, inputs: Sequence[np.ndarray]) -> Side:
    return Side("NumPy", lambda: workload.formula(np, *inputs), np.asarray)


def jax_side(workload: Workload, inputs: Sequence[np.ndarray]) -> Side:
    import jax

    jax.config.update("jax_platforms", "cpu")
    arrays = [jax.numpy.asarray(array) for array in inputs]
    compiled = jax.jit(lambda *args: workload.formula(jax.numpy, *args))
    return Side("JAX", lambda: jax.block_until_ready(compiled(*arrays)), np.asarray)


def torch_sides(workload: Workload, inputs: Sequence[np.ndarray]) -> Iterator[Side]:
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))  # As many as our threads, under taskset, too.

    def tensor_of(array: np.ndarray) -> Any:
        if array.dtype == BF16:
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    def to_numpy(tensor: Any) -> np.ndarray:
        return tensor.float().numpy()

    tensors = [tensor_of(array) for array in inputs]
    formula = workload.torch_formula or workload.formula

    def call(function: Callable[..., Any]) -> Callable[[], Any]:
        def run() -> Any:
            with torch.inference_mode():
                return function(torch, *tensors)

        return run

    yield Side("PyTorch", call(formula), to_numpy)
    yield Side("torch.compile", call(torch.compile(formula)), to_numpy)


def missing(module: str) -> str | None:
    """Why `module` cannot be used; None when it can."""
    if importlib.util.find_spec(module) is None:
        return f"not installed: no module named {module!r} for the Python that ran this"
    try:
        importlib.import_module(module)
    except Exception as error:  # Whatever an installation that does not fit this machine raises.
        return f"not usable: {type(error).__name__}: {error}"
    return None


def stored(array: np.ndarray) -> np.ndarray:
    """What of an input is in memory: one element along axes of stride 0."""
    index = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in array.strides)
    return np.ascontiguousarray(array[index])


def measure(workload: Workload, pairs: int) -> list[dict[str, Any]]:
    """Rows for bench.py: {name, unit, ours, theirs, peer}, or {name, reason} of a peer that is not there.

    In each of `pairs` rounds every side takes its turn, so that one sample of ours stands beside one of each peer.
    """
    inputs = workload.inputs()
    expected = workload.reference(inputs)
    compact = [stored(array) for array in inputs]
    with hostir.connect(devices="cpu:1") as client:
        ours = hostir_side(client, workload, inputs)
        peers = [numpy_side(workload, compact)]
        rows: list[dict[str, Any]] = []
        for name, module in (("JAX", "jax"), ("PyTorch", "torch")):
            if (reason := missing(module)) is not None:
                rows.append({"name": f"{name}: {workload.name}", "reason": reason})
            elif module == "jax":
                peers.append(jax_side(workload, compact))
            else:
                peers.extend(torch_sides(workload, compact))
        for side in (ours, *peers):
            side.check(workload, expected)
            side.prepare()
        samples = {side.name: [] for side in (ours, *peers)}
        for _ in range(pairs):
            for side in (ours, *peers):
                samples[side.name].append(side.sample_ms())
    measured = [
        {
            "name": f"{peer.name}: {workload.name}",
            "unit": "ms",
            "ours": samples[ours.name],
            "theirs": samples[peer.name],
            "peer": peer.name,
        }
        for peer in peers
    ]
    return measured + rows
