"""docs/configuration.md has the limits of the table they come from, and each has a test that names it."""

import pathlib
import re


def test_every_limit_is_documented():
    table = pathlib.Path("service/engine/limits.def").read_text()
    limits = re.findall(r'^LIMIT\((\w+), (\d+), (\d+), (\d+), "(.*)"\)$', table, re.M)
    rows = [f"| `{name}` | {value} | {least} to {most} | {what} |" for name, value, least, most, what in limits]
    assert len(rows) == table.count("\nLIMIT(")
    text = pathlib.Path("docs/configuration.md").read_text().splitlines()
    assert [row for row in rows if row not in text] == []
