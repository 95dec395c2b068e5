"""Norms over groups of channels: gradients are PyTorch's, and one kernel makes them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: ./run setup --torch")
import hostir.torch  # noqa: E402

SHAPES = [(3, 12, 9, 16), (2, 12, 40), (5, 12), (1, 12, 4, 4, 4)]
# Statistics are saved in the type of the input: of three elements bfloat16 keeps too little of them.
CASES = [(torch.float32, 1e-5, shape) for shape in SHAPES]
CASES += [(torch.bfloat16, 2e-2, shape) for shape in SHAPES if len(shape) > 2]


def trained(norm: Any, x: Any, gradient: Any) -> list[Any]:
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    norm.zero_grad()
    y = norm(x)
    y.backward(gradient)
    return [y.detach(), x.grad, *(each.grad.clone() for each in norm.parameters())]


@pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])
@pytest.mark.parametrize(("dtype", "tolerance", "shape"), CASES, ids=str)
def test_group_norm_and_its_gradients(dtype: Any, tolerance: float, shape: tuple[int, ...], affine: bool) -> None:
    norm = torch.nn.GroupNorm(4, 12, affine=affine).to(dtype)
    for parameter in norm.parameters():
        torch.nn.init.normal_(parameter)
    x, gradient = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
    got = trained(torch.compile(norm, backend="hostir"), x, gradient)
    want = trained(norm.double(), x.double(), gradient.double())
    assert len(got) == (4 if affine else 2)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype == dtype
        assert ours.shape == theirs.shape
        assert (ours.double() - theirs).abs().max() <= tolerance * theirs.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_backward_pass_is_one_kernel(dtype: Any) -> None:
    norm = torch.nn.GroupNorm(4, 32).to(dtype)
    x = torch.randn(8, 32, 24, 24).to(dtype)
    trained(torch.compile(norm, backend="hostir"), x, torch.randn_like(x))
    *_, backward = hostir.torch.report().plans()
    assert [segment.schedule for segment in backward.segments if segment.kind == "kernel"] == ["inner-outer"], backward


def test_a_gradient_lies_as_its_input() -> None:
    norm = torch.nn.GroupNorm(2, 8)
    x = torch.randn(2, 8, 5, 3).to(memory_format=torch.channels_last)
    gradient = torch.randn(2, 8, 5, 3)
    got = trained(torch.compile(norm, backend="hostir"), x, gradient)
    want = trained(norm, x, gradient)
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert got[1].stride() == x.stride()
