"""A client of a cluster, in a process of its own: puts an array over its nodes, gets it, and says how long that took.

transfer_client.py ADDRESS CA CERT KEY [--mib N] [--repeat N] [--way nodes|head]: as JSON, seconds of each.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

import hostir
from hostir import DataType, DeviceMesh, FusionDefinition, nodes


def negated(devices: list[int]) -> FusionDefinition:
    """Each device's rows: a run brings what is still at the head to nodes, and takes no time of its own."""
    mesh = DeviceMesh(devices)
    with FusionDefinition("negated") as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float)
        x.shard(mesh, {0: "mesh_x"})
        y = fd.ops.neg(x)
        y.shard(mesh, {0: "mesh_x"})
        fd.add_output(y)
    return fd


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("files", nargs=3)
    parser.add_argument("--mib", type=float, default=64)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--way", choices=["nodes", "head"], default="nodes")
    args = parser.parse_args()
    # Which way is measured, is no setting.
    nodes.LEAST_BYTES = 0 if args.way == "nodes" else 1 << 62
    hostir.transfer.LEAST_BYTES = nodes.LEAST_BYTES
    ca, cert, key = args.files
    with hostir.connect(args.address, ca=ca, cert=cert, key=key, timeout=30) as client:
        fd = negated(list(range(client.num_devices)))
        values = np.random.default_rng(1).standard_normal((1024, int(args.mib * 256))).astype(np.float32)
        said: dict[str, list[float]] = {"put": [], "run": [], "get": []}
        for _ in range(args.repeat):
            at = [time.perf_counter()]
            array = client.put(values, fd.fusion.inputs()[0])
            at.append(time.perf_counter())
            (y,) = client.run(fd, [array], wait=True)
            at.append(time.perf_counter())
            got = y.numpy()
            at.append(time.perf_counter())
            np.testing.assert_array_equal(got, -values)
            for name, began, ended in zip(said, at[:-1], at[1:], strict=True):
                said[name].append(ended - began)
            client.free(array, y)
        unreached = [why for _, why in client._nodes._closed_to.values()]
    print(json.dumps({**said, "unreached": unreached}))


if __name__ == "__main__":
    main()
