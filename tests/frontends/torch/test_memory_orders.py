"""Tensors whose axes lie in another order, channels last: they go in and come out as they lie, without a copy."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: ./run setup --torch")
import hostir  # noqa: E402
import hostir.torch  # noqa: E402
from hostir.torch import graphs  # noqa: E402
from hostir.torch.memory import memory_order  # noqa: E402

LAST = torch.channels_last


@pytest.fixture
def nothing_transposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No result is copied to other strides."""

    def fails(*_: Any) -> Any:
        raise AssertionError("a result was copied to other strides")

    monkeypatch.setattr(graphs, "_strided_copy", fails)


def orders_of(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, ...]]]:
    """Of each run from now on, how each array that it reads or makes lies."""
    told: list[list[tuple[int, ...]]] = []
    run = client._run

    def seen(fd: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        outputs, reply = run(fd, inputs, *arguments, **options)
        told.append([each._memory_order for each in (*inputs, *outputs) if isinstance(each, hostir.Array)])
        return outputs, reply

    monkeypatch.setattr(client, "_run", seen)
    return told


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [2, 64])  # That a message could bring along, and that it could not.
def test_strides_are_as_in_pytorch(
    rows: int, dtype: Any, client: hostir.Client, nothing_transposed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = lambda x, b: ((x * 2 + b).relu(), x.permute(2, 0, 3, 1) * 3, x.sum(1))  # noqa: E731
    call = torch.compile(function, backend="hostir")
    told = orders_of(client, monkeypatch)
    b = torch.randn(1, 24, 1, 1, dtype=dtype)
    for _ in range(3):
        x = torch.randn(rows, 24, 9, 7, dtype=dtype).to(memory_format=LAST)
        for ours, theirs in zip(call(x, b), function(x, b), strict=True):
            torch.testing.assert_close(ours, theirs)
            assert ours.stride() == theirs.stride()
    assert all((0, 2, 3, 1) in run for run in told)


def test_the_order_may_change_from_call_to_call(client: hostir.Client) -> None:
    call = torch.compile(lambda x: (x + 1).relu(), backend="hostir", dynamic=False)
    base = torch.randn(6, 8, 10, 12)
    views = [base, base.to(memory_format=LAST), base.transpose(0, 1).contiguous().transpose(0, 1), base]
    views += [torch.randn(6, 8, 10, 24)[..., ::2], torch.randn(6, 8, 10, 1).expand(6, 8, 10, 12), views[1]]
    for _ in range(2):
        for x in views:
            ours, theirs = call(x), (x + 1).relu()
            torch.testing.assert_close(ours, theirs)
            assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("shape", [(16, 3, 1, 3), (16, 3, 1, 1), (4, 1, 5, 6), (1, 3, 5, 6), (4, 3, 5, 1)], ids=str)
def test_axes_of_one_element_keep_their_strides(
    shape: tuple[int, ...], client: hostir.Client, nothing_transposed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By which PyTorch tells that channels are last."""

    @torch.compile(backend="hostir", dynamic=False)
    def step(weight: Any, gradient: Any) -> Any:
        weight.sub_(gradient)
        return weight * 2

    weight, gradient = (torch.randn(shape).to(memory_format=LAST) for _ in range(2))
    stride, want = weight.stride(), weight.clone()
    put, found = client.put, []
    monkeypatch.setattr(client, "put", lambda value, *rest: found.append(value.stride()) or put(value, *rest))
    for _ in range(4):
        twice = step(weight, gradient)
        want.sub_(gradient)
        torch.testing.assert_close(weight, want)
        torch.testing.assert_close(twice, want * 2)
        assert weight.stride() == twice.stride() == stride
    assert len(found) <= 2


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_written_in_place_may_change_its_size(dynamic: bool, client: hostir.Client) -> None:
    @torch.compile(backend="hostir", dynamic=dynamic)
    def update(x: Any) -> None:
        x.mul_(x.sum(1, keepdim=True))

    for rows in (2, 3, 5):
        x = torch.randn(rows, 4, 3, 3).to(memory_format=LAST)
        want, stride = x * x.sum(1, keepdim=True), x.stride()
        update(x)
        torch.testing.assert_close(x, want)
        assert x.stride() == stride


class Block(torch.nn.Module):
    """Convolutions, which PyTorch carries out, and what lies between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(16)
        self.second = torch.nn.Conv2d(16, 16, 3, padding=1)
        self.scale = torch.nn.Parameter(torch.rand(16, 8, 8).permute(1, 2, 0).contiguous().permute(2, 0, 1))

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.first(x)))
        return (self.second(y) + y) * self.scale


def test_a_network_with_channels_last_learns_the_same(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more is sent than where all of it is row-major: parameters once, and they change where they are."""

    def trained(model: Any, backend: str) -> tuple[list[float], list[Any]]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        call = torch.compile(model, backend=backend)
        step = torch.compile(optimizer.step, backend=backend)
        losses = []
        for k in range(4):
            generator = torch.Generator().manual_seed(k)
            x = torch.randn(4, 3, 8, 8, generator=generator).to(memory_format=LAST)
            optimizer.zero_grad()
            loss = call(x).square().mean()
            loss.backward()
            step()
            losses.append(loss.item())
        return losses, [each.detach().clone() for each in model.parameters()]

    put, sent = client.put, {}
    for order in (torch.contiguous_format, LAST):
        model = Block().to(memory_format=order)
        want_losses, want = trained(copy.deepcopy(model), "eager")
        found = sent[order] = []
        monkeypatch.setattr(
            client, "put", lambda value, *rest, to=found: to.append(tuple(value.shape)) or put(value, *rest)
        )
        losses, got = trained(model, "hostir")
        assert losses == pytest.approx(want_losses, rel=1e-3)
        for ours, theirs in zip(got, want, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
            assert memory_order(ours) == memory_order(theirs)
    assert sorted(sent[LAST]) == sorted(sent[torch.contiguous_format])
