"""Which plans of the corpus a change makes otherwise: segments, bytes, the text of GPU kernels.

`./run plan-diff BASE` builds hostir-opt of BASE and of this tree, and runs this. Each program is planned by both, and a
row says what differs: segments, bytes that kernels and calls move (symbols count 1024), lines of CUDA C++ that went and
came. Ends with 0, whatever differs: it is for reading.
"""

from __future__ import annotations

import argparse
import difflib
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Planned:
    """A program by one hostir-opt: texts, or why there is none."""

    segments: list[str]
    cuda: list[str]
    bytes: int | None  # None: it does not say.


def output(program: Path, hostir_opt: str, step: str) -> str:
    """Of one step; an error is its text, so that one that comes or goes is a difference."""
    done = subprocess.run([hostir_opt, "-p", step, str(program)], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else done.stderr


def planned(program: Path, hostir_opt: str) -> Planned:
    found = re.search(r"^in all: (\d+)", output(program, hostir_opt, "traffic"), re.MULTILINE)
    return Planned(
        output(program, hostir_opt, "segments").splitlines(),
        output(program, hostir_opt, "cuda").splitlines(),
        int(found[1]) if found else None,
    )


def changed_lines(before: list[str], after: list[str]) -> tuple[int, int]:
    """Those that went, and those that came."""
    went = came = 0
    for tag, i, j, k, m in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            went, came = went + j - i, came + m - k
    return went, came


def times(before: Planned, after: Planned) -> str:
    if before.bytes is None or after.bytes is None:
        return "?"
    return "" if before.bytes == after.bytes else f"{after.bytes / max(before.bytes, 1):.3f}"


def rows(programs: list[Path], base: str, ours: str) -> Iterator[tuple[Path, Planned, Planned]]:
    """Those that differ, in order."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        pairs = pool.map(lambda program: (program, planned(program, base), planned(program, ours)), programs)
        for count, (program, before, after) in enumerate(pairs, 1):
            if sys.stderr.isatty():
                print(f"\r{count} of {len(programs)} programs", end="", file=sys.stderr)
            if before != after:
                yield program, before, after
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="the hostir-opt to compare with")
    parser.add_argument("ours", help="the hostir-opt of this tree")
    parser.add_argument("programs", nargs="+", type=Path, help=".hir files")
    parser.add_argument("--show", action="store_true", help="the segments of each, as a diff behind its row")
    args = parser.parse_args()
    differ = 0
    print(f"{'program':<44} {'segments':>10} {'bytes, times':>12} {'CUDA lines':>14}")
    for program, before, after in rows(args.programs, args.base, args.ours):
        differ += 1
        went, came = changed_lines(before.cuda, after.cuda)
        segments = f"{len(before.segments)} -> {len(after.segments)}"
        print(f"{program.stem:<44} {segments:>10} {times(before, after):>12} {f'-{went} +{came}':>14}")
        if args.show:
            print("\n".join(difflib.unified_diff(before.segments, after.segments, "base", "ours", lineterm="", n=0)))
    print(f"{differ} of {len(args.programs)} plans differ")


if __name__ == "__main__":
    main()
