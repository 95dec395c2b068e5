"""Types as a user's type checker sees them: mypy --strict on the examples, and what expressions are."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hostir

ROOT = Path(__file__).parents[2]
CONFIG = """\
[mypy]
strict = True
follow_imports = silent
[mypy-hostir.v1.*]
follow_imports = skip
follow_imports_for_stubs = True
[mypy-google.*,grpc.*]
ignore_missing_imports = True
"""
EXPRESSIONS = {
    "x + 1": "Tensor",
    "1.5 * x": "Tensor",
    "np.float32(1) - x": "Tensor",
    "s * x": "Tensor",
    "s / 2": "Scalar",
    "2 ** s": "Scalar",
    "x == 1": "Tensor",
    "s < 1": "Scalar",
    "-x": "Tensor",
    "abs(s)": "Scalar",
    "x @ x.T": "Tensor",
    "x[0, 1:, None]": "Tensor",
    "x.std(axis=0)": "Tensor",
    "fd.ops.exp(x)": "Tensor",
    "fd.ops.exp(s)": "Scalar",
    "fd.ops.add(2.0, x)": "Tensor",
    "fd.ops.where(x > 0, x, 0.0)": "Tensor",
    "fd.ops.cast(x, float)": "Tensor",
    "x.shape": "tuple[int | Size, ...]",
    "x.shape[0] // 2": "int | Size",
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is installed: with what the build makes."""
    folder = tmp_path_factory.mktemp("typed")
    for path in reversed(hostir.__path__):  # Of two modules of one name the first is imported.
        shutil.copytree(path, folder / "hostir", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "mypy.ini").write_text(CONFIG)
    return folder


def mypy(package: Path, *files: Path | str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", "--no-error-summary", f"--cache-dir={package}/cache", *map(str, files)]
    environment = {"MYPYPATH": f"{package}:{ROOT / 'examples'}"}
    return subprocess.run(command, cwd=package, env=environment, capture_output=True, text=True)


def test_examples(package: Path) -> None:
    checked = mypy(package, *sorted((ROOT / "examples").glob("*.py")))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_expressions(package: Path) -> None:
    lines = [
        "import numpy as np",
        "from typing_extensions import reveal_type",
        "from hostir import FusionDefinition",
        "fd = FusionDefinition()",
        "x, s = fd.define_tensor(shape=[-1, 3]), fd.define_scalar()",
        *[f"reveal_type({expression})" for expression in EXPRESSIONS],
        'x + "a"',
        'fd.ops.exp("a")',
    ]
    (package / "check.py").write_text("\n".join(lines) + "\n")
    checked = mypy(package, "check.py").stdout
    revealed = [re.sub(r"hostir\.\w+\.", "", of) for of in re.findall(r'Revealed type is "(.*)"', checked)]
    assert dict(zip(EXPRESSIONS, revealed, strict=True)) == EXPRESSIONS, checked
    errors = re.findall(r"check.py:(\d+): error", checked)
    assert errors == [str(len(lines) - 1), str(len(lines))], checked
