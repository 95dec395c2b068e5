"""The three examples on the devices of one daemon (four CPU ranks, or --devices cuda:all), each compared with NumPy in
float64: one table at the end.
"""

from __future__ import annotations

import argparse
import sys
import time

import adaptive_layernorm_backward
import hostir
import rope
import tensor_parallel_mlp
from example import Outcome, run


def stage(started: float, text: str) -> None:
    print(f"[{time.perf_counter() - started:5.1f} s] {text}", flush=True)


def counted(names: list[str]) -> str:
    parts = [f"{names.count(name)} {name}" for name in sorted(set(names))]
    return ", ".join(parts) or "none"


def table(outcomes: list[Outcome]) -> str:
    rows = [("example", "largest error", "tolerance", "first result", "each run", "communications")]
    for o in outcomes:
        rows.append(
            (
                o.example.name,
                f"{o.error:.1e}{'' if o.passed else ' WRONG'}",
                f"{o.example.tolerance:.0e}",
                f"{o.first_seconds:.2f} s",
                f"{o.seconds * 1e3:.1f} ms",
                counted(o.communications),
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", default="cpu:4", help='"cpu:4", "cuda:all", "cuda:0,2" (default cpu:4)')
    args = parser.parse_args()
    started = time.perf_counter()
    stage(started, f"starting a daemon on {args.devices}")
    outcomes = []
    with hostir.connect(devices=args.devices) as client:
        ranks = client.num_devices
        for example in (adaptive_layernorm_backward.EXAMPLE, rope.EXAMPLE, tensor_parallel_mlp.EXAMPLE):
            stage(started, f"{example.name}: making inputs and the float64 reference")
            inputs = example.make_inputs()
            expected = example.reference(inputs)
            stage(started, f"{example.name}: planning, compiling, running on {ranks} ranks")
            outcomes.append(run(client, example, ranks, inputs, expected))
    stage(started, "done")
    print()
    print(table(outcomes))
    print("\nErrors are relative L2 errors against unrounded float64.")
    print("Next: see what a run will do before it does it:\n")
    print("  ./run python examples/tensor_parallel_mlp.py --ranks 4 --explain\n")
    return 0 if all(o.passed for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
