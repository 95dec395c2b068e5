"""A put and a get of a tensor split over two nodes, straight to and from them, beside the way by the head.

cluster_transfers.py [--mib N ...] [--ranks R] [--repeat N] [--json FILE]: two nodes of R CPU ranks and a client in
three network namespaces (root), with TLS, whose links have 1 Gbit/s each way. The two ways take turns. A row: of one
size and way the seconds of the put, of a run that reads it (which by the head waits for what is still there), and of
the get; bytes at the head's link and at the other node's, in and out, and those of each one's own shards, put and got.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "tests/cluster"), str(ROOT / "tests/python"), str(ROOT / "python")]
import kept  # noqa: E402

from cluster import Cluster, Networks, certificates, networks  # noqa: E402

WAYS = ("nodes", "head")
STEPS = ("put", "run", "get")


def once(made: Networks, address: str, keys: pathlib.Path, mib: float, way: str, repeat: int) -> dict[str, Any]:
    """Of one client, after a transfer that connects."""
    client = [sys.executable, "-B", str(ROOT / "tests/cluster/transfer_client.py"), address]
    files = [str(keys / name) for name in ("ca.pem", "node.pem", "node.key")]
    before = [made.bytes_sent(node) + made.bytes_received(node) for node in range(2)]
    command = [*made.inside(2), *client, *files, f"--mib={mib}", f"--way={way}", f"--repeat={repeat + 1}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert not said["unreached"], said["unreached"]
    links = [made.bytes_sent(node) + made.bytes_received(node) - at for node, at in enumerate(before)]
    return {**{step: said[step][1:] for step in STEPS}, "links": [count / (repeat + 1) for count in links]}


def measure(made: Networks, address: str, keys: pathlib.Path, mib: float, repeat: int) -> list[dict[str, Any]]:
    """A row for each way."""
    samples: dict[str, dict[str, list[Any]]] = {way: {step: [] for step in (*STEPS, "links")} for way in WAYS}
    for _ in range(repeat):
        for way in WAYS:
            for name, values in once(made, address, keys, mib, way, repeat=3).items():
                samples[way][name] += [values] if name == "links" else values
    rows = []
    for way in WAYS:
        of = samples[way]
        links = [round(statistics.median(link[node] for link in of["links"]) / 2**20, 2) for node in range(2)]
        row: dict[str, Any] = {"mib": mib, "way": way, "repeats": len(of["put"])}
        row |= {f"{step}_s_quartiles": [round(value, 5) for value in kept.quartiles(of[step])] for step in STEPS}
        row |= {"head_link_mib": links[0], "node_link_mib": links[1], "own_shards_mib": mib}
        rows.append(row)
        times = ", ".join(f"{step} {1e3 * statistics.median(of[step]):.1f} ms" for step in STEPS)
        print(f"{mib:8g} MiB by the {way}: {times}; links {links[0]} and {links[1]} MiB of {mib:g}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=float, nargs="+", default=[0.0625, 0.125, 0.25, 0.5, 1, 4, 16, 64])
    parser.add_argument("--ranks", type=int, default=1, help="of each node")
    parser.add_argument("--repeat", type=int, default=4)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    daemon = str(pathlib.Path(os.environ["HOSTIR_BUILD_DIR"]) / "hostird")
    rows = []
    with tempfile.TemporaryDirectory() as folder, networks(3) as made:
        path = pathlib.Path(folder)
        hosts = [made.address(node).split(":")[1] for node in range(3)]
        settings = {**certificates(path / "certs", hosts), "bind_ranks": "off", "busy_wait": "off"}
        (path / "nodes").mkdir(mode=0o700)
        listens = [f"tcp:{host}:4710" for host in hosts[:2]]
        cluster = Cluster(
            daemon, path / "nodes", devices=f"cpu:{args.ranks}", networks=made, listens=listens, **settings
        )
        try:
            for mib in args.mib:
                rows += measure(made, listens[0], path / "certs", mib, args.repeat)
        finally:
            cluster.stop()
    if args.json:
        record = {
            "command": " ".join(["cluster_transfers.py", *sys.argv[1:]]),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}; links of 1 Gbit/s",
            "load": os.getloadavg()[0],
            "repeats": args.repeat,
            "rows": rows,
        }
        kept.write(args.json, record)


if __name__ == "__main__":
    main()
