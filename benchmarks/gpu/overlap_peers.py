"""Products beside their communications as PyTorch and JAX run them: the peers of overlap.py, in processes of their own.

"torch" is NCCL's collective before or behind the product (cuBLASLt's), "async-TP" is PyTorch's
fused_all_gather_matmul and fused_matmul_reduce_scatter on symmetric memory, "JAX" is what XLA makes of the shardings
with windowed einsums allowed.
Samples are, as hostir-eval's are, of `--batch` runs that are queued back to back, of the slowest rank.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Size = tuple[int, int, int]
Samples = dict[tuple[str, str], list[float]]  # By form and peer, milliseconds.
WARM_UP = 3
XLA = "--xla_gpu_threshold_for_windowed_einsum_mib=0 --xla_gpu_multi_streamed_windowed_einsum=true"


def samples(args: argparse.Namespace, sizes: list[Size]) -> dict[Size, Samples]:
    """What PyTorch and JAX take for each form, by `args.peer`, a Python that has both."""
    with tempfile.TemporaryDirectory(prefix="hostir-") as folder:
        asked = {**{key: getattr(args, key) for key in ("ranks", "device", "forms", "batch")}, "sizes": sizes}
        asked |= {"samples": args.samples, "store": f"{folder}/store"}
        torch = [start(args.peer, {**asked, "kind": "torch", "rank": rank}) for rank in range(args.ranks)]
        answers = [finished(torch, args.timeout)]
        answers.append(finished([start(args.peer, {**asked, "kind": "jax"})], args.timeout))
    taken: dict[Size, Samples] = {size: {} for size in sizes}
    for of_ranks in answers:
        for rows in zip(*of_ranks, strict=True):  # One row of all ranks.
            size, form, name, _ = rows[0]
            slowest = [max(of_sample) for of_sample in zip(*(row[3] for row in rows), strict=True)]
            taken[tuple(size)][form, name] = slowest
    return taken


def start(python: str, asked: dict[str, Any]) -> subprocess.Popen[str]:
    command = [python, str(Path(__file__).resolve()), json.dumps(asked)]
    environment = os.environ | {"XLA_FLAGS": XLA if asked["device"] == "cuda" else ""}
    environment |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "GLOO_SOCKET_IFNAME": "lo"}
    if asked["device"] == "cpu":
        environment |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"--xla_force_host_platform_device_count={asked['ranks']}"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finished(processes: list[subprocess.Popen[str]], seconds: float) -> list[list[Any]]:
    """The rows that each process printed."""
    try:
        outputs = [process.communicate(timeout=seconds) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    if any(process.returncode for process in processes):
        raise RuntimeError("\n".join(error[-1500:] for _, error in outputs))
    return [json.loads(out.splitlines()[-1]) for out, _ in outputs]


def by_torch(asked: dict[str, Any]) -> list[Any]:
    """One of PyTorch's ranks."""
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric

    rank, ranks, on_gpu = asked["rank"], asked["ranks"], asked["device"] == "cuda"
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    store = f"file://{asked['store']}"
    dist.init_process_group("nccl" if on_gpu else "gloo", init_method=store, rank=rank, world_size=ranks)
    group = dist.group.WORLD.group_name

    def random(*shape: int) -> torch.Tensor:
        return torch.rand(shape, device=device).sub_(0.5).to(torch.bfloat16)

    def timed(step: Callable[[], Any]) -> list[float]:
        for _ in range(WARM_UP):
            step()
        times = []
        for _ in range(asked["samples"]):
            dist.barrier()
            if not on_gpu:
                began = time.perf_counter()
                for _ in range(asked["batch"]):
                    step()
                times.append(1e3 * (time.perf_counter() - began) / asked["batch"])
                continue
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(asked["batch"]):
                step()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / asked["batch"])
        return times

    def ways_of(form: str, m: int, k: int, n: int) -> dict[str, Callable[[], Any]]:
        if form == "all-gather":
            part, w = random(m // ranks, k), random(k, n // ranks)
            whole, y = torch.empty(m, k, dtype=part.dtype, device=device), random(m, n // ranks)

            def gathered() -> None:
                dist.all_gather_into_tensor(whole, part)
                torch.mm(whole, w, out=y)

            ways: dict[str, Callable[[], Any]] = {"torch": gathered}
            if on_gpu:
                shared = symmetric.empty(m // ranks, k, dtype=part.dtype, device=device)
                symmetric.rendezvous(shared, group)
                shared.copy_(part)
                ways["async-TP"] = lambda: torch.ops.symm_mem.fused_all_gather_matmul(shared, [w], 0, group)
            return ways
        x, w = random(m, n // ranks), random(n // ranks, k)
        partial = torch.empty(m, k, dtype=x.dtype, device=device)
        y = torch.empty(m // ranks, k, dtype=x.dtype, device=device)
        if form == "all-reduce":

            def summed() -> None:
                torch.mm(x, w, out=partial)
                dist.all_reduce(partial)

            return {"torch": summed}

        def scattered() -> None:
            torch.mm(x, w, out=partial)
            dist.reduce_scatter_tensor(y, partial)

        ways = {"torch": scattered}
        if on_gpu:
            ways["async-TP"] = lambda: torch.ops.symm_mem.fused_matmul_reduce_scatter(x, w, "sum", 0, group)
        return ways

    rows = []
    for size in asked["sizes"]:
        for form in asked["forms"]:
            for name, step in ways_of(form, *size).items():
                rows.append([size, form, name, timed(step)])
    dist.destroy_process_group()
    return rows


def by_jax(asked: dict[str, Any]) -> list[Any]:
    """JAX's one process."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    devices = jax.devices()[: asked["ranks"]]
    mesh = Mesh(devices, ("x",))

    def split(*axes: str | None) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*axes))

    def random(shape: tuple[int, int], *axes: str | None) -> jax.Array:
        def made() -> jax.Array:
            return jax.random.uniform(jax.random.key(0), shape, jnp.bfloat16) - 0.5

        return jax.jit(made, out_shardings=split(*axes))()

    def timed(step: Callable[..., jax.Array], *operands: jax.Array) -> list[float]:
        for _ in range(WARM_UP):
            step(*operands).block_until_ready()
        times = []
        for _ in range(asked["samples"]):
            began = time.perf_counter()
            for _ in range(asked["batch"]):
                made = step(*operands)
            made.block_until_ready()
            times.append(1e3 * (time.perf_counter() - began) / asked["batch"])
        return times

    rows = []
    for m, k, n in asked["sizes"]:
        for form in asked["forms"]:
            if form == "all-gather":
                operands, result = (random((m, k), "x", None), random((k, n), None, "x")), split(None, "x")
            else:
                operands = (random((m, n), None, "x"), random((n, k), "x", None))
                result = split("x", None) if form == "reduce-scatter" else split()
            product = jax.jit(lambda a, b: a @ b, out_shardings=result)
            rows.append([(m, k, n), form, "JAX", timed(product, *operands)])
    return rows


if __name__ == "__main__":
    its_part = json.loads(sys.argv[1])
    print(json.dumps((by_torch if its_part["kind"] == "torch" else by_jax)(its_part)))
