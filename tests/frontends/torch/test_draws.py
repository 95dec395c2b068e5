"""Random numbers in compiled models: distributions, seeds, and dropout beside its own mask."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: ./run setup --torch")
from torch._inductor import config  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import hostir.torch  # noqa: E402

F = torch.nn.functional
COUNT = 1 << 16

# Draws like x, and what their mean and standard deviation are to be.
DRAWS: dict[str, tuple[Callable[[Any], Any], float, float]] = {
    "rand": (lambda x: torch.rand(COUNT) + x, 0.5, 12**-0.5),
    "rand_like": (lambda x: torch.rand_like(x, dtype=torch.float64) + x, 0.5, 12**-0.5),
    "halves": (lambda x: torch.rand_like(x, dtype=torch.bfloat16) + x, 0.5, 12**-0.5),
    "uniform_": (lambda x: torch.empty_like(x).uniform_(2, 5), 3.5, 3 * 12**-0.5),
    "randn": (lambda x: torch.randn(COUNT, dtype=torch.float16) + x, 0, 1),
    "randn_like": (lambda x: torch.randn_like(x) + x, 0, 1),
    "normal_": (lambda x: torch.empty_like(x).normal_(2, 5), 2, 5),
    "normal of means": (lambda x: torch.normal(x + 3, 2.0), 3, 2),
    "normal of deviations": (lambda x: torch.normal(1.0, x + 2), 1, 2),
    "normal of both": (lambda x: torch.normal(x + 1, x + 2), 1, 2),
    "bernoulli": (lambda x: torch.bernoulli(x + 0.3), 0.3, 0.21**0.5),
    "bernoulli of a number": (lambda x: torch.bernoulli(x, 0.3), 0.3, 0.21**0.5),
    "bernoulli_": (lambda x: torch.empty_like(x).bernoulli_(0.3), 0.3, 0.21**0.5),
    "exponential_": (lambda x: torch.empty_like(x).exponential_(2), 0.5, 0.5),
    "randint": (lambda x: torch.randint(9, (COUNT,)) + x, 4, (80 / 12) ** 0.5),
    "randint from": (lambda x: torch.randint(-3, 6, (COUNT,), dtype=torch.int32) + x, 1, (80 / 12) ** 0.5),
    "randint_like": (lambda x: torch.randint_like(x, 3, 9) + x, 5.5, (35 / 12) ** 0.5),
}


def _compiled(function: Any) -> Any:
    return torch.compile(function, backend="hostir")


def _in_pytorch() -> dict[str, Any]:
    return dict(hostir.torch.report().fallen)


@pytest.mark.parametrize("name", DRAWS)
def test_mean_and_deviation(name: str) -> None:
    draw, mean, deviation = DRAWS[name]
    with torch.no_grad():
        made = _compiled(draw)(torch.zeros(COUNT)).double()
        eager = draw(torch.zeros(COUNT)).double()
    error = 5 * deviation / math.sqrt(COUNT)
    assert abs(made.mean().item() - mean) < error + (0.004 if name == "halves" else 0)
    assert abs(made.std().item() - deviation) < 0.02 * deviation
    assert made.min() >= eager.min() - deviation and made.max() <= eager.max() + 2 * deviation
    assert not _in_pytorch()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_what_is_never_drawn(dtype: Any) -> None:
    """The end of a range, and the 0 by which samplers divide."""
    x = torch.zeros(COUNT * 16, dtype=dtype)
    ranged, waits = _compiled(lambda x: (x.clone().uniform_(1, 2), x.clone().exponential_(1)))(x)
    assert ranged.min() >= 1 and ranged.max() < 2 and waits.min() > 0
    assert abs(ranged.double().mean() - 1.5) < 0.005 and abs(waits.double().mean() - 1) < 0.005


def test_the_default_device_does_not_matter() -> None:
    with torch.device("meta"):
        _compiled(lambda x: torch.rand_like(x) + x)(torch.zeros(8, device="cpu"))


def test_the_seed_is_pytorchs() -> None:
    draw = _compiled(lambda x: (torch.rand_like(x) + x, torch.rand_like(x) + x))
    x = torch.zeros(1000)
    torch.manual_seed(1)
    first, second = draw(x), draw(x)
    torch.manual_seed(1)
    again = draw(x)
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    distinct = torch.stack([*first, *second])
    assert all(abs(torch.corrcoef(distinct)[i, j]) < 0.2 for i in range(4) for j in range(i))


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_forward_and_backward(p: float, dtype: Any) -> None:
    x = torch.ones(256, 256, dtype=dtype, requires_grad=True)
    made = _compiled(lambda x: F.dropout(x * 2, p))(x)
    made.backward(torch.full_like(made, 3.0))
    kept = made != 0
    assert abs(kept.double().mean().item() - (1 - p)) <= 5 * math.sqrt(p * (1 - p)) / 256
    scale = 0.0 if p == 1 else 1 / (1 - p)
    torch.testing.assert_close(made, torch.where(kept, 2 * scale, 0.0).to(dtype))
    torch.testing.assert_close(x.grad, torch.where(kept, 6 * scale, 0.0).to(dtype))
    assert not _in_pytorch()


def test_models_with_dropout_are_one_program_each_way() -> None:
    torch.manual_seed(3)
    layers = [torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.2, batch_first=True) for _ in range(2)]
    model = torch.nn.Sequential(*layers)
    compiled = _compiled(model)
    x = torch.randn(3, 5, 32)
    compiled(x).square().sum().backward()
    report = hostir.torch.report()
    assert not report.fallen
    assert [graph.runs for graph in report.graphs] == [1, 1]
    model.eval()
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)


def test_checkpoints_draw_the_same_again() -> None:
    weight = torch.randn(64, 64, requires_grad=True)

    def block(x: Any) -> Any:
        return F.dropout((x @ weight).exp(), 0.5)

    compiled = _compiled(block)
    x = torch.randn(64, 64) / 16
    torch.manual_seed(5)
    compiled(x).sum().backward()
    expected, weight.grad = weight.grad.clone(), None
    torch.manual_seed(5)
    checkpoint(compiled, x, use_reentrant=False).sum().backward()
    torch.testing.assert_close(weight.grad, expected)
    weight.grad = None
    hostir.torch.reset()
    torch._dynamo.reset()
    made = _compiled(lambda x: checkpoint(block, x, use_reentrant=False))(x)
    made.sum().backward()  # sum over m of exp(x w) d/dw, where kept.
    slope = torch.where(made != 0, made, 0.0).detach()
    torch.testing.assert_close(weight.grad, x.T @ slope, rtol=1e-4, atol=1e-4)


def test_sizes_change() -> None:
    draw = torch.compile(lambda x: F.dropout(x, 0.5), backend="hostir", dynamic=True)
    for rows in (30, 40, 50):
        assert draw(torch.ones(rows, 8)).shape == (rows, 8)
    assert not _in_pytorch()


def test_eager_numbers_on_demand() -> None:
    def draw(x: Any) -> Any:
        return F.dropout(x, 0.5) + 2 * torch.rand_like(x) + torch.randn(100)

    x = torch.ones(100)
    with config.patch(fallback_random=True):
        torch.manual_seed(2)
        made = _compiled(draw)(x)
        torch.manual_seed(2)
        assert torch.equal(made, draw(x))
    names = " ".join(str(each) for each in _in_pytorch())
    assert "rand_like" in names and "fallback_random" in str(hostir.torch.report())
