"""Measures, each thing beside a limit of this machine or a peer, in interleaved pairs: median and quartiles of ratios.

./run bench [NAME...] [--pairs N] [--json FILE]

Fails when a measurement fails, or when the upper quartile of its ratios misses a goal.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from kept import kept_pairs, quartiles, write

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("HOSTIR_BUILD_DIR", ROOT / "build" / "release"))
PROGRAMS = BUILD / "benchmarks"


@dataclass
class Measurement:
    """ours and theirs are pairs taken in turn; the ratio is theirs / ours for times: above 1 we are faster."""

    name: str
    unit: str
    ours: list[float]
    theirs: list[float]
    peer: str
    higher_is_better: bool = False

    def __post_init__(self) -> None:
        if not self.ours or len(self.ours) != len(self.theirs):
            raise ValueError(f"{self.name!r}: {len(self.ours)} of ours, {len(self.theirs)} of theirs")

    def ratios(self) -> list[float]:
        pairs = zip(self.ours, self.theirs, strict=True)
        return [a / b if self.higher_is_better else b / a for a, b in pairs]


@dataclass
class NotMeasured:
    """A peer that is not there, and why."""

    name: str
    reason: str


# By the beginning of a measurement's name: the ratio that its upper quartile has to reach.
GOALS = {
    "pointwise chain": 0.85,
    "layer norm": 0.85,
    "rms norm": 0.85,
    "sum of": 0.85,
    "reading: ": 0.95,  # Where reading alone is below .85 of the triad, no sum can have that.
    "add a transpose": 0.6,
    "adaptive layer-norm backward": 0.6,
    "compiling": 1.0,
    "matmul": 0.95,
    "linear": 0.95,
    "all-reduce 64 MiB": 0.9,
    "all-reduce 8 B": 1 / 1.5,
    "put 256 MiB": 0.8,
    "get 256 MiB": 0.8,
    "evaluator": 1.0,
    "cached program found": 1.0,
    "NumPy:": 1.0,
    "JAX:": 1 / 1.1,
    "PyTorch:": 1 / 1.1,
    "torch.compile:": 1 / 1.1,
}
REQUESTS = 200  # Of a sample.
STOLEN_NOTED = 0.02
EMPTY_RUN_ALLOWANCE_US = 60.0  # Beside a bare call.


def goal_of(measurement: Measurement) -> float | None:
    """The ratio that is wanted; None where there is no goal."""
    if measurement.name.startswith("run of an empty program"):
        return statistics.median(them / (them + EMPTY_RUN_ALLOWANCE_US) for them in measurement.theirs)
    return next((goal for start, goal in GOALS.items() if measurement.name.startswith(start)), None)


def misses(measurement: Measurement) -> bool:
    goal = goal_of(measurement)
    return goal is not None and quartiles(measurement.ratios())[2] < goal


Suite = Callable[[int], Iterable[Measurement | NotMeasured]]  # Of a number of pairs.


def kept(measurement: Measurement) -> dict[str, object]:
    """What a file of results has of it."""
    row = kept_pairs(asdict(measurement), ["ours", "theirs"], {"ratio": measurement.ratios()})
    return row | {"goal": goal_of(measurement)}


def run_program(*command: object, env: dict[str, str] | None = None) -> str:
    result = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=600, env={**os.environ, **(env or {})}
    )
    if result.returncode != 0:
        raise RuntimeError(f"{command[0]} failed ({result.returncode}): {result.stderr.strip()[-500:]}")
    return result.stdout


def allreduce(pairs: int) -> list[Measurement]:
    # Both programs bind their ranks alike. mpirun would do so to cores that this process may not have (taskset).
    mpirun = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    out = []
    for ranks in (2, 4):
        for size, label, repeats in ((64 << 20, "64 MiB", 3), (8, "8 B", 200)):
            ours, theirs = [], []
            for _ in range(pairs):
                ours.append(float(run_program(PROGRAMS / "allreduce_ucx", size, repeats, ranks)))
                command = [*mpirun, "-n", ranks, PROGRAMS / "allreduce_mpi", size, repeats]
                theirs.append(float(run_program(*command, env=root)))
            out.append(Measurement(f"all-reduce {label}, {ranks} ranks", "us", ours, theirs, "MPI_Allreduce"))
    return out


def from_json(program: str, *args: object) -> list[Measurement]:
    """A program that prints a JSON list of measurements."""
    return [Measurement(**row) for row in json.loads(run_program(PROGRAMS / program, *args))]


def kernels(pairs: int) -> list[Measurement]:
    return from_json("cpu_kernels", pairs)


def kernels_by_cpu_time(pairs: int) -> list[Measurement]:
    """The same on a busy machine: bytes per second of CPU time, on both sides. As if each thread were alone."""
    return from_json("cpu_kernels", pairs, "", "cpu")


def matmul(pairs: int) -> list[Measurement]:
    return from_json("cpu_matmul", pairs)


def round_trip(pairs: int) -> list[Measurement]:
    import hostir

    with hostir.connect(devices="cpu:4") as client:
        return from_json("round_trip", client.address, pairs)


def requests(pairs: int) -> Iterator[Measurement]:
    """Runs by Python's client that compute next to nothing, in frames beside gRPC."""
    import numpy as np

    import hostir

    def us_of(client: hostir.Client, fd: hostir.FusionDefinition, arrays: list[hostir.Array]) -> float:
        start = time.perf_counter()
        for _ in range(REQUESTS):
            client.run(fd, arrays, wait=True)
        return (time.perf_counter() - start) / REQUESTS * 1e6

    with hostir.connect(devices="cpu:1") as framed, hostir.connect(framed.address) as plain:
        vars(plain._stub).update(vars(plain._stub._stub))  # As gRPC made them.
        for tensors in (1, 32, 512):
            with hostir.FusionDefinition(f"of_{tensors}") as fd:
                for _ in range(tensors):
                    fd.add_output(fd.ops.neg(fd.define_tensor([16], hostir.DataType.Float)))
            arrays = {
                client: [client.put(np.zeros(16, np.float32)) for _ in range(tensors)] for client in (framed, plain)
            }
            samples: dict[hostir.Client, list[float]] = {framed: [], plain: []}
            for client in samples:
                us_of(client, fd, arrays[client])
            for _ in range(pairs):
                for client, of_client in samples.items():
                    of_client.append(us_of(client, fd, arrays[client]))
            name = f"a run of {tensors} tensor{'s' if tensors > 1 else ''}, in Python"
            yield Measurement(name, "us", samples[framed], samples[plain], "the same by gRPC")


