"""The same workloads by PyTorch (torch.compile) and by JAX, and their device time with cold caches.

A function takes a workload's inputs in order and returns its outputs in order; both peers round where the program does.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import torch
import torch.nn.functional as F

FLUSH_BYTES = 256 << 20
BF16 = torch.bfloat16


# --- PyTorch ---------------------------------------------------------------------------------------------------


def adaptive_layer_norm_backward(weight, bias, scale, grad, mean, rstd, x):
    centered = x.float() - mean[:, :, None]
    xhat = centered * rstd
    normed = xhat * weight.float() + bias.float()
    gain = (1.0 + scale.float()).to(BF16).float()
    g = grad.float()
    g_normed = gain * g
    inner = weight.float() * g_normed
    direct = rstd * inner
    by_variance = -0.5 * (centered * inner).sum(2, keepdim=True) * rstd.pow(3)
    by_mean = (-direct).sum(2, keepdim=True)
    features = float(x.shape[2])
    grad_x = direct + (by_mean / features + 2 * by_variance * centered / features)
    return (
        g.sum(1).to(BF16),
        (normed * g).sum(1).to(BF16),
        g_normed.sum((0, 1)).to(BF16),
        (xhat * g_normed).sum((0, 1)).to(BF16),
        grad_x.to(BF16),
    )


def rope(batch: int, tokens: int, heads: int, size: int, groups: int, rotated: int) -> Callable[..., Any]:
    share = heads // groups

    def rotate(t, cos, sin):
        head = t[..., :rotated]
        turned = torch.cat((-head[..., rotated // 2 :], head[..., : rotated // 2]), -1)
        return torch.cat((((head * cos) + (turned * sin)).to(t.dtype), t[..., rotated:]), -1)

    def run(qkv, cos, sin):
        split = qkv.view(batch, tokens, groups, share + 2, size).permute(0, 2, 3, 1, 4)
        q, k, v = split.split((share, 1, 1), dim=2)
        k, v = (t.expand(batch, groups, share, tokens, size) for t in (k, v))
        q, k, v = (t.reshape(batch, heads, tokens, size) for t in (q, k, v))
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    return run


def rms_norm(x, weight):
    xf = x.float()
    return (xf * torch.rsqrt(xf.pow(2).mean(-1, keepdim=True) + 1e-6) * weight.float()).to(BF16)


def rms_norm_backward(grad, x, rstd, weight):
    g, xf = grad.float(), x.float()
    xhat, g_xhat = xf * rstd, g * weight.float()
    grad_x = rstd * (g_xhat - xhat * (g_xhat * xhat).mean(-1, keepdim=True))
    return grad_x.to(BF16), (g * xhat).sum(0).to(BF16)


def adamw_clipped(w, grad, m1, m2):
    g = grad.float()
    clipped = g / torch.clamp(g.pow(2).sum().sqrt(), min=1.0)
    new_m1, new_m2 = 0.9 * m1 + 0.1 * clipped, 0.99 * m2 + 0.01 * clipped * clipped
    return w - 0.001 * (new_m1 / (new_m2.sqrt() + 1e-6) + 0.01 * w), new_m1, new_m2


def torch_functions(rope_sizes: dict[str, tuple[int, ...]]) -> dict[str, Callable[..., Any]]:
    return {
        "adaptive_layer_norm_backward": adaptive_layer_norm_backward,
        "softmax": lambda x: torch.softmax(x.float(), -1).to(BF16),
        "layer_norm": lambda x, weight, bias: F.layer_norm(x, (x.shape[1],), weight, bias),
        "batch_norm": lambda x, weight, bias: F.batch_norm(x, None, None, weight, bias, training=True),
        "rms_norm": rms_norm,
        "rms_norm_backward": rms_norm_backward,
        "bias_gelu": lambda x, bias: F.gelu((x + bias).float(), approximate="tanh").to(BF16),
        "silu_mul": lambda x, y: (F.silu(x.float()) * y.float()).to(BF16),
        "sum_inner": lambda x: x.float().sum(1),
        "sum_outer": lambda x: x.float().sum(0),
        "add_transpose": lambda x, b: (x + b).t().contiguous(),
        "cross_entropy": lambda x, target: F.cross_entropy(x.float(), target, reduction="none"),
        "divided_by_its_norm": lambda x: x * torch.rsqrt((x * x).sum()),
        "softmax_one_axis": lambda x: torch.softmax(x, 0),
        "adamw_clipped": adamw_clipped,
    } | {name: rope(*sizes) for name, sizes in rope_sizes.items()}


def device_ms(run: Callable[[], Any], samples: int = 50) -> float:
    """The median time between two events around `run`, each after writing 256 MiB: what hostir-eval measures."""
    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    for _ in range(3):
        run()
    begins, ends = ([torch.cuda.Event(enable_timing=True) for _ in range(samples)] for _ in range(2))
    for begin, end in zip(begins, ends, strict=True):
        flush.zero_()
        begin.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in zip(begins, ends, strict=True))


def graph_of(run: Callable[[], Any]) -> Callable[[], Any]:
    """`run` as a replayed graph: its device time without the host's gaps."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def torch_compile_ms(function: Callable[..., Any], inputs: list[torch.Tensor]) -> dict[str, float]:
    """Plain calls and the replay of a graph: the faster one counts."""
    torch._dynamo.reset()
    started = time.perf_counter()
    compiled = torch.compile(function, fullgraph=True, dynamic=False)
    compiled(*inputs)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    call = device_ms(lambda: compiled(*inputs))
    replay = device_ms(graph_of(lambda: compiled(*inputs)))
    return {"call_ms": call, "graph_ms": replay, "ms": min(call, replay), "compile_s": seconds}


