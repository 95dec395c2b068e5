"""docs/torch.md runs: its programs one after the other, as a reader runs them, and each prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: ./run setup --torch")

PAGE = Path(__file__).parents[3] / "docs" / "torch.md"


def test_every_program_prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == PAGE.read_text().count("```python")
    names: dict[str, object] = {"__name__": "page"}
    for program, shown in blocks:
        exec(compile(program, str(PAGE), "exec"), names)
        assert _compared(capsys.readouterr().out) == _compared(shown), program


def _compared(text: str) -> str:
    """How many ops a graph has is PyTorch's affair, and changes with its version."""
    return re.sub(r"\d+ ops", "N ops", text.rstrip())
