"""Products beside the communications of two daemons with a GPU each, as planned for their link, against one after the
other: ../cluster_overlap.py on GPUs, NCCL by sockets.

  bin/hostir-python benchmarks/gpu/nodes_overlap.py [--pairs 7] [--out FILE]

It ends with 1 where the upper quartile of a ratio of parts is below 0.98.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import cluster_overlap
from machine import machine
from two_nodes import SOCKETS, Nodes

SIZES = [(512, 4096, 4096), (2048, 4096, 4096), (4096, 2048, 8192), (8192, 4096, 14336)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--out", help="a file for the rows, as JSON")
    options = parser.parse_args()
    rows = []
    with contextlib.ExitStack() as stack:
        clients = {}
        for name in ("chosen", "never"):
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            nodes = Nodes(folder, {**SOCKETS, "HOSTIR_OVERLAP": name})
            stack.callback(nodes.stop)
            clients[name] = nodes.client
            print(f"{name}: {nodes.client.status()['nodes']}", flush=True)
        for form in cluster_overlap.FORMS:
            for size in SIZES:
                rows.append(cluster_overlap.measure(clients, form, size, options.pairs))
                print(cluster_overlap.line_of(rows[-1]), flush=True)
        for client in clients.values():
            client.close()
    if options.out:
        command = f"benchmarks/gpu/nodes_overlap.py --pairs {options.pairs}"
        record = {"command": command, "machine": machine(), "rows": rows}
        pathlib.Path(options.out).write_text(json.dumps(record, indent=1) + "\n")
    missed = [r for r in rows if r["parts"] and r["ratio_quartiles"][2] < cluster_overlap.LEAST]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
