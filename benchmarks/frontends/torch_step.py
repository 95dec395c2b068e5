"""Training steps of PyTorch models by hostir.torch, beside eager PyTorch and inductor, on one CPU or one GPU.

torch_step.py [MODEL...] [--device cuda] [--dtype bfloat16] [--steps N] [--rounds N] [--without inductor]
              [--json FILE]

Models are the classes of transformers and torchvision with random weights, and some of torch.nn, of sizes that a step
takes tenths of a second with on a CPU; resnet, resnet_last, resnet_groups and gpt2_small, of the published size, where
they are asked for. First N steps of AdamW with each side from the same weights, on the same batches: the greatest
differences of losses and gradients from eager's; of bfloat16 from those of a float32 model of the same weights,
hostir's and eager's.
Then rounds in which all sides make a step in turn: medians, ratios (above 1: hostir is faster), and the share of FLOPs
and bytes that ran on hostir.
"""

from __future__ import annotations

import argparse
import copy
import functools
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "benchmarks")]

import torch  # noqa: E402
import torch_rows  # noqa: E402
import torchvision  # noqa: E402
import transformers as tf  # noqa: E402
from kept import quartiles  # noqa: E402

import hostir.torch  # noqa: E402

nn, F = torch.nn, torch.nn.functional
WORDS = 8192
Made = tuple[Any, Callable[[Any], Any], Callable[[], Any]]  # The model, a batch's loss, a batch.


def _language(model: Any, batch: int = 4, length: int = 128) -> Made:
    def loss(compiled: Any, words: Any) -> Any:
        return compiled(input_ids=words, labels=words).loss

    return model, loss, lambda: torch.randint(0, model.config.vocab_size, (batch, length))


def gpt2() -> Made:
    config = tf.GPT2Config(vocab_size=WORDS, n_embd=384, n_layer=4, n_head=6, n_positions=128)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    return _language(tf.GPT2LMHeadModel(config))


def gpt2_small() -> Made:
    """Of the size at which it was published, 124 million parameters."""
    config = tf.GPT2Config(vocab_size=50304)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    return _language(tf.GPT2LMHeadModel(config), 8, 512)


def llama() -> Made:
    sizes = {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 6}
    return _language(tf.LlamaForCausalLM(tf.LlamaConfig(vocab_size=WORDS, num_key_value_heads=2, **sizes)))


def bert() -> Made:
    sizes = {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 4, "num_attention_heads": 6}
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return _language(tf.BertForMaskedLM(tf.BertConfig(vocab_size=WORDS, **sizes, **rates)))


def mixtral() -> Made:
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = tf.MixtralConfig(vocab_size=WORDS, num_key_value_heads=2, num_local_experts=4, **sizes)
    return _language(tf.MixtralForCausalLM(config))


def _images(model: Any, batch: int, size: int, order: Any = torch.contiguous_format) -> Made:
    def loss(compiled: Any, images: Any) -> Any:
        made = compiled(images)
        labels = torch.arange(batch, device=images.device) % 10
        return F.cross_entropy(getattr(made, "logits", made), labels)

    return model, loss, lambda: torch.randn(batch, 3, size, size).to(memory_format=order)


def vit() -> Made:
    sizes = {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 4, "num_attention_heads": 6}
    config = tf.ViTConfig(image_size=128, patch_size=16, num_labels=10, **sizes)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    return _images(tf.ViTForImageClassification(config), 8, 128)


def resnet() -> Made:
    """Its convolutions are PyTorch's on every side."""
    return _images(torchvision.models.resnet18(num_classes=10), 8, 96)


def resnet_last() -> Made:
    """The same with channels innermost, as convolutions like them."""
    order = torch.channels_last
    return _images(torchvision.models.resnet18(num_classes=10).to(memory_format=order), 8, 96, order)


def resnet_groups() -> Made:
    """The same with norms of groups of channels, as small batches like them."""
    return _images(torchvision.models.resnet18(num_classes=10, norm_layer=functools.partial(nn.GroupNorm, 32)), 8, 96)


