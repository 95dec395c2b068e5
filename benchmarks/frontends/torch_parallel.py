"""Layers of a Llama over several ranks, by hostir.torch.parallelize_module and by PyTorch's DTensor.

torch_parallel.py [--device cuda] [--ranks N] [--rounds N] [--turns N] [--sizes NAME...] [--compile] [--json FILE]

Both sides take the same plans of ColwiseParallel, RowwiseParallel and SequenceParallel: hostir from one process, with
its ranks behind a daemon; DTensor in a process a rank, by gloo on CPUs and NCCL on GPUs, a thread each. Losses and
gradients are compared with one process that has the whole model. Then rounds in which the sides make forward passes, or
forward and backward, in turn. Communications are those of hostir's plans, and what CommDebugMode sees: their number,
and of each the larger of the buffers that a rank gives and gets. Gradients of replicated weights behind split
activations are summed in hostir's programs; DTensor leaves them partial, and sums them when an optimizer reads them.
`--compile` has DTensor's side compiled by inductor. `llama3_8b_N` is one layer of that model's sizes for N tokens in
bfloat16. Of hostir's runs the predicted times are kept, and of both sides the most memory that a rank has, on GPUs.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import logging
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "benchmarks")]

import torch  # noqa: E402
import transformers as tf  # noqa: E402
from kept import kept_pairs, quartiles, write  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard  # noqa: E402
from torch.distributed.tensor import parallel as tp  # noqa: E402
from torch.distributed.tensor.debug import CommDebugMode  # noqa: E402
from transformers.models.llama import modeling_llama as llama  # noqa: E402

nn, F = torch.nn, torch.nn.functional
PLANS = ("tensor", "sequence")
PASSES = ("forward", "forward and backward")


class Size(NamedTuple):
    """The layers' and the batch's."""

    batch: int
    length: int
    width: int
    words: int
    heads: int = 8
    groups: int = 4  # Of queries, which have a key and a value each.
    layers: int = 2
    inner: int = 0  # Of the MLP; 0: four times the width.
    dtype: str = "float32"


SIZES = {
    "tiny": Size(batch=2, length=16, width=64, words=64),
    "small": Size(batch=4, length=64, width=256, words=1024),
    "medium": Size(batch=4, length=128, width=512, words=4096),
    "large": Size(batch=4, length=1024, width=4096, words=32768, heads=32, groups=8),  # Of GPUs.
    **{
        f"llama3_8b_{tokens}": Size(1, tokens, 4096, 1024, heads=32, groups=8, layers=1, inner=14336, dtype="bfloat16")
        for tokens in (1, 64, 8192)
    },
}
TOLERANCES = {"float32": 1e-3, "bfloat16": 3e-2}


class Layers(nn.Module):
    """Decoder layers of transformers' Llama between an embedding and a head, and the loss."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        config = tf.LlamaConfig(
            vocab_size=size.words,
            hidden_size=size.width,
            intermediate_size=size.inner or 4 * size.width,
            num_attention_heads=size.heads,
            num_key_value_heads=size.groups,
            attn_implementation="sdpa",
        )
        self.embed = nn.Embedding(size.words, size.width)
        self.rotary = llama.LlamaRotaryEmbedding(config)
        self.layers = nn.ModuleList(llama.LlamaDecoderLayer(config, k) for k in range(size.layers))
        self.norm = llama.LlamaRMSNorm(size.width)
        self.head = nn.Linear(size.width, size.words, bias=False)

    def forward(self, words: Any, labels: Any) -> Any:
        x = self.embed(words)
        places = torch.arange(words.shape[1], device=words.device)[None]
        turns = self.rotary(x, places)
        for layer in self.layers:
            x = layer(x, position_embeddings=turns)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())


