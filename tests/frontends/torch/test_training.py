"""Models that train: losses, gradients and parameters beside PyTorch's own, whatever changes them meanwhile."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: ./run setup --torch")
import hostir.torch  # noqa: E402
from hostir.torch.staging import Staging  # noqa: E402

nn, F = torch.nn, torch.nn.functional


class Block(nn.Module):  # type: ignore[misc, name-defined]
    """A transformer block with grouped queries and rotary positions, between an embedding and a head."""

    def __init__(self, words: int = 50, width: int = 32, heads: int = 4, groups: int = 2) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.embed = nn.Embedding(words, width)
        self.norms = nn.ModuleList([nn.RMSNorm(width) for _ in range(3)])
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down, self.head = nn.Linear(2 * width, width, bias=False), nn.Linear(width, words, bias=False)

    def rotated(self, x: Any) -> Any:
        steps = torch.arange(x.shape[2], dtype=torch.float32)
        angles = steps[:, None] * 10000 ** (-torch.arange(0, self.size, 2, dtype=torch.float32) / self.size)
        cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()
        first, second = x.chunk(2, -1)
        return (x * cos + torch.cat([-second, first], -1) * sin).to(x.dtype)

    def forward(self, words: Any) -> Any:
        x = self.embed(words)
        batch, length, width = x.shape
        y = self.norms[0](x)
        q = self.q(y).view(batch, length, self.heads, self.size).transpose(1, 2)
        k, v = (w(y).view(batch, length, self.groups, self.size).transpose(1, 2) for w in (self.k, self.v))
        q, k = self.rotated(q), self.rotated(k)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, length, width))
        y = self.norms[1](x)
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return self.head(self.norms[2](x))


def loss_of(model: Any, words: Any) -> Any:
    return F.cross_entropy(model(words)[:, :-1].flatten(0, 1).float(), words[:, 1:].flatten())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 5e-2)])
def test_a_transformer_trains(dtype: Any, tolerance: float) -> None:
    """20 steps of AdamW, compiled too: losses, and the gradients of each step."""
    ours = Block().to(dtype)
    theirs = copy.deepcopy(ours)
    model = torch.compile(ours, backend="hostir")
    optimizers = [torch.optim.AdamW(each.parameters(), lr=1e-3) for each in (ours, theirs)]
    step = torch.compile(lambda: optimizers[0].step(), backend="hostir")
    words = torch.randint(0, 50, (20, 2, 12))
    for batch in words:
        losses = [loss_of(model, batch), loss_of(theirs, batch)]
        for loss in losses:
            loss.backward()
        torch.testing.assert_close(losses[0], losses[1], rtol=tolerance, atol=tolerance)
        for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            assert (p.grad - q.grad).norm() <= tolerance * q.grad.norm() + 1e-6, name
        step()
        optimizers[1].step()
        if dtype == torch.bfloat16:  # Their rounding leads apart.
            theirs.load_state_dict(ours.state_dict())
            optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
        for optimizer in optimizers:
            optimizer.zero_grad()
    report = hostir.torch.report()
    assert report.flops == 1.0 and report.bytes == 1.0, report


OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True),
    "AdamW of one tensor": lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-3), foreach=False),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, centered=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
    "Lion-like": lambda p: torch.optim.Adamax(p, lr=1e-3),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer(name: str) -> None:
    """Five compiled steps, and their state, which PyTorch reads."""
    models = [nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3))]
    models.append(copy.deepcopy(models[0]))
    made = [OPTIMIZERS[name](model.parameters()) for model in models]
    steps = [torch.compile(lambda: made[0].step(), backend="hostir"), made[1].step]
    x = torch.randn(4, 6)
    for _ in range(5):
        for model, step, optimizer in zip(models, steps, made, strict=True):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            step()
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-5)
        for key, value in made[1].state[q].items():
            torch.testing.assert_close(made[0].state[p][key], value, rtol=1e-4, atol=1e-5, msg=key)


def _double_data(model: Any) -> None:
    model.weight.data.mul_(2)


def _through_numpy(model: Any) -> None:
    model.weight.detach().numpy()[:] += 1


def _in_place(model: Any) -> None:
    with torch.no_grad():
        model.weight.add_(1)


def _another(model: Any) -> None:
    model.weight.data = torch.ones_like(model.weight)


def _loaded(model: Any) -> None:
    model.load_state_dict({name: value * 3 for name, value in model.state_dict().items()})


@pytest.mark.parametrize("change", [_double_data, _through_numpy, _in_place, _another, _loaded])
def test_changes_of_parameters_are_seen(change: Callable[[Any], None]) -> None:
    """However they are made, and in both directions."""
    model = nn.Linear(5, 4)
    compiled = torch.compile(model, backend="hostir")
    x = torch.randn(3, 5)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), F.linear(x, model.weight, model.bias))
        change(model)


def test_a_parameter_that_is_a_view_stays_one() -> None:
    """Memory that two tensors have is not replaced."""
    memory = torch.randn(2, 12)
    weight = nn.Parameter(memory[1].view(3, 4))
    compiled = torch.compile(lambda x: F.linear(x, weight), backend="hostir")
    x = torch.randn(2, 4)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), F.linear(x, memory[1].view(3, 4)))
        with torch.no_grad():
            memory.mul_(2)


def test_results_are_tensors_like_others() -> None:
    """They can be written to; what was saved for the backward pass says so."""
    f = torch.compile(lambda x: (x.exp(), x + 1), backend="hostir")
    x = torch.randn(300, 300, requires_grad=True)
    first, second = f(x)
    with torch.no_grad():
        second.zero_()
    again, _ = f(x)
    assert torch.equal(first, again) and first.data_ptr() != again.data_ptr()
    with torch.no_grad():
        again.mul_(2)
    torch.testing.assert_close(first, x.exp())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        again.sum().backward()
    first.sum().backward()
    torch.testing.assert_close(x.grad, x.exp())


def test_buffers_change() -> None:
    """Those of batch norm, in training."""
    models = [nn.BatchNorm1d(6)]
    models.append(copy.deepcopy(models[0]))
    compiled = torch.compile(models[0], backend="hostir")
    for _ in range(4):
        x = torch.randn(8, 6)
        torch.testing.assert_close(compiled(x), models[1](x), rtol=1e-4, atol=1e-5)
    for name, buffer in models[1].named_buffers():
        torch.testing.assert_close(models[0].get_buffer(name), buffer, rtol=1e-4, atol=1e-5)


def test_sizes_that_change_are_one_graph() -> None:
    """Symbols of the graph become numbers of each program."""
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8))
    compiled = torch.compile(model, backend="hostir", dynamic=True)
    for rows in (3, 7, 2, 7):
        x = torch.randn(rows, 5, 4)
        made = compiled(x)
        torch.testing.assert_close(made, model(x), rtol=1e-5, atol=1e-5)
        made.sum().backward()
    assert len(hostir.torch.report().graphs) == 2, hostir.torch.report()


def test_ops_that_programs_lack_run_in_pytorch() -> None:
    """Between two programs; the report names them and the share of the FLOPs."""
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Unflatten(1, (4, 4, 4)), nn.Conv2d(4, 8, 3), nn.Flatten())
    other = copy.deepcopy(model)
    compiled = torch.compile(model, backend="hostir")
    x = torch.randn(2, 16)
    compiled(x).square().sum().backward()
    other(x).square().sum().backward()
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-5)
    report = hostir.torch.report()
    assert ("convolution.default", "no such op") in report.fallen, report
    assert 0 < report.flops < 1
    assert "in PyTorch: 1 of convolution.default: no such op" in str(report)


def test_products_of_groups_are_counted() -> None:
    """Experts' products by transformers, which PyTorch's own table of FLOPs does not know."""
    pytest.importorskip("transformers.integrations.moe", reason="transformers is not installed")
    grouped = torch.ops.transformers.grouped_mm_fallback
    x, weight, experts = torch.randn(6, 4), torch.randn(4, 8), torch.randn(2, 8, 16)
    ends = torch.tensor([2, 6], dtype=torch.int32)
    torch.compile(lambda x: grouped(x @ weight, experts, ends), backend="hostir")(x)
    (graph,) = hostir.torch.report().graphs
    assert (graph.flops, graph.fallen_flops) == (2 * 6 * 4 * 8 + 2 * 6 * 8 * 16, 0)


def test_a_graph_break_is_two_programs() -> None:
    def f(x: Any) -> Any:
        y = (x * 2).relu()
        torch._dynamo.graph_break()
        return (y @ y).sum()

    x = torch.randn(6, 6, requires_grad=True)
    wanted = f(x)
    (gradient,) = torch.autograd.grad(wanted, x)
    made = torch.compile(f, backend="hostir")(x)
    made.backward()
    torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(x.grad, gradient, rtol=1e-5, atol=1e-5)


def test_programs_have_the_names_and_lines_of_the_model() -> None:
    """Values are called as the graph's nodes, and an op's line is that of the model."""
    torch.compile(lambda x: (x * 2).sigmoid(), backend="hostir")(torch.ones(3, 4))
    (definition,) = hostir.torch.report().graphs[0].definitions()
    assert "%sigmoid = sigmoid(%mul)" in str(definition), str(definition)
    located = [op.location for op in definition._record.ops if op.name == "sigmoid"]
    assert len(located) == 1 and "test_training.py" in located[0] and "(x * 2).sigmoid()" in located[0], located


@pytest.mark.parametrize("end", ["the client closes", "the daemon is asked to end", "the daemon is killed"])
def test_parameters_outlive_the_daemon(end: str) -> None:
    """With what the last step made of them; and train on with another."""
    model, other = nn.Linear(700, 30), nn.Linear(700, 30)
    other.load_state_dict(model.state_dict())
    x = torch.randn(4, 700)

    def step(compiled: Any, optimizer: Any, update: Any) -> None:
        optimizer.zero_grad()
        compiled(x).square().sum().backward()
        update()

    made = [torch.optim.SGD(each.parameters(), lr=1e-3, momentum=0.9) for each in (model, other)]
    compiled = torch.compile(model, backend="hostir")
    update = torch.compile(lambda: made[0].step(), backend="hostir")
    for turn in range(2):
        client = hostir.connect(devices="cpu:1", timeout=60)
        hostir.torch.use(client)
        for _ in range(3):
            step(compiled, made[0], update)
            step(other, made[1], made[1].step)
        if end != "the client closes" and turn == 0:
            assert client._daemon is not None
            os.kill(client._daemon.pid, signal.SIGTERM if "asked" in end else signal.SIGKILL)
            client._daemon._process.wait(30)
        else:
            client.close()
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-4)
    client.close()


def test_a_backward_graph_finds_what_was_saved_or_says_so(client: hostir.Client) -> None:
    """Whatever is forgotten between; with another client it is not there."""
    model = nn.Sequential(nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 3))
    other = copy.deepcopy(model)
    compiled = torch.compile(model, backend="hostir")
    x = torch.randn(4, 300)
    loss = compiled(x).square().sum()
    hostir.torch.forget()
    loss.backward()
    other(x).square().sum().backward()
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-4)
    loss = compiled(x).square().sum()
    with hostir.connect(devices="cpu:1", timeout=60) as second:
        hostir.torch.use(second)
        with pytest.raises(hostir.FailedPrecondition, match="saved is with another client"):
            loss.backward()
    hostir.torch.use(client)


class _Twice(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x.sin()
        ctx.save_for_backward(y)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return ctx.saved_tensors[0]


def test_a_gradient_that_is_what_was_saved() -> None:
    x = torch.randn(300, 300, requires_grad=True)
    torch.compile(lambda x: _Twice.apply(x).sum(), backend="hostir")(x).backward()
    torch.testing.assert_close(x.grad, x.detach().sin())


def test_memory_of_others_is_written_not_replaced() -> None:
    """NumPy's, and that of other processes: what is in it counts, and what a graph writes is there."""
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    weight = nn.Parameter(torch.from_numpy(values))
    compiled = torch.compile(lambda x: F.linear(x, weight), backend="hostir")
    x = torch.randn(2, 4)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), x @ torch.from_numpy(values).t())
        values += 1
    target = torch.from_numpy(values)
    torch.compile(lambda t: t.add_(1), backend="hostir")(target)
    assert target.data_ptr() == values.ctypes.data and values[0, 0] == 4
    model = nn.Linear(4, 3)
    compiled = torch.compile(model, backend="hostir")
    for _ in range(2):
        torch.testing.assert_close(compiled(x), F.linear(x, model.weight, model.bias))
        model.share_memory()
        with torch.no_grad():
            model.weight.mul_(2)
        torch.testing.assert_close(compiled(x), F.linear(x, model.weight, model.bias))
    assert model.weight.is_shared()


