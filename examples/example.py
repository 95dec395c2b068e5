"""What the examples share: running one program through a daemon and comparing it with NumPy in float64."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import hostir

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Example:
    name: str
    define: Callable[[int], hostir.FusionDefinition]  # ranks -> program
    make_inputs: Callable[[], list[Array]]
    reference: Callable[[list[Array]], list[Array]]  # in float64, unrounded
    tolerance: float  # of the relative L2 error of each output


@dataclass(frozen=True)
class Outcome:
    example: Example
    ranks: int
    error: float  # the largest relative L2 error of an output
    seconds: float  # of one run: from handles to handles, the median of several
    first_seconds: float  # the first result: planning and compiling included
    communications: list[str]
    plan: hostir.Plan

    @property
    def passed(self) -> bool:
        return self.error <= self.example.tolerance


def relative_error(got: Array, want: Array) -> float:
    difference = np.linalg.norm((got.astype(np.float64) - want).ravel())
    return float(difference / max(float(np.linalg.norm(np.asarray(want, np.float64).ravel())), 1e-300))


def run(
    client: hostir.Client,
    example: Example,
    ranks: int,
    inputs: list[Array],
    expected: list[Array],
    repeats: int = 5,
) -> Outcome:
    fd = example.define(ranks)
    started = time.perf_counter()
    plan = client.explain(fd)
    tensors = [value for value in fd.fusion.inputs() if isinstance(value, hostir.Tensor)]
    handles = [client.put(array, tensor) for array, tensor in zip(inputs, tensors, strict=True)]
    outputs = client.run(fd, handles, wait=True)
    first_seconds = time.perf_counter() - started
    errors = [relative_error(output.numpy(), want) for output, want in zip(outputs, expected, strict=True)]
    client.free(*outputs)
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        outputs = client.run(fd, handles, wait=True)
        seconds.append(time.perf_counter() - started)
        client.free(*outputs)
    client.free(*handles)
    communications = [c.type for c in plan.communications]
    return Outcome(example, ranks, max(errors), float(np.median(seconds)), first_seconds, communications, plan)


def main(example: Example) -> None:
    parser = argparse.ArgumentParser(
        description=f"{example.name}: through a daemon of its own, checked with NumPy in float64."
    )
    parser.add_argument("--ranks", type=int, default=4, help="CPU ranks to run on (default 4)")
    parser.add_argument("--devices", help='what to run on instead: "cuda:all", "cuda:0,2"')
    parser.add_argument("--explain", action="store_true", help="also print the host program")
    args = parser.parse_args()
    inputs = example.make_inputs()
    expected = example.reference(inputs)
    with hostir.connect(devices=args.devices or f"cpu:{args.ranks}") as client:
        try:
            outcome = run(client, example, client.num_devices, inputs, expected)
        except hostir.InvalidArgument as error:
            raise SystemExit(f"refused: {error}") from None
    print(outcome.plan)
    if args.explain:
        print(outcome.plan.host_ir)
    verdict = "ok" if outcome.passed else "WRONG"
    print(
        f"{verdict}: relative L2 error {outcome.error:.1e} (tolerance {example.tolerance:.0e}), "
        f"first result after {outcome.first_seconds:.2f} s, then {outcome.seconds * 1e3:.1f} ms a run"
    )
    if not outcome.passed:
        raise SystemExit(1)
