"""hostir-opt plans for the sizes that it is given, and refuses other words for them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

HOSTIR_OPT = Path(os.environ["HOSTIR_BUILD_DIR"]) / "hostir-opt"

# Rows in order pay for long rows alone: what is one kernel depends on the size.
BOTH_AXES = """fusion @f(%x: f32[i0, i1]) {
  %s = sum(%x) {axes=[0], keepdim=false, dtype=null}
  %m = max(%x) {axes=[1], keepdim=false, dtype=null}
  return %s, %m
}
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HOSTIR_OPT, *arguments], input=BOTH_AXES, capture_output=True, text=True, timeout=60)


def kernels(*sizes: str) -> list[str]:
    done = run("-p", "cuda", *(word for size in sizes for word in ("--size", size)))
    assert done.returncode == 0, done.stderr
    return [line.split(",")[0] for line in done.stdout.splitlines() if line.startswith("// k")]


def test_sizes_choose_kernels() -> None:
    assert kernels() == kernels("i0=30000", "i1=4096") == ["// k0", "// k0.1"]
    assert {name.split(".")[0] for name in kernels("i0=30000", "i1=3")} == {"// k0", "// k1"}


@pytest.mark.parametrize("word", ["i0", "=3", "i0=", "i0=-1", "i0=x"])
def test_other_words_are_refused(word: str) -> None:
    done = run("-p", "cuda", "--size", word)
    assert done.returncode != 0
    assert f"wants NAME=EXTENT, as i0=128, got {word}" in done.stderr