def shared_cores(pairs: int) -> Iterator[Measurement]:
    """--busy-wait auto beside on and off: of shared_cores.py."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import shared_cores

    def round_trip(*arguments: object) -> list[float]:
        return from_json("round_trip", *arguments)[1].ours

    for name, unit, samples in shared_cores.measure(pairs, round_trip):
        for peer in ("on", "off"):
            higher = unit == "cores"
            yield Measurement(name, unit, samples["auto"], samples[peer], f"--busy-wait {peer}", higher)


def transfers(pairs: int) -> Iterator[Measurement]:
    """256 MiB in and out, beside a copy into fresh memory."""
    import numpy as np

    import hostir

    def seconds(work: Callable[[], object]) -> float:
        start = time.perf_counter()
        result = work()
        took = time.perf_counter() - start
        del result
        return took

    values = np.random.default_rng(0).integers(0, 255, 256 << 20, dtype=np.uint8).view(np.float32).reshape(8192, -1)
    layouts = {
        "one rank": None,
        "rows on 4 ranks": hostir.Sharding([0, 1, 2, 3], {0: "mesh_x"}),
        "columns on 4 ranks": hostir.Sharding([0, 1, 2, 3], {1: "mesh_x"}),
    }
    with hostir.connect(devices="cpu:4") as client:
        for name, sharding in layouts.items():
            array = client.put(values, sharding=sharding)
            assert np.array_equal(array.numpy(), values)
            ways = {
                "copy": values.copy,
                "put": lambda sharding=sharding: client.put(values, sharding=sharding),
                "get": array.numpy,
            }
            rates: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(pairs):
                for way, work in ways.items():
                    rates[way].append(values.nbytes / 1e9 / seconds(work))
                    client.status()  # Frees what was put.
            for way in ("put", "get"):
                yield Measurement(f"{way} 256 MiB, {name}", "GB/s", rates[way], rates["copy"], "copy into fresh memory")


def evaluator(pairs: int) -> list[Measurement]:
    return from_json("evaluator_overhead", pairs)


def program_cache(pairs: int) -> list[Measurement]:
    return from_json("program_cache", BUILD / "hostir-worker", pairs)


def beside_frameworks(suite: str) -> Suite:
    """Of frameworks.py: rows come as its workloads are done."""

    def measure(pairs: int) -> Iterator[Measurement | NotMeasured]:
        sys.path.insert(0, str(Path(__file__).resolve().parent))
        import frameworks

        for workload in getattr(frameworks, suite):
            for row in frameworks.measure(workload, pairs):
                yield NotMeasured(**row) if "reason" in row else Measurement(**row)

    return measure


def drawn(pairs: int) -> Iterator[Measurement | NotMeasured]:
    """The first workloads of drawn.py, each beside the better peer."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from drawn import measurements

    for row in measurements(pairs):
        yield NotMeasured(**row) if "reason" in row else Measurement(**row)


