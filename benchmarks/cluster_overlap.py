"""Products beside the communications of two nodes: as planned for their link, against one after the other.

cluster_overlap.py [--pairs N] [--rate 1gbit] [--json FILE]: two nodes of one CPU rank each in network namespaces
(root), once with --overlap=chosen and once with --overlap=never, whose runs alternate. A row: medians of both, their
ratio (above 1: the parts are faster), whether explain says that the product runs in parts; where it does not, both run
the same, and the ratio says how quiet the machine is. It ends with 1 where the upper quartile of a ratio of parts is
below 0.98, or values differ.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import tempfile
import time
from typing import Any

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "tests/cluster"), str(ROOT / "tests/python"), str(ROOT / "python")]
from kept import kept_pairs, text  # noqa: E402

import hostir  # noqa: E402
from cluster import Cluster, certificates, networks  # noqa: E402
from hostir import DataType, DeviceMesh, FusionDefinition  # noqa: E402

LEAST = 0.98
# Rows, terms and columns: of each form some that are chosen, some that are too small, and some near the limit.
SIZES = [(m, k, n) for m in (256, 1024, 4096) for k, n in ((256, 1024), (1024, 256), (1024, 1024), (512, 4096))]
FORMS = ("gather", "exchange", "scatter", "sum")


def program(form: str, m: int, k: int, n: int) -> FusionDefinition:
    """x[m, k] @ w[k, n]: rows of x gathered first; results exchanged for columns; or partial results added up, of
    which each node has half, or all."""
    mesh = DeviceMesh([0, 1])
    with FusionDefinition(f"{form}_{m}_{k}_{n}") as fd:
        x = fd.define_tensor(shape=[m, k], contiguity=[True, True], dtype=DataType.Float)
        w = fd.define_tensor(shape=[k, n], contiguity=[True, True], dtype=DataType.Float)
        x.shard(mesh, {0 if form in ("gather", "exchange") else 1: "mesh_x"})
        w.shard(mesh, {"gather": {1: "mesh_x"}, "exchange": {}}.get(form, {0: "mesh_x"}))
        y = fd.ops.matmul(x, w)
        if form == "exchange":
            y.shard(mesh, {0: "mesh_x"})
            y = fd.ops.set(y)
        y.shard(mesh, {"scatter": {0: "mesh_x"}, "sum": {}}.get(form, {1: "mesh_x"}))
        fd.add_output(y)
    return fd


class Side:
    """One of the two clusters."""

    def __init__(self, client: hostir.Client, fd: FusionDefinition, arrays: list[np.ndarray]) -> None:
        self.client, self.fd = client, fd
        self.inputs = [client.put(array, value) for array, value in zip(arrays, fd.fusion.inputs(), strict=True)]
        self.result = client.run(fd, self.inputs)[0].numpy()

    def seconds(self) -> float:
        began = time.perf_counter()
        self.client.run(self.fd, self.inputs, wait=True)
        return time.perf_counter() - began


def measure(clients: dict[str, hostir.Client], form: str, size: tuple[int, int, int], pairs: int) -> dict[str, Any]:
    m, k, n = size
    rng = np.random.default_rng(m + k + n)
    arrays = [rng.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (k, n))]
    fd = program(form, m, k, n)
    sides = {name: Side(client, fd, arrays) for name, client in clients.items()}
    off = float(np.max(np.abs(sides["chosen"].result - sides["never"].result)))
    assert off <= 1e-5 * k, f"{form} {size}: values differ by {off}"
    times: dict[str, list[float]] = {name: [] for name in sides}
    for pair in range(pairs):
        for name in sorted(sides, reverse=pair % 2 == 1):
            times[name].append(1e3 * sides[name].seconds())
    notes = [line for line in str(clients["chosen"].explain(fd)).splitlines() if " parts of " in line]
    row = {"form": form, "m": m, "k": k, "n": n, "parts": bool(notes), "chosen_ms": times["chosen"]}
    ratios = [a / b for a, b in zip(times["never"], times["chosen"], strict=True)]
    return kept_pairs({**row, "never_ms": times["never"]}, ["chosen_ms", "never_ms"], {"ratio": ratios})


def line_of(row: dict[str, Any]) -> str:
    low, ratio, high = row["ratio_quartiles"]
    chosen, never = (row[f"{side}_ms_quartiles"][1] for side in ("chosen", "never"))
    size = f"{row['m']} x {row['k']} x {row['n']}"
    how = "parts" if row["parts"] else "whole"
    times = f"{chosen:8.2f} ms, never {never:8.2f} ms"
    return f"{row['form']:8} {size:18} {how} {times}: {ratio:.2f} ({low:.2f} to {high:.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--rate", default="1gbit", help="of the link, as tc has it")
    parser.add_argument("--json", help="a file for the rows")
    args = parser.parse_args()
    daemon = str(pathlib.Path(os.environ["HOSTIR_BUILD_DIR"]) / "hostird")
    rows = []
    with tempfile.TemporaryDirectory() as folder, networks(2, rate=args.rate) as made:
        path = pathlib.Path(folder)
        hosts = [made.address(node).split(":")[1] for node in range(2)]
        settings = {**certificates(path / "certs", hosts), "bind_ranks": "off", "busy_wait": "off"}
        clusters, clients = {}, {}
        try:
            for port, name in ((7001, "chosen"), (7002, "never")):
                (path / name).mkdir(mode=0o700)
                clusters[name] = Cluster(
                    daemon, path / name, devices="cpu:1", networks=made, port=port, overlap=name, **settings
                )
                clients[name] = clusters[name].client()
            for form in FORMS:
                for size in SIZES:
                    row = measure(clients, form, size, args.pairs)
                    rows.append(row)
                    print(line_of(row), flush=True)
        finally:
            for client in clients.values():
                client.close()
            for cluster in clusters.values():
                cluster.stop()
    if args.json:
        machine = f"{os.cpu_count()} cores, two namespaces, {args.rate}"
        record = {
            "command": f"cluster_overlap.py --pairs {args.pairs} --rate {args.rate}",
            "machine": machine,
            "rows": rows,
        }
        pathlib.Path(args.json).write_text(text(record))
    missed = [row for row in rows if row["parts"] and row["ratio_quartiles"][2] < LEAST]
    for row in missed:
        print(f"missed: {row}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
