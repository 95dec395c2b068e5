"""The op table against NumPy: every op, each of its element types, three shapes or more, by every executor.

The programs of cases.py run in the reference interpreter, compiled for CPUs on local ranks, and as the CUDA C++ of a
GPU, emulated (run_programs_main.cc). NaN, infinities, the sign of zero, subnormals and the ends of each type are among
the values. Printed at the end: how many cases each op and type had, and what was skipped, why.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cases import NAMES, SMALLEST, UNIT, Array, Case, DType, every_case, made_up
from numpy_ops import ALL, BF16, F64, FLOATS

BUILD = Path(os.environ["HOSTIR_BUILD_DIR"])
TABLE = json.loads((BUILD / "python" / "hostir" / "_op_table.json").read_text())
EXECUTORS = ("interpreter", "cpu", "gpu")
CASES = every_case()
OPS = list(dict.fromkeys(case.op for case in CASES))
MULTIPLE_RANKS = "on several ranks; the emulator has one"


def text_of(case: Case, dtypes: list[DType]) -> str:
    """One program for all types: the case again for each, side by side."""
    extents: list[int] = []
    for given in case.inputs:
        extents += [n for n in given.shape or () if n != 1 and n not in extents]
    params, ops, outputs = [], [], []
    for dtype in dtypes:
        own = NAMES[dtype]
        for k, given in enumerate(case.inputs):
            element = NAMES[given.dtype or dtype]
            if given.shape is None:
                params.append(f"%x{k}_{own}: {element}")
                continue
            shape = [f"i{extents.index(n)}" if case.symbols and n != 1 else str(n) for n in given.shape]
            layout = ""
            if case.ranks > 1:
                layout = " {mesh=@m" + (f", shard({given.shard}, mesh_x)" if given.shard is not None else "") + "}"
            params.append(f"%x{k}_{own}: {element}[{', '.join(shape)}]{layout}")
        call = case.call.replace("dtype=T", f"dtype={own}")
        for k in range(len(case.inputs)):
            call = call.replace(f"%{k}", f"%x{k}_{own}")
        for name in ("%n", "%e"):
            call = call.replace(name, f"{name}_{own}")
        *before, last = call.splitlines()
        ops += [*before, f"%y_{own} = {last}"]
        outputs.append(f"%y_{own}")
    mesh = f"mesh @m = {list(range(case.ranks))}\n" if case.ranks > 1 else ""
    body = "".join(f"  {op}\n" for op in ops)
    return f"{mesh}fusion @f({', '.join(params)}) {{\n{body}  return {', '.join(outputs)}\n}}\n"


def executors_of(case: Case) -> dict[str, str]:
    """Each executor that a case leaves out, with the reason."""
    return {**({"gpu": MULTIPLE_RANKS} if case.ranks > 1 else {}), **case.skipped}


def save(path: Path, array: Array) -> None:
    np.save(path, array.view("V2") if array.dtype == BF16 else array)


class Results:
    """What became of every program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inputs: dict[tuple[str, DType], list[Array]] = {}
        self.counts: Counter[tuple[str, DType]] = Counter()
        self.refusals: Counter[tuple[str, DType]] = Counter()
        self.skips: Counter[tuple[str, str, str]] = Counter()
        self.numbers = {case.title: number for number, case in enumerate(CASES)}
        lines = []
        for number, case in enumerate(CASES):
            if case.dtypes:
                self._write(f"{number}", case, list(case.dtypes))
                executors = [e for e in EXECUTORS if e not in executors_of(case)]
                lines.append(f"{number} {case.ranks} {' '.join(executors)}")
            for dtype in case.refused:
                self._write(f"{number}.{NAMES[dtype]}", case, [dtype])
                lines.append(f"{number}.{NAMES[dtype]} 1")
        (folder / "programs.txt").write_text("\n".join(lines) + "\n")
        program = BUILD / "tests" / "run-programs"
        self.run = subprocess.run([program, folder], capture_output=True, text=True, check=False)

    def _write(self, name: str, case: Case, dtypes: list[DType]) -> None:
        (self.folder / f"{name}.hir").write_text(text_of(case, dtypes))
        place = 0
        for dtype in dtypes:
            arrays = [made_up(case, k, given.dtype or dtype) for k, given in enumerate(case.inputs)]
            self.inputs[case.title, dtype] = arrays
            for array in arrays:
                save(self.folder / f"{name}.{place}.npy", array)
                place += 1

    def error(self, name: str) -> str:
        path = self.folder / f"{name}.error"
        return path.read_text() if path.exists() else ""

    def output(self, case: Case, executor: str, dtype: DType) -> Array:
        number = self.numbers[case.title]
        place = case.dtypes.index(dtype)
        array: Array = np.load(self.folder / f"{number}.{executor}.{place}.npy")
        return array.view(BF16) if array.dtype == np.dtype("V2") else array


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory, report: list[str]) -> Iterator[Results]:
    results = Results(tmp_path_factory.mktemp("programs"))
    yield results
    report += table(results)


