"""The definitions in NumPy are those of tests/python; a report is printed when all tests are done."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

LINES = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def report(pytestconfig: pytest.Config) -> list[str]:
    """What is put here is printed, whether or not tests pass and output is captured."""
    lines: list[str] = []
    pytestconfig.stash[LINES] = lines
    return lines


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in terminalreporter.config.stash.get(LINES, []):
        terminalreporter.write_line(line)
