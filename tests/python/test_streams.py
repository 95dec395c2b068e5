"""Stream axes from Python. Goal: a tensor with a stream axis is computed in a loop, with the values of one without.
Method: programs with them on one device and on four, against NumPy; the plan says which loops there are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hostir
from hostir import DeviceMesh, FusionDefinition, ParallelType

MESH = DeviceMesh([0, 1, 2, 3])


def split(tensor: hostir.Tensor) -> None:
    tensor.outer_split(0, 4)
    tensor.axis(0).parallelize(ParallelType.stream)


def merged(tensor: hostir.Tensor) -> None:
    tensor.merge(0)
    tensor.axis(0).parallelize("stream")


def columns(tensor: hostir.Tensor) -> None:
    tensor.inner_split(1, 3)
    tensor.axis(1).parallelize("stream")


def dealt(tensor: hostir.Tensor) -> None:
    tensor.inner_split(0, 4)
    tensor.axis(1).parallelize("stream")


def nested(tensor: hostir.Tensor) -> None:
    tensor.outer_split(0, 2)
    tensor.axis(0).parallelize("stream")
    tensor.axis(2).parallelize("stream")


def kinds(plan: hostir.Plan) -> list[str]:
    return [f"{s.loop}.{s.kind}" if s.loop else s.kind for s in plan.segments]


@pytest.mark.parametrize("annotate", [split, merged, columns, dealt, nested])
@pytest.mark.parametrize("rows", [8, 12])
def test_two_ops_share_a_loop(client: hostir.Client, annotate: Callable[[hostir.Tensor], None], rows: int) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 7], dtype=np.float32)
        t = fd.ops.exp(x)
        y = t * t
        annotate(t)
        annotate(y)
        fd.add_output(y)
    x_np = np.linspace(-1, 1, rows * 7, dtype=np.float32).reshape(rows, 7)
    np.testing.assert_allclose(client.run(fd, [x_np])[0].numpy(), np.exp(x_np) ** 2, rtol=1e-5)
    plan = client.explain(fd)
    assert next(s.name for s in plan.segments if s.kind == "loop") == "loop0"
    assert all(s.kind == "loop" or s.loop for s in plan.segments), kinds(plan)


def test_an_op_without_a_stream_axis_stays_between_two_loops(client: hostir.Client) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([8, 16], dtype=np.float32)
        a = fd.ops.exp(x)
        b = fd.ops.neg(a)
        c = fd.ops.abs(b)
        split(a)
        split(c)
        fd.add_output(c)
    x_np = np.linspace(-1, 1, 128, dtype=np.float32).reshape(8, 16)
    np.testing.assert_allclose(client.run(fd, [x_np])[0].numpy(), np.exp(x_np), rtol=1e-6)
    assert kinds(client.explain(fd)) == ["loop", "loop0.kernel", "kernel", "loop", "loop1.kernel"]


def test_partial_products_add_up(client: hostir.Client) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([5, 64], dtype=np.float32)
        w = fd.define_tensor([6, 64], dtype=np.float32)
        y = fd.ops.linear(x, w)
        y.outer_split(2, 4)  # The contracted axis.
        y.axis(2).parallelize("stream")
        fd.add_output(y)
    rng = np.random.default_rng(1)
    x_np, w_np = rng.standard_normal((5, 64), np.float32), rng.standard_normal((6, 64), np.float32)
    np.testing.assert_allclose(client.run(fd, [x_np, w_np])[0].numpy(), x_np @ w_np.T, rtol=1e-4, atol=1e-5)
    assert kinds(client.explain(fd)) == ["loop", "loop0.library", "kernel"]


def test_rows_are_reduced_chunk_by_chunk_over_ranks(client: hostir.Client) -> None:
    """A row-parallel product: each chunk of rows is reduced while the next is computed."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 64], dtype=np.float32)
        w = fd.define_tensor([16, 64], dtype=np.float32)
        y = fd.ops.linear(x, w)
        split(y)
        fd.add_output(y)
        x.shard(MESH, {1: "mesh_x"})
        w.shard(MESH, {1: "mesh_x"})
    rng = np.random.default_rng(1)
    w_np = rng.standard_normal((16, 64), np.float32)
    for rows in (8, 12, 10):  # 10 rows are no four chunks of one size: another plan.
        x_np = rng.standard_normal((rows, 64), np.float32)
        np.testing.assert_allclose(client.run(fd, [x_np, w_np])[0].numpy(), x_np @ w_np.T, rtol=1e-4, atol=1e-4)
    plan = client.explain(fd)
    assert kinds(plan) == ["loop", "loop0.library", "loop0.communication"]
    assert plan.segments[2].iterations == "4"
    assert "loop0.allreduce" in str(plan)
    assert "<svg" in plan.svg()
