"""The programs of this folder are those that the frontends make of the models now: `make.py` gives the same texts.

Graphs are of a version of PyTorch, transformers and JAX: with others, or without one of them, there is nothing to
compare, and the test is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
for module in ("torch", "transformers", "jax"):
    pytest.importorskip(module, reason=f"{module} is not installed: ./run setup --torch")

import make  # noqa: E402

import hostir  # noqa: E402


@pytest.fixture(scope="module")
def client() -> Iterator[hostir.Client]:
    with hostir.connect(devices="cpu:4", timeout=60) as client:
        yield client


def kept(model: str) -> dict[str, str]:
    """A model's files: its name, and what `make.file_name` puts behind it."""
    of_it = re.compile(rf"{model}(_forward|_backward)?(_\d+)?")
    return {path.stem: path.read_text() for path in FOLDER.glob("*.hir") if of_it.fullmatch(path.stem)}


def test_every_file_is_a_model_s() -> None:
    listed = [name for model in make.MODELS for name in kept(model)]
    assert sorted(listed) == sorted(path.stem for path in FOLDER.glob("*.hir"))


@pytest.mark.parametrize("model", make.MODELS)
def test_made_again_it_is_the_same(client: hostir.Client, model: str) -> None:
    want = kept(model)
    made_by = {re.findall(r"^// Made by (.*)\.$", text, re.MULTILINE)[0] for text in want.values()}
    if made_by != {make.VERSIONS}:
        pytest.skip(f"the files are of {', '.join(made_by)}; here is {make.VERSIONS}")
    got = make.programs(model, client)
    assert got.keys() == want.keys()
    for name, text in got.items():
        assert text.splitlines() == want[name].splitlines(), f"{name}.hir: make.py writes what there is now"
