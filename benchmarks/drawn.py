"""Workloads that nobody chose, drawn by a seed, beside JAX and torch.compile: how fast is what was never tuned.

drawn.py [--seed S] [--count N] [--device cpu|cuda:0] [--rounds R] [--json FILE] [INDEX...]

A seed draws patterns (norms, softmax, cross entropy, reductions, permutes, cat, pads and slices, optimisers,
activations, outer products; forward and backward by formula), ranks, axes, sizes (log-uniform, odd ones, too) and
element types; workload INDEX of a seed is always the same. Each is written once, in ops that hostir, JAX, PyTorch and
NumPy have, and every side's results are compared with float64 before its time counts. Inputs lie on the device, results
stay there, and all sides have as many threads as this process has cores (`taskset` for fewer). Of some workloads
hostir's program is for any size, as its users may write it; the peers' are compiled for the sizes that there are.

On CPUs a time is that of a call, ours a run through the client on one rank, its request included; `kernels` is the part
of it that is not the request: the sum of a profiled run's kernels. The peers' own way into a call stays in their times,
so that the ratio of kernels flatters us where all is small. Sides take turns, a sample each in a round. On GPUs all
times are the device's own, by the protocol of gpu/kernels.py. A ratio is the better peer's time over ours, of a round;
above 1 we are faster. ~ marks rows where a quartile range of ours or of that peer is above 20 % of the median.
"""

from __future__ import annotations

import argparse
import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parent / folder) for folder in ("", "drawn", "gpu")]

import bench
from drawing import Drawn
from kept import kept_pairs, quartiles, write
from on_cpu import has_bf16
from patterns import drawn

ELEMENTS = {"cpu": (1e4, 2.5e7), "cuda": (1e4, 1e9)}
BF16_SHARE = {"cpu": 0.2, "cuda": 0.5}
ROUNDS = {"cpu": 9, "cuda": 3}
NOISY = 0.2  # Quartile range over median.
BEHIND = 0.9  # Rows below are listed.

Samples = dict[str, list[float]]
Measure = Callable[[Drawn, int], tuple[Samples, dict[str, str]]]


def spread(values: list[float]) -> float:
    low, middle, high = quartiles(values)
    return (high - low) / middle


def row_of(workload: Drawn, samples: Samples, reasons: dict[str, str]) -> dict[str, Any]:
    """With all samples; `kept` takes them out."""
    row: dict[str, Any] = {
        "index": workload.index,
        "name": workload.name,
        "bytes": workload.bytes(),
        "not_measured": reasons,
        **{f"{side}_ms": values for side, values in samples.items()},
    }
    ours = samples["hostir"]
    row["GBps"] = row["bytes"] / quartiles(ours)[1] / 1e6
    peers = [side for side in samples if side not in ("hostir", "kernels")]
    if peers:
        better = min(peers, key=lambda peer: quartiles(samples[peer])[1])
        row["better_peer"] = better
        row["ratio"] = [them / us for us, them in zip(ours, samples[better], strict=True)]
        if "kernels" in samples:
            pairs = zip(samples["kernels"], samples[better], strict=True)
            row["kernels_ratio"] = [them / us for us, them in pairs if us > 0]
        row["noisy"] = max(spread(ours), spread(samples[better])) > NOISY
    return row


def kept(row: dict[str, Any]) -> dict[str, Any]:
    if "failure" in row:
        return row
    keys = [key for key in ("ratio", "kernels_ratio") if key in row]
    ratios: dict[str, list[float]] = {key: row[key] for key in keys}
    rest = {key: value for key, value in row.items() if key not in ratios}
    return kept_pairs(rest, [key for key in rest if key.endswith("_ms")], ratios)


TIMES = ("hostir", "kernels", "JAX", "PyTorch")
HEADER = f"{'ratio':>6} {'kernels':>7}  {' '.join(f'{name:>9}' for name in TIMES)} {'GB/s':>7} {'MB':>9}  workload"


