"""Runs with --busy-wait auto, on and off: alone, and beside programs that keep cores busy, whose share counts, too."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import hostir

MODES = ("auto", "on", "off")
NEIGHBOURS = (0, 1, 2)
PROGRAMS = {"empty run": (), "run of an all-reduce": ("all_reduce",)}
PARTS = 10  # Of a sample: 50 runs each, in turn with 50 bare calls.


@contextlib.contextmanager
def busy(number: int) -> Iterator[Callable[[], float]]:
    """So many programs that do nothing but compute; how many seconds of a core they have had."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield lambda: sum(int(Path(f"/proc/{each.pid}/schedstat").read_text().split()[0]) for each in programs) / 1e9
    finally:
        for each in programs:
            each.kill()
            each.wait()


@dataclass
class Samples:
    micros: list[float] = field(default_factory=list)  # Of a run.
    cores: list[float] = field(default_factory=list)  # Of the neighbours: those that they had.


def measure(pairs: int, round_trip: Callable[..., list[float]]) -> Iterator[tuple[str, str, dict[str, list[float]]]]:
    """(name, unit, samples by mode). ``round_trip(address, parts, *program)``: means of runs, in us."""
    with contextlib.ExitStack() as stack:
        addresses = {}
        for mode in MODES:
            os.environ["HOSTIR_BUSY_WAIT"] = mode
            addresses[mode] = stack.enter_context(hostir.connect(devices="cpu:4")).address
        for program, arguments in PROGRAMS.items():
            for number in NEIGHBOURS:
                samples = {mode: Samples() for mode in MODES}
                with busy(number) as seconds:
                    for pair in range(pairs):
                        for mode in MODES if pair % 2 == 0 else reversed(MODES):
                            had, started = seconds(), time.perf_counter()
                            runs = round_trip(addresses[mode], PARTS, *arguments)
                            samples[mode].micros.append(statistics.fmean(runs))
                            samples[mode].cores.append((seconds() - had) / (time.perf_counter() - started))
                where = ("alone", "beside a busy program", "beside two busy programs")[number]
                yield f"{program} {where}", "us", {mode: samples[mode].micros for mode in MODES}
                if number > 0:
                    yield f"{program}: who is beside it", "cores", {m: samples[m].cores for m in MODES}
