"""Communications through comm/nccl, through the evaluator and by graphs of it, beside NCCL called directly.

Graphs of the evaluator are measured beside graphs of NCCL's own calls, and those ("nccl_graph") beside the calls.

python3 benchmarks/gpu/collectives.py --ranks 2 --json benchmarks/results/NAME.json

Runs `collectives_gpu`, in which a process a GPU times both sides in turn, on a pair of communicators and by one
protocol: calls queued back to back behind one that is not timed, between two events. Its table has, for each way,
communication and size (of the larger buffer), quartiles and median of the pairs. This script adds a line a way, the
least share of NCCL's speed from 64 MiB up and the most that is added to a communication below, and keeps quartiles
with machine and command. `--torch` prints NCCL as PyTorch calls it, too, by the same protocol in processes of its own.
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

sys.path.append(str(Path(__file__).resolve().parents[1]))

from kept import kept_pairs, write
from machine import machine

ROOT = Path(__file__).resolve().parents[2]
TYPES = [
    "gather",
    "allgather",
    "scatter",
    "reduce",
    "allreduce",
    "reduce_scatter",
    "broadcast",
    "send_recv",
    "all_to_all",
    "collective_permute",
]
WAYS = ["post", "run", "graph", "nccl_graph"]
SIZES = [4 << 10, 1 << 20, 64 << 20, 256 << 20, 1 << 30]
TORCH_TYPES = ["allgather", "allreduce", "reduce_scatter", "all_to_all"]
LARGE = 64 << 20
SHARE_LEAST, ADDED_US_MOST = 0.95, 5.0  # What is wanted: from LARGE up, of NCCL called by us and by PyTorch, and below.


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """What collectives_gpu measured; its table is printed as it goes."""
    with tempfile.TemporaryDirectory(prefix="hostir-") as name:
        file = Path(name) / "collectives.json"
        command = [args.program, "--ranks", args.ranks, "--pairs", args.pairs, "--json", file]
        command += ["--types", ",".join(args.types), "--sizes", ",".join(map(str, args.sizes))]
        command += ["--ways", ",".join(args.ways)]
        done = subprocess.run(list(map(str, command)), timeout=args.timeout)
        if done.returncode != 0:
            raise RuntimeError(f"{args.program} ended with {done.returncode}")
        return json.loads(file.read_text())


def of_pairs(row: dict[str, Any]) -> dict[str, list[float]]:
    """Of each pair: our share of NCCL's speed, and the microseconds that we add, on the device and on the host."""
    device = list(zip(row["us"], row["nccl_us"], strict=True))
    host = zip(row["host_us"], row["nccl_host_us"], strict=True)
    return {
        "share": [theirs / ours for ours, theirs in device],
        "added_us": [ours - theirs for ours, theirs in device],
        "host_added_us": [ours - theirs for ours, theirs in host],
    }


def kept(row: dict[str, Any]) -> dict[str, Any]:
    """What a file of results has of it."""
    return kept_pairs(row, ["us", "nccl_us", "host_us", "nccl_host_us"], of_pairs(row))


def summaries(rows: list[dict[str, Any]], ways: list[str]) -> list[dict[str, Any]]:
    """Of each way: the least share from LARGE up, and the most added below, with what it is of."""

    def share(row: dict[str, Any]) -> float:
        return statistics.median(of_pairs(row)["share"])

    def added(row: dict[str, Any]) -> float:
        return statistics.median(of_pairs(row)["added_us"])

    found = []
    for way in ways:
        of_way = [row for row in rows if row["way"] == way]
        summary: dict[str, Any] = {"way": way}
        if large := [row for row in of_way if row["bytes"] >= LARGE]:
            least = min(large, key=share)
            summary["least_share"] = share(least)
            summary["least_share_of"] = f"{least['type']} {least['bytes'] >> 20} MiB"
        if small := [row for row in of_way if row["bytes"] < LARGE]:
            most = max(small, key=added)
            summary["most_added_us"] = added(most)
            summary["most_added_us_of"] = f"{most['type']} {most['bytes'] >> 10} KiB"
        found.append(summary)
    return found


