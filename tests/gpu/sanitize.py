"""Generated kernels under compute-sanitizer: memcheck, racecheck, synccheck and initcheck, side by side.

    python sanitize.py build/gpu/tests/kernels_gpu_test [--seconds 60] [--programs 8] [--elements 6000]

A few random programs and the schedules at small sizes; under a minute on one GPU. Exits 1 for an error that a tool or
the test found, or a tool that did not come to its end; 77 where there is no tool or no GPU.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SKIPPED = 77
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/cuda/bin")


def sanitizer() -> str | None:
    home = os.environ.get("CUDA_HOME")
    places = [*([f"{home}/bin", f"{home}/compute-sanitizer"] if home else []), *PLACES]
    return shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=os.pathsep.join(places))


def start(tool: str, name: str, test: Path, environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    command = [tool, "--tool", name, "--error-exitcode", "9", "--print-limit", "20"]
    if name == "memcheck":  # A kernel's parameters are asked for until the driver says that there are no more.
        command += ["--report-api-errors", "no"]
    command.append(str(test))
    with log.open("w") as out:
        return subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)


def sanitize(tool: str, args: argparse.Namespace, environment: dict[str, str], folder: Path) -> tuple[int, int]:
    """How many tools failed, and how many had no GPU."""
    started = time.monotonic()
    running = [(name, start(tool, name, args.test, environment, folder / name)) for name in args.tools]
    failed = skipped = 0
    for name, process in running:
        try:
            code = process.wait(max(started + args.seconds - time.monotonic(), 0.1))
            ended = f"{time.monotonic() - started:.0f} s"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # The test, too.
            process.wait()
            code, ended = -1, f"not done in {args.seconds:.0f} s"
        text = (folder / name).read_text(errors="replace")
        summary = re.findall(r"^=+ (.*SUMMARY.*)$", text, re.M)
        passed = re.findall(r"^\[  PASSED  \] (\d+) test", text, re.M)
        no_gpu = "SKIPPED, no GPU" in text
        right = code == 0 and bool(passed) and int(passed[-1]) > 0 and not no_gpu
        skipped += no_gpu
        failed += not right and not no_gpu
        verdict = "no GPU" if no_gpu else "right" if right else f"WRONG (exit {code})"
        print(f"{name:10} {verdict}, {ended}: {summary[-1] if summary else 'no summary'}", flush=True)
        if not right and not no_gpu:
            print(text[-6000:], flush=True)
    return failed, skipped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("test", type=Path, help="kernels_gpu_test")
    parser.add_argument("--seconds", type=float, default=60, help="for all tools together")
    parser.add_argument("--programs", type=int, default=8, help="random programs")
    parser.add_argument("--elements", type=int, default=6000, help="of the largest tensors of the schedules")
    parser.add_argument("--tools", nargs="+", default=TOOLS, choices=TOOLS)
    args = parser.parse_args()
    tool = sanitizer()
    if tool is None:
        print("SKIPPED: no compute-sanitizer: it is part of the CUDA toolkit")
        sys.exit(SKIPPED)
    environment = os.environ | {"HIR_PROGRAMS": str(args.programs), "HIR_ELEMENTS_MAX": str(args.elements)}
    with tempfile.TemporaryDirectory(prefix="hostir-") as folder:
        failed, skipped = sanitize(tool, args, environment, Path(folder))
    sys.exit(1 if failed else SKIPPED if skipped else 0)


if __name__ == "__main__":
    main()