def test_a_program_that_is_refused_runs_in_pytorch() -> None:
    """An op that takes less than PyTorch's: its program falls back whole, and the report says why."""
    x, i = torch.zeros(5, 3, dtype=torch.bool), torch.tensor([1, 1, 3])
    f = torch.compile(
        lambda x, i: x.index_put((i,), torch.tensor(True), accumulate=True).logical_not(), backend="hostir"
    )
    for _ in range(2):
        assert torch.equal(f(x, i), x.index_put((i,), torch.tensor(True), accumulate=True).logical_not())
    report = hostir.torch.report()
    assert any(op == "index_put.default" and "index_sum" in why for op, why in report.fallen), report
    assert report.bytes == 0.0


def test_gradients_by_frequency() -> None:
    tables = [nn.Embedding(6, 4, scale_grad_by_freq=True)]
    tables.append(copy.deepcopy(tables[0]))
    words = torch.tensor([1, 1, 1, 5])
    torch.compile(tables[0], backend="hostir")(words).sum().backward()
    tables[1](words).sum().backward()
    torch.testing.assert_close(tables[0].weight.grad, tables[1].weight.grad)
    assert not hostir.torch.report().fallen


def test_numbers_of_the_host_and_sizes() -> None:
    """A tensor without axes in the host's memory is a number of a run, also beside sizes that change."""

    def scaled(x: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * (s * (x.shape[0] * 2)) + s.exp() * (x.shape[0] + x.shape[1]), s + 1

    compiled = torch.compile(scaled, backend="hostir", dynamic=True)
    for rows, number in ((3, 0.5), (5, -0.0), (7, float("inf")), (3, float("nan")), (4, 1e-40)):
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int64):
            if dtype in (torch.int32, torch.int64) and not abs(number) < 1:
                continue
            x, s = torch.randn(rows, 4), torch.tensor(number).to(dtype)
            for found, expected in zip(compiled(x, s), scaled(x, s), strict=True):
                torch.testing.assert_close(found, expected, equal_nan=True)
    assert hostir.torch.report().flops == 1.0