# Not among what runs by default.
ON_REQUEST = {"kernels_by_cpu_time", "drawn"}
SUITES: dict[str, Suite] = {
    "kernels": kernels,
    "matmul": matmul,
    "allreduce": allreduce,
    "round_trip": round_trip,
    "requests": requests,
    "shared_cores": shared_cores,
    "transfers": transfers,
    "evaluator": evaluator,
    "program_cache": program_cache,
    "examples": beside_frameworks("EXAMPLES"),
    "norms": beside_frameworks("NORMS"),
    "kernels_by_cpu_time": kernels_by_cpu_time,
    "drawn": drawn,
}


def show(measurement: Measurement) -> str:
    low, middle, high = quartiles(measurement.ratios())
    ours, theirs = statistics.median(measurement.ours), statistics.median(measurement.theirs)
    goal = goal_of(measurement)
    wanted = "" if goal is None else f"  goal {goal:.2f} {'MISSED' if misses(measurement) else 'met'}"
    return (
        f"{measurement.name:<46} {ours:>12.2f} {measurement.unit:<8} {theirs:>12.2f} {measurement.unit:<8} "
        f"{middle:>6.2f}  [{low:.2f}, {high:.2f}]  {measurement.peer}{wanted}"
    )


def cpu_ticks() -> list[int]:
    """Of all CPUs since the machine started: user, nice, system, idle, iowait, irq, softirq, steal."""
    return [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]


def stolen_share(before: list[int], after: list[int]) -> float:
    """Of the CPU time between two of cpu_ticks that this machine wanted, what its host gave to others."""
    spent = [b - a for a, b in zip(before, after, strict=True)]
    wanted = sum(spent) - spent[3] - spent[4]
    return spent[7] / wanted if wanted > 0 else 0.0


def build_type() -> str:
    """The build's, as CMake has it: Release for what `./run bench` builds."""
    try:
        lines = (BUILD / "CMakeCache.txt").read_text().splitlines()
    except OSError:
        return "unknown"
    return next((line.split("=", 1)[1] for line in lines if line.startswith("CMAKE_BUILD_TYPE:")), "unknown")


def machine() -> dict[str, object]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),  # Under taskset fewer than there are.
        "cores_of_machine": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", help=f"what to measure, of: {', '.join(SUITES)} (default: all but the last two)"
    )
    parser.add_argument("--pairs", type=int, default=15, help="interleaved pairs (default 15)")
    parser.add_argument("--json", type=Path, help="also write the figures, the machine and the command there")
    args = parser.parse_args()
    for name in args.names:
        if name not in SUITES:
            parser.error(f"no measurement {name!r}; there are {', '.join(SUITES)}")
    print(f"{'measurement':<46} {'ours':>21} {'limit or peer':>21} {'ratio':>6}  [quartiles]  beside", flush=True)
    load_before, ticks_before = os.getloadavg(), cpu_ticks()
    measurements: list[Measurement] = []
    not_measured: list[NotMeasured] = []
    failures: list[str] = []
    for name in args.names or [name for name in SUITES if name not in ON_REQUEST]:
        try:
            for row in SUITES[name](args.pairs):
                if isinstance(row, NotMeasured):
                    not_measured.append(row)
                    print(f"{row.name:<46} {row.reason}", flush=True)
                else:
                    measurements.append(row)
                    print(show(row), flush=True)
        except Exception as error:  # Whatever it is, the other suites are worth having.
            failures.append(f"{name}: {error}")
            print(f"{name}: FAILED: {error}", flush=True)
    stolen = stolen_share(ticks_before, cpu_ticks())
    print("ratio: peer time over ours, or ours as a share of the limit; above 1 we are ahead")
    if stolen > STOLEN_NOTED:
        print(f"the host kept {stolen:.0%} of the CPU time that this machine wanted: it was not quiet")
    missed = [m.name for m in measurements if misses(m)]
    if missed:
        print(f"goals missed: {', '.join(missed)}")
    if args.json:
        record = {
            "command": " ".join(["./run bench", *sys.argv[1:]]),
            "build": build_type(),
            "machine": machine() | {"load_before": load_before, "load_after": os.getloadavg(), "stolen": stolen},
            "measurements": [kept(m) for m in measurements],
            "not_measured": [asdict(row) for row in not_measured],
            "missed": missed,
            "failures": failures,
        }
        write(args.json, record)
    return 1 if failures or missed else 0


if __name__ == "__main__":
    sys.exit(main())
