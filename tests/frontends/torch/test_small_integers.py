"""uint8 and int8 in PyTorch's models: values, types and promotion beside eager, and that no op on them falls back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: ./run setup --torch")
import hostir.torch  # noqa: E402

COLUMNS = torch.tensor([3, 0, 5])

CASES: dict[str, Callable[[Any, Any], list[Any]]] = {
    "arithmetic": lambda a, b: [a + b, a - b, a * b, a % b, -a, a + 3, a * 7, 2 - a, a**2, a.abs(), a.clamp(3, 90)],
    "quotients": lambda a, b: [a // b, torch.div(a, b, rounding_mode="trunc"), a / b, a // 3],
    "bits": lambda a, b: [a & b, a | b, a ^ b, ~a],
    "comparisons": lambda a, b: [a < b, a == b, a >= b, a == 3, torch.maximum(a, b), torch.minimum(a, b)],
    "where": lambda a, b: [torch.where(a > b, a, b), a.masked_fill(a > b, 5), torch.where(a > 3, a, 0)],
    "to others": lambda a, b: [a.float() / 255, a.int(), a.long() - b.int(), a.bool(), a.half() * b, a.double().sqrt()],
    "from others": lambda a, b: [(a.int() * 5).to(a.dtype), (a.float() / 3).to(a.dtype), (a > b).to(a.dtype)],
    "mixed": lambda a, b: [a + b.int(), a * 1.5, a + b.float(), a + (b > 3), a + torch.tensor(200)],
    "sums": lambda a, b: [a.sum(), a.sum(0), a.sum(1), a.float().mean(1), (a > b).sum(1), a.prod(1), a.cumsum(1)],
    "extremes": lambda a, b: [a.amax(1), a.amin(0), a.argmax(1), a.any(1), a.all(0)],
    "shapes": lambda a, b: [(a + 1).t().contiguous(), torch.cat([a + 1, b]), (a + 1)[3:9, 2:40:3], (a + 1).flip(0)],
    "indices": lambda a, b: [a[COLUMNS] + 1, torch.gather(a, 1, b.long() % 65) + 0, a.sort(1)[0] + 1],
    "normalised": lambda a, b: [(a.float() / 255 - 0.45) / 0.225],
    "dequantised": lambda a, b: [torch.linspace(0, 1, 130).view(2, 65) @ (a.float() * b[:, :1]).T],
}


def _drawn(dtype: Any, least: int) -> Any:
    """Of all values of the type from `least` on; divisors among them."""
    info = torch.iinfo(dtype)
    return torch.randint(max(least, info.min), info.max + 1, (37, 65)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
@pytest.mark.parametrize("name", CASES)
def test_as_eager(name: str, dtype: Any) -> None:
    a, b = _drawn(dtype, -128), _drawn(dtype, 1)
    made = torch.compile(CASES[name], backend="hostir")(a, b)
    for mine, wanted in zip(made, CASES[name](a, b), strict=True):
        assert mine.dtype == wanted.dtype
        rtol = 1e-3 if wanted.dtype == torch.float16 else 1e-4
        torch.testing.assert_close(mine, wanted, rtol=rtol, atol=1e-5, equal_nan=True)
    assert not hostir.torch.report().fallen


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
@pytest.mark.parametrize("other", [torch.bool, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32])
def test_promotion(dtype: Any, other: Any) -> None:
    a, b = _drawn(dtype, -128), _drawn(torch.uint8, 1).to(other)
    made = torch.compile(lambda a, b: a * b, backend="hostir")(a, b)
    assert made.dtype == torch.promote_types(dtype, other)
    torch.testing.assert_close(made, a * b)
    assert not hostir.torch.report().fallen


@pytest.mark.parametrize("constant", [300, -200])
def test_constants_beyond_the_type(constant: int) -> None:
    """Programs refuse them: PyTorch says what they are."""
    a = _drawn(torch.uint8, 0)

    def compares(a: Any) -> Any:
        return (a + 1) < constant

    assert torch.equal(torch.compile(compares, backend="hostir")(a), compares(a))


def test_uint8_with_int8_is_pytorchs() -> None:
    a, b = _drawn(torch.uint8, 0), _drawn(torch.int8, -128)
    made = torch.compile(lambda a, b: (a + b) * 2, backend="hostir")(a, b)
    assert made.dtype == torch.int16 and torch.equal(made, (a + b) * 2)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
@pytest.mark.parametrize("given", [torch.float32, torch.float16, torch.float64])
def test_floats_beyond_the_type_wrap(dtype: Any, given: Any) -> None:
    x = torch.tensor([-1, -0.5, 255.5, 256, 300, -200, 127.9, -128.5, 1e4], dtype=given)
    made = torch.compile(lambda x: ((x * 1).to(dtype), (x / 2).to(dtype) + 1), backend="hostir")(x)
    assert torch.equal(made[0], x.to(dtype)) and torch.equal(made[1], (x / 2).to(dtype) + 1)
    assert not hostir.torch.report().fallen


FILLS: dict[str, Callable[[Any, Any, int], Any]] = {
    "full_like": lambda a, b, n: torch.full_like(a, n) + a,
    "fill": lambda a, b, n: a.clone().fill_(n) + a,
    "masked_fill": lambda a, b, n: (a + 1).masked_fill(b, n),
    "where": lambda a, b, n: torch.where(b, a + 1, n),
    "pad": lambda a, b, n: torch.nn.functional.pad(a + 1, (1, 2), value=n),
    "index_fill": lambda a, b, n: (a + 1).index_fill(0, torch.tensor([0, 2]), n),
}


@pytest.mark.parametrize("number", [-1, -129, 255, 300])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
@pytest.mark.parametrize("name", FILLS)
def test_numbers_that_fill(name: str, dtype: Any, number: int) -> None:
    """The same values, or eager's error."""
    a, fill = _drawn(dtype, -128), FILLS[name]
    try:
        wanted = fill(a, a > 5, number)
    except RuntimeError as error:
        with pytest.raises(type(error)):
            torch.compile(lambda a: fill(a, a > 5, number), backend="hostir")(a)
        return
    assert torch.equal(torch.compile(lambda a: fill(a, a > 5, number), backend="hostir")(a), wanted)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_floored_quotients_at_the_limits(dtype: Any) -> None:
    least, greatest = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    x = torch.tensor([least, least + 1, greatest, -1, 1, least, greatest], dtype=dtype)
    y = torch.tensor([3, greatest, -2, greatest, least, 2, greatest], dtype=dtype)
    made = torch.compile(lambda x, y: (x // y, x % y), backend="hostir")(x, y)
    assert torch.equal(made[0], x // y) and torch.equal(made[1], x % y)
