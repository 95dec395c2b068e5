"""Daemons of a GPU each, on this machine, nodes of a cluster that etcd knows: a node dies and the others go on by
NCCL without it, it comes back, the head dies and another one serves. Every sum is checked; times are how long runs
fail.

  bin/hostir-python benchmarks/gpu/nodes_by_etcd.py [--nodes 4] [--daemon FILE] [--out FILE]     etcd is on the PATH
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
import time

import numpy as np
from machine import machine

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests/cluster"), str(ROOT / "tests/python")]

import hostir  # noqa: E402
from cluster import Cluster, total  # noqa: E402
from etcd import Etcd  # noqa: E402
from hostir import private_daemon  # noqa: E402


def run(client: hostir.Client, devices: list[int]) -> None:
    """An all-reduce between them, checked."""
    values = np.arange(len(devices) << 20, dtype=np.float32).reshape(len(devices), -1) % 97
    (y,) = client.run(total(devices), [values], wait=True)
    np.testing.assert_array_equal(y.numpy(), values.sum(axis=0))


def until_it_runs(client: hostir.Client, devices: list[int]) -> float:
    """Seconds."""
    began = time.monotonic()
    while True:
        try:
            run(client, devices)
            return round(time.monotonic() - began, 2)
        except (hostir.Unavailable, hostir.DataLoss) as failure:
            if time.monotonic() - began > 90:
                raise
            print(f"  {time.monotonic() - began:5.1f} s {str(failure)[:150]}", flush=True)
            time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--daemon", default=None)
    parser.add_argument("--out", default=None)
    args = parser.parse_args()
    everyone = list(range(args.nodes))
    said: dict[str, object] = {"machine": machine(), "nodes": args.nodes, "repeats": 1}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o700)
        etcd = Etcd(folder)
        cluster = Cluster(
            args.daemon or private_daemon.find_daemon(),
            folder,
            args.nodes,
            etcd=etcd,
            devices=[f"cuda:{node}" for node in everyone],
        )
        try:
            with cluster.client(lease=120) as client:
                said["first run, s"] = until_it_runs(client, everyone)
                cluster.kill(args.nodes - 1)
                said["a node dies: the others run after, s"] = until_it_runs(client, everyone[:-1])
                try:
                    run(client, everyone)
                    raise AssertionError("a run without its device")
                except hostir.Unavailable as failure:
                    said["and what needs it"] = str(failure).partition(" (nodes_by_etcd.py")[0]
                cluster.start(args.nodes - 1)
                said["it is started: all run after, s"] = until_it_runs(client, everyone)
                cluster.kill(0)
                said["the head dies: the others run after, s"] = until_it_runs(client, everyone[1:])
                cluster.start(0)
                said["it is started: all run after (2), s"] = until_it_runs(client, everyone)
        finally:
            cluster.stop()
            etcd.stop()
    text = json.dumps(said, indent=1)
    print(text)
    if args.out:
        pathlib.Path(args.out).write_text(text + "\n")


if __name__ == "__main__":
    main()