def plan_of(kind: str) -> dict[str, Any]:
    """As PyTorch's tutorial on tensor parallelism has it."""
    columns, rows = tp.ColwiseParallel, tp.RowwiseParallel
    is_split = kind == "sequence"
    between = Shard(1) if is_split else Replicate()  # Activations between the products.
    inner: dict[str, Any] = {
        **{f"self_attn.{name}_proj": columns() for name in "qkv"},
        "self_attn.o_proj": rows(output_layouts=between),
        **{f"mlp.{name}_proj": columns() for name in ("gate", "up")},
        "mlp.down_proj": rows(output_layouts=between),
    }
    if is_split:
        inner["input_layernorm"] = inner["post_attention_layernorm"] = tp.SequenceParallel()
        inner["self_attn"] = tp.PrepareModuleInput(
            input_kwarg_layouts={"hidden_states": between}, desired_input_kwarg_layouts={"hidden_states": Replicate()}
        )
        inner["mlp"] = tp.PrepareModuleInput(input_layouts=between, desired_input_layouts=Replicate())
    return {
        "embed": rows(input_layouts=Replicate(), output_layouts=between),
        **{f"layers.*.{name}": style for name, style in inner.items()},
        **({"norm": tp.SequenceParallel()} if is_split else {}),
        "head": columns(input_layouts=between, output_layouts=Replicate()),
    }


def made(size: Size, device: str) -> tuple[Any, tuple[Any, Any]]:
    """The model and a batch, the same in every process."""
    torch.manual_seed(0)
    model = Layers(size).to(device, getattr(torch, size.dtype))
    words, labels = torch.randint(0, size.words, (2, size.batch, size.length)).to(device)
    return model, (words, labels)


def whole(tensor: Any) -> Any:
    """Of all ranks, on the host."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().cpu()


class Side:
    """A model, what is called for it, and its batch."""

    def __init__(self, model: Any, called: Any, batch: Any, device: str) -> None:
        self.model, self.called, self.batch, self.device = model, called, batch, device

    def go(self, kind: str) -> Any:
        """The loss; behind a backward pass the gradients are there."""
        if kind == "forward":
            with torch.no_grad():
                return self.called(*self.batch)
        self.model.zero_grad()
        loss = self.called(*self.batch)
        loss.backward()
        return loss

    def turn(self, kind: str, count: int) -> list[float]:
        """Milliseconds of each pass."""
        taken = []
        for _ in range(count):
            began = time.perf_counter()
            self.go(kind)
            if self.device == "cuda":
                torch.cuda.synchronize()
            taken.append(1e3 * (time.perf_counter() - began))
        return taken

    def values(self) -> tuple[float, dict[str, Any]]:
        """The loss and all gradients."""
        loss = float(self.go(PASSES[1]).detach())
        return loss, {name: whole(p.grad) for name, p in self.model.named_parameters()}


class Bytes(CommDebugMode):
    """Communications of a rank by their names: how many, and the bytes of the larger buffer of each."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, list[int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = self.get_total_counts()
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if self.get_total_counts() > before:
            tensors = [each for each in (args[0], result) if isinstance(each, torch.Tensor)]
            count = self.seen.setdefault(func._overloadpacket.__name__, [0, 0])
            count[0] += 1
            count[1] += max(each.numel() * each.element_size() for each in tensors)
        return result


def serve(rank: int, args: argparse.Namespace, folder: str, pipes: list[Any]) -> None:
    """A rank of DTensor's side: carries out what it is asked for."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    asked = pipes[rank]
    device = "cpu" if args.device == "cpu" else f"cuda:{rank}"
    if args.device == "cuda":
        torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        "gloo" if args.device == "cpu" else "nccl",
        init_method=f"file://{folder}/ranks",
        rank=rank,
        world_size=args.ranks,
        timeout=datetime.timedelta(seconds=120),
    )
    mesh = torch.distributed.init_device_mesh(args.device, (args.ranks,))
    side: Any = None
    while (order := asked.recv()) is not None:
        what, *rest = order
        answer: Any = None
        if what == "begin":
            model, batch = made(SIZES[rest[0]], device)
            tp.parallelize_module(model, mesh, plan_of(rest[1]))
            side = Side(model, torch.compile(model) if args.compile else model, batch, args.device)
        elif what == "turn":
            answer = side.turn(*rest)
        elif what == "count":
            with Bytes() as counted:
                Side(side.model, side.model, side.batch, args.device).go(*rest)
            answer = counted.seen
        elif what == "peak":
            torch.cuda.reset_peak_memory_stats()
            side.go(*rest)
            answer = torch.cuda.max_memory_allocated()
        else:
            answer = side.values()  # Gathering them takes all ranks.
        asked.send(answer if rank == 0 else None)
    torch.distributed.destroy_process_group()


class Peers:
    """DTensor's processes."""

    def __init__(self, pipes: list[Any]) -> None:
        self._pipes = pipes

    def ask(self, *order: Any) -> Any:
        """Of all ranks; the answer of the first."""
        for pipe in self._pipes:
            pipe.send(order)
        answers = [pipe.recv() for pipe in self._pipes]
        return answers[0]

    def turn(self, kind: str, count: int) -> list[float]:
        """As ``Side.turn``; the first rank's clock."""
        return self.ask("turn", kind, count)


