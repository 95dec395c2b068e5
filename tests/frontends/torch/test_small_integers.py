"""uint8 images and int8 weights of PyTorch's models: what they make, and that no op on them falls back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import hostir.torch


def normalised(image: torch.Tensor) -> torch.Tensor:
    return (image.float() / 255 - 0.45) / 0.225


def dequantised(weights: torch.Tensor, scales: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return x @ (weights.float() * scales[:, None]).T


def wraps(image: torch.Tensor) -> torch.Tensor:
    return (image + image) * 3 - 1


def adds_up(image: torch.Tensor) -> torch.Tensor:
    return image.sum(dim=-1)


IMAGE = torch.arange(256, dtype=torch.uint8).reshape(2, 8, 16)


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (normalised, [IMAGE]),
        (dequantised, [torch.arange(-128, 128).to(torch.int8).reshape(16, 16), torch.rand(16), torch.rand(4, 16)]),
        (wraps, [IMAGE]),
        (wraps, [IMAGE.to(torch.int8)]),
        (adds_up, [IMAGE]),
    ],
)
def test_as_pytorch(function: Callable[..., torch.Tensor], given: list[torch.Tensor]) -> None:
    want = function(*given)
    got = torch.compile(function, backend="hostir")(*given)
    assert got.dtype == want.dtype
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert not hostir.torch.report().fallen