def table(results: Results) -> list[str]:
    rows = [f"{'op':20}" + "".join(f"{NAMES[dtype]:>9}" for dtype in ALL)]
    for op in OPS:
        cells = []
        for dtype in ALL:
            refused = results.refusals[op, dtype]
            cells.append(f"{results.counts[op, dtype] or ('refused' if refused else '-'):>9}")
        rows.append(f"{op:20}" + "".join(cells))
    compared, refused = sum(results.counts.values()), sum(results.refusals.values())
    rows.append(
        f"{len(OPS)} ops, {len(CASES)} cases: {compared} results compared (op x type x case x executor); {refused} "
        "programs refused, as they must be: of a type that the op does not take, or a maximum of nothing"
    )
    for (op, executor, reason), count in sorted(results.skips.items()):
        rows.append(f"skipped: {op} on {executor}, {count} results: {reason}")
    return rows


def assert_agrees(case: Case, dtype: DType, got: Array, inputs: list[Array]) -> None:
    with np.errstate(all="ignore"):
        want = np.asarray(case.want(dtype, *inputs))
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if got.dtype not in FLOATS:
            np.testing.assert_array_equal(got, want)
            return
        a, b = got.astype(F64), want.astype(F64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        if case.exact and not case.any_zero:
            same &= (a != 0) | (np.signbit(a) == np.signbit(b))
        if not case.exact:
            unit, least = UNIT[got.dtype], 4 * SMALLEST[got.dtype]
            scale = np.abs(b) if case.scale is None else np.abs(b) + case.scale(*(x.astype(F64) for x in inputs))
            same |= np.abs(a - b) <= unit * np.where(np.isfinite(scale), scale, 0) + least
    if same.all():
        return
    places = [tuple(int(i) for i in place) for place in np.argwhere(~same)[:5]]
    shown = [f"{place}: {got[place]}, not {want[place]}" for place in places]
    if all(x.shape == got.shape for x in inputs):
        shown = [f"{s} from {[x[p] for x in inputs]}" for s, p in zip(shown, places, strict=True)]
    raise AssertionError(f"{(~same).sum()} of {got.size} elements: " + "; ".join(shown))


def test_every_op_of_the_table_has_three_cases() -> None:
    named = Counter(case.op for case in CASES)
    for row in TABLE:
        if row["kind"] != "communication":  # Planning's: tests of multidevice/comm and multidevice/plan.
            assert named[row["name"]] >= 3, row["name"]
    assert set(named) == {row["name"] for row in TABLE if row["kind"] != "communication"}


def test_the_programs_ran(results: Results) -> None:
    assert results.run.returncode == 0, results.run.stdout + results.run.stderr


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("op", OPS)
def test_agrees_with_numpy(results: Results, op: str, executor: str) -> None:
    faults: list[str] = []
    for case in CASES:
        if case.op != op or not case.dtypes:
            continue
        if reason := executors_of(case).get(executor):
            results.skips[op, executor, reason] += len(case.dtypes)
            continue
        number = results.numbers[case.title]
        if error := results.error(f"{number}") or results.error(f"{number}.{executor}"):
            if "no C++ compiler" in error:
                results.skips[op, executor, error.strip()] += len(case.dtypes)
            else:
                faults.append(f"{case.name}: {error}{(results.folder / f'{number}.hir').read_text()}")
            continue
        for dtype in case.dtypes:
            try:
                assert_agrees(case, dtype, results.output(case, executor, dtype), results.inputs[case.title, dtype])
            except AssertionError as fault:
                faults.append(f"{case.name}, {NAMES[dtype]}: {fault}")
            results.counts[op, dtype] += 1
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("case", [case for case in CASES if case.refused], ids=lambda case: case.title)
def test_refuses_other_types(results: Results, case: Case) -> None:
    for dtype in case.refused:
        error = results.error(f"{results.numbers[case.title]}.{NAMES[dtype]}")
        assert error.startswith("INVALID_ARGUMENT: "), f"{NAMES[dtype]} is taken"
        assert f"{case.op}: " in error, error
        results.refusals[case.op, dtype] += 1
