"""Nested values: flat and back, names of leaves, and what a definition keeps of its outputs. No daemon is needed."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import hostir
from hostir import FusionDefinition
from hostir.tree import flatten, unflatten


class State(NamedTuple):
    weight: Any
    step: Any


@pytest.mark.parametrize(
    ("tree", "leaves", "names"),
    [
        (1, [1], [""]),
        (None, [None], [""]),
        ((), [], []),
        ({"b": 1, "a": [2, (3,)]}, [2, 3, 1], ["a.0", "a.1.0", "b"]),
        ([State(1, {"n": 2}), 3], [1, 2, 3], ["0.weight", "0.step.n", "1"]),
        ({2: 1, 1: 0}, [0, 1], ["1", "2"]),
    ],
)
def test_flat_and_back(tree: Any, leaves: list[Any], names: list[str]) -> None:
    flat, structure = flatten(tree)
    assert flat == leaves and structure.names() == names
    again = unflatten(structure, flat)
    assert again == tree and type(again) is type(tree)
    assert flatten(again)[1] == structure and hash(flatten(again)[1]) == hash(structure)


def test_refusals() -> None:
    with pytest.raises(hostir.InvalidArgument, match="keys are of one type that has an order"):
        flatten({1: 0, "a": 0})
    with pytest.raises(hostir.InvalidArgument, match="1 values for a structure of 2"):
        unflatten(flatten([1, 2])[1], [1])


def test_outputs_keep_their_structure() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[4])
        y = x + 1
        fd.add_output({"y": y, "more": (x * 2, y)}, {"y": x, "more": (None, None)})
    assert fd._output_tree is not None and fd._output_tree.names() == ["more.0", "more.1", "y"]
    assert [o.alias for o in fd._record.outputs] == [None, None, "x"]
    assert fd._outputs[2] is y


def test_several_outputs_of_which_some_are_nested() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[4])
        fd.add_output(x + 1)
        assert fd._output_tree is None
        fd.add_output([x + 2])
    assert fd._output_tree == flatten((0, [0]))[1]


def test_aliases_are_nested_as_outputs_are() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[4])
        with pytest.raises(hostir.InvalidArgument, match="not nested as the outputs are"):
            fd.add_output([x + 1, x + 2], [x])
