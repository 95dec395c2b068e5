"""Calls that read and write heads and columns where they lie, beside copies of them in between.

``python benchmarks/views.py [--eval build/dev/hostir-eval] [--device cuda] [--rounds R] [--json FILE]``. Each program
is timed as it is planned and ``--without take_out_views``, in turn, by processes of their own: of a round the medians
of 50 runs. A ratio above 1 means that views are faster. On GPUs times are the device's, caches cold.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import kept
from bench import machine

Sizes = tuple[int, int, int, int]  # Sequences, words, heads, of elements each.
SIZES: dict[str, list[Sizes]] = {
    "cpu": [(1, 256, 12, 64), (4, 128, 8, 64), (2, 512, 4, 32)],
    "cuda": [(8, 1024, 12, 64), (1, 4096, 32, 128), (32, 256, 16, 64)],
}


def three_parts(dtype: str, sizes: Sizes) -> list[str]:
    """One projection's queries, keys and values, as heads."""
    b, t, h, d = sizes
    c = h * d
    lines = [f"fusion @p(%x: {dtype}[{b}, {t}, {3 * c}], %w: {dtype}[{c}, {c}]) {{"]
    for i, name in enumerate("qkv"):
        lines += [
            f"%{name}_part = slice(%x) {{start=[0, 0, {i * c}], end=[{b}, {t}, {(i + 1) * c}], strides=[1, 1, 1]}}",
            f"%{name}_tokens = reshape(%{name}_part) {{shape=[{b}, {t}, {h}, {d}]}}",
            f"%{name} = permute(%{name}_tokens) {{dims=[0, 2, 1, 3]}}",
        ]
    return lines


def joined(sizes: Sizes) -> list[str]:
    """The projection of what the heads made."""
    b, t, h, d = sizes
    return [
        "%tokens = permute(%o) {dims=[0, 2, 1, 3]}",
        f"%rows = reshape(%tokens) {{shape=[{b}, {t}, {h * d}]}}",
        "%y = linear(%rows, %w)",
        "return %y }",
    ]


def attention(dtype: str, sizes: Sizes) -> list[str]:
    attends = "%o = attention(%q, %k, %v) {result=values, causal=true, offset=[0, 0, 0, 0], scale=0.125}"
    return [*three_parts(dtype, sizes), attends, *joined(sizes)]


def products(dtype: str, sizes: Sizes) -> list[str]:
    """Attention by products around a softmax."""
    softmax = [
        "%k_t = permute(%k) {dims=[0, 1, 3, 2]}",
        "%s = matmul(%q, %k_t)",
        "%top = max(%s) {axes=[3], keepdim=true, dtype=null}",
        "%below = sub(%s, %top)",
        "%e = exp(%below)",
        "%total = sum(%e) {axes=[3], keepdim=true, dtype=null}",
        "%p = div(%e, %total)",
        "%o = matmul(%p, %v)",
    ]
    return [*three_parts(dtype, sizes), *softmax, *joined(sizes)]


def gradients(dtype: str, sizes: Sizes) -> list[str]:
    """Those of attention, in the order of tokens."""
    b, t, h, d = sizes
    of_tokens = f"{dtype}[{b}, {t}, {h}, {d}]"
    params = [f"%{name}_tokens: {of_tokens}" for name in ("q", "k", "v", "dy", "o")]
    lines = [f"fusion @p({', '.join(params)}, %lse: f32[{b}, {h}, {t}]) {{"]
    lines += [f"%{name} = permute(%{name}_tokens) {{dims=[0, 2, 1, 3]}}" for name in ("q", "k", "v", "dy", "o")]
    for name in "qkv":
        attrs = f"result={name}, causal=true, offset=[0, 0, 0, 0, 0], scale=0.125"
        lines += [
            f"%d{name}_heads = attention_grad(%q, %k, %v, %dy, %lse, %o) {{{attrs}}}",
            f"%d{name} = permute(%d{name}_heads) {{dims=[0, 2, 1, 3]}}",
        ]
    return [*lines, "return %dq, %dk, %dv }"]


def columns(dtype: str, sizes: Sizes) -> list[str]:
    """A product of a third of a matrix's columns."""
    b, t, h, d = sizes
    c = h * d
    return [
        f"fusion @p(%x: {dtype}[{b}, {t}, {3 * c}], %w: {dtype}[{c}, {c}]) {{",
        f"%part = slice(%x) {{start=[0, 0, {c}], end=[{b}, {t}, {2 * c}], strides=[1, 1, 1]}}",
        "%y = linear(%part, %w)",
        "return %y }",
    ]


PROGRAMS = {make.__name__: make for make in (attention, gradients, products, columns)}


def medians(options: argparse.Namespace, paths: list[Path], more: list[str]) -> tuple[list[float], str]:
    """Milliseconds, by program, and the device."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [options.eval, *map(str, paths), "--random", "1", "--repeat", "50", "--json", out.name, *more]
        command += ["--device", "cuda", "--cold-l2"] if options.device == "cuda" else ["--threads", "2"]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{shlex.join(command)}: {done.stderr.strip()[-2000:]}")
        rows = json.loads(Path(out.name).read_text())
        return [row["median_ms"] for row in rows], rows[0]["model"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eval", default="build/dev/hostir-eval", help="the program that runs them")
    parser.add_argument("--device", choices=SIZES, default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="where the quartiles go")
    options = parser.parse_args()
    dtypes = ("f32",) if options.device == "cpu" else ("bf16", "f32")
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, make in PROGRAMS.items():
            for dtype in dtypes:
                for sizes in SIZES[options.device]:
                    paths.append(Path(folder) / f"{name}_{dtype}_{'x'.join(map(str, sizes))}.hir")
                    paths[-1].write_text("\n".join(make(dtype, sizes)))
        sides: list[tuple[list[float], list[float]]] = []
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
            views, card = medians(options, paths, [])
            sides.append((views, medians(options, paths, ["--without", "take_out_views"])[0]))
    rows = []
    for i, path in enumerate(paths):
        views, copies = [side[0][i] for side in sides], [side[1][i] for side in sides]
        ratio = [copy / view for view, copy in zip(views, copies, strict=True)]
        row = {"program": path.stem, "views_ms": views, "copies_ms": copies}
        rows.append(kept.kept_pairs(row, ["views_ms", "copies_ms"], {"ratio": ratio}))
        print(
            f"{path.stem:32} {kept.quartiles(views)[1]:9.4f} ms, copied {kept.quartiles(copies)[1]:9.4f} ms, "
            f"{kept.quartiles(ratio)[1]:5.2f}"
        )
    if options.json:
        kept.write(
            options.json,
            {
                "machine": machine() | {"device": card},
                "command": shlex.join(["benchmarks/views.py", *sys.argv[1:]]),
                "rows": rows,
            },
        )


if __name__ == "__main__":
    main()
