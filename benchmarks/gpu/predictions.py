"""Predicted and measured times of the programs of this folder and of the corpus, and how many are close.

python3 benchmarks/gpu/predictions.py --ranks 2 --json benchmarks/results/NAME.json

The device is calibrated first, alone and with all ranks; then each program is planned, its time is said, and it is run.
Programs of tests/corpus that are for four devices are run on two.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

import overlap
import tensor_parallel
from kept import quartiles, write
from machine import machine

ROOT = Path(__file__).resolve().parents[2]
SIZES = [(8192, 8192, 28672), (8192, 4096, 14336), (4096, 4096, 4096), (2048, 4096, 14336), (512, 8192, 28672)]
CLOSE = 0.25


def evaluate(args: argparse.Namespace, ranks: int, *words: Any) -> str:
    command = ["mpirun", "-n", ranks, "--allow-run-as-root", "--oversubscribe", args.program, *words]
    command += ["--device", args.device]
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=args.timeout)
    except subprocess.TimeoutExpired:
        return f"not over after {args.timeout} s"
    return "" if done.returncode == 0 else done.stderr[-1000:] or f"it ended with {done.returncode}"


def ranks_of(text: str) -> int:
    devices = re.findall(r"\d+", " ".join(re.findall(r"^mesh @\w+ = (.*)$", text, re.MULTILINE)))
    return max(map(int, devices), default=0) + 1


def programs(ranks: int) -> dict[str, tuple[str, list[str]]]:
    """Texts by name, and the options that give their sizes."""
    found: dict[str, tuple[str, list[str]]] = {}
    for path in [
        *sorted((ROOT / "benchmarks/gpu/programs").glob("*.hir")),
        *sorted((ROOT / "tests/corpus").glob("*.hir")),
    ]:
        text = path.read_text().replace("[0, 1, 2, 3]", str(list(range(ranks))))
        sizes = re.search(r"^// Sizes: (.*)$", text, re.MULTILINE)
        options = [word for size in (sizes[1].split() if sizes else []) for word in ("--size", size)]
        if ranks_of(text) <= ranks:
            found[f"{path.parent.name}/{path.stem}"] = (text, options)
    if ranks > 1:
        for m, k, n in SIZES:
            for form in ["product", *overlap.FORMS]:
                found[f"overlap/{form} {m}x{k}x{n}"] = (overlap.program(form, m, k, n, ranks, 1), [])
        for width, inner in tensor_parallel.WIDTHS:
            for tokens in (1, 8, 64):
                text = tensor_parallel.program(tokens, width, inner, ranks)
                found[f"tensor_parallel/{tokens}x{width}x{inner}"] = (text, [])
    return found


def run(
    args: argparse.Namespace, folder: Path, ranks: int, sizes: tuple[str, ...], rates: Path, texts: dict[str, str]
) -> list[dict[str, Any]] | None:
    """A row for each program; all run in one process a rank. None: one of several was refused."""
    files, times = [folder / f"{i}.hir" for i in range(len(texts))], folder / "times.json"
    for file, text in zip(files, texts.values(), strict=True):
        file.write_text(text)
    words = [*files, "--random", 7, *sizes, "--repeat", args.samples, "--batch", args.batch]
    if error := evaluate(args, ranks, *words, "--rates", rates, "--json", times):
        if len(texts) == 1:
            print(f"{next(iter(texts))}: not run: {error.splitlines()[0]}", flush=True)
        return None
    found = json.loads(times.read_text())
    rows = []
    for name, row in zip(texts, found if isinstance(found, list) else [found], strict=True):
        measured, predicted = row["median_ms"], row.get("predicted_ms", 0)
        rows.append({"program": name, "ranks": ranks, "ms_quartiles": quartiles(row["samples_ms"])})
        rows[-1] |= {"predicted_ms": predicted, "predicted_of_measured": predicted / measured}
        rows[-1] |= {key: row[key] for key in ("launches", "library_calls", "communications")}
        print(f"{name:52} {measured:9.4f} ms, predicted {predicted:9.4f}, {predicted / measured:6.3f}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build" / "gpu" / "hostir-eval"), help="hostir-eval")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cuda", help="cpu for a trial")
    parser.add_argument("--samples", type=int, default=9)
    parser.add_argument("--batch", type=int, default=10, help="runs of a sample")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for the programs of one process")
    parser.add_argument("--rates", help="a folder that keeps what was calibrated")
    parser.add_argument("--only", default="", help="programs whose name has this")
    parser.add_argument("--json", help="keep the figures there")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="hostir-") as made:
        folder = Path(args.rates or made)
        for ranks in sorted({1, args.ranks}):
            if error := evaluate(args, ranks, "--calibrate", folder / f"rates-{ranks}.txt"):
                sys.exit(error)
        groups: dict[tuple[int, tuple[str, ...]], dict[str, str]] = {}
        for name, (text, sizes) in programs(args.ranks).items():
            if args.only in name:
                ranks = args.ranks if ranks_of(text) > 1 else 1
                groups.setdefault((ranks, tuple(sizes)), {})[name] = text
        for (ranks, sizes), texts in groups.items():
            rates = folder / f"rates-{ranks}.txt"
            taken = run(args, Path(made), ranks, sizes, rates, texts)
            if taken is None:  # One of them is refused.
                for name, text in texts.items():
                    rows += run(args, Path(made), ranks, sizes, rates, {name: text}) or []
            rows += taken or []
        if args.json:
            rates = {path.stem: path.read_text().splitlines() for path in sorted(folder.glob("rates-*.txt"))}
            write(Path(args.json), {"machine": machine(), "samples": args.samples, "rows": rows, "rates": rates})
    close = sum(abs(row["predicted_of_measured"] - 1) <= CLOSE for row in rows)
    print(f"{close} of {len(rows)} programs within {CLOSE:.0%}")


if __name__ == "__main__":
    main()