def torch_rank(types: list[str], sizes: list[int], pairs: int) -> None:
    """One rank of PyTorch, started by torchrun: prints {type: {size: microseconds}} on rank 0."""
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

    def microseconds(size: int, *arguments: Any) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        calls = 20 if size >= 256 << 20 else 40 if size >= LARGE else 200
        samples = []
        for _ in range(pairs + 1):
            torch.cuda.synchronize()
            dist.barrier()
            torch.cuda.synchronize()
            call(*arguments)
            begin.record()
            for _ in range(calls):
                call(*arguments)
            end.record()
            torch.cuda.synchronize()
            samples.append(begin.elapsed_time(end) / calls * 1e3)
        return statistics.median(samples[1:])

    times: dict[str, dict[str, float]] = {kind: {} for kind in types}
    for size in sizes:
        whole = torch.randn(size // 4, device="cuda")
        part, other = torch.empty_like(whole[: whole.numel() // ranks]), torch.empty_like(whole)
        for kind in types:
            times[kind][str(size)] = microseconds(size, kind, whole, part, other)
    if rank == 0:
        print("TORCH " + json.dumps(times), flush=True)
    dist.destroy_process_group()


def torch(ranks: int, types: list[str], sizes: list[int], pairs: int) -> dict[str, dict[str, float]]:
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks, __file__, "--torch-rank"]
    command += ["--types", *types, "--sizes", *sizes, "--pairs", pairs]
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, timeout=300)
    for text in done.stdout.splitlines():
        if text.startswith("TORCH "):
            return json.loads(text[6:])
    raise RuntimeError(f"torchrun ({done.returncode}): {' '.join(done.stderr.split())[-400:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2, help="GPUs (default 2)")
    parser.add_argument("--program", type=Path, default=ROOT / "build/gpu/benchmarks/collectives_gpu")
    parser.add_argument("--types", nargs="+", choices=TYPES, default=TYPES)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="bytes, of f32: 4096 or more")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--torch", action="store_true", help="NCCL by PyTorch, too")
    parser.add_argument("--timeout", type=float, default=400, help="seconds (400)")
    parser.add_argument("--json", type=Path, help="keep the figures, the machine and the command there")
    parser.add_argument("--torch-rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.torch_rank:
        torch_rank(args.types, args.sizes, args.pairs)
        return 0
    try:
        measured = measure(args)
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        print(f"FAILED: {error}")
        return 1
    found = summaries(measured["rows"], args.ways)
    for summary in found:
        least, most = summary.get("least_share"), summary.get("most_added_us")
        print(
            f"{summary['way']:<10}"
            + (f"  least share from 64 MiB {least:6.1%} ({summary['least_share_of']})" if least is not None else "")
            + (f"  most added below {most:5.2f} us ({summary['most_added_us_of']})" if most is not None else "")
        )
    by_torch: dict[str, dict[str, float]] = {}
    if args.torch:
        types = [kind for kind in args.types if kind in TORCH_TYPES]
        by_torch = torch(args.ranks, types, args.sizes, args.pairs)
        for kind, times in by_torch.items():
            print(f"torch {kind:<18} " + "  ".join(f"{int(size) >> 10} KiB {us:.2f} us" for size, us in times.items()))
    if args.json:
        record = {"machine": machine() | measured["machine"], "ranks": args.ranks, "summaries": found}
        record |= {"rows": [kept(row) for row in measured["rows"]], "torch_us": by_torch}
        write(args.json, record)
    missed = [
        f"{s['way']}: {what} {s[key]:.3g}, wants at {'least' if least else 'most'} {goal}"
        for s in found
        if s["way"] != "nccl_graph"  # NCCL itself: nothing of ours.
        for what, key, goal, least in (
            ("share of NCCL's speed", "least_share", SHARE_LEAST, True),
            ("us added", "most_added_us", ADDED_US_MOST, False),
        )
        if key in s and (s[key] < goal if least else s[key] > goal)
    ]
    for row in measured["rows"]:
        theirs = by_torch.get(row["type"], {}).get(str(row["bytes"]))
        if row["way"] != "run" or theirs is None or row["bytes"] < LARGE:
            continue
        share = theirs / statistics.median(row["us"])
        if share < SHARE_LEAST:
            missed.append(
                f"{row['type']} {row['bytes'] >> 20} MiB: {share:.3g} of PyTorch's, wants at least {SHARE_LEAST}"
            )
    for text in missed:
        print(f"missed: {text}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
