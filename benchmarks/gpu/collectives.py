"""Communications through the evaluator beside the same calls of NCCL by PyTorch, on the GPUs of this machine.

python3 benchmarks/gpu/collectives.py --ranks 2 --eval build/gpu/hostir-eval --json benchmarks/results/NAME.json

Both sides: five samples of 20 communications back to back between two events; the median of the samples, of each the
slowest rank's. hostir runs a host program of one communication under mpirun. Sizes are those of the larger buffer.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from machine import machine

ROOT = Path(__file__).resolve().parents[2]
TYPES = ["allgather", "allreduce", "reduce_scatter", "all_to_all"]
SIZES = [8 << 10, 1 << 20, 64 << 20, 1 << 30]
SAMPLES, BATCH, WARMUP = 5, 20, 5
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def program(kind: str, ranks: int, size: int) -> str:
    """A host program of one communication of bf16; chunk axes lead."""
    chunk = size // 2 // ranks
    whole, part = f"bf16[{ranks}, {chunk}]", f"bf16[{chunk}]"
    source, target = {
        "allgather": (part, whole),
        "allreduce": (whole, whole),
        "reduce_scatter": (whole, part),
        "all_to_all": (whole, whole),
    }[kind]
    reduce = "sum" if "reduce" in kind else "none"
    return (
        f"mesh @m = {list(range(ranks))}\n"
        f"host @{kind}(%x: {source}, %y: {target}) {{\n"
        f"  communication(%x, %y) {{type={kind}, reduce={reduce}, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=0}}\n"
        "  return %y\n}\n"
    )


def through_hostir(evaluator: Path, device: str, kind: str, ranks: int, size: int) -> float:
    """Microseconds of one communication."""
    with tempfile.TemporaryDirectory(prefix="hostir-") as name:
        file, report = Path(name) / "program.hir", Path(name) / "report.json"
        file.write_text(program(kind, ranks, size))
        command = ["mpirun", "-n", ranks, "--oversubscribe", "--bind-to", "none", evaluator, file, "--device", device]
        command += ["--random", 1, "--repeat", SAMPLES, "--batch", BATCH, "--warmup", WARMUP, "--json", report]
        done = subprocess.run(
            list(map(str, command)), env=os.environ | MPI, capture_output=True, text=True, timeout=180
        )
        if done.returncode != 0:
            raise RuntimeError(f"hostir-eval ({done.returncode}): {' '.join(done.stderr.split())[-400:]}")
        return json.loads(report.read_text())["median_ms"] * 1e3


def raw_rank(types: list[str], sizes: list[int]) -> None:
    """One rank of the peer, started by torchrun: prints {type: {size: microseconds}} on rank 0."""
    import torch
    import torch.distributed as dist

    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    ranks = dist.get_world_size()

    def call(kind: str, whole: torch.Tensor, part: torch.Tensor, other: torch.Tensor) -> None:
        if kind == "allgather":
            dist.all_gather_into_tensor(whole, part)
        elif kind == "allreduce":
            dist.all_reduce(whole)
        elif kind == "reduce_scatter":
            dist.reduce_scatter_tensor(part, whole)
        else:
            dist.all_to_all_single(other, whole)

    def microseconds(*arguments: Any) -> float:
        for _ in range(WARMUP):
            call(*arguments)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        samples = []
        for _ in range(SAMPLES):
            torch.cuda.synchronize()
            dist.barrier()
            torch.cuda.synchronize()
            begin.record()
            for _ in range(BATCH):
                call(*arguments)
            end.record()
            torch.cuda.synchronize()
            samples.append(begin.elapsed_time(end) / BATCH * 1e3)
        slowest = torch.tensor(samples, device="cuda")
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        return statistics.median(slowest.tolist())

    times: dict[str, dict[str, float]] = {kind: {} for kind in types}
    for size in sizes:
        whole = torch.randn(size // 2, device="cuda", dtype=torch.bfloat16)
        part, other = torch.empty_like(whole[: whole.numel() // ranks]), torch.empty_like(whole)
        for kind in types:
            times[kind][str(size)] = microseconds(kind, whole, part, other)
    if rank == 0:
        print("RAW " + json.dumps(times), flush=True)
    dist.destroy_process_group()


def raw(ranks: int, types: list[str], sizes: list[int]) -> dict[str, dict[str, float]]:
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks, __file__, "--raw"]
    command += ["--types", *types, "--sizes", *sizes]
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, timeout=300)
    for text in done.stdout.splitlines():
        if text.startswith("RAW "):
            return json.loads(text[4:])
    raise RuntimeError(f"torchrun ({done.returncode}): {' '.join(done.stderr.split())[-400:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2, help="GPUs (default 2)")
    parser.add_argument("--eval", type=Path, default=ROOT / "build/gpu/hostir-eval", help="the program to measure")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to try this script where there is no GPU")
    parser.add_argument("--types", nargs="+", choices=TYPES, default=TYPES)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="bytes")
    parser.add_argument("--no-peer", action="store_true", help="hostir alone")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    parser.add_argument("--raw", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.raw:
        raw_rank(args.types, args.sizes)
        return 0
    peer = {} if args.no_peer else raw(args.ranks, args.types, args.sizes)
    print(
        f"{'communication':<16} {'bytes':>11} {'hostir us':>10} {'NCCL us':>10} {'share':>6} {'added us':>9}",
        flush=True,
    )
    rows, failed = [], []
    for kind in args.types:
        for size in args.sizes:
            row: dict[str, Any] = {"type": kind, "bytes": size, "nccl_us": peer.get(kind, {}).get(str(size))}
            try:
                row["us"] = through_hostir(args.eval, args.device, kind, args.ranks, size)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                failed.append(f"{kind} {size}")
                print(f"{kind:<16} {size:>11} FAILED: {error}", flush=True)
                continue
            rows.append(row)
            theirs = row["nccl_us"]
            beside = f"{theirs:10.1f} {theirs / row['us']:6.1%} {row['us'] - theirs:9.1f}" if theirs else ""
            print(f"{kind:<16} {size:>11} {row['us']:10.1f} {beside}", flush=True)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(
            json.dumps({"machine": machine(), "ranks": args.ranks, "rows": rows, "failed": failed}, indent=1) + "\n"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
