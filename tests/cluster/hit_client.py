"""The client that a fault of the matrix concerns, a process of its own: makes one request, and says how it ended.

On stdin the name of a request, a line, once it said that it is ready. On stdout a line of JSON for each. The clock is
the machine's, so that others can say how long after a fault it was.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
import hostir
from fault_table import outcome_of
from hostir import DataType, DeviceMesh, FusionDefinition, Sharding

DEVICES = [0, 1, 2]
SMALL = np.arange(96, dtype=np.float32).reshape(12, 8)
BIG = np.tile(np.arange(1 << 13, dtype=np.float32), (3 << 10, 1))  # 96 MiB, a third for each node.
SPLIT = Sharding(DEVICES, {0: "mesh_x"})
STAGES, CHAIN, COLUMNS = 24, 40, 1 << 14
LONG = np.tile(np.linspace(0, 3, COLUMNS, dtype=np.float32), (192, 1))


def total() -> FusionDefinition:
    """The sum over the rows of a tensor, which are split over all nodes."""
    with FusionDefinition("total") as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float)
        x.shard(DeviceMesh(DEVICES), {0: "mesh_x"})
        y = fd.ops.sum(x, dims=[0])
        y.shard(DeviceMesh(DEVICES), {})
        fd.add_output(y)
    return fd


def copy(devices: list[int]) -> FusionDefinition:
    """Makes these hold what is put: the head alone has it before."""
    with FusionDefinition("copy") as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float)
        x.shard(DeviceMesh(devices), {0: "mesh_x"})
        y = fd.ops.add(x, 0.0)
        y.shard(DeviceMesh(devices), {0: "mesh_x"})
        fd.add_output(y)
    return fd


def stages() -> FusionDefinition:
    """Some seconds of work: kernels, and an all-reduce behind each."""
    with FusionDefinition("stages") as fd:
        x = fd.define_tensor(shape=[-1, COLUMNS], contiguity=[True, True], dtype=DataType.Float)
        x.shard(DeviceMesh(DEVICES), {0: "mesh_x"})
        y = x
        for _ in range(STAGES):
            for _ in range(CHAIN):
                y = fd.ops.cos(y)
            y = fd.ops.add(y, fd.ops.mean(y, dims=[0]))
        z = fd.ops.mean(fd.ops.add(x, y), dims=[0])
        z.shard(DeviceMesh(DEVICES), {})
        fd.add_output(z)
    return fd


def after_stages() -> np.ndarray[Any, Any]:
    y = LONG[0].astype(np.float64)
    for _ in range(STAGES):
        for _ in range(CHAIN):
            y = np.cos(y)
        y = y + y
    return LONG[0] + y


def runs(client: hostir.Client) -> None:
    """Raises AssertionError where the values are wrong."""
    (y,) = client.run(total(), [SMALL], wait=True)
    np.testing.assert_allclose(y.numpy(), SMALL.sum(axis=0), rtol=1e-5)


class Requests:
    """What is there before the request is made in ``__init__``."""

    def __init__(self, client: hostir.Client, name: str) -> None:
        self.client = client
        runs(client)
        if name == "run":
            self.program = stages()
            self.long = client.put(LONG, self.program.fusion.inputs()[0])
            self.check_stages(client.run(self.program, [self.long], wait=True))
        if name == "get":
            self.big = client.put(BIG, sharding=SPLIT)
            client.run(copy(DEVICES), [self.big], wait=True)
        if name == "put":
            client.run(copy(DEVICES), [np.zeros((3, 1), np.float32)], wait=True)

    def check_stages(self, outputs: Any) -> None:
        np.testing.assert_allclose(outputs[0].numpy(), after_stages(), rtol=1e-3)

    def make(self, name: str) -> None:
        if name == "run":
            self.check_stages(self.client.run(self.program, [self.long], wait=True))
        elif name == "put":  # To the head; the run sends it to the nodes.
            (y,) = self.client.run(copy(DEVICES), [self.client.put(BIG, sharding=SPLIT)], wait=True)
            assert y.shape == BIG.shape
        elif name == "get":
            np.testing.assert_array_equal(self.big.numpy(), BIG)
        else:
            runs(self.client)


def main() -> None:
    options = json.loads(sys.argv[1])
    client = hostir.connect(options.pop("address"), progress=False, **options["connect"])
    requests = Requests(client, options["name"])
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        name = line.strip()
        try:
            outcome = outcome_of(lambda name=name: requests.make(name))  # type: ignore[misc]
            code, message = outcome.code, outcome.message
        except AssertionError as error:
            code, message = "WRONG", str(error)[:300]
        print(json.dumps({"code": code, "message": message, "ended": time.monotonic()}), flush=True)
    client.close()


if __name__ == "__main__":
    main()
