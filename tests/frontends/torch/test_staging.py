"""Inputs from outside: one array each, which every call's values are copied to; and when they go another way."""

from __future__ import annotations

import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: ./run setup --torch")

import hostir  # noqa: E402
import hostir.torch  # noqa: E402
from hostir.torch.staging import Staging  # noqa: E402


def compiled(function: Any) -> Any:
    return torch.compile(function, backend="hostir")


def puts_of(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of what is put from now on."""
    put, found = client.put, []

    def counted(value: Any, *rest: Any, **options: Any) -> hostir.Array:
        found.append(tuple(value.shape))
        return put(value, *rest, **options)

    monkeypatch.setattr(client, "put", counted)
    return found


@pytest.mark.parametrize("rows", [3, 100_000])  # That a message could bring along, and that it could not.
def test_a_batch_is_put_once(rows: int, client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    found = puts_of(client, monkeypatch)
    double = compiled(lambda x: (x * 2).cumsum(0))
    results = []
    for k in range(4):
        x = torch.randn(rows, 5) + k
        results.append((double(x), (x * 2).cumsum(0)))
    for ours, theirs in results:  # Also of earlier calls: what they gave has memory of its own.
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-2)
    assert found == [(rows, 5)]


def test_what_a_backward_graph_reads_is_that_call_s(client: hostir.Client) -> None:
    """Two forward calls before their backward calls."""
    weight = torch.randn(64, 64, requires_grad=True)
    model = compiled(lambda x: torch.tanh(x @ weight).sum())
    first, second = torch.randn(512, 64), torch.randn(512, 64)
    model(first).backward()
    weight.grad = None
    losses = [model(first), model(second)]
    for loss, x in zip(losses, (first, second), strict=True):
        loss.backward()
        own = weight.detach().clone().requires_grad_()
        torch.tanh(x @ own).sum().backward()
        torch.testing.assert_close(weight.grad, own.grad, rtol=1e-4, atol=1e-4)
        weight.grad = None


def test_strides_types_and_sizes_that_change(client: hostir.Client) -> None:
    function = compiled(lambda x: x + 1)
    for x in (
        torch.randn(300, 400),
        torch.randn(400, 300).t(),
        torch.randn(1, 400).expand(300, 400),
        torch.randn(300, 800)[:, ::2],
        torch.randn(310, 400),
        torch.randint(9, (300, 400)),
        torch.randn(0, 400),
        torch.randn(300, 400),
    ):
        torch.testing.assert_close(function(x), x + 1)


def test_threads_have_slots_of_their_own(client: hostir.Client) -> None:
    function = compiled(lambda x: x * 3 - 1)
    function(torch.zeros(1000))
    wrong: list[float] = []

    def many(seed: int) -> None:
        for k in range(40):
            x = torch.full((1000,), float(seed * 1000 + k))
            off = (function(x) - (x * 3 - 1)).abs().max()
            if off > 0:
                wrong.append(float(off))

    threads = [threading.Thread(target=many, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_another_client_gets_arrays_of_its_own(client: hostir.Client) -> None:
    function = compiled(lambda x: x - 2)
    x = torch.randn(100)
    for _ in range(2):
        torch.testing.assert_close(function(x), x - 2)
    with hostir.connect(devices="cpu:1") as other:
        hostir.torch.use(other)
        for _ in range(2):
            torch.testing.assert_close(function(x), x - 2)
    hostir.torch.use(client)
    torch.testing.assert_close(function(x), x - 2)


def test_what_cannot_be_mapped_goes_along_after_some_tries(client: hostir.Client) -> None:
    staging, tried = Staging(), []
    x = torch.randn(10)

    def put() -> hostir.Array:
        tried.append(1)
        array = client.put(x)
        array._memory = 0  # As of a daemon on another machine.
        return array

    for _ in range(10):
        slot = staging.fill(0, x, client, put)
        if slot is not None:
            staging.give_back({0: slot})
    assert slot is None and len(tried) == 4


def test_a_run_has_its_slot_to_itself(client: hostir.Client) -> None:
    staging, x = Staging(), torch.randn(10)
    first = staging.fill(0, x, client, lambda: client.put(x))
    second = staging.fill(0, x, client, lambda: client.put(x))
    assert first is not None and second is not None and first.array is not second.array
    staging.give_back({0: first})
    again = staging.fill(0, x + 1, client, lambda: pytest.fail("it is there"))
    assert again is not None and again.array is first.array
    assert torch.equal(torch.from_numpy(again.array.numpy()), x + 1)


def test_nothing_stays_with_a_client_that_is_used_no_more(client: hostir.Client) -> None:
    before = client.status()["tensors"]
    function = compiled(lambda *given: sum(given))
    function(*(torch.randn(300, 300) for _ in range(10)))
    hostir.torch.use(None)
    client.put(torch.ones(1))  # Frees what was collected, too.
    assert client.status()["tensors"] <= before + 1


def test_backward_graphs_let_go_of_what_is_over(client: hostir.Client) -> None:
    x, w = (torch.randn(300, 300, requires_grad=True) for _ in range(2))
    loss = compiled(lambda x, w: (x.sum(0) + w.sum()).sin())(x, w)
    found = []
    for _ in range(20):
        torch.autograd.grad(loss, [x, w], torch.ones_like(loss), retain_graph=True)
        found.append(client.status()["tensors"])
    assert found[-1] <= found[2]


def test_modes_in_turn(client: hostir.Client) -> None:
    function = compiled(lambda x: x * 2 + 1)
    x = torch.randn(5)
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad, torch.inference_mode):
        with mode():
            torch.testing.assert_close(function(x), x * 2 + 1)


def test_a_run_that_fails_leaves_no_array_to_any_program(
    client: hostir.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a rank that has died are lost, also those that the failed run did not read."""
    first, second = compiled(lambda x: x + 5), compiled(lambda x: x * 5)
    x = torch.randn(30)
    first(x), second(x)

    def fails(*_: Any, **__: Any) -> Any:
        raise hostir.Unavailable("rank 0 died")

    with monkeypatch.context() as patched:
        patched.setattr(client, "_run", fails)
        with pytest.raises(hostir.Unavailable):
            first(x)
    found = puts_of(client, monkeypatch)
    torch.testing.assert_close(second(x), x * 5)
    torch.testing.assert_close(first(x), x + 5)
    assert found == [(30,), (30,)]


def test_an_inference_tensor_is_refused_as_by_pytorch(client: hostir.Client) -> None:
    with torch.inference_mode():
        count = torch.tensor(1.0)

    def function(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        count.add_(1)
        return x * count

    with pytest.raises(RuntimeError, match=r"[Ii]nference"):
        compiled(function)(torch.randn(3), count)
