"""A part of the fault matrix, small enough for each change; fault_matrix.py plays the whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fault_matrix

ROWS = (
    "kill, node, heal",
    "partition, node, get",
    "kill, head, run",
    "stop, etcd, put",
    "kill, client, rest",
    "slow, client, get",
)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Rows by name. By a process of its own, which is in a network of its own."""
    told = tmp_path_factory.mktemp("matrix") / "rows.json"
    command = [sys.executable, "-B", fault_matrix.__file__, f"--only=^({'|'.join(ROWS)})$", f"--json={told}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    print(done.stdout)
    if done.returncode == fault_matrix.CANNOT:
        pytest.skip(done.stderr.strip())
    assert told.exists(), done.stderr[-4000:]
    rows = json.loads(Path(told).read_text())
    return {f"{row['fault']}, {row['victim']}, {row['moment']}": row for row in rows}


@pytest.mark.parametrize("name", ROWS)
def test_row(played: dict[str, dict[str, Any]], name: str) -> None:
    assert not played[name]["wrong"], played[name]


def test_a_row_that_breaks_a_limit_is_wrong() -> None:
    """The matrix can fail."""
    row = fault_matrix.Row("kill", "node", "rest")
    assert row.within("noticed", 6.9, fault_matrix.NOTICED_S) == 6.9 and not row.wrong
    row.within("noticed", 7.1, fault_matrix.NOTICED_S)
    assert row.wrong == ["noticed in 7.1 s: at most 7 s"]
