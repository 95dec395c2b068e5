"""Draws benchmarks/results as the charts of docs/performance.md: a dot a median, a bar from quartile to quartile.

./run bench --charts

Files of equal figures are equal: no dates, fixed salts. Each holds a digest of its figures, by which a test sees one
that is older than the results. Only drawing needs matplotlib.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
FOLDER = ROOT / "docs" / "performance"

Quartiles = tuple[float, float, float]
Series = dict[str, dict[str, Quartiles]]  # By the name in the legend, by row.

# The files of each machine. A measurement is taken from the first one that has it.
XEON = "Xeon, 2 of 16 cores"
CPUS = {
    XEON: [
        "cpu-2-of-16-cores_kernels",
        "cpu-2-of-16-cores_examples",
        "cpu-2-of-16-cores_allreduce",
        "cpu-2-of-16-cores_requests",
        "cpu-2-of-16-cores",
    ],
    "EPYC Zen 4, 2 cores": ["cpu-2-cores_epyc"],
    "EPYC Zen 5, 2 cores": ["cpu-2-cores_epyc-zen5_fast-memory"],
}
FRAMEWORKS = ["NumPy", "JAX", "PyTorch", "torch.compile"]
COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9"]  # Told apart by the colour-blind, too.


@dataclass
class Chart:
    """Panels side by side over the same rows. `reference`: where a line is drawn."""

    name: str
    title: str
    axis: str
    panels: dict[str, Series] = field(default_factory=dict)
    reference: float | None = None
    logarithmic: bool = False


def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def of_machine(machine: str) -> dict[str, dict[str, Any]]:
    """The measurements of a machine, by name."""
    found: dict[str, dict[str, Any]] = {}
    for name in CPUS[machine]:
        for row in read(name)["measurements"]:
            found.setdefault(row["name"], row)
    return found


def by_machine(key: str, row_name: Callable[[str], str | None]) -> Series:
    """`key` of the measurements that `row_name` gives a row."""
    series: Series = {}
    for machine in CPUS:
        rows = {row_name(name): tuple(row[key]) for name, row in of_machine(machine).items()}
        series[machine] = {row: values for row, values in rows.items() if row is not None}
    return series


def beginning(*starts: str, cut: int = 0) -> Callable[[str], str | None]:
    return lambda name: name[cut:] if name.startswith(starts) else None


def bandwidth_row(name: str) -> str | None:
    row = of_machine(XEON).get(name, {})
    return name.removesuffix(", 2 kernels") if row.get("peer") == "streaming triad" else None


def cpu_charts() -> list[Chart]:
    bookkeeping = beginning("evaluator", "cached program")
    charts = [
        Chart("cpu_kernels", "CPU kernels: bandwidth", "share of a streaming triad's bandwidth", reference=1.0),
        Chart("cpu_compile", "CPU kernels: compiling one", "ms (the goal is 15)", reference=15.0),
        Chart("cpu_matmul", "CPU matrix products", "share of oneDNN called directly", reference=1.0),
        Chart("cpu_allreduce", "All-reduce between CPU ranks", "times as fast as MPI_Allreduce", reference=1.0),
        Chart("cpu_bookkeeping", "The service's own work", "us", logarithmic=True),
    ]
    series = [
        by_machine("ratio_quartiles", bandwidth_row),
        by_machine("ours_quartiles", beginning("compiling ", cut=len("compiling "))),
        by_machine("ratio_quartiles", beginning("matmul", "linear")),
        by_machine("ratio_quartiles", beginning("all-reduce ", cut=len("all-reduce "))),
        by_machine("ours_quartiles", bookkeeping),
    ]
    for chart, of_chart in zip(charts, series, strict=True):
        chart.panels[""] = of_chart
    empty = {machine: of_machine(machine)["run of an empty program, 4 ranks"] for machine in CPUS}
    round_trip: Series = {
        label: {machine: tuple(row[key]) for machine, row in empty.items()}
        for label, key in (("a bare gRPC call", "theirs_quartiles"), ("a run", "ours_quartiles"))
    }
    charts.append(Chart("cpu_round_trip", "An empty program on four ranks", "us", {"": round_trip}))
    frameworks = Chart(
        "cpu_frameworks", "Programs beside frameworks, CPU", "times as fast as", reference=1.0, logarithmic=True
    )
    for machine in CPUS:
        names = {name: tuple(row["ratio_quartiles"]) for name, row in of_machine(machine).items()}
        frameworks.panels[machine] = {
            peer: {name.split(": ")[1]: names[name] for name in names if name.startswith(f"{peer}: ")}
            for peer in FRAMEWORKS
        }
    return [*charts, frameworks]


def one(value: float) -> Quartiles:
    """A figure without quartiles."""
    return value, value, value


def gpu_charts() -> list[Chart]:
    kernels: Series = {"torch.compile": {}, "JAX": {}, "the best by hand": {}}
    for row in read("h200_kernels")["rows"]:
        low, high = row["quartiles_ms"]
        peers = (row["torch_compile"]["ms"], row["jax"]["ms"], row["hand_written_ms"])
        for label, ms in zip(kernels, peers, strict=True):
            if ms:
                kernels[label][row["name"]] = (ms / high, ms / row["ms"], ms / low)
    copy: Series = {"hostir": {row["name"]: one(row["copy_share"]) for row in read("h200_kernels")["rows"]}}
    host: Series = {"compiled": {}, "from disk": {}}
    for row in read("h200_host")["programs"]:
        host["compiled"][row["name"]] = one(row["cold_ms"][0])
        host["from disk"][row["name"]] = one(row["warm_ms"][0])
    service: Series = {"the devices alone": {}, "through the daemon": {}}
    for row in read("h200x2_service")["examples"]:
        service["the devices alone"][row["name"]] = one(row["device_ms"])
        service["through the daemon"][row["name"]] = one(row["run_ms"])
    collectives = Chart("gpu_collectives", "Communications of GPUs", "share of the speed of NCCL called directly")
    collectives.reference = 1.0
    for title, name in (("2 H200", "h200x2_collectives"), ("4 H200", "h200x4_collectives")):
        panel: Series = {}
        for row in read(name)["rows"]:
            size = f"{row['bytes'] >> 10} KiB" if row["bytes"] < 1 << 20 else f"{row['bytes'] >> 20} MiB"
            if row["way"] == "run" and row["bytes"] != 256 << 20:  # As those of 64 MiB and 1 GiB.
                panel.setdefault(size, {})[row["type"]] = tuple(row["share_quartiles"])
        collectives.panels[title] = panel
    overlap = Chart("gpu_overlap", "Products in parts, two H100", "time in parts of the time one behind the other")
    overlap.reference = 1.0
    for row in read("h100x2_overlap_grid")["rows"]:
        if row["variant"] == "parts":
            rows, terms, columns = row["size"]
            panel = overlap.panels.setdefault(row["form"], {})
            panel.setdefault(f"{terms} x {columns}", {})[f"{rows} rows"] = one(row["of_whole"])
    return [
        Chart("gpu_kernels", "Kernels on one H200", "times as fast as", {"": kernels}, 1.0),
        Chart("gpu_bandwidth", "Kernels on one H200: bandwidth", "share of a large copy's bandwidth", {"": copy}, 1.0),
        Chart("gpu_host", "Compiling a program's kernels, H200", "ms", {"": host}, logarithmic=True),
        Chart("gpu_service", "A run on two H200", "ms", {"": service}, logarithmic=True),
        collectives,
        overlap,
    ]


def charts() -> list[Chart]:
    return cpu_charts() + gpu_charts()


def digest(chart: Chart) -> str:
    """What a chart's file names its figures by."""
    return hashlib.sha256(json.dumps(asdict(chart), sort_keys=True).encode()).hexdigest()[:16]


