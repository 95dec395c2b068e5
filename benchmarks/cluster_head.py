"""The cost of the head of a cluster, by nodes: processor time until the mesh is there, and of a run that does nothing.

cluster_head.py [--network] [--runs N] [NODES...]: nodes of one CPU device each on this machine, by Unix sockets, or
with --network by TLS between network namespaces (root). They share its cores: only the head's own time says something.
docs/scale.md has what came of it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "tests/cluster"), str(ROOT / "tests/python")]
from cluster import Cluster, certificates, networks  # noqa: E402

BUILD = pathlib.Path(os.environ["HOSTIR_BUILD_DIR"]).resolve()
PROGRAM = """mesh @m = [{ranks}]
fusion @nothing(%x: f32[i0] {{mesh=@m}}) {{
  %y {{mesh=@m}} = neg(%x)
  return %y
}}
"""
# Threads sleep at once, since they share cores; a start of many nodes on few cores takes its time.
SETTINGS = {"busy_wait": "off", "bind_ranks": "off", "threads_per_rank": 1, "setup_timeout_ms": 120_000}


def seconds(pid: int) -> float:
    """Of processor time so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def process(pid: int) -> tuple[int, int, float]:
    """(threads, descriptors, MiB resident)."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    number = {name: int(value) for name, value in re.findall(r"^(Threads|VmRSS):\s+(\d+)", status, re.M)}
    return number["Threads"], len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir())), number["VmRSS"] / 1024


def run(program: pathlib.Path, address: str, runs: int) -> None:
    bench = [BUILD / "hostir", "bench", program, "--random=1", "--size=i0=16", "--address", address]
    subprocess.run([*bench, f"--repeat={runs}"], check=True, capture_output=True, timeout=600)


def measure(nodes: int, runs: int, network: bool) -> str:
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        between = stack.enter_context(networks(nodes)) if network else None
        settings: dict[str, object] = dict(SETTINGS)
        if between is not None:
            hosts = [between.address(node).removeprefix("tcp:").rpartition(":")[0] for node in range(nodes)]
            settings |= certificates(folder / "certs", hosts)
        cluster = Cluster(str(BUILD / "hostird"), folder, nodes, "cpu:1", between, **settings)
        stack.callback(cluster.stop)
        head = cluster.processes[0].pid  # `ip` and `unshare` become what they start.
        ready = seconds(head)
        program = folder / "nothing.hir"
        program.write_text(PROGRAM.format(ranks=", ".join(map(str, range(nodes)))))
        address = f"unix:{folder}/client0"
        run(program, address, 20)  # Compiles.
        before = seconds(head)
        run(program, address, runs)
        each = (seconds(head) - before) / runs
        worker = subprocess.run(
            [BUILD / "hostir", "status", "--json", "--address", address], capture_output=True, text=True, check=True
        )
        pid = int(re.search(r'"pid": ?"?(\d+)', worker.stdout)[1])
        threads, descriptors, resident = process(head)
        return (
            f"{nodes:5d}  {ready:8.2f}  {each * 1e6:8.0f}  {threads:7d}  {descriptors:11d}  {resident:8.1f}"
            f"  {process(pid)[1]:11d}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nodes", nargs="*", type=int, default=[2, 4, 8, 16, 32])
    parser.add_argument("--network", action="store_true", help="TLS between network namespaces")
    parser.add_argument("--runs", type=int, default=1000)
    arguments = parser.parse_args()
    print("nodes  start s  us a run  threads  descriptors  resident  a rank's descriptors")
    for nodes in arguments.nodes:
        print(measure(nodes, arguments.runs, arguments.network), flush=True)


if __name__ == "__main__":
    main()
