"""Attention by hostir.torch beside PyTorch's own, forward and with the backward pass, on one CPU or one GPU.

torch_attention.py [--device cuda] [--rounds N] [--json FILE]

Eight sizes, causal and not, some with fewer heads of keys than of queries, some with a mask; bfloat16 on a GPU, float32
on a CPU. Both sides take turns; ratios (above 1: hostir is faster) are of pairs. Beside them: the bytes that a rank
needs, as the plan says, forward and backward, and those of all scores; and the greatest difference of values and
gradients from PyTorch's in float64.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "benchmarks")]

import torch  # noqa: E402
import torch_rows  # noqa: E402
from kept import quartiles  # noqa: E402

import hostir.torch  # noqa: E402

F = torch.nn.functional


class Size(NamedTuple):
    batch: int
    heads: int
    groups: int  # Heads of keys.
    length: int
    width: int
    causal: bool = False
    masked: bool = False


SIZES = (
    Size(8, 12, 12, 128, 64),
    Size(4, 12, 12, 512, 64, causal=True),
    Size(1, 16, 16, 1024, 64),
    Size(1, 16, 4, 1024, 128, causal=True),
    Size(2, 8, 8, 1024, 64, masked=True),
    Size(1, 8, 8, 2048, 64, causal=True),
    Size(1, 8, 8, 4096, 64, causal=True),
    Size(1, 4, 4, 8192, 64),
)


class Attention(torch.nn.Module):
    """q, k and v are its parameters: as in a model, they are where the devices are before it is called."""

    def __init__(self, tensors: list[Any], mask: Any, size: Size) -> None:
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Parameter(each.clone()) for each in tensors)
        self.mask, self.size = mask, size

    def forward(self) -> Any:
        size, shares = self.size, self.size.heads != self.size.groups
        return F.scaled_dot_product_attention(
            self.q, self.k, self.v, attn_mask=self.mask, is_causal=size.causal, enable_gqa=shares
        )


def made(size: Size, device: str, dtype: Any) -> tuple[list[Any], Any, Any]:
    """q, k, v; the gradient of the values; a mask that hides the last eighth of the keys."""
    torch.manual_seed(0)
    heads = (size.heads, size.groups, size.groups, size.heads)
    *tensors, gradient = (
        torch.randn(size.batch, count, size.length, size.width, device=device).to(dtype) for count in heads
    )
    mask = torch.arange(size.length, device=device) < size.length - size.length // 8 if size.masked else None
    return tensors, gradient, None if mask is None else mask.expand(size.batch, 1, size.length, size.length)


def trained(model: Any, parameters: Any, gradient: Any) -> list[Any]:
    """The values and the gradients."""
    for each in parameters:
        each.grad = None
    values = model()
    values.backward(gradient)
    return [values.detach(), *(each.grad for each in parameters)]


def timed(sides: dict[str, Callable[[], Any]], rounds: int, device: str) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for k in range(rounds + 3):
        for name, side in sides.items():
            began = time.perf_counter()
            side()
            if device == "cuda":
                torch.cuda.synchronize()
            if k >= 3:
                taken[name].append(1e3 * (time.perf_counter() - began))
    return taken


def peaks() -> list[int]:
    return [max(each.peak for each in plan.memory) for plan in hostir.torch.report().plans()]


def measured(size: Size, args: argparse.Namespace) -> dict[str, Any]:
    torch._dynamo.reset()
    hostir.torch.reset()
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    tensors, gradient, mask = made(size, args.device, dtype)
    theirs, own = (Attention(tensors, mask, size) for _ in range(2))
    ours = torch.compile(own, backend="hostir", dynamic=False)
    row: dict[str, Any] = {**size._asdict(), "dtype": str(dtype).removeprefix("torch."), "pairs": args.rounds}
    with torch.no_grad():
        taken = {"forward": timed({"torch": theirs, "hostir": ours}, args.rounds, args.device)}
    hostir.torch.reset()
    both = {
        "torch": lambda: trained(theirs, list(theirs.parameters()), gradient),
        "hostir": lambda: trained(ours, list(own.parameters()), gradient),
    }
    taken["both"] = timed(both, args.rounds, args.device)
    row["peak_bytes"], row["score_bytes"] = peaks(), size.batch * size.heads * size.length**2 * dtype.itemsize
    for name, each in taken.items():
        row |= {f"{name}_{side}_ms_quartiles": quartiles(values) for side, values in each.items()}
        pairs = zip(each["torch"], each["hostir"], strict=True)
        row[f"{name}_ratio_quartiles"] = quartiles([theirs / own for theirs, own in pairs])
    if size.length <= 1024:
        exact_model = Attention([each.double() for each in tensors], mask, size)
        exact = trained(exact_model, list(exact_model.parameters()), gradient.double())
        for side, function in both.items():
            differ = [(a.double() - b).abs().max() / b.abs().max() for a, b in zip(function(), exact, strict=True)]
            row[f"{side}_difference"] = float(max(differ))
    return row


def line_of(row: dict[str, Any]) -> str:
    kind = "causal" if row["causal"] else "masked" if row["masked"] else "full"
    shape = f"{row['batch']} x {row['heads']}/{row['groups']} heads of {row['length']} x {row['width']}, {kind}"
    times = [
        f"{name} {row[f'{name}_hostir_ms_quartiles'][1]:.2f} ms, {row[f'{name}_ratio_quartiles'][1]:.2f} x torch"
        for name in ("forward", "both")
    ]
    needed = ", ".join(f"{each / 2**20:.1f}" for each in row["peak_bytes"])  # Of forward's programs, then backward's.
    memory = f"programs need {needed} MiB, scores {row['score_bytes'] / 2**20:.0f}"
    off = (
        f"; off by {row['hostir_difference']:.1e}, torch {row['torch_difference']:.1e}"
        if "hostir_difference" in row
        else ""
    )
    return f"{shape}: {'; '.join(times)}; {memory}{off}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    torch_rows.arguments(parser, "calls of each side that are timed")
    torch_rows.run("torch_attention.py", parser.parse_args(), SIZES, measured, line_of)


if __name__ == "__main__":
    main()