def line(row: dict[str, Any]) -> str:
    if "failure" in row:
        return f"{'FAILED':>6}  {row['index']} {row['name']}: {row['failure']}"

    def ms(side: str) -> str:
        return f"{quartiles(row[f'{side}_ms'])[1]:9.4f}" if f"{side}_ms" in row else f"{'-':>9}"

    def middle(key: str, width: int) -> str:
        return f"{quartiles(row[key])[1]:{width}.2f}" if row.get(key) else f"{'-':>{width}}"

    noisy = "~" if row.get("noisy") else " "
    return (
        f"{middle('ratio', 6)} {middle('kernels_ratio', 7)}{noisy} {' '.join(map(ms, TIMES))} "
        f"{row['GBps']:7.1f} {row['bytes'] / 1e6:9.3f}  {row['index']} {row['name']}"
    )


def summary(rows: list[dict[str, Any]], key: str, what: str) -> dict[str, Any]:
    """Prints, and returns, what is to be said of all rows' medians of `key`."""
    medians = [(quartiles(row[key])[1], row) for row in rows if row.get(key)]
    if not medians:
        return {}
    mean = math.exp(sum(math.log(ratio) for ratio, _ in medians) / len(medians))
    least, worst = min(medians, key=lambda pair: pair[0])
    behind = sorted((pair for pair in medians if pair[0] < BEHIND), key=lambda pair: pair[0])
    noisy = sum(row["noisy"] for _, row in medians)
    print(
        f"\n{what}: {len(medians)} rows, {noisy} of them noisy; geometric mean {mean:.3f}; least {least:.2f} "
        f"({worst['index']} {worst['name']}); {len(behind)} below {BEHIND}"
    )
    for ratio, row in behind:
        print(f"  {ratio:.2f}{'~' if row['noisy'] else ' '} {row['index']} {row['name']}, beside {row['better_peer']}")
    return {
        "rows": len(medians),
        "noisy": noisy,
        "geometric_mean": mean,
        "least": least,
        "below": [row["index"] for _, row in behind],
    }


def rows_of(workloads: list[Drawn], measure: Measure, rounds: int, deadline: float) -> Iterator[dict[str, Any]]:
    """A row each. One that is refused, that fails or is wrong is a row that says so, and the others go on."""
    for workload in workloads:
        if time.monotonic() > deadline:
            print(f"{workload.index}: no time left for it and those behind it", flush=True)
            return
        try:
            yield row_of(workload, *measure(workload, rounds))
        except Exception as error:  # Whatever it is, the other workloads are worth having.
            words = " ".join(str(error).split())[:300] or repr(error)
            failure = words if isinstance(error, ValueError) else f"{type(error).__name__}: {words}"
            yield {"index": workload.index, "name": workload.name, "failure": failure}


def draws(args: argparse.Namespace) -> list[Drawn]:
    kind = args.device.split(":")[0]
    low, high = ELEMENTS[kind]
    elements = (args.elements_min or low, args.elements_max or high)
    bf16 = BF16_SHARE[kind] if kind == "cuda" or has_bf16() else 0.0
    workloads = [drawn(args.seed, index, elements, bf16) for index in args.indices or range(args.count)]
    return [replace(workload, symbolic=False) for workload in workloads] if args.constant_sizes else workloads


