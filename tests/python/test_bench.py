"""The arithmetic of benchmarks/bench.py: pairs, ratios, quartiles, what it reads and writes."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCH = Path(__file__).resolve().parents[2] / "benchmarks" / "bench.py"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH.parent))
    spec = importlib.util.spec_from_file_location("bench_under_test", BENCH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_under_test", module)  # Dataclasses look their module up.
    spec.loader.exec_module(module)
    return module


def test_a_time_ratio_is_the_peers_time_over_ours(bench: ModuleType) -> None:
    row = bench.Measurement("x", "us", [2.0, 4.0], [4.0, 2.0], "peer")
    assert row.ratios() == [2.0, 0.5]


def test_a_rate_ratio_is_our_share(bench: ModuleType) -> None:
    row = bench.Measurement("x", "GB/s", [9.0], [10.0], "triad", higher_is_better=True)
    assert row.ratios() == [0.9]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0], (3.0, 3.0, 3.0)),
        ([1.0, 2.0], (1.25, 1.5, 1.75)),
        ([5.0, 1.0, 3.0, 2.0, 4.0], (2.0, 3.0, 4.0)),
    ],
)
def test_quartiles(bench: ModuleType, values: list[float], expected: tuple[float, float, float]) -> None:
    assert bench.quartiles(values) == expected


def test_each_kernel_has_the_compile_goal_for_itself(bench: ModuleType) -> None:
    quick = bench.Measurement("compiling a sum", "ms", [5.0] * 15, [15.0] * 15, "goal")
    slow = bench.Measurement("compiling a norm, kernel 2 of 2", "ms", [5.0] * 3 + [30.0] * 12, [15.0] * 15, "goal")
    assert bench.goal_of(quick) == bench.goal_of(slow) == 1.0
    assert not bench.misses(quick)
    assert bench.misses(slow)


def test_pairs_must_be_pairs(bench: ModuleType) -> None:
    with pytest.raises(ValueError, match="'x': 2 of ours, 1 of theirs"):
        bench.Measurement("x", "us", [1.0, 2.0], [1.0], "peer")
    with pytest.raises(ValueError, match="'x': 0 of ours, 0 of theirs"):
        bench.Measurement("x", "us", [], [], "peer")


@pytest.fixture
def programs(bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs in the place of the build's."""
    monkeypatch.setattr(bench, "PROGRAMS", tmp_path)
    return tmp_path


def script(path: Path, text: str) -> None:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def test_a_suite_is_shown_and_written(
    bench: ModuleType, programs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"name": "n", "unit": "us", "ours": [1.0, 2.0, 4.0], "theirs": [2.0, 2.0, 2.0], "peer": "p"}]
    script(programs / "evaluator_overhead", f"[ $1 = 3 ] && echo '{json.dumps(rows)}'\n")
    out = programs / "deep" / "figures.json"
    monkeypatch.setattr(sys, "argv", ["bench.py", "evaluator", "--pairs", "3", "--json", str(out)])
    assert bench.main() == 0
    assert "1.00  [0.75, 1.50]  p" in capsys.readouterr().out
    record = json.loads(out.read_text())
    assert record["measurements"] == [
        {
            "name": "n",
            "unit": "us",
            "peer": "p",
            "higher_is_better": False,
            "pairs": 3,
            "ours_quartiles": [1.5, 2.0, 3.0],
            "theirs_quartiles": [2.0, 2.0, 2.0],
            "ratio_quartiles": [0.75, 1.0, 1.5],  # Of the pairs 2/1, 2/2, 2/4.
            "goal": None,
        }
    ]
    assert record["command"].startswith("./run bench evaluator --pairs 3")
    assert record["failures"] == []
    assert 0 <= record["machine"]["stolen"] <= 1
    assert len(record["machine"]["load_before"]) == len(record["machine"]["load_after"]) == 3


def samples_in(value: object, at: str = "") -> list[str]:
    """Where a record has a list of more than three figures. Sizes of arrays are whole numbers."""
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in samples_in(item, f"{at}.{key}")]
    if not isinstance(value, list):
        return []
    if len(value) > 3 and any(isinstance(item, float) for item in value):
        return [at]
    return [found for item in value for found in samples_in(item, at)]


def test_samples_are_seen() -> None:
    assert samples_in({"rows": [{"us": [1.0, 2.0, 2.5, 3.0], "sizes": [1, 2, 3, 4], "q": [1.0, 2.0, 3.0]}]}) == [
        ".rows.us"
    ]


@pytest.mark.parametrize("path", sorted((BENCH.parent / "results").glob("*.json")), ids=lambda path: path.stem)
def test_results_have_figures_command_and_machine_and_no_samples(path: Path) -> None:
    record = json.loads(path.read_text())
    assert samples_in(record) == []
    assert record.get("command") or record["machine"]["command"]
    counted = [record, *record.get("measurements", []), *record.get("rows", [])]
    assert "programs" in record or any({"pairs", "samples", "repeats"} & row.keys() for row in counted)


