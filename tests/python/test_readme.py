"""The program in the README runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def test_the_readmes_program(daemon_program: str, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(compile(block, str(README), "exec"), {"__name__": "readme"})
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split()[:2] == ["segment", "kind"]
    assert printed[-1] == "Sharding(DeviceMesh([0, 1, 2, 3]), {1: 'mesh_x'}) (64, 1024)"