class Mixer(nn.Module):
    """An MLP-mixer: products along patches, then along channels."""

    def __init__(self, patches: int = 64, width: int = 384, depth: int = 6) -> None:
        super().__init__()
        self.embed = nn.Linear(3 * 16 * 16, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.tokens = nn.ModuleList(self.mlp(patches, 2 * patches) for _ in range(depth))
        self.channels = nn.ModuleList(self.mlp(width, 4 * width) for _ in range(depth))
        self.head = nn.Linear(width, 10)

    @staticmethod
    def mlp(width: int, hidden: int) -> Any:
        return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, images: Any) -> Any:
        batch = images.shape[0]
        patches = images.reshape(batch, 3, 8, 16, 8, 16).permute(0, 2, 4, 1, 3, 5).reshape(batch, 64, 768)
        x = self.embed(patches)
        for k, (tokens, channels) in enumerate(zip(self.tokens, self.channels, strict=True)):
            x = x + tokens(self.norms[2 * k](x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(self.norms[2 * k + 1](x))
        return self.head(x.mean(1))


def mixer() -> Made:
    return _images(Mixer(), 8, 128)


class Norms(nn.Module):
    """Layer norms, gates and residuals without products: memory alone."""

    def __init__(self, width: int = 1024, depth: int = 8) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.gates = nn.ParameterList(nn.Parameter(torch.randn(width)) for _ in range(depth))

    def forward(self, x: Any) -> Any:
        for norm, gate in zip(self.norms, self.gates, strict=True):
            x = x + F.gelu(norm(x) * gate, approximate="tanh")
        return x


def norms() -> Made:
    return Norms(), lambda compiled, x: compiled(x).square().mean(), lambda: torch.randn(2048, 1024)


class Head(nn.Module):
    """A product with many classes, and its loss with smoothed labels."""

    def __init__(self, width: int = 64, words: int = 16384) -> None:
        super().__init__()
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, x: Any) -> Any:
        labels = torch.arange(x.shape[0], device=x.device)
        return F.cross_entropy(self.head(x), labels, label_smoothing=0.1)


def losses() -> Made:
    return Head(), lambda compiled, x: compiled(x), lambda: torch.randn(1024, 64)


def tables() -> Made:
    """Many parameters, little else: the optimizer is the step."""
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(24)))
    return model, lambda compiled, x: compiled(x).square().mean(), lambda: torch.randn(16, 512)


MODELS = {
    f.__name__: f
    for f in (
        gpt2,
        llama,
        bert,
        mixtral,
        vit,
        mixer,
        norms,
        losses,
        tables,
        resnet,
        resnet_last,
        resnet_groups,
        gpt2_small,
    )
}
USUAL = list(MODELS)[:-4]  # Convolutions are PyTorch's on every side; a step of gpt2_small takes seconds on a CPU.
SIDES = ("eager", "inductor", "hostir")


class Side:
    """A model of its own, compiled, with its optimizer."""

    def __init__(self, name: str, model: Any, loss: Callable[[Any, Any], Any]) -> None:
        self.model, self.loss = copy.deepcopy(model), loss
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.optimizer = optimizer
        compiled = name != "eager"
        self.forward = torch.compile(self.model, backend=name) if compiled else self.model
        self.update = torch.compile(lambda: optimizer.step(), backend=name) if compiled else optimizer.step

    def gradients(self, batch: Any) -> float:
        """The loss; gradients are there."""
        self.optimizer.zero_grad()
        value = self.loss(self.forward, batch)
        value.backward()
        return float(value.detach())

    def step(self, batch: Any) -> float:
        value = self.gradients(batch)
        self.update()
        return value


