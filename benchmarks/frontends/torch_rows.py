"""Rows of a benchmark of PyTorch programs, one at a time, on a private daemon of one device, and their file."""

from __future__ import annotations

import argparse
import logging
import os
import pathlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from kept import write

import hostir
import hostir.torch


def arguments(parser: argparse.ArgumentParser, rounds: str) -> None:
    """Those that the benchmarks have in common; `rounds` says of which there are so many."""
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=15, help=rounds)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")


def run(
    script: str,
    args: argparse.Namespace,
    items: Iterable[Any],
    measured: Callable[[Any, argparse.Namespace], dict[str, Any]],
    line_of: Callable[[dict[str, Any]], str],
) -> None:
    """Prints the line of each row, and writes them with command and machine where `args.json` says."""
    logging.disable(logging.WARNING)
    rows = []
    with hostir.connect(devices="cpu:1" if args.device == "cpu" else "cuda:0") as client:
        hostir.torch.use(client)
        for item in items:
            rows.append(measured(item, args))
            print(line_of(rows[-1]), flush=True)
    if args.json is None:
        return
    machine = {"cores": os.cpu_count(), "load": os.getloadavg(), "torch": torch.__version__}
    if args.device == "cuda":
        machine["card"] = torch.cuda.get_device_name()
    command = " ".join([f"benchmarks/frontends/{script}", *sys.argv[1:]])
    write(args.json, {"command": command, **machine, "rows": rows})
