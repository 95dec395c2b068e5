"""All-gather, broadcast and all-reduce between two nodes, against the time that their link needs for what must cross.

cluster_collectives.py [--mib N] [--ranks R] [--repeat N]: two nodes of R CPU ranks in network namespaces (root), whose
link has 1 Gbit/s each way. A row: median time of a run, bytes that each node sent in one, and the link's share. Those
whose name ends in 2d are on a mesh of two dimensions, of which the ranks of a node are one: there the planner decides
how much crosses.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "tests/cluster"), str(ROOT / "tests/python"), str(ROOT / "python")]
import hostir  # noqa: E402
from cluster import Cluster, Networks, certificates, networks  # noqa: E402
from hostir import DataType, DeviceMesh, FusionDefinition  # noqa: E402

LINK = 1e9 / 8  # Bytes a second, each way.


def programs(ranks: int) -> dict[str, FusionDefinition]:
    """By name. Of each the whole tensor is an output on every rank."""
    made = {}
    everyone = DeviceMesh(list(range(2 * ranks)))
    grid = DeviceMesh([list(range(node * ranks, (node + 1) * ranks)) for node in range(2)])
    for name, split, axes in (
        ("allgather 2d", {0: "mesh_y"}, []),
        ("allreduce 2d", {0: "mesh_y"}, [0]),
        ("both sums 2d", {0: "mesh_y", 1: "mesh_x"}, [0, 1]),
    ):
        with FusionDefinition(name.replace(" ", "_")) as fd:
            x = fd.define_tensor(shape=[-1, -1, -1], contiguity=[True] * 3, dtype=DataType.Float)
            x.shard(grid, split)
            y = fd.ops.sum(x, dims=axes) if axes else fd.ops.set(x)
            y.shard(grid, {})
            fd.add_output(y)
        made[name] = fd
    for name in ("allgather", "broadcast", "allreduce"):
        with FusionDefinition(name) as fd:
            x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float)
            if name == "broadcast":
                x.shard(DeviceMesh([0]), {})
                y = fd.ops.set(x)
            else:
                x.shard(everyone, {0: "mesh_x"})
                y = fd.ops.set(x) if name == "allgather" else fd.ops.sum(x, dims=[0])
            y.shard(everyone, {})
            fd.add_output(y)
        made[name] = fd
    return made


def measure(client: hostir.Client, made: Networks, name: str, fd: FusionDefinition, args: argparse.Namespace) -> None:
    """Prints a row."""
    ranks = 2 * args.ranks
    elements = args.mib << 18
    shape: tuple[int, ...] = (ranks, elements) if name == "allreduce" else (ranks, elements // ranks)
    if "2d" in name:
        inner = {"allreduce 2d": 1, "both sums 2d": args.ranks}.get(name, 1024)
        shape = (2, inner, elements if name != "allgather 2d" else elements // (2 * inner))
    values = client.put(np.ones(shape, np.float32), fd.fusion.inputs()[0])
    client.run(fd, [values], wait=True)
    times = []
    before = [made.bytes_sent(node) for node in range(2)]
    for _ in range(args.repeat):
        began = time.perf_counter()
        client.run(fd, [values], wait=True)
        times.append(time.perf_counter() - began)
    sent = max((made.bytes_sent(node) - at) / args.repeat for node, at in enumerate(before))
    whole = args.mib << 20
    # A node has to send its half; all of it; its sums of one half, and the results of the other.
    least = whole / 2 if name.startswith("allgather") else whole
    took = statistics.median(times)
    print(
        f"{name:12} {1e3 * took:8.1f} ms, {sent / 2**20:7.2f} MiB sent of {least / 2**20:.2f} that must be; "
        f"the link alone {1e3 * least / LINK:.1f} ms: {least / LINK / took:.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=16)
    parser.add_argument("--ranks", type=int, default=4, help="of each node")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--daemon", default=None, help="another hostird, to compare with")
    args = parser.parse_args()
    daemon = args.daemon or str(pathlib.Path(os.environ["HOSTIR_BUILD_DIR"]) / "hostird")
    with tempfile.TemporaryDirectory() as folder, networks(2) as made:
        path = pathlib.Path(folder)
        hosts = [made.address(node).split(":")[1] for node in range(2)]
        settings = {**certificates(path / "certs", hosts), "bind_ranks": "off", "busy_wait": "off"}
        (path / "nodes").mkdir(mode=0o700)
        cluster = Cluster(daemon, path / "nodes", devices=f"cpu:{args.ranks}", networks=made, **settings)
        try:
            with cluster.client() as client:
                for name, fd in programs(args.ranks).items():
                    measure(client, made, name, fd, args)
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
