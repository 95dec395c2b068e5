"""Attention over a sequence that is split over ranks: keys gathered on each, or passed from rank to rank.

python3 benchmarks/gpu/ring.py --ranks 2 [--peer PYTHON] --json benchmarks/results/NAME.json

Of each size, causal and not, forward, and forward with backward: "gathered" is the program whose ranks hold all keys,
"ring" the same one with keys that go round, "chosen" the one that hostir makes of it by itself. "alone" is the work of
the busiest rank without any communication: its queries, and all keys, which lie there already. Samples of one program
take turns, in one process a rank. Beside them, where PYTHON has PyTorch with CUDA: "torch gathered", an all-gather of
keys and values by NCCL and scaled_dot_product_attention, and "torch ring", its context_parallel, which balances causal
work. Memory is the ranks' pool: what a run takes besides its inputs and outputs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1]))

from kept import quartiles, write
from machine import machine
from overlap import ROOT, evaluate


class Size(NamedTuple):
    """The whole attention's."""

    batch: int
    heads: int
    length: int
    head: int

    def __str__(self) -> str:
        return "x".join(map(str, self))


SIZES = [Size(1, 16, length, 128) for length in (1024, 4096, 16384, 65536)]
PASSES = ("forward", "forward and backward")


def program(size: Size, dtype: str, causal: bool, backward: bool, ranks: int, whole_keys: bool) -> str:
    """Queries and keys in blocks of the sequence; with `whole_keys` the last rank's queries and all keys, on each."""
    split = "" if whole_keys else ", shard(2, mesh_x)"
    rows = size.length // ranks if whole_keys else size.length
    first = size.length - rows

    def tensor(name: str, length: int) -> str:
        return f"%{name}: {dtype}[{size.batch}, {size.heads}, {length}, {size.head}] {{mesh=@m{split}}}"

    inputs = [tensor("q", rows), tensor("k", size.length), tensor("v", size.length)]
    rest = f"causal={str(causal).lower()}, scale={size.head**-0.5}"
    lines = [f"%y = attention(%q, %k, %v) {{result=values, offset=[0, 0, {first}, 0], {rest}}}"]
    returned = ["%y"]
    if backward:
        inputs.append(tensor("g", rows))
        lines.append(f"%l = attention(%q, %k, %v) {{result=lse, offset=[0, 0, {first}], {rest}}}")
        for of, offset in (("q", f"{first}, 0, 0"), ("k", f"0, 0, {first}"), ("v", f"0, 0, {first}")):
            options = f"{{result={of}, offset=[0, 0, {offset}], {rest}}}"
            lines.append(f"%d{of} = attention_grad(%q, %k, %v, %g, %l, %y) {options}")
            returned.append(f"%d{of}")
    lines.append(f"return {', '.join(returned)}")
    body = "\n  ".join(lines)
    return f"mesh @m = {list(range(ranks))}\nfusion @attention({', '.join(inputs)}) {{\n  {body}\n}}\n"


def measure(args: argparse.Namespace, size: Size) -> list[dict[str, Any]]:
    cases = [(causal, backward) for causal in (False, True) for backward in (False, True)]
    programs = {}
    for case in cases:
        programs[("split", *case)] = program(size, args.dtype, *case, args.ranks, False)
        programs[("alone", *case)] = program(size, args.dtype, *case, args.ranks, True)
    texts = {f"{i}": text for i, text in enumerate(programs.values())}
    named = dict(zip(programs, texts, strict=True))
    taken: dict[Any, list[float]] = {}
    pools: dict[Any, int] = {}
    for _ in range(args.rounds):
        reports = evaluate(args, texts, ["never", "always", "chosen"], False)
        for case in cases:
            variants = [("gathered", "split", "never"), ("ring", "split", "always"), ("chosen", "split", "chosen")]
            for name, of, overlap in [*variants, ("alone", "alone", "never")]:
                report = reports[named[(of, *case)], overlap]
                taken.setdefault((*case, name), []).extend(report["samples_ms"])
                pools[(*case, name)] = max(report["pool_bytes"])
        if args.peer:
            for case in cases:
                for name, samples in peer(args, size, *case).items():
                    taken.setdefault((*case, name), []).extend(samples)
    rows = []
    for (causal, backward, name), samples in taken.items():
        row = {"size": list(size), "causal": causal, "pass": PASSES[backward], "variant": name}
        row |= {"samples": len(samples), "ms_quartiles": quartiles(samples)}
        row["pool_bytes"] = pools.get((causal, backward, name))
        row["of_gathered"] = statistics.median(samples) / statistics.median(taken[causal, backward, "gathered"])
        row["of_alone"] = statistics.median(samples) / statistics.median(taken[causal, backward, "alone"])
        rows.append(row)
        print(
            f"{size!s:16} {'causal' if causal else 'all keys':9} {PASSES[backward]:21} {name:14}"
            f" {statistics.median(samples):9.3f} ms {row['of_gathered']:6.2f} of gathered"
            f" {row['of_alone']:6.2f} of alone {(row['pool_bytes'] or 0) >> 20:6} MiB",
            flush=True,
        )
    return rows


