"""Times arrays of PyTorch on a GPU to a daemon on GPUs of the same machine and back, past the host, beside a copy into
fresh memory on one GPU, and beside the way by the host.

  python3 benchmarks/gpu/arrays.py [--mib 256] [--rounds 9] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from machine import machine

import hostir
from hostir import DataType, FusionDefinition, Sharding


def median(call: Callable[[], Any], rounds: int) -> float:
    seconds = []
    for _ in range(rounds + 1):  # The first one warms up.
        torch.cuda.synchronize()
        begin = time.perf_counter()
        kept = call()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
        del kept
    return statistics.median(seconds[1:])


def plus_one(mesh: list[int], axes: dict[int, str]) -> FusionDefinition:
    with FusionDefinition("plus_one") as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.Float)
        fd.add_output(fd.ops.add(x, 1.0))
        x.shard(mesh, axes)
    return fd


def times(
    client: hostir.Client, source: torch.Tensor, mesh: list[int], axes: dict[int, str], rounds: int
) -> dict[str, float]:
    """Milliseconds of each way, in the layout ``axes`` of ``mesh``."""
    sharding = Sharding(mesh, axes)
    (result,) = client.run(plus_one(mesh, axes), [client.put(source, sharding=sharding)], wait=True)

    def clone() -> Any:
        torch.cuda.empty_cache()  # Fresh memory, as an array gets.
        return source.clone()

    ways: dict[str, Callable[[], Any]] = {
        "clone": clone,
        "put": lambda: client.put(source, sharding=sharding),
        "get": lambda: torch.from_dlpack(result),
        "put by the host": lambda: client.put(source.cpu(), sharding=sharding),
        "get by the host": lambda: torch.from_numpy(result.numpy()).cuda(),
    }
    found = {what: 1e3 * median(call, 3 if "host" in what else rounds) for what, call in ways.items()}
    assert torch.equal(torch.from_dlpack(result), source + 1)
    print(f"  {sharding}: " + ", ".join(f"{what} {ms:.2f} ms" for what, ms in found.items()), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256, help="of the array (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="of each, of which the median is shown (default: 9)")
    parser.add_argument("--out", help="a file for the rows, as JSON")
    options = parser.parse_args()
    source = torch.randn(8192, options.mib * (1 << 20) // 4 // 8192, device="cuda")
    with hostir.connect(devices="cuda:all", timeout=120) as client:
        print(f"{options.mib} MiB, {client.num_devices} x {torch.cuda.get_device_name()}, medians of {options.rounds}")
        every = list(range(client.num_devices))
        layouts: list[tuple[str, list[int], dict[int, str]]] = [("one GPU", [0], {})]
        if len(every) > 1:
            layouts += [("rows", every, {0: "mesh_x"}), ("columns", every, {1: "mesh_x"}), ("replicated", every, {})]
        rows = [
            {"layout": name, "repeats": options.rounds, "ms": times(client, source, *layout, options.rounds)}
            for name, *layout in layouts
        ]
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            record = {"machine": machine(torch=torch.__version__), "mib": options.mib, "rows": rows}
            json.dump(record, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
