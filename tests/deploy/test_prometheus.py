"""The alerts of deploy/prometheus ask for metrics, labels and codes that there are."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path("docs/observability.md").read_text()
ALERTS = Path("deploy/prometheus/alerts.yml").read_text()
FUNCTIONS = {"sum", "by", "rate", "histogram_quantile", "and"}


def test_alerts_are_documented() -> None:
    named = re.findall(r"^ +- alert: (\w+)$", ALERTS, re.M)
    assert len(named) == 3
    assert named == re.findall(r"^\| `(Hostir\w+)` \|", PAGE, re.M)


def test_alerts_ask_for_what_there_is() -> None:
    kinds = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE, re.M))
    labels = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| `\w+` \| \w+ \| (.*?) \|", PAGE, re.M))))
    expressions = re.findall(r"^ +expr: (?:\|\n)?((?:.*\n)+?) +for:", ALERTS, re.M)
    assert len(expressions) == 3
    for expression in expressions:
        for values in re.findall(r'"([^"]*)"', expression):
            codes = re.findall(r"kOk|k(\w+) = \d+", Path("csrc/base/status.h").read_text())
            known = {re.sub(r"(?<!^)([A-Z])", r"_\1", code).upper() for code in codes if code}
            assert set(values.split("|")) <= known
        for word in re.findall(r"[a-z_]\w*", re.sub(r'"[^"]*"|\[\w+\]', "", expression)):
            kind = kinds.get(word) or kinds.get(word.removesuffix("_bucket"))
            assert word in FUNCTIONS | labels | {"instance", "le"} or kind is not None, word
            if word.endswith("_bucket"):
                assert kind == "histogram", word


def test_what_is_scraped_is_what_the_documentation_starts() -> None:
    (target,) = re.findall(r'targets: \["(.*)"\]', Path("deploy/prometheus/prometheus.yml").read_text())
    assert f"--metrics tcp:{target}" in PAGE
