"""The examples on 1 to 4 CPU ranks, each against NumPy in float64; over 3 some shards are uneven."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hostir

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import adaptive_layernorm_backward
import demo
import rope
import tensor_parallel_mlp
from example import Example, Outcome, run

SMALL = {"batch": 12, "tokens": 40, "features": 64}
LAYER_NORM = dataclasses.replace(
    adaptive_layernorm_backward.EXAMPLE,
    define=functools.partial(adaptive_layernorm_backward.define, **SMALL),
    make_inputs=functools.partial(adaptive_layernorm_backward.make_inputs, **SMALL),
)
EXAMPLES: list[Example] = [LAYER_NORM, rope.EXAMPLE, tensor_parallel_mlp.EXAMPLE]


@functools.cache
def data(index: int) -> tuple[Any, Any]:
    inputs = EXAMPLES[index].make_inputs()
    return inputs, EXAMPLES[index].reference(inputs)


@pytest.fixture(scope="module", params=[1, 2, 3, 4])
def ranked(request: pytest.FixtureRequest, daemon_program: str) -> Iterator[tuple[hostir.Client, int]]:
    with hostir.connect(devices=f"cpu:{request.param}", timeout=60) as client:
        yield client, request.param


def outcome_of(ranked: tuple[hostir.Client, int], index: int) -> Outcome:
    client, ranks = ranked
    outcome = run(client, EXAMPLES[index], ranks, *data(index), repeats=1)
    assert outcome.passed, f"relative L2 error {outcome.error:.1e}"
    return outcome


def kinds(outcome: Outcome) -> list[str]:
    return [segment.kind for segment in outcome.plan.segments]


def test_adaptive_layer_norm_backward(ranked: tuple[hostir.Client, int]) -> None:
    _, ranks = ranked
    outcome = outcome_of(ranked, 0)
    assert kinds(outcome).count("kernel") <= 4
    assert kinds(outcome).count("library") == 0
    assert outcome.communications == ["Allreduce"] * (2 if ranks > 1 else 0)


def test_rope(ranked: tuple[hostir.Client, int]) -> None:
    _, ranks = ranked
    outcome = outcome_of(ranked, 1)
    assert kinds(outcome).count("kernel") <= 3
    # 16 heads over 3 are uneven: the reshape that makes heads of groups reads them gathered.
    assert outcome.communications == ([] if ranks != 3 else ["Allgather"])


def test_tensor_parallel_mlp(ranked: tuple[hostir.Client, int]) -> None:
    _, ranks = ranked
    outcome = outcome_of(ranked, 2)
    assert kinds(outcome).count("library") == 2
    assert kinds(outcome).count("kernel") <= 2
    assert outcome.communications == ["Allreduce"] * (1 if ranks > 1 else 0)
    assert demo.table([outcome]).splitlines()[0].startswith("example ")