def test_rows_are_lines(bench: ModuleType) -> None:
    record = {"machine": {"cores": 2}, "rows": [{"a": 1}, {"a": [1.5, 2.5]}], "none": []}
    kept = importlib.import_module("kept")
    assert kept.text(record) == (
        '{\n "machine": {"cores": 2},\n "rows": [\n  {"a": 1},\n  {"a": [1.5, 2.5]}],\n "none": []}\n'
    )
    assert json.loads(kept.text(record)) == record


def test_stolen_time_is_a_share_of_what_was_wanted(bench: ModuleType) -> None:
    before = [100, 0, 0, 1000, 0, 0, 0, 10]
    assert bench.stolen_share(before, [160, 0, 0, 1900, 0, 0, 0, 50]) == 0.4  # 60 of user, 40 stolen, 900 idle.
    assert bench.stolen_share(before, before) == 0.0


def test_a_suite_that_fails_is_named_and_the_others_go_on(
    bench: ModuleType, programs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"name": "n", "unit": "us", "ours": [1.0], "theirs": [1.0], "peer": "p"}]
    script(programs / "evaluator_overhead", f"echo '{json.dumps(rows)}'\n")
    script(programs / "cpu_matmul", "echo 'the product is wrong' >&2\nexit 1\n")
    monkeypatch.setattr(sys, "argv", ["bench.py", "matmul", "kernels", "evaluator", "--pairs", "1"])
    assert bench.main() == 1  # kernels: the program is missing.
    out = capsys.readouterr().out
    assert "matmul: FAILED:" in out and "the product is wrong" in out
    assert "kernels: FAILED:" in out
    assert "1.00  [1.00, 1.00]  p" in out


def test_a_peer_that_is_not_there_is_a_row_with_its_reason(
    bench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def suite(pairs: int) -> Iterator[object]:
        yield bench.Measurement("NumPy: a norm", "ms", [1.0] * pairs, [2.0] * pairs, "NumPy")
        yield bench.NotMeasured("JAX: a norm", "not installed: no module named 'jax'")

    out = tmp_path / "figures.json"
    monkeypatch.setitem(bench.SUITES, "norms", suite)
    monkeypatch.setattr(sys, "argv", ["bench.py", "norms", "--pairs", "2", "--json", str(out)])
    assert bench.main() == 0
    shown = capsys.readouterr().out
    assert "2.00  [2.00, 2.00]  NumPy  goal 1.00 met" in shown
    assert "not installed: no module named 'jax'" in shown
    record = json.loads(out.read_text())
    assert record["not_measured"] == [{"name": "JAX: a norm", "reason": "not installed: no module named 'jax'"}]
    assert [row["name"] for row in record["measurements"]] == ["NumPy: a norm"]


@pytest.fixture
def frameworks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH.parent))
    return importlib.import_module("frameworks")


def test_a_side_whose_values_are_wrong_is_not_measured(frameworks: ModuleType) -> None:
    workload = frameworks.NORMS[0]
    want = np.ones((4, 4))
    frameworks.Side("right", lambda: [want + 1e-7], np.asarray).check(workload, [want])
    with pytest.raises(ValueError, match=r"layer norm.* by wrong: output 0 is off by 1\.0e-02"):
        frameworks.Side("wrong", lambda: [want * 1.01], np.asarray).check(workload, [want])


def test_every_formula_is_its_reference_in_numpy(frameworks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frameworks, "ROWS", 16)
    small = [w for w in [*frameworks.NORMS, *frameworks.EXAMPLES] if "adaptive" not in w.name]
    assert len(small) == len(frameworks.NORMS) + len(frameworks.EXAMPLES) - 1
    for workload in small:
        inputs = workload.inputs()
        side = frameworks.numpy_side(workload, [frameworks.stored(array) for array in inputs])
        side.check(workload, workload.reference(inputs))


def test_axes_of_stride_zero_are_stored_once(frameworks: ModuleType) -> None:
    row = np.arange(3.0)
    assert frameworks.stored(np.broadcast_to(row, (5, 4, 3))).shape == (1, 1, 3)


def test_a_module_that_is_not_installed_is_named(frameworks: ModuleType) -> None:
    assert "no module named 'no_such_framework'" in frameworks.missing("no_such_framework")
    assert frameworks.missing("numpy") is None


def test_charts_are_of_these_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH.parent))
    charts = importlib.import_module("charts")
    files = {path.stem: path.read_text() for path in charts.FOLDER.glob("*.svg")}
    drawn = {chart.name: charts.digest(chart) for chart in charts.charts()}
    assert files.keys() == drawn.keys()
    assert [name for name in drawn if f"Figures: {drawn[name]}" not in files[name]] == []  # ./run bench --charts
    assert [name for name, text in files.items() if len(text) > 40_000 or re.search(r"\b20\d\d-", text)] == []
