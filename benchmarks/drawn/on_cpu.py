"""A drawn workload on the cores of this machine: hostir by the client, JAX, and PyTorch by inductor."""

from __future__ import annotations

import time
from types import ModuleType
from typing import Any

import frameworks
import numpy as np
from drawing import Drawn
from frameworks import SETTLE_SECONDS, Side, jax_side, missing, torch_sides
from op_spaces import ArrayOps, TorchOps

import hostir

PROFILED_RUNS = 20  # At most, of a round.


def has_bf16() -> bool:
    """Whether this machine's processor computes with bfloat16, as peers want it."""
    with open("/proc/cpuinfo") as file:
        return any(line.startswith("flags") and "_bf16" in line for line in file)


def side_of_hostir(client: hostir.Client, drawn: Drawn, inputs: list[np.ndarray[Any, Any]]) -> tuple[Side, Any]:
    """And what a round of the same runs by their kernels alone takes: a function of a number of runs, in ms."""
    fd = drawn.program()
    tensors: list[Any] = list(fd.fusion.inputs())
    handles = [client.put(array, tensor) for array, tensor in zip(inputs, tensors, strict=True)]

    def kernels_ms(runs: int) -> float:
        time.sleep(SETTLE_SECONDS)
        return client.profile(fd, handles, repeat=min(runs, PROFILED_RUNS)).total_us / 1e3

    return Side("hostir", lambda: client.run(fd, handles, wait=True), lambda array: array.numpy()), kernels_ms


def sides_of_peers(drawn: Drawn, inputs: list[np.ndarray[Any, Any]]) -> tuple[list[Side], dict[str, str]]:
    """By frameworks.py; and why a peer is not there."""
    peers, reasons = [], {}

    def formula(xp: ModuleType, *arrays: Any) -> list[Any]:
        return drawn.compute(ArrayOps(xp), *arrays)

    workload = frameworks.Workload(drawn.name, drawn.program, drawn.values, drawn.reference, formula, 0.0)
    if (reason := missing("jax")) is not None:
        reasons["JAX"] = reason
    else:
        peers.append(jax_side(workload, inputs))
    if (reason := missing("torch")) is not None:
        reasons["PyTorch"] = reason
    else:
        import torch

        ops = TorchOps(torch)
        torch._dynamo.reset()  # Else what is compiled counts as one function again, and is given up after a few.
        compiled = torch.compile(lambda _, *tensors: drawn.compute(ops, *tensors), fullgraph=True, dynamic=False)
        workload = frameworks.Workload(
            drawn.name, drawn.program, drawn.values, drawn.reference, formula, 0.0, torch_formula=compiled
        )
        peers.append(next(torch_sides(workload, inputs)))
    return peers, reasons


def measure(client: hostir.Client, drawn: Drawn, rounds: int) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Milliseconds by side, "kernels" among them, one a round; and the peers that are not there. In a round every side
    takes its turn."""
    inputs = drawn.values()
    expected = drawn.reference(inputs)
    ours, kernels_ms = side_of_hostir(client, drawn, inputs)
    peers, reasons = sides_of_peers(drawn, inputs)
    for side in (ours, *peers):
        drawn.check(side.name, [side.to_numpy(y).astype(np.float64) for y in side.call()], expected)
        side.prepare()
    samples: dict[str, list[float]] = {name: [] for name in (*(side.name for side in (ours, *peers)), "kernels")}
    for _ in range(rounds):
        for side in (ours, *peers):
            samples[side.name].append(side.sample_ms())
        samples["kernels"].append(kernels_ms(ours.calls))
    return samples, reasons
