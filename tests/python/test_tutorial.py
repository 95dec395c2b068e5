"""docs/tutorial.md runs: its programs one after the other, as a reader runs them, and each prints what the page shows.

Method: a ```text block behind a ```python block is what that one prints, exactly, but for the file and line in errors
and line ends at its end.
The programs themselves compare their results with NumPy in float64, and print whether they agree.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
LOCATION = re.compile(r"\([^()\s]+:\d+: ")


def programs() -> list[tuple[int, str, str | None]]:
    """(line in the page, program, what it prints or None) of each block of Python."""
    blocks = []
    for found in re.finditer(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", PAGE.read_text(), re.DOTALL):
        line = PAGE.read_text().count("\n", 0, found.start(1))
        blocks.append((line, found[1], found[2]))
    return blocks


def compared(text: str) -> str:
    return LOCATION.sub("(", text).rstrip("\n")


def test_every_program_prints_what_the_page_shows(daemon_program: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "tutorial"}
    for line, program, shown in programs():
        exec(compile("\n" * line + program, str(PAGE), "exec"), names)  # Errors name the line of the page.
        printed = capsys.readouterr().out
        assert compared(printed) == compared(shown or ""), f"{PAGE.name}:{line + 1}"


def test_each_program_that_prints_shows_what_and_the_whole_page_is_read() -> None:
    text = PAGE.read_text()
    found = programs()
    assert len(found) == text.count("```python\n") > 15
    assert sum(shown is not None for _, _, shown in found) == text.count("```text\n")
    assert [line for line, program, shown in found if "print(" in program and shown is None] == []
