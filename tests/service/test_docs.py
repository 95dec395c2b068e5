"""docs/service.md has the limits of the table they come from."""

import pathlib
import re


def test_every_limit_is_documented():
    table = pathlib.Path("service/engine/limits.def").read_text()
    limits = re.findall(r'^LIMIT\((\w+), (\d+), "(.*)"\)', table, re.M)
    rows = [f"| `{name}` | {value} | {what} |" for name, value, what in limits]
    assert rows
    text = pathlib.Path("docs/service.md").read_text().splitlines()
    assert [row for row in rows if row not in text] == []
