"""Products beside their communications: in parts, in stream loops, one behind the other, and the product alone.

python3 benchmarks/gpu/overlap.py --ranks 2 --json benchmarks/results/NAME.json

Of each size and form, beside the product alone on all GPUs at the same time: all-gather + product (rows of x gathered,
columns of w split), product + reduce-scatter and product + all-reduce (the contracted axis split), in bfloat16.
"whole" is the communication before or behind all of the product, by NCCL. "parts" is the same program with rows of
one rank after the other, which the copy engine brings or takes away meanwhile; "chosen" is what hostir makes of it by
itself: in parts or whole. "N chunks" is the same program with a stream axis: a loop on the host goes through n parts of
what each rank holds. Each variant is a process a GPU by mpirun; the variants take turns, in rounds.
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
SIZES = [(8192, 8192, 28672), (8192, 4096, 14336), (4096, 4096, 4096)]  # M, K, N of the whole product.
FORMS = ["all-gather", "reduce-scatter", "all-reduce"]
VARIANTS = ["whole", "chosen", "parts", "2 chunks", "4 chunks"]


def stream(axis: int, chunks: int) -> str:
    return "" if chunks == 1 else f", outer_split({axis}, {chunks}), parallelize({axis}, stream)"


def program(form: str, m: int, k: int, n: int, ranks: int, chunks: int) -> str:
    """Rows are seen as [ranks, rows of a rank], so that a chunk of the second axis has some of every rank's."""
    mesh = f"mesh @m = {list(range(ranks))}\n"
    if form == "product":
        columns = n // ranks
        return f"""{mesh}fusion @product(%x: bf16[{m}, {k}] {{mesh=@m}}, %w: bf16[{k}, {columns}] {{mesh=@m}}) {{
  %y = matmul(%x, %w)
  return %y
}}
"""
    if form == "all-gather":
        rows = m // ranks
        return f"""{mesh}fusion @all_gather(%x: bf16[{m}, {k}] {{mesh=@m, shard(0, mesh_x)}},
    %w: bf16[{k}, {n}] {{mesh=@m, shard(1, mesh_x)}}) {{
  %parts: bf16[{ranks}, {rows}, {k}] = reshape(%x) {{shape=[{ranks}, {rows}, {k}]}}
  %all: bf16[{ranks}, {rows}, {k}] {{mesh=@m{stream(1, chunks)}}} = set(%parts)
  %z: bf16[{ranks}, {rows}, {n}, r:{k}] {{mesh=@m{stream(1, chunks)}, shard(2, mesh_x)}} = matmul(%all, %w)
  %y: bf16[{m}, {n}] = reshape(%z) {{shape=[{m}, {n}]}}
  return %y
}}
"""
    operands = f"""%x: bf16[{m}, {n}] {{mesh=@m, shard(1, mesh_x)}},
    %w: bf16[{n}, {k}] {{mesh=@m, shard(0, mesh_x)}}"""
    if form == "all-reduce":
        return f"""{mesh}fusion @all_reduce({operands}) {{
  %y: bf16[{m}, {k}, r:{n}] {{mesh=@m{stream(0, chunks)}}} = matmul(%x, %w)
  return %y
}}
"""
    rows = m // ranks
    return f"""{mesh}fusion @reduce_scatter({operands}) {{
  %parts: bf16[{ranks}, {rows}, {n}] = reshape(%x) {{shape=[{ranks}, {rows}, {n}]}}
  %z: bf16[{ranks}, {rows}, {k}, r:{n}] {{mesh=@m, shard(0, mesh_x){stream(2, chunks)}}} = matmul(%parts, %w)
  %y: bf16[{m}, {k}] = reshape(%z) {{shape=[{m}, {k}]}}
  return %y
}}
"""


def chunks_of(variant: str) -> int:
    return int(variant.split()[0]) if variant.endswith("chunks") else 1


def samples(args: argparse.Namespace, text: str, ranks: int, variant: str) -> list[float]:
    """Milliseconds of a run, of the slowest rank, as hostir-eval times them."""
    with tempfile.TemporaryDirectory(prefix="hostir-") as name:
        file, times = Path(name) / "program.hir", Path(name) / "times.json"
        file.write_text(text)
        command = ["mpirun", "-n", ranks, "--allow-run-as-root", "--oversubscribe", args.program, file, "--random", 1]
        command += ["--device", args.device, "--repeat", args.samples, "--batch", args.batch, "--json", times]
        if variant != "chosen":
            command += ["--overlap", "always" if variant == "parts" else "never"]
        command += ["--no-peer-memory"] if variant == "whole" else []
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=args.timeout)
        if done.returncode != 0:
            raise RuntimeError(f"{args.program} ended with {done.returncode}: {done.stderr[-2000:]}")
        return json.loads(times.read_text())["samples_ms"]


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for m, k, n in args.sizes:
        variants = [("product", "alone")] + [(form, variant) for form in args.forms for variant in args.variants]
        taken: dict[tuple[str, str], list[float]] = {variant: [] for variant in variants}
        for _ in range(args.rounds):
            for form, variant in variants:
                text = program(form, m, k, n, args.ranks, chunks_of(variant))
                taken[form, variant] += samples(args, text, args.ranks, variant)
        alone = statistics.median(taken["product", "alone"])
        for (form, variant), times in taken.items():
            row = {
                "form": form,
                "size": [m, k, n],
                "variant": variant,
                "samples": len(times),
                "ms_quartiles": quartiles(times),
            }
            row["of_product"] = statistics.median(times) / alone
            rows.append(row)
            print(
                f"{form:15} {m}x{k}x{n:<6} {variant:9} {statistics.median(times):9.4f} ms {row['of_product']:6.3f}",
                flush=True,
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build" / "gpu" / "hostir-eval"), help="hostir-eval")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cuda", help="cpu for a trial")
    parser.add_argument("--forms", nargs="+", default=FORMS, choices=FORMS)
    parser.add_argument("--sizes", nargs="+", default=SIZES, type=lambda t: tuple(map(int, t.split("x"))), help="MxKxN")
    parser.add_argument("--variants", nargs="+", default=VARIANTS, choices=VARIANTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=5, help="of a variant in a round")
    parser.add_argument("--batch", type=int, default=5, help="runs of a sample")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one variant")
    parser.add_argument("--json", help="keep the figures there")
    args = parser.parse_args()
    rows = measure(args)
    if args.json:
        write(Path(args.json), {"machine": machine(), "ranks": args.ranks, "rows": rows})


if __name__ == "__main__":
    main()