def test_gradients_of_a_number_of_the_host() -> None:
    def loss(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return (x * scale.exp()).square().mean()

    x, scale = torch.randn(6, 5), torch.tensor(0.3, requires_grad=True)
    compiled = torch.compile(loss, backend="hostir")
    for _ in range(3):
        (found,) = torch.autograd.grad(compiled(x, scale), scale)
        (expected,) = torch.autograd.grad(loss(x, scale), scale)
        torch.testing.assert_close(found, expected)
        with torch.no_grad():
            scale += 0.1


class Cache(nn.Module):  # type: ignore[misc, name-defined]
    """Returns, beside what the loss knows, something large that it does not."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 64), nn.Linear(64, 1)

    def forward(self, x: Any) -> Any:
        hidden = self.inner(x).tanh()
        return self.outer(hidden).sum(), hidden


def test_nothing_is_put_in_a_step(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs go along with runs; of the zeros that autograd makes for what the loss does not know one does."""
    ours = Cache()
    theirs = copy.deepcopy(ours)
    model = torch.compile(ours, backend="hostir")
    batches = torch.randn(4, 2048, 8)

    def step(module: Any, x: Any) -> None:
        module.zero_grad(set_to_none=True)
        loss, hidden = module(x)
        assert hidden.shape == (2048, 64)
        loss.backward()

    for k, x in enumerate(batches):
        if k == 1:  # Parameters are there.
            monkeypatch.setattr(client, "_upload_input", lambda *_: pytest.fail("something is put"))
        step(model, x)
        step(theirs, x)
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-4)
        hidden_gradient = torch.randn(2048, 64)
    monkeypatch.undo()
    a, b = (torch.randn(200, 200, requires_grad=True) for _ in "ab")
    shifted = torch.compile(lambda a, b: (a * 2, b + 1), backend="hostir")(a, b)
    wanted = {"materialize_grads": True, "allow_unused": True}
    _, zeros = torch.autograd.grad(shifted[0].sum(), (a, b), **wanted)  # They are the user's, to be written.
    torch.testing.assert_close(zeros.add_(1), torch.ones(200, 200))
    (_, hidden), (_, want) = model(x), theirs(x)  # Then one that is none.
    model.zero_grad(), theirs.zero_grad()
    hidden.backward(hidden_gradient), want.backward(hidden_gradient)
    for p, q in zip(ours.inner.parameters(), theirs.inner.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-4)


