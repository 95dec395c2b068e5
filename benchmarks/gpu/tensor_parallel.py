"""A tensor-parallel MLP of a few tokens as a graph: its all-reduce by peer memory beside NCCL's.

python3 benchmarks/gpu/tensor_parallel.py --ranks 2 --json benchmarks/results/NAME.json

y = down(gelu(up(x))) in bfloat16, the first weight split by rows, the second by columns, one all-reduce of the tokens'
rows at the end. Each sample is `--batch` runs of one graph; the two ways take turns, a process a GPU each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

from kept import quartiles, write
from machine import machine

ROOT = Path(__file__).resolve().parents[2]
WIDTHS = [(4096, 14336), (8192, 28672)]
WAYS = {"peer memory": [], "NCCL": ["--no-peer-memory"]}


def program(tokens: int, width: int, inner: int, ranks: int) -> str:
    return f"""mesh @m = {list(range(ranks))}
fusion @mlp(%x: bf16[{tokens}, {width}] {{mesh=@m}}, %up: bf16[{inner}, {width}] {{mesh=@m, shard(0, mesh_x)}},
    %down: bf16[{width}, {inner}] {{mesh=@m, shard(1, mesh_x)}}) {{
  %h = linear(%x, %up)
  %g = gelu(%h)
  %y {{mesh=@m}} = linear(%g, %down)
  return %y
}}
"""


def samples(args: argparse.Namespace, text: str, options: list[str]) -> list[float]:
    """Milliseconds of a run, of the slowest rank."""
    with tempfile.TemporaryDirectory(prefix="hostir-") as folder:
        file, times = Path(folder) / "program.hir", Path(folder) / "times.json"
        file.write_text(text)
        command = ["mpirun", "-n", args.ranks, "--allow-run-as-root", "--oversubscribe", args.program, file, *options]
        command += ["--random", 1, "--device", args.device, "--repeat", args.samples, "--batch", args.batch]
        command += ["--json", times] + (["--graph"] if args.device == "cuda" else [])
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=args.timeout)
        if done.returncode != 0:
            raise RuntimeError(f"{args.program} ended with {done.returncode}: {done.stderr[-2000:]}")
        return json.loads(times.read_text())["samples_ms"]


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for width, inner in args.widths:
        for tokens in args.tokens:
            text = program(tokens, width, inner, args.ranks)
            taken: dict[str, list[float]] = {way: [] for way in WAYS}
            for _ in range(args.rounds):
                for way, options in WAYS.items():
                    taken[way] += samples(args, text, options)
            us = {way: [1e3 * ms for ms in times] for way, times in taken.items()}
            ratio = statistics.median(us["NCCL"]) / statistics.median(us["peer memory"])
            row = {"tokens": tokens, "width": width, "inner": inner, "samples": len(us["NCCL"]), "speed_of_nccl": ratio}
            row["us_quartiles"] = {way: quartiles(times) for way, times in us.items()}
            rows.append(row)
            texts = [f"{way} {statistics.median(times):8.2f} us" for way, times in us.items()]
            print(f"{tokens:3} tokens of {width} x {inner}: {', '.join(texts)}, {ratio:.3f} x", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build" / "gpu" / "hostir-eval"), help="hostir-eval")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cuda", help="cpu for a trial")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--widths", nargs="+", default=WIDTHS, type=lambda t: tuple(map(int, t.split("x"))), help="WxI")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--samples", type=int, default=9, help="of a way in a round")
    parser.add_argument("--batch", type=int, default=50, help="runs of a sample")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one process")
    parser.add_argument("--json", help="keep the figures there")
    args = parser.parse_args()
    rows = measure(args)
    if args.json:
        write(Path(args.json), {"machine": machine(), "ranks": args.ranks, "rows": rows})


if __name__ == "__main__":
    main()
