"""The figures that are kept of a benchmark's samples, quartiles and counts, and the form of the files that hold them.

Samples themselves are never kept: a file of results has one line a row.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    if len(values) < 2:
        return (values[0],) * 3
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def kept_pairs(
    row: Mapping[str, Any], samples: Sequence[str], of_pairs: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    """`row` with quartiles in place of its lists of samples, those of `of_pairs` (a value a pair), and the count.

    Ratios and differences are made of pairs: their median is not that of the two sides' medians.
    """
    kept = {key: value for key, value in row.items() if key not in samples}
    kept["pairs"] = len(row[samples[0]])
    kept |= {f"{key}_quartiles": quartiles(row[key]) for key in samples}
    return kept | {f"{key}_quartiles": quartiles(values) for key, values in of_pairs.items()}


def text(record: Mapping[str, Any]) -> str:
    """JSON, a line for each key, and for each row of a list of rows."""

    def value(item: Any) -> str:
        if isinstance(item, (list, tuple)) and item and all(isinstance(row, dict) for row in item):
            return "[\n  " + ",\n  ".join(map(json.dumps, item)) + "]"
        return json.dumps(item)

    return "{\n " + ",\n ".join(f"{json.dumps(key)}: {value(item)}" for key, item in record.items()) + "}\n"


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Writes the file of one command's results; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text(record))
