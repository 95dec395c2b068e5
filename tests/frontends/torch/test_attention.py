"""Attention as PyTorch calls it: values and gradients beside its own in float64, and memory linear in the length."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: ./run setup --torch")
import hostir.torch  # noqa: E402

F = torch.nn.functional
HEADS, KEYS = (2, 4, 33, 16), (2, 4, 70, 16)


def some(*shape: int) -> Any:
    """Three of four, and the first of each row."""
    mask = torch.rand(*shape) > 0.25
    mask[..., 0] = True
    return mask


CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": (HEADS, KEYS, KEYS, {}),
    "causal": (HEADS, HEADS, HEADS, {"is_causal": True}),
    "causal, fewer queries than keys": (HEADS, KEYS, KEYS, {"is_causal": True}),
    "longer values": (HEADS, KEYS, (2, 4, 70, 5), {"scale": 0.3}),
    "a batch without heads": ((3, 9, 8), (3, 12, 8), (3, 12, 8), {}),
    "no batch": ((9, 8), (12, 8), (12, 8), {"scale": -1.0}),
    "keys of all batches": ((5, 4, 9, 8), (1, 4, 9, 8), (1, 1, 9, 8), {}),
    "heads that share keys": (HEADS, (2, 2, 33, 16), (2, 2, 33, 16), {"is_causal": True, "enable_gqa": True}),
    "bools": (HEADS, KEYS, KEYS, {"attn_mask": lambda: some(2, 4, 33, 70)}),
    "bools for all heads": (HEADS, KEYS, KEYS, {"attn_mask": lambda: some(2, 1, 1, 70)}),
    "numbers": (HEADS, KEYS, KEYS, {"attn_mask": lambda: torch.randn(33, 70)}),
    "numbers, one row": (HEADS, KEYS, KEYS, {"attn_mask": lambda: torch.randn(1, 70)}),
    "bools of shared heads": (
        HEADS,
        (2, 2, 70, 16),
        (2, 2, 70, 16),
        {"attn_mask": lambda: some(2, 4, 33, 70), "enable_gqa": True},
    ),
    "bools of one head, of shared heads": (
        HEADS,
        (2, 2, 70, 16),
        (2, 2, 70, 16),
        {"attn_mask": lambda: some(2, 1, 33, 70), "enable_gqa": True},
    ),
}


def trained(function: Any, tensors: list[Any], gradient: Any, options: dict[str, Any]) -> list[Any]:
    """The values and the gradients of q, k, v."""
    own = [each.detach().clone().requires_grad_() for each in tensors]
    values = function(*own, **options)
    values.backward(gradient)
    return [values.detach(), *(each.grad for each in own)]


def attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, **options)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-5), (torch.float64, 1e-12), (torch.bfloat16, 2e-2), (torch.float16, 3e-3)],
)
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str, dtype: Any, tolerance: float) -> None:
    *shapes, options = CASES[name]
    given = {key: option() if callable(option) else option for key, option in options.items()}
    tensors = [torch.randn(shape).to(dtype) for shape in shapes]
    wide = [each.double() for each in tensors]
    exact = dict(given)
    if given.get("attn_mask") is not None and given["attn_mask"].dtype != torch.bool:
        given["attn_mask"], exact["attn_mask"] = given["attn_mask"].to(dtype), given["attn_mask"].to(dtype).double()
    gradient = torch.randn_like(F.scaled_dot_product_attention(*wide, **exact)).to(dtype)
    want = trained(attention, wide, gradient.double(), exact)
    got = trained(torch.compile(attention, backend="hostir"), tensors, gradient, given)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype == dtype
        assert ours.shape == theirs.shape
        scale = theirs.abs().max()
        assert (ours.double() - theirs).abs().max() <= tolerance * scale
    assert not [op for op, _ in hostir.torch.report().fallen if "attention" in op]


def test_a_query_without_keys_is_zero() -> None:
    mask = torch.tensor([[True, False], [False, False]])
    q, k, v = (torch.randn(2, 4) for _ in "qkv")
    values, *gradients = trained(
        torch.compile(attention, backend="hostir"), [q, k, v], torch.ones(2, 4), {"attn_mask": mask}
    )
    torch.testing.assert_close(values, torch.stack([v[0], torch.zeros(4)]))
    assert all(torch.isfinite(each).all() for each in gradients)


def test_one_call_forward_and_one_backward() -> None:
    q, k, v = (torch.randn(HEADS) for _ in "qkv")
    trained(torch.compile(attention, backend="hostir"), [q, k, v], torch.ones(HEADS), {"is_causal": True})
    calls = [
        [op for segment in plan.segments for op in segment.ops if "attention" in op]
        for plan in hostir.torch.report().plans()
    ]
    assert [len(each) for each in calls] == [2, 3]  # Results,
    segments = [
        [segment for segment in plan.segments if segment.kind == "library"] for plan in hostir.torch.report().plans()
    ]
    assert [len(each) for each in segments] == [1, 1]  # of a call each.


def test_inference_makes_values_alone() -> None:
    q, k, v = (torch.randn(HEADS) for _ in "qkv")
    torch.compile(attention, backend="hostir")(q, k, v)
    (plan,) = hostir.torch.report().plans()
    assert 'results="values"' in plan.host_ir


def test_memory_is_linear_in_the_length() -> None:
    def peaks(length: int) -> list[int]:
        torch._dynamo.reset()
        hostir.torch.reset()
        q, k, v = (torch.randn(1, 2, length, 16) for _ in "qkv")
        trained(torch.compile(attention, backend="hostir", dynamic=False), [q, k, v], torch.ones_like(q), {})
        return [max(each.peak for each in plan.memory) for plan in hostir.torch.report().plans()]

    for short, long in zip(peaks(512), peaks(2048), strict=True):
        assert 3.5 < long / short < 4.5


@pytest.mark.parametrize("options", [{"dropout_p": 0.5}, {"attn_mask": torch.zeros(33, 70, requires_grad=True)}])
def test_the_rest_is_pytorchs(options: dict[str, Any]) -> None:
    """Dropout draws; a mask that learns has a gradient."""
    q, k, v = torch.randn(HEADS), torch.randn(KEYS), torch.randn(KEYS)
    values, *_ = trained(torch.compile(attention, backend="hostir"), [q, k, v], torch.ones(HEADS), options)
    assert torch.isfinite(values).all()
    if "attn_mask" in options:
        torch.testing.assert_close(values, attention(q, k, v), rtol=1e-5, atol=1e-6)
        assert options["attn_mask"].grad.abs().max() > 0


def test_sizes_that_change() -> None:
    compiled = torch.compile(attention, backend="hostir", dynamic=True)
    for length in (5, 9, 40):
        q, k, v = (torch.randn(2, length, 8) for _ in "qkv")
        torch.testing.assert_close(
            compiled(q, k, v, is_causal=True), attention(q, k, v, is_causal=True), rtol=1e-5, atol=1e-5
        )


def test_what_runs_in_pytorch_is_the_same() -> None:
    """Where the graph around it falls back."""
    q, k, v = torch.randn(2, 9, 8), torch.randn(2, 9, 8), torch.randn(2, 9, 8)
    mask = some(9, 9)
    op, grad = torch.ops.hostir.attention, torch.ops.hostir.attention_grad
    for given, causal in ((None, True), (mask, False), (torch.randn(9, 9), True)):
        own = [each.clone().requires_grad_() for each in (q, k, v)]
        values, lse = op(*own, given, causal, 1 / math.sqrt(8))
        (values * q).sum().backward()
        seen = torch.ones(9, 9, dtype=torch.bool).tril() if causal else torch.ones(9, 9, dtype=torch.bool)
        if given is not None:
            seen = torch.where(seen, given, -math.inf) if given.dtype != torch.bool else seen & given
        theirs = [each.clone().requires_grad_() for each in (q, k, v)]
        want = F.scaled_dot_product_attention(*theirs, attn_mask=seen)
        (want * q).sum().backward()
        torch.testing.assert_close(values, want)
        for ours, other in zip(own, theirs, strict=True):
            torch.testing.assert_close(ours.grad, other.grad)
        assert lse.shape == (2, 9)
    torch.library.opcheck(op.default, (q, k, v, mask, False, 0.5), test_utils=("test_schema", "test_faketensor"))
    torch.library.opcheck(
        grad.default,
        (q, k, v, q, torch.zeros(2, 9), q, mask, False, 0.5),
        test_utils=("test_faketensor",),
    )


def test_autocast_says_the_type() -> None:
    q, k, v = torch.randn(HEADS), torch.randn(HEADS), torch.randn(HEADS)
    mask = torch.randn(33, 33)

    def inside(q: Any, k: Any, v: Any, mask: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            mixed = attention(q, k, v, attn_mask=mask)
        return mixed @ torch.ones(16, 4, dtype=torch.bfloat16)

    want = inside(q, k, v, mask)
    found = torch.compile(inside, backend="hostir")(q, k, v, mask)
    assert found.dtype == want.dtype == torch.bfloat16
    torch.testing.assert_close(found, want, rtol=5e-2, atol=5e-2)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.compile(attention, backend="hostir")(q, k, v).dtype == torch.bfloat16


def test_what_pytorch_takes_besides() -> None:
    """Function transforms, heads of keys and of values in different numbers, no size at all."""
    q, k, v = torch.randn(2, 8, 6, 4), torch.randn(2, 2, 6, 4), torch.randn(2, 4, 6, 4)
    options = {"enable_gqa": True}
    compiled = torch.compile(attention, backend="hostir")
    torch.testing.assert_close(compiled(q, k, v, **options), attention(q, k, v, **options), rtol=1e-4, atol=1e-5)
    empty = torch.ones(1, 2, 3, 0), torch.ones(1, 2, 4, 0), torch.randn(1, 2, 4, 5)
    torch.testing.assert_close(compiled(*empty), attention(*empty), equal_nan=True)

    def slope(q: Any, k: Any, v: Any) -> Any:
        return torch.func.grad(lambda each: attention(each, k, v).square().sum())(q)

    q, k, v = torch.randn(HEADS), torch.randn(HEADS), torch.randn(HEADS)
    found = torch.compile(slope, backend="hostir")(q, k, v)
    torch.testing.assert_close(found, slope(q, k, v), rtol=1e-4, atol=1e-5)


def test_inside_of_a_checkpoint() -> None:
    def peaks(length: int) -> list[int]:
        torch._dynamo.reset()
        hostir.torch.reset()
        tensors = [torch.randn(1, 2, length, 16, requires_grad=True) for _ in "qkv"]

        def kept(q: Any, k: Any, v: Any) -> Any:
            return torch.utils.checkpoint.checkpoint(attention, q, k, v, use_reentrant=False)

        torch.compile(kept, backend="hostir", dynamic=False)(*tensors).square().sum().backward()
        want = [each.detach().clone().requires_grad_() for each in tensors]
        attention(*want).square().sum().backward()
        for ours, theirs in zip(tensors, want, strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-4)
        return [max(each.peak for each in plan.memory) for plan in hostir.torch.report().plans()]

    for short, long in zip(peaks(256), peaks(1024), strict=True):
        assert long / short < 4.5


def test_inference_mode() -> None:
    layer = torch.nn.Linear(16, 16)
    compiled = torch.compile(lambda x: attention(layer(x), x, x), backend="hostir")
    with torch.inference_mode():
        for _ in range(3):
            x = torch.randn(2, 9, 16)
            torch.testing.assert_close(compiled(x), attention(layer(x), x, x), rtol=1e-4, atol=1e-5)
