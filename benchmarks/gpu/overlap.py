"""Products beside their communications: in parts, in stream loops, one behind the other, and the product alone.

python3 benchmarks/gpu/overlap.py --ranks 2 --json benchmarks/results/NAME.json

Of each size and form, beside the product alone on all GPUs at the same time: all-gather + product (rows of x gathered,
columns of w split), product + reduce-scatter and product + all-reduce (the contracted axis split), in bfloat16.
"whole" is the communication before or behind all of the product, "NCCL" the same by NCCL alone. "parts" is the same
program with rows of one rank after the other, which the copy engine brings or takes away meanwhile; "chosen" is what
hostir makes of it by itself: in parts or whole. "N chunks" is the same program with a stream axis: a loop on the host
goes through n parts of what each rank holds. Samples of one program take turns, in one process a GPU. `--peer PYTHON`
adds PyTorch's and JAX's rows (overlap_peers.py), by a Python that has both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1]))

import overlap_peers
from kept import quartiles, write
from machine import machine

ROOT = Path(__file__).resolve().parents[2]
SIZES = [(8192, 8192, 28672), (8192, 4096, 14336), (4096, 4096, 4096)]  # M, K, N of the whole product.
FORMS = ["all-gather", "reduce-scatter", "all-reduce"]
VARIANTS = ["NCCL", "whole", "chosen", "parts", "2 chunks", "4 chunks"]
# Weights of models that people run, and rows of a batch from decoding to training.
GRID = [
    (m, k, n)
    for k, n in ((4096, 14336), (8192, 8192), (5120, 13824))
    for m in (16, 64, 256, 512, 1024, 2048, 4096, 8192, 16384)
]


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


class Variant(NamedTuple):
    """How hostir-eval is asked for it."""

    overlap: str  # --overlap
    chunks: int = 1
    nccl: bool = False  # No peer memory.


def variant_of(name: str) -> Variant:
    if name.endswith("chunks"):
        return Variant("never", chunks=int(name.split()[0]))
    return {
        "NCCL": Variant("never", nccl=True),
        "whole": Variant("never"),
        "chosen": Variant("chosen"),
        "parts": Variant("always"),
    }[name]


def evaluate(args: argparse.Namespace, programs: dict[str, str], overlaps: list[str], nccl: bool) -> dict[Any, Any]:
    """By program and overlap the report of hostir-eval; plans of one program take turns."""
    with tempfile.TemporaryDirectory(prefix="hostir-") as folder:
        files, times = [], Path(folder) / "times.json"
        for name, text in programs.items():
            files.append(Path(folder) / f"{name}.hir")
            files[-1].write_text(text)
        command = ["mpirun", "-n", args.ranks, "--allow-run-as-root", "--oversubscribe", args.program, *files]
        command += ["--random", 1, "--device", args.device, "--repeat", args.samples, "--batch", args.batch]
        command += ["--overlap", ",".join(overlaps), "--json", times] + (["--no-peer-memory"] if nccl else [])
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=args.timeout)
        if done.returncode != 0:
            raise RuntimeError(f"{args.program} ended with {done.returncode}: {done.stderr[-2000:]}")
        rows = json.loads(times.read_text())
    rows = rows if isinstance(rows, list) else [rows]
    keys = [(name, overlap) for name in programs for overlap in overlaps]
    return dict(zip(keys, rows, strict=True))


Size = tuple[int, int, int]


def measure(args: argparse.Namespace, sizes: list[Size]) -> list[dict[str, Any]]:
    """One process a GPU for all that peer memory carries, and one for NCCL alone."""
    taken: dict[Size, dict[tuple[str, str], list[float]]] = {size: {} for size in sizes}
    named = {name: variant_of(name) for name in args.variants}
    for _ in range(args.rounds):
        for nccl in sorted({variant.nccl for variant in named.values()}):
            of_process = {name: variant for name, variant in named.items() if variant.nccl == nccl}
            programs = {}
            for size in sizes:
                if not nccl:
                    programs[f"product-{size}"] = program("product", *size, args.ranks, 1)
                for form in args.forms:
                    for chunks in sorted({variant.chunks for variant in of_process.values()}):
                        programs[f"{form}-{chunks}-{size}"] = program(form, *size, args.ranks, chunks)
            overlaps = list(dict.fromkeys(variant.overlap for variant in of_process.values()))
            reports = evaluate(args, programs, overlaps, nccl)
            times = {key: report["samples_ms"] for key, report in reports.items()}
            for size, of_size in taken.items():
                if not nccl:
                    of_size.setdefault(("product", "alone"), []).extend(times[f"product-{size}", overlaps[0]])
                for form in args.forms:
                    for name, variant in of_process.items():
                        ms = times[f"{form}-{variant.chunks}-{size}", variant.overlap]
                        of_size.setdefault((form, name), []).extend(ms)
        if args.peer:
            for size, of_peers in overlap_peers.samples(args, sizes).items():
                for key, ms in of_peers.items():
                    taken[size].setdefault(key, []).extend(ms)
    return [row for size, of_size in taken.items() for row in rows_of(size, of_size)]


def rows_of(size: Size, taken: dict[tuple[str, str], list[float]]) -> list[dict[str, Any]]:
    m, k, n = size
    rows = []
    alone = statistics.median(taken["product", "alone"])
    for (form, name), samples in taken.items():
        row = {"form": form, "size": [m, k, n], "variant": name, "samples": len(samples)}
        row |= {"ms_quartiles": quartiles(samples), "of_product": statistics.median(samples) / alone}
        if (whole := taken.get((form, "whole"))) is not None:
            row["of_whole"] = statistics.median(samples) / statistics.median(whole)
        rows.append(row)
        print(
            f"{form:15} {m}x{k}x{n:<6} {name:9} {statistics.median(samples):9.4f} ms {row['of_product']:6.3f} of the"
            f" product {row.get('of_whole', 1):6.3f} of whole",
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
    parser.add_argument("--grid", action="store_true", help="27 sizes of 16 to 16384 rows: whole, chosen, parts")
    parser.add_argument("--variants", nargs="+", default=VARIANTS, choices=VARIANTS)
    parser.add_argument("--peer", help="a Python that has PyTorch and JAX")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=5, help="of a variant in a round")
    parser.add_argument("--batch", type=int, default=5, help="runs of a sample")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one variant")
    parser.add_argument("--json", help="keep the figures there")
    args = parser.parse_args()
    if args.grid:
        args.sizes, args.variants = GRID, ["whole", "chosen", "parts"]
    rows = []
    # Those of one weight in one process: it takes seconds to begin.
    for weight in dict.fromkeys(size[1:] for size in args.sizes):
        rows += measure(args, [size for size in args.sizes if size[1:] == weight])
        if args.json:  # So that a run that is cut off keeps what it has.
            write(Path(args.json), {"machine": machine(), "ranks": args.ranks, "rows": rows})


if __name__ == "__main__":
    main()