def draw(chart: Chart, path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": chart.name, "svg.fonttype": "none", "font.size": 8})
    from matplotlib import pyplot

    rows = list(dict.fromkeys(row for panel in chart.panels.values() for of_rows in panel.values() for row in of_rows))
    labels = list(
        dict.fromkeys(label for panel in chart.panels.values() for label, of_rows in panel.items() if of_rows)
    )
    size = (8.5, 1.3 + 0.24 * len(rows))
    figure, axes = pyplot.subplots(1, len(chart.panels), figsize=size, sharey=True, squeeze=False, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.15)  # A reader's font may be wider than the one measured here.
    drawn = {}
    for ax, (title, series) in zip(axes[0], chart.panels.items(), strict=True):
        for label, of_rows in series.items():
            k = labels.index(label) if label in labels else 0
            at = [rows.index(row) + 0.16 * (k - (len(labels) - 1) / 2) for row in of_rows]
            middle = [values[1] for values in of_rows.values()]
            bars = [[v[1] - v[0] for v in of_rows.values()], [v[2] - v[1] for v in of_rows.values()]]
            wide = bars if any(low + high > 0 for low, high in zip(*bars, strict=True)) else None
            drawn[label] = ax.errorbar(middle, at, xerr=wide, fmt="o", markersize=3.5, elinewidth=1.2, color=COLORS[k])
        if chart.reference is not None:
            ax.axvline(chart.reference, color="#666666", linewidth=0.8, linestyle="--")
        if chart.logarithmic:
            ax.set_xscale("log")
            ax.minorticks_off()
            ax.xaxis.set_major_formatter("{x:g}")
        else:
            ax.set_xlim(left=0)
        ax.set(title=title, xlabel=chart.axis, yticks=range(len(rows)), yticklabels=rows)
        ax.grid(axis="x", color="#dddddd", linewidth=0.5)
    axes[0][0].invert_yaxis()
    figure.suptitle(chart.title)
    if len(labels) > 1:
        figure.legend([drawn[label] for label in labels], labels, loc="outside lower center", ncols=len(labels))
    metadata = {"Date": None, "Creator": None, "Description": f"{chart.title}. Figures: {digest(chart)}"}
    figure.savefig(path, format="svg", metadata=metadata)
    pyplot.close(figure)
    path.write_text(shortened(path.read_text()))


def shortened(svg: str) -> str:
    """With coordinates of two decimals, without comments, indents and names of groups: half of the file."""
    svg = re.sub(r"<!-- .*? -->", "", svg)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number.group()):.2f}", svg)
    return "\n".join(line.strip() for line in svg.splitlines() if line.strip()) + "\n"


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for chart in charts():
        path = FOLDER / f"{chart.name}.svg"
        draw(chart, path)
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1024:.0f} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
