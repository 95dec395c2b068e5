"""A drawn workload on one GPU by the protocol of benchmarks/gpu/kernels.py: device time by events, caches cold.

hostir-eval runs the program, so that no request is in any time; the peers are torch.compile, called or replayed as a
graph, whichever is faster, and JAX.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import kernels  # Of benchmarks/gpu, as peers.
import peers
import torch
from drawing import Drawn
from op_spaces import ArrayOps, TorchOps

TIMERS = {"PyTorch": peers.torch_compile_ms, "JAX": peers.jax_ms}


def functions(drawn: Drawn) -> dict[str, Any]:
    import jax

    jax_ops, torch_ops = ArrayOps(jax.numpy), TorchOps(torch)
    return {
        "PyTorch": lambda *tensors: drawn.compute(torch_ops, *tensors),
        "JAX": lambda *arrays: drawn.compute(jax_ops, *arrays),
    }


def results_of(peer: str, function: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    if peer == "PyTorch":
        torch._dynamo.reset()
        return list(torch.compile(function, fullgraph=True, dynamic=False)(*inputs))
    import jax

    arrays = [jax.dlpack.from_dlpack(t.to(torch.int32) if t.dtype == torch.int64 else t) for t in inputs]
    return [torch.from_dlpack(y) for y in jax.jit(function)(*arrays)]


def measure(evaluator: Path, drawn: Drawn, rounds: int) -> tuple[dict[str, list[float]], dict[str, str]]:
    """As of on_cpu. There is no "kernels": ours are the device's own times already."""
    inputs = [kernels.draw(array) for array in drawn.inputs]
    wide = [t if t.dtype == torch.int64 else t.double() for t in inputs]
    expected: list[torch.Tensor] = drawn.formula(TorchOps(torch), *wide)
    del wide
    text, outputs = str(drawn.program()), drawn.output_arrays()
    by_peer = functions(drawn)
    samples: dict[str, list[float]] = {name: [] for name in ("hostir", *by_peer)}
    with tempfile.TemporaryDirectory(prefix="hostir-", dir=kernels.shared_memory()) as name:
        folder = Path(name)
        for array, tensor in zip(drawn.inputs, inputs, strict=True):
            kernels.save(folder / f"{array.name}.npy", tensor)
        for _ in range(rounds):
            torch.cuda.empty_cache()  # What references needed: hostir-eval is another process.
            samples["hostir"].append(kernels.evaluate(evaluator, folder, text)["median_ms"])
            if expected:
                ours = [kernels.load(folder / f"{array.name}.npy", array) for array in outputs]
                drawn.check("hostir", [y.double() for y in ours], expected)
                for peer, function in by_peer.items():
                    drawn.check(peer, [y.double() for y in results_of(peer, function, inputs)], expected)
                ours, expected = [], []  # Frees them.
            for peer, function in by_peer.items():
                samples[peer].append(TIMERS[peer](function, inputs)["ms"])
    torch.cuda.empty_cache()
    return samples, {}
