"""What the client infers is what the service infers: result types and refusals.

The types are those that the golden files print, and those that hostir-opt prints for the programs of tests/corpus and
of tests/op_table. The messages are those of tests/csrc/fusion/op_errors_test.cc.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hostir
from text_program import Program, programs

ROOT = Path(__file__).parents[2]
GOLDEN = sorted(ROOT.glob("tests/golden/**/*.hir"))
OPT = Path(os.environ.get("HOSTIR_BUILD_DIR", ROOT / "build/dev")) / "hostir-opt"


def compare(program: Program) -> int:
    """How many types were compared."""
    types, _ = program.types()
    compared = 0
    for op in program.ops:
        if op.declared is not None and types[op.result]:
            assert types[op.result] == op.declared, f"%{op.result} = {op.name}"
            compared += 1
    return compared


def typed(text: str) -> list[Program]:
    """As the service infers it: every result has its type."""
    if not OPT.exists():
        pytest.skip(f"{OPT} is not built")
    printed = subprocess.run([OPT], input=text, capture_output=True, text=True)
    assert printed.returncode == 0, printed.stderr
    return programs(printed.stdout)


def test_golden_files() -> None:
    compared = sum(compare(program) for path in GOLDEN for program in programs(path.read_text()))
    assert compared > 500


def test_sizes_that_become_one() -> None:
    (given, wanted) = programs((ROOT / "tests/golden/ir/sizes_unify.hir").read_text())
    types, _ = given.types()
    assert types == {**wanted.params, **{op.result: op.declared for op in wanted.ops}}


@pytest.mark.parametrize("path", sorted(ROOT.glob("tests/corpus/**/*.hir")), ids=lambda path: path.stem)
def test_corpus(path: Path) -> None:
    (given,) = programs(path.read_text())
    (wanted,) = typed(path.read_text())
    types, inferred = given.types()
    assert inferred == len(given.ops)
    assert types == {**wanted.params, **{op.result: op.declared for op in wanted.ops}}


def test_every_op_and_type() -> None:
    if not OPT.exists():
        pytest.skip(f"{OPT} is not built")
    sys.path.insert(0, str(ROOT / "tests/op_table"))
    from cases import every_case
    from test_every_op import text_of

    texts = [text_of(case, list(case.dtypes)) for case in every_case() if case.dtypes]
    ops: set[str] = set()
    for text in texts:
        (given,) = programs(text)
        (wanted,) = typed(text)
        types, inferred = given.types()
        assert inferred == len(given.ops), text
        assert types == {**wanted.params, **{op.result: op.declared for op in wanted.ops}}, text
        ops |= {op.name for op in given.ops}
    assert len(ops) > 100


def error_cases() -> list[tuple[str, str, str]]:
    source = (ROOT / "tests/csrc/fusion/op_errors_test.cc").read_text()
    strings = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
    found = re.findall(rf"\{{{strings},\s*{strings},\s*{strings},\s*{strings}\}}", source)
    return [tuple("".join(re.findall(r'"(.*?)"', part)) for part in parts[1:]) for parts in found]  # type: ignore[misc]


# The service checks these before it infers anything, or they are no calls of fd.ops.
NOT_CLIENTS = ("epilogue", "precision=half", "dim=", "mesh=", "from=", "matmul(%x, %x, %b)", "axis=3")


@pytest.mark.parametrize(("params", "op", "message"), error_cases(), ids=lambda text: text)
def test_refusals(params: str, op: str, message: str) -> None:
    if any(word in op for word in NOT_CLIENTS):
        return
    (program,) = programs(f"fusion @f({params}) {{\n  %y = {op}\n}}\n")
    with pytest.raises(hostir.HostirError) as caught:
        program.types()
    assert f"{program.ops[0].name}: {caught.value}" == message