@contextlib.contextmanager
def started(args: argparse.Namespace) -> Iterator[Peers]:
    context = torch.multiprocessing.get_context("spawn")
    pairs = [context.Pipe() for _ in range(args.ranks)]
    with tempfile.TemporaryDirectory(prefix="hostir-") as folder:
        theirs = [other for _, other in pairs]
        ranks = torch.multiprocessing.spawn(serve, (args, folder, theirs), args.ranks, join=False)
        for other in theirs:  # So that a rank that has ended ends the wait for it.
            other.close()
        own = [pipe for pipe, _ in pairs]
        try:
            yield Peers(own)
            for pipe in own:
                pipe.send(None)
        except (EOFError, BrokenPipeError):
            ranks.join()  # Raises what ended it.
            raise
        finally:
            for pipe in own:
                pipe.close()
        while not ranks.join():
            pass


def ours_of(size: Size, kind: str, args: argparse.Namespace) -> Side:
    import hostir.torch

    torch._dynamo.reset()
    hostir.torch.reset()
    model, batch = made(size, args.device)
    hostir.torch.parallelize_module(model, list(range(args.ranks)), plan_of(kind))
    return Side(model, torch.compile(model, backend="hostir", dynamic=False), batch, args.device)


def plans(client: Any, is_forward: bool) -> list[Any]:
    """Of the programs that have run."""
    import hostir.torch

    graphs = [g for g in hostir.torch.report().graphs if g.name.startswith("inference") == is_forward]
    return [client.explain(definition) for graph in graphs for definition in graph.definitions()]


def communications(of_programs: list[Any]) -> dict[str, list[int]]:
    """By names: as ``Bytes.seen``."""
    seen: dict[str, list[int]] = {}
    for plan in of_programs:
        for each in plan.communications:
            count = seen.setdefault(each.type, [0, 0])
            count[0] += 1
            count[1] += int(each.bytes)
    return seen


def differences(side: tuple[float, dict[str, Any]], one: tuple[float, dict[str, Any]], size: Size) -> dict[str, float]:
    """The losses', and the greatest of the gradients' by their norms; from a process that has the whole model."""
    assert side[1].keys() == one[1].keys()
    # The softmax of one score is 1: gradients of queries and keys are rounding alone then.
    compared = [name for name in one[1] if size.length > 1 or not name.endswith(("q_proj.weight", "k_proj.weight"))]
    gradients = [float((side[1][name] - one[1][name]).norm() / (one[1][name].norm() + 1e-12)) for name in compared]
    most = TOLERANCES[size.dtype]
    found = {"loss": abs(side[0] - one[0]) / abs(one[0]), "gradient": max(gradients)}
    assert max(found.values()) < most, f"values differ: {found}"
    return found


