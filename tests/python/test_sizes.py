"""Sizes that no input has: each run brings them as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hostir
from hostir import FusionDefinition

X = np.arange(8, dtype=np.float32)


def counted() -> FusionDefinition:
    with FusionDefinition("counted") as fd:
        n = fd.define_size()
        x = fd.define_tensor(shape=[-1])
        fd.add_output(fd.ops.iota(n) * 2)
        fd.add_output(fd.ops.full([n // 2, 2], 3, np.float32))
        fd.add_output(x[:n])
    return fd


@pytest.mark.parametrize("n", [5, np.int32(2), 0, 1, 8])
def test_a_run_brings_it(client: hostir.Client, n: Any) -> None:
    fd = counted()
    for inputs in ([n, X], {"n": n, "x": X}):
        numbers, filled, cut = client.run(fd, inputs)
        np.testing.assert_array_equal(numbers.numpy(), np.arange(n) * 2)
        np.testing.assert_array_equal(filled.numpy(), np.full((n // 2, 2), 3, np.float32))
        np.testing.assert_array_equal(cut.numpy(), X[:n])


def test_a_named_program_has_it(client: hostir.Client) -> None:
    client.publish(counted(), "counted")
    program = client.program("counted")
    assert program.inputs == {"n": "bool[b:i0]", "x": "f32[i1]"}
    assert program(n=3, x=X)[0].numpy().tolist() == [0, 2, 4]


@pytest.mark.parametrize("n", [0, 1, 5, 8])
def test_it_is_split_over_ranks(client: hostir.Client, n: int) -> None:
    with FusionDefinition("split") as fd:
        y = fd.ops.iota(fd.define_size(name="n"), dtype=np.int32)
        y.shard([0, 1], {0: "mesh_x"})
        fd.add_output(y + 1)
    (made,) = client.run(fd, [n])
    np.testing.assert_array_equal(made.numpy(), np.arange(n) + 1)


@pytest.mark.parametrize(
    ("n", "message"),
    [
        (-1, r"input 0 \(n\): -1 is no size; it is from 0 to 2\^62"),
        (2**63, r"input 0 \(n\): 9223372036854775808 is no size"),
        (9, "i0 <= i1 does not hold with i0 = 9, i1 = 8: slice of axis 0 of %x"),
        (True, r"input 0 \(n\): the tensor has 0 axes"),
        (2.0, r"input 0 \(n\): 2.0 is no bool"),
    ],
)
def test_what_is_no_size_is_refused(client: hostir.Client, n: Any, message: str) -> None:
    with pytest.raises(hostir.InvalidArgument, match=message):
        client.run(counted(), [n, X])


def test_a_size_beyond_memory_is_refused(client: hostir.Client) -> None:
    with FusionDefinition("large") as fd:
        fd.add_output(fd.ops.iota(fd.define_size(name="n")))
    with pytest.raises(hostir.HostirError):
        client.run(fd, [1 << 61])
    assert client.run(fd, [2])[0].numpy().tolist() == [0, 1]
