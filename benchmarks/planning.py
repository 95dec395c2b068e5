"""How long planning takes, by the number of ops: chains, trees of many leaves, norms, sums along both axes, gradients.

``python benchmarks/planning.py [--opt build/dev/hostir-opt] [--counts 1000,10000] [--json FILE]``. One process a
program, best of three; ends with 1 where a goal is missed: 0.15 s for 1,000 ops, 5 s for 10,000.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import kept
from bench import machine

GOALS = {1000: 0.15, 10000: 5.0}  # Seconds, by ops.
ROUNDS = 3
HEADER = "fusion @p(%x: f32[i0, 64]) {"


def chain(count: int) -> Iterator[str]:
    """Sums, products and now and then a tanh, one behind the other."""
    yield HEADER
    previous = "x"
    for i in range(count):
        yield f"%t{i} = tanh(%{previous})" if i % 10 == 9 else f"%t{i} = {('add', 'mul')[i % 2]}(%{previous}, %x)"
        previous = f"t{i}"
    yield f"return %{previous}"


def wide(count: int) -> Iterator[str]:
    """Half of the ops read the input; the others sum them."""
    yield HEADER
    for i in range(count // 2):
        yield f"%a{i} = {('tanh', 'exp', 'sin', 'cos')[i % 4]}(%x)"
    yield "%s0 = add(%a0, %x)"
    for i in range(1, count // 2):
        yield f"%s{i} = add(%s{i - 1}, %a{i})"
    yield f"return %s{count // 2 - 1}"


def norms(count: int) -> Iterator[str]:
    """Means of rows, each of what the one before made."""
    yield HEADER
    previous = "x"
    for i in range(count // 5):
        yield f"%m{i} = mean(%{previous}) {{axes=[1], keepdim=true}}"
        yield f"%c{i} = sub(%{previous}, %m{i})"
        yield f"%q{i} = mul(%c{i}, %c{i})"
        yield f"%e{i} = exp(%q{i})"
        yield f"%y{i} = add(%e{i}, %x)"
        previous = f"y{i}"
    yield f"return %{previous}"


def both_axes(count: int) -> Iterator[str]:
    """Sums over rows and over columns in turn, as Sinkhorn's."""
    yield HEADER
    previous = "x"
    for i in range(count // 4):
        yield f"%r{i} = sum(%{previous}) {{axes=[{i % 2}], keepdim=true, dtype=f32}}"
        yield f"%c{i} = sub(%{previous}, %r{i})"
        yield f"%e{i} = tanh(%c{i})"
        yield f"%y{i} = add(%e{i}, %x)"
        previous = f"y{i}"
    yield f"return %{previous}"


def gradients(count: int) -> Iterator[str]:
    """Tensors of sizes of their own, each divided by the length of all."""
    tensors = count // 20
    yield "fusion @p(" + ", ".join(f"%g{i}: f32[i{i}, 64]" for i in range(tensors)) + ") {"
    for i in range(tensors):
        yield f"%q{i} = mul(%g{i}, %g{i})"
        yield f"%r{i} = sum(%q{i}) {{axes=[], keepdim=true, dtype=f32}}"
    yield "%t0 = add(%r0, %r0)"
    for i in range(1, tensors):
        yield f"%t{i} = add(%t{i - 1}, %r{i})"
    for i in range(tensors):
        yield f"%y{i}_0 = mul(%g{i}, %t{tensors - 1})"
        for k in range(16):
            yield f"%y{i}_{k + 1} = {('tanh', 'exp')[k % 2]}(%y{i}_{k})"
    yield "return " + ", ".join(f"%y{i}_16" for i in range(tensors))


SHAPES: dict[str, Callable[[int], Iterator[str]]] = {
    "chain": chain,
    "wide": wide,
    "norms": norms,
    "both axes": both_axes,
    "gradients": gradients,
}


def seconds_of(command: list[str]) -> float:
    """The best of a few: what else runs here only adds."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - started)
    return best


def main() -> int:
    """Measures, prints a line a program, and says which goals were missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--opt", default="build/dev/hostir-opt", help="the hostir-opt that plans")
    parser.add_argument("--counts", default="1000,10000", help="numbers of ops, with commas between")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    rows, missed = [], []
    with tempfile.TemporaryDirectory() as directory:
        for name, make in SHAPES.items():
            for count in map(int, options.counts.split(",")):
                program = Path(directory) / "program.hir"
                program.write_text("\n".join(make(count)) + "\n}\n")
                taken = seconds_of([options.opt, "-p", "lower", str(program)])
                goal = GOALS.get(count)
                print(
                    f"{name:10} {count:6} ops {taken:8.3f} s{'' if goal is None else f'  (at most {goal} s)'}",
                    flush=True,
                )
                rows.append({"program": name, "ops": count, "seconds": round(taken, 4), "goal": goal})
                if goal is not None and taken > goal:
                    missed.append(f"{name} of {count} ops: {taken:.3f} s, at most {goal} s")
    if options.json:
        command = " ".join(["python", *sys.argv])
        kept.write(options.json, {"machine": machine(), "command": command, "repeats": ROUNDS, "rows": rows})
    print("\n".join(f"missed: {each}" for each in missed), end="\n" if missed else "")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
