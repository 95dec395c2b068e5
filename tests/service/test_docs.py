"""docs/configuration.md has the limits of the table they come from; every attack of docs/security.md has its test."""

import pathlib
import re


def test_every_limit_is_documented():
    table = pathlib.Path("service/engine/limits.def").read_text()
    limits = re.findall(r'^LIMIT\((\w+), (\d+), (\d+), (\d+), "(.*)"\)$', table, re.M)
    rows = [f"| `{name}` | {value} | {least} to {most} | {what} |" for name, value, least, most, what in limits]
    assert len(rows) == table.count("\nLIMIT(")
    text = pathlib.Path("docs/configuration.md").read_text().splitlines()
    assert [row for row in rows if row not in text] == []


def attacks() -> list[list[str]]:
    """The rows of the table: attempt, limit, answer, test."""
    text = pathlib.Path("docs/security.md").read_text()
    table = text.split("\n## Attacks\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 30 and {len(row) for row in rows} == {4}
    return rows


def test_every_attack_has_a_test_that_there_is():
    missing = []
    for row in attacks():
        found = re.fullmatch(r"`([\w/.]+)` `([\w.]+)`", row[-1])
        assert found, f"{row[0]}: want `path` `name`, not {row[-1]}"
        path, name = pathlib.Path(found[1]), found[2]
        if path.suffix == ".py":
            pattern = rf"^def {name}\("
        else:
            suite, _, case = name.partition(".")
            pattern = rf"^TEST(_F|_P)?\({suite}, {case}\) "
        if not path.exists() or not re.search(pattern, path.read_text(), re.M):
            missing.append(f"{row[0]}: {path} has no {name}")
    assert missing == []


def test_attacks_are_bound_by_settings_that_there_are():
    """The names in the middle column are settings."""
    named = {name for row in attacks() for name in re.findall(r"`(\w+)`", row[1])}
    known = pathlib.Path("docs/configuration.md").read_text()
    assert named and {name for name in named if f"`{name}`" not in known} == set()