def peer(args: argparse.Namespace, size: Size, causal: bool, backward: bool) -> dict[str, list[float]]:
    """By variant milliseconds of PyTorch's ranks, a process each."""
    with tempfile.TemporaryDirectory(prefix="hostir-") as folder:
        store = Path(folder) / "store"
        ranks = []
        for rank in range(args.ranks):
            of_rank = [rank, args.ranks, store, *size, int(causal), int(backward), args.dtype, args.samples, args.batch]
            command = [args.peer, str(Path(__file__).resolve()), "--as-peer", *map(str, of_rank)]
            ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        outputs = [rank.communicate(timeout=args.timeout) for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise RuntimeError("\n".join(error[-1500:] for _, error in outputs))
    samples = [json.loads(out.splitlines()[-1]) for out, _ in outputs]
    return {name: [max(of) for of in zip(*(s[name] for s in samples), strict=True)] for name in samples[0]}


def as_peer(words: list[str]) -> None:
    """One of PyTorch's ranks."""
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor.experimental import _attention, context_parallel
    from torch.nn.attention import SDPBackend, sdpa_kernel

    rank, ranks = int(words[0]), int(words[1])
    size, causal, backward = Size(*map(int, words[3:7])), words[7] == "1", words[8] == "1"
    dtype, count, batch = {"bf16": torch.bfloat16, "f16": torch.float16}[words[9]], int(words[10]), int(words[11])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{words[2]}", rank=rank, world_size=ranks)
    attention = torch.nn.functional.scaled_dot_product_attention

    def random(length: int) -> torch.Tensor:
        shape = (size.batch, size.heads, length, size.head)
        return (torch.rand(shape, device="cuda", dtype=dtype) - 0.5).requires_grad_(backward)

    def timed(step: Any) -> list[float]:
        for _ in range(3):
            step()
        times = []
        for _ in range(count):
            dist.barrier()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(batch):
                step()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / batch)
        return times

    part = size.length // ranks
    q, k, v = (random(part) for _ in range(3))
    gradient = torch.rand_like(q)

    def gathered() -> None:
        whole = []
        for of in (k, v):
            parts = torch.empty((ranks, *of.shape), device="cuda", dtype=dtype)
            dist.all_gather_into_tensor(parts, of.detach())
            joined = parts.permute(1, 2, 0, 3, 4).reshape(size.batch, size.heads, size.length, size.head)
            whole.append(joined.requires_grad_(backward))
        if causal:  # Those after a rank's own are no keys of any of its queries.
            end = (rank + 1) * part
            from torch.nn.attention.bias import causal_lower_right

            y = attention(q, whole[0][:, :, :end], whole[1][:, :, :end], causal_lower_right(part, end))
        else:
            y = attention(q, *whole)
        if backward:
            q.grad = None
            y.backward(gradient)
            for of in whole:
                parts = of.grad.view(size.batch, size.heads, ranks, part, size.head).permute(2, 0, 1, 3, 4).contiguous()
                dist.reduce_scatter_tensor(torch.empty_like(parts[0]), parts)

    times = {"torch gathered": timed(gathered)}
    _attention._cp_options.enable_load_balance = causal
    mesh = dist.device_mesh.init_device_mesh("cuda", (ranks,))
    buffers = [random(size.length).detach() for _ in range(3)]
    with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[2, 2, 2]), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        for of in buffers:
            of.requires_grad_(backward)

        def ring() -> None:
            y = torch.nn.functional.scaled_dot_product_attention(*buffers, is_causal=causal)  # Another one in here.
            if backward:
                for of in buffers:
                    of.grad = None
                y.backward(torch.ones_like(y))

        times["torch ring"] = timed(ring)
        for of in buffers:
            of.requires_grad_(False)
    dist.destroy_process_group()
    print(json.dumps(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build" / "gpu" / "hostir-eval"), help="hostir-eval")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cuda", help="cpu for a trial")
    parser.add_argument("--dtype", default="bf16", help="f32 for CPUs")
    parser.add_argument(
        "--sizes",
        nargs="+",
        default=SIZES,
        type=lambda t: Size(*map(int, t.split("x"))),
        help="BATCHxHEADSxLENGTHxHEAD",
    )
    parser.add_argument("--peer", help="a Python that has PyTorch")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--samples", type=int, default=7, help="of a variant in a round")
    parser.add_argument("--batch", type=int, default=5, help="runs of a sample")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one variant")
    parser.add_argument("--json", help="keep the figures there")
    if sys.argv[1:2] == ["--as-peer"]:
        as_peer(sys.argv[2:])
        return
    args = parser.parse_args()
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    rows = []
    for size in args.sizes:
        rows += measure(args, size)
        if args.json:  # So that a run that is cut off keeps what it has.
            write(Path(args.json), {"machine": machine(), "ranks": args.ranks, "dtype": args.dtype, "rows": rows})


if __name__ == "__main__":
    main()
