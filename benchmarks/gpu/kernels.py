"""Device time and values of the workloads beside torch.compile and JAX, on one GPU, in one run.

python3 benchmarks/gpu/kernels.py --eval build/gpu/hostir-eval --json benchmarks/results/NAME.json [NAME...]

Every workload: random inputs; hostir-eval runs the program (outputs filled with NaN before; 50 runs, then 50 samples by
events, each after 256 MiB are written); the values against float64; then the peers by the same protocol. --sizes: sizes
off the path instead, without peers. A workload that fails is a row that says so, and the others go on; the exit code is
1 then.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.append(str(Path(__file__).resolve().parents[1]))

from kept import write
from machine import machine
from workloads import BY_NAME, OFF_PATH_NAMES, TOLERANCES, WORKLOADS, Array, Shape, Workload, off_path_sizes

ROOT = Path(__file__).resolve().parents[2]
TORCH_DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32, "i64": torch.int64}
SAMPLES = 50
WARMUP = 50  # Runs before the first sample. After 3, small kernels are 5 % slower.
# What is wanted: no more than so much behind the best kernel written by hand, at the workload's sizes and off them;
SLACK, OFF_PATH_SLACK = 0.06, 0.15
# at least this share of the better peer's speed where there is such a kernel, and of some workloads more.
AT_CEILING = {"rms_norm", "silu_mul", "sum_inner", "add_transpose"}  # Of memory: nobody is ahead by much.
PEER_LEAST, PEER_LEAST_AT_CEILING = 1.0, 0.97
AHEAD = {"adaptive_layer_norm_backward": 2.4}


def draw(array: Array) -> torch.Tensor:
    if array.drawn.startswith("index:"):
        return torch.randint(0, int(array.drawn[6:]), array.shape, device="cuda")
    values = torch.randn if array.drawn == "normal" else torch.rand
    out = values(array.shape, device="cuda", dtype=torch.float32)
    return (out if array.drawn == "normal" else out + 0.5).to(TORCH_DTYPES[array.dtype])


def save(path: Path, tensor: torch.Tensor) -> None:
    host = tensor.cpu()
    np.save(path, host.view(torch.int16).numpy().view(np.uint16) if host.dtype == torch.bfloat16 else host.numpy())


def load(path: Path, array: Array) -> torch.Tensor:
    values = np.load(path)
    if array.dtype == "bf16":
        return torch.from_numpy(values.view(np.int16)).cuda().view(torch.bfloat16)
    return torch.from_numpy(values).cuda()


def evaluate(evaluator: Path, folder: Path, text: str, *options: str) -> dict[str, Any]:
    """One run of hostir-eval on the files in `folder`: its JSON, or an error with its words."""
    (folder / "program.hir").write_text(text)
    report = folder / "report.json"
    command = [evaluator, folder / "program.hir", "--device", "cuda", "--in", folder, "--out", folder, "--json", report]
    done = subprocess.run(
        [*map(str, command), "--warmup", str(WARMUP), "--repeat", str(SAMPLES), "--cold-l2", *options],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode != 0:
        raise RuntimeError(f"hostir-eval ({done.returncode}): {done.stderr.strip()[-400:]}")
    return json.loads(report.read_text())


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    if got.shape != want.shape:
        raise RuntimeError(f"shape {tuple(got.shape)}, not {tuple(want.shape)}")
    error = torch.linalg.vector_norm(got.double() - want) / torch.linalg.vector_norm(want)
    return float(error)  # NaN when an element was not written.


def errors_of(workload: Workload, outputs: list[Array], inputs: list[torch.Tensor], folder: Path) -> dict[str, float]:
    wide = [t if t.dtype == torch.int64 else t.double() for t in inputs]
    wanted = workload.reference(torch, *wide)
    return {
        array.name: relative_error(load(folder / f"{array.name}.npy", array), want)
        for array, want in zip(outputs, wanted, strict=True)
    }


def run_hostir(workload: Workload, sizes: Shape, evaluator: Path) -> tuple[dict[str, Any], list[torch.Tensor]]:
    arrays, outputs = workload.arrays(sizes)
    inputs = [draw(array) for array in arrays]
    with tempfile.TemporaryDirectory(prefix="hostir-", dir=shared_memory()) as name:
        folder = Path(name)
        for array, tensor in zip(arrays, inputs, strict=True):
            save(folder / f"{array.name}.npy", tensor)
        report = evaluate(evaluator, folder, workload.text(sizes))
        errors = errors_of(workload, outputs, inputs, folder)
    dtypes = {array.name: array.dtype for array in outputs}
    row = {
        "ms": report["median_ms"],
        "quartiles_ms": report["quartiles_ms"],
        "launches": report["launches"],
        "library_calls": report["library_calls"],
        "plan_ms": report["plan_ms"],
        "compile_ms": report["compile_ms"],
        "bind_us": report["bind_us"],
        "queue_us": report["queue_us"],
        "errors": errors,
        # Written so that a NaN fails.
        "right": all(error <= TOLERANCES[dtypes[name]] for name, error in errors.items()),
    }
    return row, inputs


def shared_memory() -> str | None:
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


def ratio(ours: float, theirs: float | None) -> str:
    return f"{theirs / ours:5.2f}" if theirs else "    -"


HEADER = (
    f"{'workload':<29} {'MB':>6} {'floor':>8} {'hostir':>8} {'copy':>5} {'compile':>8} {'JAX':>8} {'peer':>5} "
    f"{'hand':>8} {'hand':>5}  {'error':>7}  launches"
)
LEGEND = """
floor, hostir, compile (torch.compile), JAX, hand (the best kernel written by hand): ms, caches cold. copy: our share of
the bandwidth of a device-to-device copy. peer, hand: how many times faster we are than the faster peer, and than that
kernel; below 1 we are slower. error: the largest relative Frobenius error of an output against float64; ! is over its
tolerance."""


def line(row: dict[str, Any]) -> str:
    name = f"{row['name']} {'x'.join(map(str, row['sizes']))}" if row.get("off_path") else row["name"]
    if "failure" in row:
        return f"{name:<29} FAILED: {row['failure']}"

    def ms(value: float | None) -> str:
        return f"{value:8.4f}" if value else "       -"

    error = max(row["errors"].values(), key=lambda e: float("inf") if e != e else e)
    return (
        f"{name:<29} {row['bytes'] / 1e6:6.0f} {ms(row['floor_ms'])} {ms(row['ms'])} {row['copy_share']:5.0%} "
        f"{ms(row.get('torch_compile', {}).get('ms'))} {ms(row.get('jax', {}).get('ms'))} "
        f"{ratio(row['ms'], row.get('peer_ms'))} {ms(row['hand_written_ms'])} "
        f"{ratio(row['ms'], row['hand_written_ms'])}  {error:7.1e}{' ' if row['right'] else '!'} {row['launches']}"
    )


def misses(row: dict[str, Any], with_peers: bool) -> list[str]:
    """What is wanted of a workload and not there; empty: all is well."""
    hand, peer, name = row["hand_written_ms"], row.get("peer_ms"), row["name"]
    slack = OFF_PATH_SLACK if row["off_path"] else SLACK
    ahead = AHEAD.get(name, PEER_LEAST_AT_CEILING if name in AT_CEILING else PEER_LEAST)
    found = []
    if hand and row["ms"] > (1 + slack) * hand:
        found.append(f"{row['ms'] / hand - 1:.1%} behind the best by hand, wants {slack:.0%}")
    if hand and peer and peer / row["ms"] < ahead:
        found.append(f"{peer / row['ms']:.3f} of the better peer, wants {ahead}")
    if hand and with_peers and not peer:
        found.append("no peer was measured")
    return found


def measure(workload: Workload, sizes: Shape, evaluator: Path, gbps: float) -> tuple[dict[str, Any], Any]:
    off_path = sizes != workload.sizes
    row: dict[str, Any] = {"name": workload.name, "sizes": sizes, "off_path": off_path, "bytes": workload.bytes(sizes)}
    inputs = None
    try:
        measured, inputs = run_hostir(workload, sizes, evaluator)
        row |= measured
        row["floor_ms"] = row["bytes"] / gbps / 1e6
        row["copy_share"] = row["floor_ms"] / row["ms"]
        row["hand_written_ms"] = workload.off_path.get(sizes) if off_path else workload.hand_written_ms
    except Exception as error:  # One workload must not cost the others.
        row["failure"] = " ".join(str(error).split())[:300] or repr(error)
    torch.cuda.empty_cache()
    return row, inputs


def add_peers(rows: list[dict[str, Any]], deadline: float) -> None:
    """Times both peers for every row, most wanted first: those that would be cut off are said to be."""
    import peers

    ropes = {name: BY_NAME[name].sizes for name in ("rope_llama3", "rope_small")}
    functions = {"torch_compile": peers.torch_functions(ropes), "jax": peers.jax_functions(ropes)}
    timers = {"torch_compile": peers.torch_compile_ms, "jax": peers.jax_ms}
    for row in rows:
        inputs = [draw(array) for array in BY_NAME[row["name"]].arrays()[0]]
        for peer, timer in timers.items():
            if time.monotonic() > deadline:
                print(f"{row['name']}: no time left for {peer}", flush=True)
                continue
            try:
                row[peer] = timer(functions[peer][row["name"]], inputs)
            except Exception as error:
                print(f"{row['name']}: {peer} failed: {' '.join(str(error).split())[:200]}", flush=True)
        del inputs
        torch.cuda.empty_cache()
        times = [row[peer]["ms"] for peer in timers if peer in row]
        if times:
            row["peer_ms"] = min(times)
        print(line(row), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="workloads (default: all)")
    parser.add_argument("--eval", type=Path, default=ROOT / "build/gpu/hostir-eval", help="the program to measure")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    parser.add_argument("--sizes", action="store_true", help="sizes off the path, without peers")
    parser.add_argument("--no-peers", action="store_true", help="hostir alone")
    parser.add_argument("--seconds", type=float, default=340, help="start no peer after so long (default 340)")
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in BY_NAME]:
        parser.error(f"no workload {unknown[0]}; there are {', '.join(BY_NAME)}")
    deadline = time.monotonic() + args.seconds
    torch.manual_seed(2024)
    names = args.names or (OFF_PATH_NAMES if args.sizes else list(BY_NAME))
    chosen = [workload for workload in WORKLOADS if workload.name in names]

    import peers

    gbps = peers.copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}: copies {gbps:.0f} GB/s\n{HEADER}", flush=True)
    where, rows = machine(torch=torch.__version__), []
    for workload in chosen:
        for sizes in off_path_sizes(workload) if args.sizes else [workload.sizes]:
            row, _ = measure(workload, sizes, args.eval, gbps)
            rows.append(row)
            print(line(row), flush=True)
            keep(args.json, where, gbps, rows)  # After each: what a run that is cut off has measured is kept.
    good = [row for row in rows if "failure" not in row]
    with_peers = not args.sizes and not args.no_peers
    if with_peers:
        print("\nwith peers:\n" + HEADER, flush=True)
        add_peers(good, deadline)
    print(LEGEND)
    keep(args.json, where, gbps, rows)
    missed = [(row, found) for row in good if (found := misses(row, with_peers))]
    compared = sum(row["hand_written_ms"] is not None for row in good)
    print(
        f"\n{len(good) - len(missed)} of {len(good)} have what is wanted of them; "
        f"{compared} are compared with the best by hand"
    )
    for row, found in missed:
        print(f"  not: {line(row)}: {', '.join(found)}")
    wrong = [row["name"] for row in good if not row["right"]]
    failed = [row["name"] for row in rows if "failure" in row]
    print(f"\n{len(good) - len(wrong)} of {len(rows)} right; wrong: {wrong or 'none'}; failed: {failed or 'none'}")
    return 1 if wrong or failed or missed else 0


def keep(path: Path | None, where: dict[str, Any], gbps: float, rows: list[dict[str, Any]]) -> None:
    if path is not None:
        write(path, {"machine": where, "copy_GBps": gbps, "samples": SAMPLES, "rows": rows})


if __name__ == "__main__":
    sys.exit(main())