def copy_bandwidth() -> float:
    """GB/s of a large copy from device memory to device memory, bytes read and written: the limit."""
    source = torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    ms = device_ms(lambda: target.copy_(source), 20)
    return 2 * source.numel() / ms / 1e6


# --- JAX ---------------------------------------------------------------------------------------------------------


def jax_functions(rope_sizes: dict[str, tuple[int, ...]]) -> dict[str, Callable[..., Any]]:
    import jax
    import jax.numpy as jnp

    f32, bf16 = jnp.float32, jnp.bfloat16

    def wide(*arrays):
        return [a.astype(f32) for a in arrays]

    def adaptive(weight, bias, scale, grad, mean, rstd, x):
        weight, bias, scale, g, x = wide(weight, bias, scale, grad, x)
        centered = x - mean[:, :, None]
        xhat = centered * rstd
        g_normed = (1.0 + scale).astype(bf16).astype(f32) * g
        inner = weight * g_normed
        direct = rstd * inner
        by_variance = -0.5 * (centered * inner).sum(2, keepdims=True) * rstd**3
        by_mean = (-direct).sum(2, keepdims=True)
        grad_x = direct + (by_mean + 2 * by_variance * centered) / x.shape[2]
        sums = (g.sum(1), ((xhat * weight + bias) * g).sum(1), g_normed.sum((0, 1)), (xhat * g_normed).sum((0, 1)))
        return *(s.astype(bf16) for s in sums), grad_x.astype(bf16)

    def layer_norm(x, weight, bias):
        (xf,) = wide(x)
        centered = xf - xf.mean(-1, keepdims=True)
        variance = (centered**2).mean(-1, keepdims=True)
        return (centered * jax.lax.rsqrt(variance + 1e-5) * weight + bias).astype(bf16)

    def batch_norm(x, weight, bias):
        xf, w, b = wide(x, weight, bias)
        centered = xf - xf.mean(0)
        return (centered * jax.lax.rsqrt((centered**2).mean(0) + 1e-5) * w + b).astype(bf16)

    def rms(x, weight):
        xf, w = wide(x, weight)
        return (xf * jax.lax.rsqrt((xf * xf).mean(-1, keepdims=True) + 1e-6) * w).astype(bf16)

    def rms_backward(grad, x, rstd, weight):
        g, xf, w = wide(grad, x, weight)
        xhat, g_xhat = xf * rstd, g * w
        grad_x = rstd * (g_xhat - xhat * (g_xhat * xhat).mean(-1, keepdims=True))
        return grad_x.astype(bf16), (g * xhat).sum(0).astype(bf16)

    def cross_entropy(x, target):
        (xf,) = wide(x)
        chosen = jnp.take_along_axis(xf, target[:, None], 1)[:, 0]
        return jax.nn.logsumexp(xf, axis=1) - chosen

    def adamw(w, grad, m1, m2):
        (g,) = wide(grad)
        clipped = g / jnp.maximum(jnp.sqrt((g * g).sum()), 1.0)
        new_m1, new_m2 = 0.9 * m1 + 0.1 * clipped, 0.99 * m2 + 0.01 * clipped * clipped
        return w - 0.001 * (new_m1 / (jnp.sqrt(new_m2) + 1e-6) + 0.01 * w), new_m1, new_m2

    def rope_of(batch, tokens, heads, size, groups, rotated):
        share = heads // groups

        def rotate(t, cos, sin):
            head = t[..., :rotated]
            turned = jnp.concatenate((-head[..., rotated // 2 :], head[..., : rotated // 2]), -1)
            return jnp.concatenate(((head * cos + turned * sin).astype(t.dtype), t[..., rotated:]), -1)

        def run(qkv, cos, sin):
            split = qkv.reshape(batch, tokens, groups, share + 2, size).transpose(0, 2, 3, 1, 4)
            q, k, v = split[:, :, :share], split[:, :, share : share + 1], split[:, :, share + 1 :]
            k, v = (jnp.broadcast_to(t, (batch, groups, share, tokens, size)) for t in (k, v))
            q, k, v = (t.reshape(batch, heads, tokens, size) for t in (q, k, v))
            return rotate(q, cos, sin), rotate(k, cos, sin), v

        return run

    return {
        "adaptive_layer_norm_backward": adaptive,
        "softmax": lambda x: jax.nn.softmax(x.astype(f32), -1).astype(bf16),
        "layer_norm": layer_norm,
        "batch_norm": batch_norm,
        "rms_norm": rms,
        "rms_norm_backward": rms_backward,
        "bias_gelu": lambda x, bias: jax.nn.gelu((x + bias).astype(f32)).astype(bf16),
        "silu_mul": lambda x, y: (jax.nn.silu(x.astype(f32)) * y.astype(f32)).astype(bf16),
        "sum_inner": lambda x: x.astype(f32).sum(1),
        "sum_outer": lambda x: x.astype(f32).sum(0),
        "add_transpose": lambda x, b: (x + b).T,
        "cross_entropy": cross_entropy,
        "divided_by_its_norm": lambda x: x * jax.lax.rsqrt((x * x).sum()),
        "softmax_one_axis": lambda x: jax.nn.softmax(x, 0),
        "adamw_clipped": adamw,
    } | {name: rope_of(*sizes) for name, sizes in rope_sizes.items()}


def jax_ms(function: Callable[..., Any], inputs: list[torch.Tensor]) -> dict[str, float]:
    """JAX queues on a stream of its own, which no event of ours reaches: the time of `flush, run` less that of `flush`.

    Both are wall-clock over enough pairs to keep the device busy; the medians of several are subtracted. This leaves
    out what an event pair adds to the others (2 to 3 us), so it is to JAX's advantage.
    """
    import jax
    import jax.numpy as jnp

    # Its integers have 32 bits unless told otherwise.
    narrow = [t.to(torch.int32) if t.dtype == torch.int64 else t for t in inputs]
    arrays = [jax.dlpack.from_dlpack(t.contiguous()) for t in narrow]
    started = time.perf_counter()
    run = jax.jit(function)
    jax.block_until_ready(run(*arrays))
    seconds = time.perf_counter() - started
    fill = jax.jit(lambda: jnp.full(FLUSH_BYTES // 4, 7, jnp.int32))
    jax.block_until_ready(fill())
    pairs = 20

    def wall(with_run: bool) -> float:
        begin = time.perf_counter()
        last = None
        for _ in range(pairs):
            last = fill()
            if with_run:
                last = run(*arrays)
        jax.block_until_ready(last)
        return (time.perf_counter() - begin) / pairs * 1e3

    samples = [(wall(True), wall(False)) for _ in range(9)]
    ms = statistics.median(a for a, _ in samples) - statistics.median(b for _, b in samples)
    return {"ms": ms, "compile_s": seconds}
