"""plan-diff tells which plans two hostir-opts make otherwise: the built one, and the same without a pass."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOSTIR_OPT = str(Path(os.environ.get("HOSTIR_BUILD_DIR", ROOT / "build" / "dev")) / "hostir-opt")
PROGRAMS = [str(ROOT / "tests" / "corpus" / f"{name}.hir") for name in ("group_norm", "rms_norm")]


def plan_diff(base: str, ours: str, *args: str) -> str:
    command = [sys.executable, "-B", str(ROOT / "tools" / "plan_diff.py"), base, ours, *args]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_nothing_differs_from_itself() -> None:
    assert plan_diff(HOSTIR_OPT, HOSTIR_OPT, *PROGRAMS).splitlines()[1:] == ["0 of 2 plans differ"]


def test_what_a_pass_changes_is_shown(tmp_path: Path) -> None:
    base = tmp_path / "hostir-opt"
    base.write_text(f'#!/bin/sh\nexec "{HOSTIR_OPT}" --without sink_reshapes "$@"\n')
    base.chmod(0o755)
    _, row, *segments, last = plan_diff(str(base), HOSTIR_OPT, *PROGRAMS, "--show").splitlines()
    assert row.split()[0] == "group_norm" and row.split()[4] < "1.000", row
    assert any(line.startswith("-k1: kernel pointwise") for line in segments)
    assert last == "1 of 2 plans differ"


def test_one_that_cannot_plan_is_a_difference(tmp_path: Path) -> None:
    base = tmp_path / "hostir-opt"
    base.write_text("#!/bin/sh\necho no such pass >&2\nexit 1\n")
    base.chmod(0o755)
    assert "?" in plan_diff(str(base), HOSTIR_OPT, PROGRAMS[1]).splitlines()[1].split()
