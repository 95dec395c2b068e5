"""An all-reduce of two daemons on this machine with a GPU each, as the nodes of a cluster: NCCL by sockets, as between
machines, and by what it finds. A rank is killed, and the next run must be right. Beside it, where PyTorch is there,
NCCL's own all-reduce of two processes in the same environment.

  bin/hostir-python benchmarks/gpu/two_nodes.py [--mib 64] [--rounds 10] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
from machine import machine

import hostir
from hostir import DataType, DeviceMesh, FusionDefinition, private_daemon

SOCKETS = {
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_IB_DISABLE": "1",
    "NCCL_SOCKET_IFNAME": "lo",
}
PEER = """
import sys, time, torch, torch.distributed as dist, torch.multiprocessing as mp
def body(rank, mib, rounds):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29517", rank=rank, world_size=2)
    x, times = torch.ones(mib << 18, device="cuda"), []
    for _ in range(rounds + 3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        dist.all_reduce(x)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    if rank == 0:
        print(sorted(times[3:])[rounds // 2] * 1e3, flush=True)
    dist.destroy_process_group()
if __name__ == "__main__":
    mp.spawn(body, args=(int(sys.argv[1]), int(sys.argv[2])), nprocs=2)
"""


class Nodes:
    """Two daemons, and a client of the head."""

    def __init__(self, folder: pathlib.Path, environment: dict[str, str]) -> None:
        folder.chmod(0o700)
        nodes = f"--nodes=unix:{folder}/node0,unix:{folder}/node1"
        self.processes = []
        for node in (1, 0):
            flags = [nodes, f"--node={node}", f"--devices=cuda:{node}", f"--listen=unix:{folder}/client{node}"]
            with (folder / f"log{node}").open("wb") as log:
                command = [private_daemon.find_daemon(), *flags]
                self.processes.append(
                    subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment})
                )
        until = time.monotonic() + 120
        while True:
            try:
                self.client = hostir.connect(f"unix:{folder}/client0", timeout=5)
                return
            except hostir.HostirError:
                if time.monotonic() > until or any(process.poll() is not None for process in self.processes):
                    self.stop()
                    raise
                time.sleep(0.1)

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(timeout=60)


def total(mesh: DeviceMesh) -> FusionDefinition:
    with FusionDefinition("total") as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.Float)
        x.shard(mesh, {0: "mesh_x"})
        y = fd.ops.sum(x, dims=[0])
        y.shard(mesh, {})
        fd.add_output(y)
    return fd


def measure(name: str, environment: dict[str, str], mib: int, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        nodes = Nodes(pathlib.Path(folder), environment)
        try:
            client, fd = nodes.client, total(DeviceMesh([0, 1]))
            x = client.put(np.ones((2, mib << 18), np.float32), fd.fusion.inputs()[0])
            times = []
            for _ in range(rounds + 3):
                begin = time.perf_counter()
                (y,) = client.run(fd, [x], wait=True)
                times.append(time.perf_counter() - begin)
            assert (y.numpy() == 2).all()
            link = client.status()["nodes"][0]
            began = time.perf_counter()
            os.kill(client.status()["devices"][1]["pid"], signal.SIGKILL)
            try:
                client.run(fd, [x], wait=True)
                raise SystemExit("a run without a rank went well")
            except hostir.Unavailable as error:
                print(f"{name}: {str(error).split(' (')[0]} after {time.perf_counter() - began:.2f} s")
            while not client.status()["serving"]:
                time.sleep(0.01)
            healed = time.perf_counter() - began
            small = np.random.default_rng(0).standard_normal((2, 99)).astype(np.float32)
            (y,) = client.run(fd, [client.put(small, fd.fusion.inputs()[0])], wait=True)
            np.testing.assert_allclose(y.numpy(), small.sum(0), rtol=1e-5)
            client.close()
        finally:
            nodes.stop()
    row: dict[str, Any] = {
        "links": name,
        "repeats": rounds,
        "link_us": link["message_us"],
        "link_bytes_per_us": link["bytes_per_us"],
        "run_ms": 1e3 * statistics.median(times[3:]),
        "healed_s": healed,
    }
    python = os.environ.get("PEER_PYTHON", "python3")  # One with PyTorch: a bundle's has none.
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(PEER)
        script.flush()
        command = [python, script.name, str(mib), str(rounds)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **environment})
    if done.returncode == 0:
        row["nccl_all_reduce_ms"] = float(done.stdout)
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=64, help="of each rank's tensor (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=10, help="of which the median is shown (default: %(default)s)")
    parser.add_argument("--out", help="a file for the rows, as JSON")
    options = parser.parse_args()
    ways = [("sockets", SOCKETS), ("what NCCL finds", {})]
    rows = [measure(name, environment, options.mib, options.rounds) for name, environment in ways]
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump({"machine": machine(), "mib": options.mib, "rows": rows}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    sys.exit(main())