def measured(client: Any, peers: Peers, name: str, kind: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each pass."""
    import hostir.torch

    ours = ours_of(SIZES[name], kind, args)
    peers.ask("begin", name, kind)
    model, batch = made(SIZES[name], args.device)
    want = Side(model, model, batch, args.device).values()
    size = SIZES[name]
    off = {"hostir": differences(ours.values(), want, size), "dtensor": differences(peers.ask("values"), want, size)}
    rows = []
    for what in PASSES:
        ours.turn(what, 2)
        peers.turn(what, 2)
        taken: dict[str, list[float]] = {"hostir": [], "dtensor": []}
        sides = {"hostir": ours, "dtensor": peers}
        for turn in range(args.rounds):
            for side in ("hostir", "dtensor") if turn % 2 else ("dtensor", "hostir"):
                taken[side] += sides[side].turn(what, args.turns)
        row: dict[str, Any] = {"size": name, **SIZES[name]._asdict(), "plan": kind, "pass": what, "differences": off}
        of_ours = plans(client, what == PASSES[0])
        row["communications"] = {"hostir": communications(of_ours), "dtensor": peers.ask("count", what)}
        predicted = [plan.time.predicted_us for plan in of_ours]
        row["hostir_predicted_ms"] = None if None in predicted else sum(predicted) / 1e3
        if args.device == "cuda":
            peak = max(rank.peak for plan in of_ours for rank in plan.memory)
            row["peak_bytes"] = {"hostir": peak, "dtensor": peers.ask("peak", what)}
        row["fallen"] = sorted({op for op, _ in hostir.torch.report().fallen})
        row["ratio_of_medians"] = quartiles(taken["dtensor"])[1] / quartiles(taken["hostir"])[1]
        times = {f"{side}_ms": values for side, values in taken.items()}
        ratios = [b / a for a, b in zip(taken["hostir"], taken["dtensor"], strict=True)]
        rows.append(kept_pairs({**row, **times}, list(times), {"ratio": ratios}))
    return rows


def line_of(row: dict[str, Any]) -> str:
    ours, theirs = row["hostir_ms_quartiles"][1], row["dtensor_ms_quartiles"][1]
    low, middle, high = row["ratio_quartiles"]

    def total(seen: dict[str, list[int]]) -> str:
        count, size = (sum(each[k] for each in seen.values()) for k in range(2))
        return f"{count} of {size / 1024:.0f} KiB"

    said = {side: total(seen) for side, seen in row["communications"].items()}
    predicted = row["hostir_predicted_ms"]
    ahead = "" if predicted is None else f" ({predicted:.2f} predicted)"
    return (
        f"{row['size']:6} {row['plan']:8} {row['pass']:20} hostir {ours:8.2f} ms{ahead}, DTensor {theirs:8.2f} ms: "
        f"{row['ratio_of_medians']:.2f} ({low:.2f}, {middle:.2f}, {high:.2f}); "
        f"communications {said['hostir']} and {said['dtensor']}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--turns", type=int, default=3, help="passes of a side in a round")
    parser.add_argument("--sizes", nargs="*", choices=SIZES, default=["small", "medium"])
    parser.add_argument("--plans", nargs="*", choices=PLANS, default=list(PLANS))
    parser.add_argument("--compile", action="store_true", help="DTensor's side by torch.compile")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    import hostir
    import hostir.torch

    devices = f"cpu:{args.ranks}" if args.device == "cpu" else f"cuda:{','.join(map(str, range(args.ranks)))}"
    rows = []
    with started(args) as peers, hostir.connect(devices=devices) as client:
        hostir.torch.use(client)
        for name in args.sizes:
            for kind in args.plans:
                for row in measured(client, peers, name, kind, args):
                    rows.append(row)
                    print(line_of(row), flush=True)
                if args.json is not None:  # So that a run that is cut off keeps what it has.
                    keep(args, rows)
    return 0


def keep(args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    machine: dict[str, Any] = {"cores": os.cpu_count(), "load": os.getloadavg(), "torch": torch.__version__}
    if args.device == "cuda":
        machine["card"] = torch.cuda.get_device_name()
    words = [os.path.basename(word) if os.path.isabs(word) else word for word in sys.argv[1:]]
    command = " ".join(["benchmarks/frontends/torch_parallel.py", *words])
    write(args.json, {"command": command, **machine, "transformers": tf.__version__, "rows": rows})


if __name__ == "__main__":
    sys.exit(main())
