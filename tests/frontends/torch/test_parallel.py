"""PyTorch's plans of tensor parallelism on four CPU ranks: values and gradients of the whole model, layouts, and the
communications that follow."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: ./run setup --torch")
from torch.distributed.tensor import Partial, Replicate, Shard  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
)

import hostir.torch  # noqa: E402
from test_training import Block, loss_of  # noqa: E402

RANKS = [0, 1, 2, 3]
TENSOR = {
    "embed": RowwiseParallel(input_layouts=Replicate()),
    **{name: ColwiseParallel() for name in ("q", "k", "v", "gate", "up")},
    **{name: RowwiseParallel() for name in ("o", "down")},
    "head": ColwiseParallel(output_layouts=Replicate()),
}
SEQUENCE = {
    "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "norms.*": SequenceParallel(),
    **{name: ColwiseParallel(input_layouts=Shard(1)) for name in ("q", "k", "v", "gate", "up")},
    **{name: RowwiseParallel(output_layouts=Shard(1)) for name in ("o", "down")},
    "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
}


@pytest.fixture(scope="module")
def ranks() -> Iterator[hostir.Client]:
    with hostir.connect(devices="cpu:4", timeout=60) as client:
        yield client


@pytest.mark.parametrize("plan", [TENSOR, SEQUENCE], ids=["tensor", "sequence"])
def test_a_block_trains_on_four_ranks(ranks: hostir.Client, plan: dict[str, Any]) -> None:
    """Three steps of SGD beside one device; what is split stays so."""
    hostir.torch.use(ranks)
    ours = Block(words=48, width=32, heads=4, groups=4)
    theirs = copy.deepcopy(ours)
    hostir.torch.parallelize_module(ours, RANKS, plan)
    model = torch.compile(ours, backend="hostir")
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (ours, theirs)]
    for _ in range(3):
        words = torch.randint(0, 48, (2, 8))
        losses = [loss_of(model, words), loss_of(theirs, words)]
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
        torch.testing.assert_close(losses[0], losses[1], rtol=1e-5, atol=1e-5)
        for (name, p), q in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
            torch.testing.assert_close(p.grad, q[1].grad, rtol=1e-4, atol=1e-5, msg=name)
        for optimizer in optimizers:
            optimizer.step()
    assert not hostir.torch.report().fallen
    # The gradients of what several products read are added up before they are summed over ranks. Where sequences are
    # split, sums of parts go to the ranks that want them, without a copy for all; what is left are weights of norms.
    # Gradients of what is split are gathered by the run that makes them, for PyTorch's tensors.
    counts = [Counter(each.type for each in plan_.communications) for plan_ in hostir.torch.report().plans()]
    found = [each for each in counts if each]
    if plan is TENSOR:
        assert found == [{"Allgather": 2, "Allreduce": 2}, {"Allreduce": 3, "Gather": 7}]
    else:
        backward = {"Allgather": 3, "ReduceScatter": 6, "Allreduce": 3, "Gather": 7}
        assert found == [{"Allgather": 5, "ReduceScatter": 2}, backward]


def test_a_batch_is_split_over_four_ranks(ranks: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data parallelism: gradients are summed, the small ones together. The optimizer changes parameters on device 0,
    from where one run a step takes them to the other ranks."""
    hostir.torch.use(ranks)
    ours = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    theirs = copy.deepcopy(ours)
    hostir.torch.parallelize_module(
        ours, RANKS, PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=Shard(0))
    )
    model, optimizers = (
        torch.compile(ours, backend="hostir"),
        [torch.optim.AdamW(m.parameters()) for m in (ours, theirs)],
    )
    steps = [torch.compile(optimizers[0].step, backend="hostir"), optimizers[1].step]
    resharded: list[int] = []
    reshardings = ranks._resharding

    def seen(arrays: Any, sharding: hostir.Sharding) -> Any:
        resharded.append(len(arrays) if sharding.mesh.size > 1 else 0)
        return reshardings(arrays, sharding)

    monkeypatch.setattr(ranks, "_resharding", seen)
    for _ in range(4):
        batch = torch.randn(8, 16)
        for each, optimizer, step in zip((model, theirs), optimizers, steps, strict=True):
            optimizer.zero_grad()
            each(batch).square().mean().backward()
            step()
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-6)
    assert [count for count in resharded if count] == [6] * 3
    (backward,) = [plan for plan in hostir.torch.report().plans() if "allreduce" in plan.host_ir]
    # Five of six: that of the last bias is a sum of what the loss, PyTorch's own, hands in whole.
    assert [each.type for each in backward.communications].count("Allreduce") == 5
    assert backward.host_ir.count("group()") == 1


def test_a_pass_is_one_run(ranks: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results that are tensors, and lie on several ranks, are made whole by the run that makes them; where there is no
    room for that, one after the other."""
    hostir.torch.use(ranks)
    torch._dynamo.reset()
    ours = torch.nn.Linear(16, 32)
    theirs = copy.deepcopy(ours)
    hostir.torch.parallelize_module(ours, RANKS, ColwiseParallel())
    model = torch.compile(ours, backend="hostir")
    runs: list[int] = []
    run = ranks._run
    is_full = False

    def seen(fd: Any, *args: Any, **options: Any) -> Any:
        runs.append(len(fd._record.outputs))
        if is_full and len(runs) == 1:
            raise hostir.ResourceExhausted("a limit")
        return run(fd, *args, **options)

    monkeypatch.setattr(ranks, "_run", seen)
    for is_full in (False, True):
        batch = torch.randn(8, 16)
        model(batch)
        runs.clear()
        made = model(batch)
        torch.testing.assert_close(made, theirs(batch), rtol=1e-5, atol=1e-5)
        assert len(runs) == (2 if is_full else 1)
        runs.clear()
        ours.zero_grad()
        made.sum().backward()
        for p, want in zip(
            ours.parameters(), torch.autograd.grad(theirs(batch).sum(), [*theirs.parameters()]), strict=True
        ):
            torch.testing.assert_close(p.grad, want, rtol=1e-5, atol=1e-5)
        assert len(runs) == (2 if is_full else 1)


def test_refusals() -> None:
    """Each says which module, and what there is."""
    linear = torch.nn.Sequential(torch.nn.Linear(4, 4))
    with pytest.raises(hostir.InvalidArgument, match="no module is called 'up'; there are "):
        hostir.torch.parallelize_module(linear, RANKS, {"up": ColwiseParallel()})
    with pytest.raises(hostir.InvalidArgument, match="dict; styles are ColwiseParallel, RowwiseParallel, "):
        hostir.torch.parallelize_module(linear, RANKS, {"0": {}})
    with pytest.raises(hostir.InvalidArgument, match="0: 1 placements for a mesh of 2 dimensions"):
        hostir.torch.parallelize_module(linear, hostir.DeviceMesh([[0, 1], [2, 3]]), {"0": ColwiseParallel()})
    prepared = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Partial())
    hostir.torch.parallelize_module(linear, RANKS, {"0": prepared})
    with pytest.raises(hostir.InvalidArgument, match=r"0: P.* is no layout of a whole tensor"):
        linear(torch.ones(2, 4))