def test_products_with_a_bias_multiply_what_they_are_given() -> None:
    """PyTorch's own decomposition of addmm casts operands of 16 bits to float32, which GPUs multiply ten times as long:
    a model's products would move twice the bytes."""
    moved = {}
    for dtype in (torch.float32, torch.bfloat16):
        model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).to(dtype)
        x = torch.randn(16, 32, dtype=dtype)
        torch._dynamo.reset()
        hostir.torch.reset()
        made = torch.compile(model, backend="hostir")(x)
        made.sum().backward()
        torch.testing.assert_close(made, model(x), rtol=2e-2, atol=2e-2)
        segments = [each for plan in hostir.torch.report().plans() for each in plan.segments]
        moved[dtype] = sum(int(each.bytes) for each in segments if each.kind == "library")
    assert 0 < 2 * moved[torch.bfloat16] <= moved[torch.float32]


def test_a_bias_times_nothing_is_not_read() -> None:
    bias, x, y = torch.full((4,), float("nan")), torch.randn(3, 5), torch.randn(5, 4)
    function = torch.compile(lambda bias, x, y: torch.addmm(bias, x, y, beta=0, alpha=2), backend="hostir")
    torch.testing.assert_close(function(bias, x, y), 2 * (x @ y))


def test_weights_behind_an_op_of_pytorch_stay_where_they_are(
    client: hostir.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A convolution runs in PyTorch; the weight of a product behind it is transposed in the program that reads it."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
    compiled = torch.compile(model, backend="hostir")
    x = torch.randn(2, 3, 8, 8)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    assert "permute.default" not in {op for op, _ in hostir.torch.report().fallen}
    sent = []
    fill = Staging.fill
    monkeypatch.setattr(Staging, "fill", lambda *given: (sent.append(tuple(given[2].shape)), fill(*given))[1])
    compiled(x)
    assert sent == [(2, 8, 6, 6)]
