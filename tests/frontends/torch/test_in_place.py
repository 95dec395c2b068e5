"""What a graph changes is changed where it is: no second memory, no copy, the same tensor."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: ./run setup --torch")
import hostir.torch  # noqa: E402
from hostir.torch import graphs  # noqa: E402


def is_in_place(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> list[list[bool]]:
    """Of each run from now on, of each result whether it was made in the memory of an input."""
    told: list[list[bool]] = []
    run = client._run

    def seen(fd: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        outputs, reply = run(fd, inputs, *arguments, **options)
        told.append([any(each is output for each in inputs) for output in outputs])
        return outputs, reply

    monkeypatch.setattr(client, "_run", seen)
    return told


def trained(model: Any, steps: int, compiled: bool) -> list[Any]:
    """A copy of what is there after each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    call = torch.compile(model, backend="hostir") if compiled else model
    step = torch.compile(optimizer.step, backend="hostir") if compiled else optimizer.step
    x = torch.linspace(-1, 1, 128).reshape(8, 16)
    there = []
    for _ in range(steps):
        optimizer.zero_grad()
        call(x).square().mean().backward()
        step()
        state = [each for of in optimizer.state.values() for each in of.values() if each.dim() > 0]
        there.append([each.detach().clone() for each in (*model.parameters(), *state)])
    return there


def test_optimizer_steps_have_no_second_memory(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    want = trained(copy.deepcopy(model), 5, False)
    told = is_in_place(client, monkeypatch)
    got = trained(model, 5, True)
    for ours, theirs in zip(got, want, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)
    # The first one moves parameters and state to the daemon's memory; from then on all 12 of them stay there.
    assert [sum(results) for results in told].count(12) == 4


def test_views_and_addresses_stay(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    @torch.compile(backend="hostir")
    def update(x: Any, g: Any) -> None:
        x.sub_(g * 0.5)

    x, g = torch.arange(6.0).reshape(2, 3).clone(), torch.ones(2, 3)
    update(x, g)  # From now on it is the daemon's memory.
    flat, address, version = x.view(-1), x.data_ptr(), x._version
    told = is_in_place(client, monkeypatch)
    update(x, g)
    assert told == [[True]]
    assert (x.data_ptr(), flat.tolist()) == (address, [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0])
    assert x._version > version  # Autograd has to see that it is another value.


def test_readers_of_the_old_value_find_it(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    @torch.compile(backend="hostir")
    def update(x: Any) -> Any:
        old = torch.special.bessel_j0(x)  # PyTorch's.
        x.mul_(2)
        return old, x + 1

    x = torch.arange(4.0)
    told = is_in_place(client, monkeypatch)
    for step in range(3):
        want = torch.arange(4.0) * 2**step
        old, new = update(x)
        torch.testing.assert_close(old, torch.special.bessel_j0(want))
        torch.testing.assert_close(new, 2 * want + 1)
        assert x.tolist() == (2 * want).tolist()
    assert not any(any(results) for results in told)


def test_each_of_two_reads_what_the_other_was(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    @torch.compile(backend="hostir")
    def rotate(x: Any, y: Any) -> None:
        a, b = x * 0.6 - y * 0.8, x * 0.8 + y * 0.6
        x.copy_(a)
        y.copy_(b)

    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, -1.0])
    u, v = x.double(), y.double()
    told = is_in_place(client, monkeypatch)
    for _ in range(4):
        rotate(x, y)
        u, v = u * 0.6 - v * 0.8, u * 0.8 + v * 0.6
    torch.testing.assert_close(x, u.float())
    torch.testing.assert_close(y, v.float())
    assert told[-1] == [True, True]


def test_what_cannot_be_written_in_place_is_replaced(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    @torch.compile(backend="hostir")
    def update(x: Any) -> None:
        x.copy_(x.flip(0) + x)

    x, want = torch.arange(5.0), torch.arange(5.0)
    told = is_in_place(client, monkeypatch)
    for _ in range(4):
        update(x)
        want = want.flip(0) + want
        assert x.tolist() == want.tolist()
    assert not any(any(results) for results in told)


def test_a_step_that_fails_leaves_tensors_that_work(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    @torch.compile(backend="hostir")
    def update(x: Any) -> None:
        x.mul_(3)

    x = torch.ones(4)
    for _ in range(2):
        update(x)
    run = client._run

    def failing(*arguments: Any, **options: Any) -> Any:
        run(*arguments, **options)
        raise hostir.Unavailable("rank 0 died")

    with monkeypatch.context() as patched:
        patched.setattr(client, "_run", failing)
        patched.setattr(client, "_state", lambda _: "poisoned")
        with pytest.raises(hostir.Unavailable):
            update(x)
    x.fill_(2)  # Whatever is there then: the client says.
    update(x)
    assert x.tolist() == [6.0] * 4
    update(x)
    assert x.tolist() == [18.0] * 4


def test_in_place_asks_for_nothing_but_its_run(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    @torch.compile(backend="hostir")
    def update(x: Any) -> None:
        x.add_(1)

    x = torch.zeros(300)
    for _ in range(2):
        update(x)

    def refused(*_: Any) -> Any:
        raise AssertionError("a second tensor")

    monkeypatch.setattr(graphs, "take_over", refused)
    monkeypatch.setattr(graphs, "tensor_of", refused)
    bytes_before = client.status()["tensor_bytes"]
    for _ in range(3):
        update(x)
    assert client.status()["tensor_bytes"] == bytes_before
    assert x[0] == 5


def test_equal_results_are_not_one_memory(client: hostir.Client) -> None:
    @torch.compile(backend="hostir")
    def update(x: Any, y: Any, z: Any) -> Any:
        x.add_(1)
        y.copy_(x.t())
        z.copy_(x.t())
        return x.t() * 1, x.to(torch.float32) + 0

    tensors = [torch.arange(9.0).reshape(3, 3).clone() for _ in range(3)]
    want = [each.clone() for each in tensors]
    for _ in range(4):
        results = update(*tensors)
        want[0] += 1
        want[1], want[2] = want[0].t().clone(), want[0].t().clone()
        for a, b in zip(tensors, want, strict=True):
            assert torch.equal(a, b)
        for place, each in enumerate((*tensors, *results)):
            others = [other.clone() for other in (*tensors, *results)]
            each.mul_(0.5)
            for other, (now, before) in enumerate(zip((*tensors, *results), others, strict=True)):
                assert other == place or torch.equal(now, before)
        for each in want:
            each.mul_(0.5)


def test_a_run_that_is_refused_changes_nothing(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    @torch.compile(backend="hostir")
    def update(x: Any) -> None:
        x.mul_(3)

    x = torch.ones(4)
    for _ in range(2):
        update(x)

    def refused(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(client, "_run", refused)
        with pytest.raises(KeyboardInterrupt):
            update(x)
    told = is_in_place(client, monkeypatch)
    update(x)
    assert told == [[True]]
    assert x.tolist() == [27.0] * 4
