"""The programs of docs/python.md run, one after the other, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "python.md"


def test_the_programs_of_the_documentation(daemon_program: str, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, object] = {"__name__": "docs"}
    for block in blocks:
        exec(compile(block, str(DOCS), "exec"), names)
    printed = capsys.readouterr().out
    assert "fusion @scale(%x: f32[i0, 256], %s: f64) {" in printed
    assert "3072.0" in printed  # 8 x 256 times 1.5.
    assert "Allreduce" in printed