def differences(sides: dict[str, Side], exact: Side, batch_of: Callable[[], Any], steps: int) -> dict[str, Any]:
    """The greatest from `exact`, of losses and of gradients (by their norms), in some steps, of each side."""
    found = {name: {"loss": 0.0, "gradient": 0.0} for name, side in sides.items() if side is not exact}
    for _ in range(steps):
        batch = batch_of()
        values = {name: side.gradients(batch) for name, side in sides.items()}
        if exact not in sides.values():
            wanted = exact.gradients(batch.float() if batch.is_floating_point() else batch)
        else:
            wanted = values["eager"]
        whole = torch.stack([p.grad.norm() for p in exact.model.parameters() if p.grad is not None]).norm()
        for name, off in found.items():
            off["loss"] = max(off["loss"], abs(values[name] - wanted))
            for p, q in zip(sides[name].model.parameters(), exact.model.parameters(), strict=True):
                if q.grad is not None:
                    off["gradient"] = max(off["gradient"], float((p.grad - q.grad).norm() / whole))
        for side in dict.fromkeys((*sides.values(), exact)):
            side.update()
    return {"steps": steps, **found}


def timed(sides: dict[str, Side], batch_of: Callable[[], Any], rounds: int, device: str) -> dict[str, list[float]]:
    """Milliseconds of a step, all sides in turn."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        batch = batch_of()
        for name, side in sides.items():
            began = time.perf_counter()
            side.step(batch)
            if device == "cuda":
                torch.cuda.synchronize()
            taken[name].append(1e3 * (time.perf_counter() - began))
    return taken


def measured(name: str, args: argparse.Namespace) -> dict[str, Any]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    hostir.torch.reset()
    model, loss, batch_of = MODELS[name]()
    dtype = getattr(torch, args.dtype)
    model = model.to(args.device, dtype)

    def batch() -> Any:
        made = batch_of().to(args.device)
        return made.to(dtype) if made.is_floating_point() else made

    sides = {side: Side(side, model, loss) for side in SIDES if side not in args.without}
    exact = sides["eager"] if dtype == torch.float32 else Side("eager", copy.deepcopy(model).float(), loss)
    differ = differences(sides, exact, batch, args.steps)
    taken = timed(sides, batch, args.rounds, args.device)
    report = hostir.torch.report()
    row = {
        "model": name,
        "dtype": args.dtype,
        "parameters": sum(p.numel() for p in model.parameters()),
        "differences": differ,
        "pairs": args.rounds,
        **{f"{side}_ms_quartiles": quartiles(values) for side, values in taken.items()},
        "flops_share": report.flops,
        "bytes_share": report.bytes,
        "fallen": sorted({op for op, _ in report.fallen}),
    }
    for peer in taken:
        if peer != "hostir":
            pairs = zip(taken[peer], taken["hostir"], strict=True)
            row[f"{peer}_ratio_quartiles"] = quartiles([theirs / ours for theirs, ours in pairs])
    return row


def line_of(row: dict[str, Any]) -> str:
    times = [f"{side} {row[f'{side}_ms_quartiles'][1]:.1f} ms" for side in SIDES if f"{side}_ms_quartiles" in row]
    ratios = [f"{row[f'{side}_ratio_quartiles'][1]:.2f} x {side}" for side in SIDES if f"{side}_ratio_quartiles" in row]
    share = f"{row['flops_share']:.1%} of FLOPs, {row['bytes_share']:.1%} of bytes"
    differ = row["differences"]
    shown = [side for side in ("hostir", "eager") if side in differ]
    off = ", ".join(
        f"{s} off by {differ[s]['loss']:.1e} (losses), {differ[s]['gradient']:.1e} (gradients)" for s in shown
    )
    return f"{row['model']:8} {', '.join(times)}: {', '.join(ratios)}; {share}; {off}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; without: all but the last")
    torch_rows.arguments(parser, "steps of each side that are timed")
    parser.add_argument("--steps", type=int, default=20, help="whose losses and gradients are compared")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--without", action="append", default=[], choices=SIDES[:2], help="a side that is left out")
    args = parser.parse_args()
    torch_rows.run("torch_step.py", args, args.models or USUAL, measured, line_of)


if __name__ == "__main__":
    main()
