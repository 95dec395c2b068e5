"""All that is asked of several GPUs of one host, in one call: right, healed, overlapped, small, and a whole layer.

python3 benchmarks/gpu/several.py --ranks 4 --python hostir/bin/hostir-python --peer python3 --out FOLDER

Steps go one behind the other, each with a limit, and all within `--seconds`: what did not begin or did not end is
said. A step leaves NAME.txt, all that it printed, and NAME.json where it measures; summary.json has the steps' outcomes
and times. Exits with 1 when a step failed. `--device cpu` tries it on CPU ranks at small sizes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1]))

from kept import write
from machine import machine

ROOT = Path(__file__).resolve().parents[2]
SIZES = ["8192x8192x28672", "8192x4096x14336", "4096x4096x4096", "2048x4096x14336", "512x8192x28672", "64x8192x28672"]
SMALL = [1 << k for k in range(12, 23, 2)]  # Of an all-reduce, bytes.
LARGE = [1 << k for k in range(20, 31, 5)]
ENVIRONMENT = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Step(NamedTuple):
    """A command and the seconds that it may take."""

    name: str
    seconds: float
    words: list[Any]
    on_cpus: bool = True
    environment: Mapping[str, str] = MappingProxyType({})


def program(build: Path, name: str) -> Path:
    """In a build, or in a folder that has all programs."""
    places = [build / folder / name for folder in (".", "tests", "benchmarks")]
    return next((place for place in places if place.exists()), build / name)


def steps(args: argparse.Namespace) -> list[Step]:
    """In the order in which they are worth the time."""
    on_gpu = args.device == "cuda"
    ranks, here, tests = args.ranks, ROOT / "benchmarks/gpu", ROOT / "tests/gpu"
    devices = f"cuda:{','.join(map(str, range(ranks)))}" if on_gpu else f"cpu:{ranks}"
    evaluate = program(args.build, "hostir-eval")
    client = [args.python, "-B"]

    def kept(name: str) -> list[Any]:
        return ["--json", args.out / f"{name}.json"]

    def checked(what: str) -> Step:
        mpirun = ["mpirun", "-n", ranks, "--oversubscribe", "--bind-to", "none", program(args.build, f"{what}_ranks")]
        seeds = {"HOSTIR_SEEDS": str(args.seeds)}
        return Step(what, 90, [*mpirun, f"--gtest_filter={'Nccl*' if on_gpu else 'Ucx*'}"], environment=seeds)

    def overlap(name: str, seconds: float, *words: Any) -> Step:
        which = ["--ranks", ranks, "--device", args.device, "--program", evaluate, "--rounds", 1]
        samples = ["--samples", 9, "--batch", 5] if on_gpu else ["--samples", 2, "--batch", 1]
        variants = ["--variants", "NCCL", "whole", "chosen", "parts"] if on_gpu else []
        words = (*variants, *words)
        return Step(name, seconds, [sys.executable, here / "overlap.py", *which, *samples, *words, *kept(name)])

    def collectives(name: str, seconds: float, *words: Any) -> Step:
        which = ["--ranks", ranks, "--pairs", 9, "--program", program(args.build, "collectives_gpu")]
        return Step(name, seconds, [sys.executable, here / "collectives.py", *which, *words, *kept(name)], False)

    peer = ["--peer", args.peer] if args.peer else []
    layers = [f"llama3_8b_{tokens}" for tokens in (1, 64, 8192)] if on_gpu else ["tiny"]
    layer = [args.python, ROOT / "benchmarks/frontends/torch_parallel.py", "--device", args.device]
    layer += ["--compile", "--ranks", ranks, "--rounds", 4, "--turns", 3, "--plans", "tensor", "--sizes", *layers]
    examples = [*client, tests / "examples_by_mpirun.py", "--ranks", ranks, "--eval", evaluate]
    service = {"SERVICE_TEST_DEVICES": devices}
    grid = overlap("grid", 150, "--grid", "--forms", "all-gather", "reduce-scatter")
    return [
        *(checked(what) for what in ("communicator", "resharding", "programs")),
        Step("examples", 60, [*examples, "--device", args.device]),
        Step("service", 90, [*client, tests / "test_service.py"], environment=service),
        overlap("overlap", 150, *peer, "--sizes", *(SIZES if on_gpu else ["64x64x128"])),
        collectives("small", 40, "--types", "allreduce", "--sizes", *SMALL),
        Step("layer", 240, [*layer, *kept("layer")]),
        Step("faults", 240, [*client, here / "faults.py", "--devices", devices, "--only", *args.faults]),
        collectives("large", 60, "--sizes", *LARGE),
        grid._replace(on_cpus=False),
    ]


def carry_out(step: Step, seconds: float, args: argparse.Namespace) -> dict[str, Any]:
    """Its outcome; all of its output is in a file."""
    began = time.monotonic()
    with (args.out / f"{step.name}.txt").open("w") as out:
        process = subprocess.Popen(
            list(map(str, step.words)),
            stdout=out,
            stderr=subprocess.STDOUT,
            env=ENVIRONMENT | step.environment,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=seconds)
            outcome = {0: "passed", 77: "skipped"}.get(code, f"failed: it ended with {code}")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)  # With the ranks that it started.
            process.wait()
            outcome = f"failed: not over after {seconds:.0f} s"
    return {"step": step.name, "outcome": outcome, "seconds": round(time.monotonic() - began, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--build", type=Path, default=ROOT / "build/gpu", help="a build, or a folder of its programs")
    parser.add_argument("--python", default=sys.executable, help="a Python with the client, and PyTorch: hostir-python")
    parser.add_argument("--peer", help="a Python that has PyTorch and JAX")
    parser.add_argument("--seconds", type=float, default=570, help="for all steps")
    parser.add_argument("--seeds", type=int, default=10, help="random programs of each mesh")
    parser.add_argument("--faults", nargs="+", default=["kill", "stop"], help="situations whose name has one of these")
    parser.add_argument("--only", nargs="+", default=[], help="steps by name")
    parser.add_argument("--out", type=Path, required=True, help="a folder for outputs and figures")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    args.out, args.build = args.out.resolve(), args.build.resolve()
    every = steps(args)
    if unknown := set(args.only) - {step.name for step in every}:
        parser.error(f"no step {', '.join(sorted(unknown))}; there are {', '.join(step.name for step in every)}")
    began, outcomes = time.monotonic(), []
    for step in every:
        left = args.seconds - (time.monotonic() - began)
        if args.only and step.name not in args.only:
            continue
        if args.device == "cpu" and not step.on_cpus:
            outcome = {"step": step.name, "outcome": "skipped: it is for GPUs", "seconds": 0}
        elif left < 10:
            outcome = {"step": step.name, "outcome": f"not run: {args.seconds:.0f} s are over", "seconds": 0}
        else:
            outcome = carry_out(step, min(step.seconds, left), args)
        outcomes.append(outcome)
        print(f"{outcome['step']:14}{outcome['seconds']:7.1f} s  {outcome['outcome']}", flush=True)
        write(args.out / "summary.json", {"machine": machine(), "ranks": args.ranks, "steps": outcomes})
    return int(any(outcome["outcome"].startswith("failed") for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
