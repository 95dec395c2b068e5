"""A training step of a transformer block on four CPU ranks, by hostir.jax and by JAX on as many devices of the host.

jax_step.py [--rounds N] [--turns N] [--json FILE]: for each size and layout, rounds in which both sides make steps in
turn. A row: medians and quartiles of both, the ratio (above 1: hostir is faster), and where hostir's time goes: the
call, the Python in it, tracing, planning, and from a profile of one run products, kernels and communications of the
slowest rank. Losses and parameters are compared after the first round.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import time
from multiprocessing.connection import Client as Connection
from multiprocessing.connection import Listener
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests/frontends/jax"), str(ROOT / "benchmarks"), str(ROOT / "python")]
DEVICES = 4
IS_PEER = len(sys.argv) > 1 and sys.argv[1] == "--peer"
os.environ["JAX_PLATFORMS"] = "cpu"
if IS_PEER:  # Before JAX is imported.
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402
from kept import kept_pairs, quartiles, text  # noqa: E402

from models import Sizes, batch, loss, parameters, sgd  # noqa: E402

SIZES = {
    "small": Sizes(batch=8, tokens=32, model=64, heads=8, groups=4, hidden=256, words=256),
    "medium": Sizes(batch=16, tokens=64, model=128, heads=8, groups=4, hidden=512, words=512),
    "large": Sizes(batch=16, tokens=128, model=256, heads=8, groups=4, hidden=1024, words=1024),
}
LAYOUTS = ("data", "tensor", "one rank")


def layouts(kind: str) -> tuple[Any, Any]:
    """How parameters and batches lie over the dimension "x"."""
    if kind != "tensor":
        return P(), P("x")
    split = {
        "embedding": P(),
        "attention": {"norm": P(), "q": P(None, "x"), "k": P(None, "x"), "v": P(None, "x"), "o": P("x")},
        "mlp": {"norm": P(), "gate": P(None, "x"), "up": P(None, "x"), "down": P("x")},
        "norm": P(),
        "head": P(None, "x"),
    }
    return split, P()


class Steps:
    """One side: its parameters on the devices, and its step."""

    def __init__(self, step: Any, p: Any, data: Any, wait: Any) -> None:
        self.step, self.p, self.data, self.wait = step, p, data, wait

    def turn(self, count: int) -> list[tuple[float, float]]:
        """Seconds until each call returned, and until its results were there."""
        times = []
        for _ in range(count):
            began = time.perf_counter()
            self.p, value = self.step(self.p, *self.data)
            returned = time.perf_counter()
            self.wait(value)
            times.append((returned - began, time.perf_counter() - began))
        self.loss = float(np.asarray(value))
        return times


def of_jax(size: Sizes, kind: str) -> Steps:
    of_parameters, of_batch = layouts(kind)
    p, data = parameters(size, 0), batch(size, 0)
    count = 1 if kind == "one rank" else DEVICES
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:count]), ("x",))

    def named(spec: Any) -> Any:
        return jax.tree.map(lambda s: jax.sharding.NamedSharding(mesh, s), spec, is_leaf=lambda s: isinstance(s, P))

    places = (named(of_parameters), named(of_batch), named(of_batch))
    step = jax.jit(sgd(loss), in_shardings=places, out_shardings=(places[0], named(P())), donate_argnums=0)
    put = [jax.device_put(array, place) for array, place in zip((p, *data), places, strict=True)]
    return Steps(step, put[0], tuple(put[1:]), jax.block_until_ready)


def serve(address: str) -> None:
    """The other process: makes what it is asked for."""
    with Connection(address) as asked:
        steps: Any = None
        while (order := asked.recv()) is not None:
            if order[0] == "begin":
                steps = of_jax(SIZES[order[1]], order[2])
                began = time.perf_counter()
                steps.turn(1)
                asked.send(time.perf_counter() - began)
            elif order[0] == "turn":
                asked.send(steps.turn(order[1]))
            else:
                asked.send((steps.loss, [np.asarray(leaf) for leaf in jax.tree.leaves(steps.p)]))


def measure(client: Any, peer: Any, name: str, kind: str, rounds: int, turns: int) -> dict[str, Any]:
    import hostir
    import hostir.jax

    size, (of_parameters, of_batch) = SIZES[name], layouts(kind)
    mesh = hostir.DeviceMesh(range(1 if kind == "one rank" else DEVICES), names=("x",))
    places = (of_parameters, of_batch, of_batch)
    step = hostir.jax.jit(sgd(loss), client=client, mesh=mesh, in_shardings=places, donate_argnums=0)
    p, data = parameters(size, 0), batch(size, 0)
    began = time.perf_counter()
    definition = step.definition(p, *data)
    row: dict[str, Any] = {"size": name, "layout": kind, "trace_s": time.perf_counter() - began}
    began = time.perf_counter()
    client.explain(definition)
    row["plan_s"] = time.perf_counter() - began
    of_data = hostir.Sharding(mesh, {} if kind == "tensor" else {0: "x"})
    ours = Steps(step, p, tuple(client.put(array, sharding=of_data) for array in data), lambda value: value.wait())
    began = time.perf_counter()
    ours.turn(1)
    row["first_s"] = time.perf_counter() - began
    peer.send(("begin", name, kind))
    row["jax_first_s"] = peer.recv()
    times: dict[str, list[tuple[float, float]]] = {"hostir": [], "jax": []}
    for turn in range(rounds):
        for side in ("hostir", "jax") if turn % 2 else ("jax", "hostir"):
            if side == "hostir":
                times[side] += ours.turn(turns)
            else:
                peer.send(("turn", turns))
                times[side] += peer.recv()
        if turn == 0:
            check(ours, peer)
    row["python_us"] = python_microseconds(client, ours)
    row |= shares(client, definition, ours)
    steps = {f"{side}_ms": [1e3 * whole for _, whole in each] for side, each in times.items()}
    calls = {f"{side}_call_ms": [1e3 * call for call, _ in each] for side, each in times.items()}
    ratios = [b / a for a, b in zip(steps["hostir_ms"], steps["jax_ms"], strict=True)]
    row["ratio_of_medians"] = quartiles(steps["jax_ms"])[1] / quartiles(steps["hostir_ms"])[1]
    return kept_pairs({**row, **steps, **calls}, [*steps, *calls], {"ratio": ratios})


def check(ours: Steps, peer: Any) -> None:
    peer.send(("state",))
    value, leaves = peer.recv()
    assert abs(ours.loss - value) <= 1e-4 * abs(value), f"losses {ours.loss} and {value}"
    for mine, theirs in zip(jax.tree.leaves(ours.p), leaves, strict=True):
        off = float(np.max(np.abs(np.asarray(mine) - theirs)))
        assert off <= 1e-3 * float(np.max(np.abs(theirs))), f"parameters differ by {off}"


def python_microseconds(client: Any, ours: Steps, count: int = 50) -> float:
    """The median of a call without its request."""
    stub, took = client._stub, []

    class Timed:
        def __getattr__(self, name: str) -> Any:
            method = getattr(stub, name)
            if name != "Run":
                return method

            def timed(*args: Any, **kwargs: Any) -> Any:
                began = time.perf_counter()
                try:
                    return method(*args, **kwargs)
                finally:
                    took.append(time.perf_counter() - began)

            return timed

    client._stub = Timed()
    try:
        calls = [1e6 * (ours.turn(1)[0][0] - took.pop()) for _ in range(count)]
    finally:
        client._stub = stub
    return quartiles(calls)[1]


def shares(client: Any, definition: Any, ours: Steps) -> dict[str, float]:
    """Milliseconds of the slowest rank by kind of work; each waits for the one before it."""
    (traced,) = ours.step._traced.values()
    given = [*jax.tree.leaves(ours.p), *ours.data, *traced._brought_arrays(client)]
    profile = client.profile(definition, given)
    ours.p, _ = jax.tree_util.tree_unflatten(traced._out_tree, profile.outputs)
    found: dict[str, float] = {}
    for segment in profile.segments:
        found[f"{segment.kind}_ms"] = found.get(f"{segment.kind}_ms", 0.0) + 1e-3 * segment.max_us
    return found


def line_of(row: dict[str, Any]) -> str:
    low, middle, high = row["ratio_quartiles"]
    ours, theirs = row["hostir_ms_quartiles"][1], row["jax_ms_quartiles"][1]
    times = f"hostir {ours:8.2f} ms, JAX {theirs:8.2f} ms: {row['ratio_of_medians']:.2f}"
    call = f"call {row['hostir_call_ms_quartiles'][1]:.2f} ms, Python {row['python_us']:.0f} us"
    return f"{row['size']:7} {row['layout']:9} {times} ({low:.2f}, {middle:.2f}, {high:.2f}); {call}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--turns", type=int, default=5, help="steps of a side in a round")
    parser.add_argument("--sizes", nargs="*", choices=SIZES, default=list(SIZES))
    parser.add_argument("--layouts", nargs="*", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--json", type=pathlib.Path, help="a file for the rows")
    args = parser.parse_args()
    import hostir

    rows = []
    with Listener(family="AF_UNIX") as listener:
        child = subprocess.Popen([sys.executable, "-B", __file__, "--peer", str(listener.address)])
        with listener.accept() as peer, hostir.connect(devices=f"cpu:{DEVICES}") as client:
            for name in args.sizes:
                for kind in args.layouts:
                    row = measure(client, peer, name, kind, args.rounds, args.turns)
                    rows.append(row)
                    print(line_of(row), flush=True)
            peer.send(None)
        child.wait(60)
    if args.json:
        command = f"benchmarks/frontends/jax_step.py --rounds {args.rounds} --turns {args.turns}"
        machine = {"cores": os.cpu_count(), "load": os.getloadavg(), "jax": jax.__version__}
        args.json.write_text(text({"command": command, **machine, "rows": rows}))
    return 0


if __name__ == "__main__":
    if IS_PEER:
        serve(sys.argv[2])
    else:
        sys.exit(main())
