"""The examples through a daemon on the GPUs of this machine, beside the time that the devices themselves take.

hostir/bin/hostir-python benchmarks/gpu/service.py --eval build/gpu/hostir-eval --json benchmarks/results/NAME.json

By the Python client of a bundle (or of a build with the service) a private daemon runs each example: the first result,
planning and compiling included, and a run from handles to handles, the median of 20. Then the same program runs by
`mpirun hostir-eval` on as many ranks, which has no daemon: events on the slowest rank say what a run takes there. The
rest of a run is the service's: the request, its way to the workers and back.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests/gpu"), str(ROOT / "benchmarks")]

try:
    from examples_by_mpirun import measured
    from kept import write
    from machine import machine

    import adaptive_layernorm_backward
    import hostir
    import rope
    import tensor_parallel_mlp
    from example import run
except ImportError as error:
    sys.exit(f"{error}: use hostir-python of a bundle, or a build with the service")

EXAMPLES = [module.EXAMPLE for module in (adaptive_layernorm_backward, rope, tensor_parallel_mlp)]
REPEATS = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="cuda:all", help='"cuda:all", "cuda:0,1"; cpu:N to try this script')
    parser.add_argument("--eval", type=Path, default=ROOT / "build/gpu/hostir-eval", help="the program hostir-eval")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    args = parser.parse_args()
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        parser.error("there is no mpirun, by which the devices' own time is taken")
    rows: list[dict[str, Any]] = []
    with hostir.connect(devices=args.devices) as client:
        ranks = client.num_devices
        for example in EXAMPLES:
            inputs = example.make_inputs()
            outcome = run(client, example, ranks, inputs, example.reference(inputs), REPEATS)
            rows.append(
                {
                    "name": example.name,
                    "error": outcome.error,
                    "right": outcome.passed,
                    "first_result_s": outcome.first_seconds,
                    "run_ms": outcome.seconds * 1e3,
                    "communications": outcome.communications,
                }
            )
    device = args.devices.split(":")[0]
    command = [mpirun, "--oversubscribe", "--bind-to", "none", "-n", str(ranks), str(args.eval), "--device", device]
    for row, example in zip(rows, EXAMPLES, strict=True):
        row["device_error"], row["device_ms"] = measured(example, ranks, command)
        row["right"] = row["right"] and row["device_error"] <= example.tolerance
    print(f"\n{ranks} ranks on {args.devices}")
    print(f"{'example':<30} {'error':>8} {'first result':>13} {'a run':>10} {'on the devices':>15}")
    for row in rows:
        print(
            f"{row['name']:<30} {row['error']:8.1e} {row['first_result_s']:11.2f} s {row['run_ms']:7.3f} ms "
            f"{row['device_ms']:12.4f} ms{'' if row['right'] else '  WRONG'}"
        )
    if args.json:
        write(args.json, {"machine": machine(), "ranks": ranks, "repeats": REPEATS, "examples": rows})
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