def measurements(rounds: int, seed: int = 1, count: int = 20) -> Iterator[dict[str, Any]]:
    """For bench.py, on CPUs: rows of ours beside the better peer, or of why there is none."""
    import on_cpu

    import hostir

    args = arguments().parse_args(["--seed", str(seed), "--count", str(count)])
    with hostir.connect(devices="cpu:1") as client:
        for row in rows_of(draws(args), lambda w, r: on_cpu.measure(client, w, r), rounds, math.inf):
            name = f"drawn: {row['index']} {row['name']}"
            if "failure" in row:
                raise RuntimeError(f"{name}: {row['failure']}")
            if "better_peer" not in row:
                yield {"name": name, "reason": "; ".join(row["not_measured"].values())}
                continue
            peer = row["better_peer"]
            theirs = row[f"{peer}_ms"]
            yield {"name": name, "unit": "ms", "ours": row["hostir_ms"], "theirs": theirs, "peer": peer}


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("indices", nargs="*", type=int, metavar="INDEX", help="these workloads alone (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="of all choices (default 1)")
    parser.add_argument("--count", type=int, default=100, help="workloads (default 100)")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda:0"])
    parser.add_argument("--elements-min", type=float, help="of a workload's large arrays together (default 1e4)")
    parser.add_argument("--elements-max", type=float, help="the same, at most (default 2.5e7; on a GPU 1e9)")
    parser.add_argument("--constant-sizes", action="store_true", help="no program of ours is for any size")
    parser.add_argument("--rounds", type=int, help="samples of each side (default 9; on a GPU 3, of 50 runs each)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no workload after so long")
    parser.add_argument("--list", action="store_true", help="say what is drawn, and run nothing")
    parser.add_argument("--programs", type=Path, metavar="DIR", help="also write the program of each there, INDEX.hir")
    parser.add_argument("--eval", type=Path, default=bench.ROOT / "build/gpu/hostir-eval", help="on GPUs: hostir-eval")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured to this file")
    return parser


def command() -> str:
    """Without the folders of this machine."""
    words = [os.path.basename(word) if os.path.isabs(word) else word for word in sys.argv[1:]]
    return shlex.join(["benchmarks/drawn.py", *words])


def measured(args: argparse.Namespace, workloads: list[Drawn]) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """What they are measured on, and the rows as they come."""
    rounds, deadline = args.rounds or ROUNDS[args.device.split(":")[0]], time.monotonic() + args.seconds
    if args.device != "cpu":
        import on_gpu
        from machine import machine
        from torch import __version__ as torch_version

        where = machine(torch=torch_version) | {"command": command()}
        return where, rows_of(workloads, lambda w, r: on_gpu.measure(args.eval, w, r), rounds, deadline)

    def on_one_rank() -> Iterator[dict[str, Any]]:
        import on_cpu

        import hostir

        with hostir.connect(devices="cpu:1") as client:
            yield from rows_of(workloads, lambda w, r: on_cpu.measure(client, w, r), rounds, deadline)

    return bench.machine() | {"build": bench.build_type()}, on_one_rank()


def main() -> int:
    args = arguments().parse_args()
    workloads = draws(args)
    if args.programs:
        args.programs.mkdir(parents=True, exist_ok=True)
        for workload in workloads:
            (args.programs / f"{workload.index}.hir").write_text(f"// {workload.name}\n{workload.program()}")
    if args.list:
        for workload in workloads:
            print(f"{workload.index:4} {workload.bytes() / 1e6:10.3f} MB  {workload.name}")
        return 0
    where, coming = measured(args, workloads)
    load, ticks = os.getloadavg(), bench.cpu_ticks()
    rows: list[dict[str, Any]] = []

    def keep(summaries: dict[str, Any]) -> None:
        """After each row: what a run that is cut off has measured is kept."""
        if args.json:
            stolen = bench.stolen_share(ticks, bench.cpu_ticks())
            busy = {"load_before": load, "load_after": os.getloadavg(), "stolen": stolen}
            record = {"command": command(), "machine": where | busy, **summaries, "rows": [kept(row) for row in rows]}
            write(args.json, record)

    print(HEADER, flush=True)
    for row in coming:
        rows.append(row)
        print(line(row), flush=True)
        keep({})
    good = [row for row in rows if "failure" not in row]
    summaries = {
        "summary": summary(good, "ratio", "ratios"),
        "kernels_summary": summary(good, "kernels_ratio", "ratios of our kernels alone"),
    }
    keep(summaries)
    for peer, reason in {item for row in good for item in row["not_measured"].items()}:
        print(f"{peer}: {reason}")
    failed = [row for row in rows if "failure" in row]
    print(f"\n{len(good)} of {len(workloads)} measured, {len(failed)} failed")
    for row in failed:
        print(line(row))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
