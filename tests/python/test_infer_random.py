"""Random calls of fd.ops: what the client infers, and what it refuses, against hostir-opt.

A program is recorded until it is long enough; a call that is refused is dropped, or ends it. The service must infer the
same types, or refuse the last op in the same words.
"""

from __future__ import annotations

import collections
import os
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import hostir
from hostir import DataType, FusionDefinition
from hostir.infer.value_type import text
from hostir.ops import Ops
from text_program import programs

OPT = Path(os.environ.get("HOSTIR_BUILD_DIR", Path(__file__).parents[2] / "build/dev")) / "hostir-opt"
SEEDS = range(int(os.environ.get("HOSTIR_SEEDS", "400")))
EXTENTS = [1, 1, 2, 3, 4, 6, 0, -1, -1, -1]
DTYPES = [d for d in DataType if d is not DataType.Null]


class Refused(Exception):
    pass


class Program:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.refused = ""
        self.dropped = 0
        self.counts: collections.Counter[str] = collections.Counter()
        with FusionDefinition("random") as self.fd:
            for _ in range(self.random.randint(1, 3)):
                self.input()
            for _ in range(self.random.randint(1, 30)):
                try:
                    self.call()
                except Refused:
                    break
        self.text = str(self.fd)

    def infer(self, op: str, operands: Any, attrs: Any) -> Any:
        """FusionDefinition._infer, but that what is refused is recorded, too."""
        try:
            return self.real(op, operands, attrs)
        except hostir.HostirError as error:
            self.refused = re.sub(r" \(test_infer_random\.py:.*", "", str(error), flags=re.S)
            return None

    def input(self) -> None:
        shape = [self.random.choice(EXTENTS) for _ in range(self.random.randint(0, 3))]
        flags = [None if self.random.random() < 0.2 else True for _ in shape]
        self.fd.define_tensor(shape=shape, contiguity=flags, dtype=self.random.choice(DTYPES[:4] * 3 + DTYPES))

    def values(self, kind: type) -> list[Any]:
        return [v for v in self.known if isinstance(v, kind)]

    def tensor(self) -> Any:
        return self.random.choice(self.values(hostir.Tensor))

    def extent(self) -> Any:
        of = self.tensor()
        known = [*of.shape, *of.shape, 1, 2, 3, 6, -1, 0]
        e = self.random.choice(known)
        return e * 2 if self.random.random() < 0.1 else e

    def axis(self) -> int:
        return self.random.randint(-3, 2)

    def axes(self) -> Any:
        return None if self.random.random() < 0.3 else [self.axis() for _ in range(self.random.randint(1, 2))]

    def call(self) -> None:
        self.known = [v for v in [*self.fd._inputs, *getattr(self, "made", [])] if v._type is not None]
        self.made = getattr(self, "made", [])
        self.real = self.fd._infer
        self.fd._infer = self.infer  # type: ignore[method-assign]
        try:
            name, made = self.record(self.fd.ops)
        finally:
            self.fd._infer = self.real  # type: ignore[method-assign]
        self.counts[name] += 1
        if not self.refused:
            self.made.append(made)
        elif self.random.random() < 0.2:
            raise Refused
        else:  # As if the user had caught it.
            self.dropped += 1
            self.refused = ""
            self.fd._record.ops.pop()

    def record(self, ops: Ops) -> tuple[str, Any]:
        r, x = self.random, self.tensor()
        if r.random() < 0.4:
            name = r.choice(
                ["add", "mul", "sub", "where", "neg", "exp", "maximum", "bitwise_and", "gcd", "truediv", "lt"]
            )
            count = {"where": 3, "neg": 1, "exp": 1}.get(name, 2)
            operands = [self.tensor() if r.random() < 0.85 else r.choice([2, 0.5, True, 2**40]) for _ in range(count)]
            return name, ops._record(name, operands)
        calls = {
            "cast": lambda: ops.cast(x, r.choice(DTYPES)),
            "sum": lambda: ops.sum(x, self.axes(), r.random() < 0.5),
            "max": lambda: ops.max(x, self.axes(), r.random() < 0.5),
            "mean": lambda: ops.mean(x, self.axes(), r.random() < 0.5),
            "any": lambda: ops.any(x, self.axes(), r.random() < 0.5),
            "all": lambda: ops.all(x, self.axes(), r.random() < 0.5),
            "argmax": lambda: ops.argmax(x, self.axis(), r.random() < 0.5),
            "argmin": lambda: ops.argmin(x, self.axis(), r.random() < 0.5),
            "var": lambda: ops.var(x, self.axes(), r.randint(0, 1), r.random() < 0.5),
            "broadcast": lambda: ops.broadcast(x, [r.random() < 0.3 for _ in range(r.randint(0, 4))]),
            "broadcast_in_dim": lambda: ops.broadcast_in_dim(
                x, [*x.shape, self.extent()], r.choice([list(range(x.ndim)), [*range(1, x.ndim + 1)], [0]])
            ),
            "reshape": lambda: ops.reshape(
                x,
                r.choice([[-1], [self.extent(), -1], [self.extent(), self.extent()], [*x.shape, 1], [*x.shape[::-1]]]),
            ),
            "permute": lambda: ops.permute(x, r.sample(range(x.ndim), x.ndim) if r.random() < 0.8 else [0, 0]),
            "expand": lambda: ops.expand(x, [r.choice([-1, e, self.extent()]) for e in x.shape]),
            "squeeze": lambda: ops.squeeze(x, [self.axis()], squeeze_expanded=r.random() < 0.5),
            "slice": lambda: ops.slice(
                x,
                [r.choice([0, 0, 1, -2]) for _ in x.shape],
                [r.choice([e, e, 2, -1, 2**63 - 1]) for e in x.shape],
                [r.choice([1, 1, 2]) for _ in x.shape],
            ),
            "pad": lambda: ops.pad(x, [r.randint(-2, 2) for _ in range(2 * r.randint(0, 2))]),
            "cat": lambda: ops.cat([x, self.tensor()] if r.random() < 0.7 else [x, x], self.axis()),
            "argsort": lambda: ops.argsort(x, self.axis(), r.random() < 0.5),
            "cumsum": lambda: ops.cumsum(x, self.axis(), r.choice([DataType.Null, DataType.Float, DataType.Bool])),
            "cumprod": lambda: ops.cumprod(x, self.axis()),
            "flip": lambda: ops.flip(x, self.axes()),
            "one_hot": lambda: ops.one_hot(x, r.randint(-1, 3), r.choice(DTYPES)),
            "tril": lambda: ops.tril(x, r.randint(-1, 1)),
            "triu": lambda: ops.triu(x, r.randint(-1, 1)),
            "select": lambda: ops.select(x, r.randint(-3, 3), self.axis()),
            "index_select": lambda: ops.index_select(x, self.tensor(), self.axis()),
            "gather": lambda: ops.gather(x, self.tensor(), self.axis()),
            "index_sum": lambda: ops.index_sum(x, self.tensor(), self.extent(), self.axis()),
            "scatter": lambda: ops.scatter(x, self.tensor(), self.tensor(), self.axis()),
            "take_along_axis": lambda: ops.take_along_axis(x, self.tensor(), self.axis()),
            "full": lambda: ops.full([self.extent() for _ in range(r.randint(0, 2))], 1, r.choice(DTYPES)),
            "uniform": lambda: ops.uniform(
                0, 1, [self.extent(), self.extent()], r.choice([1, 7, 0.5]), 3, r.choice(DTYPES)
            ),
            "iota": lambda: ops.iota(self.extent(), dtype=r.choice(DTYPES)),
            "attention": lambda: ops.attention(
                x,
                *[self.tensor() if r.random() < 0.3 else x for _ in range(r.choice([2, 3]))],
                result=r.choice(["values", "lse"]),
                causal=r.random() < 0.5,
                offset=r.choice([0, 2, self.extent()]),
            ),
            "attention_grad": lambda: ops.attention_grad(
                r.choice(["q", "k", "v"]),
                x,
                *[self.tensor() if r.random() < 0.2 else x for _ in range(3)],
                *[self.tensor() for _ in range(2)],
                offset=r.choice([0, 2, self.extent()]),
            ),
            "grouped_matmul": lambda: ops.grouped_matmul(x, self.tensor(), self.tensor()),
            "grouped_outer": lambda: ops.grouped_outer(x, self.tensor() if r.random() < 0.5 else x, self.tensor()),
            "matmul": lambda: ops.matmul(x, self.tensor()),
            "linear": lambda: ops.linear(x, self.tensor(), *([self.tensor()] if r.random() < 0.3 else [])),
        }
        name = r.choice(list(calls))
        return name, calls[name]()


def service(program: Program) -> tuple[int, str]:
    printed = subprocess.run([OPT], input=program.text, capture_output=True, text=True)
    return printed.returncode, printed.stdout if printed.returncode == 0 else printed.stderr


def test_types_and_refusals() -> None:
    if not OPT.exists():
        pytest.skip(f"{OPT} is not built")
    counts: collections.Counter[str] = collections.Counter()
    for seed in SEEDS:
        program = Program(seed)
        counts += program.counts
        counts["dropped"] += program.dropped
        code, said = service(program)
        where = f"seed {seed}\n{program.text}\nthe client: {program.refused or 'accepts'}\nthe service: {said}"
        if program.refused:
            counts["refused"] += 1
            assert code != 0 and program.refused in said, where
            continue
        (read,) = programs(program.text)
        try:
            types, _ = read.types()
        except hostir.HostirError as error:  # Only the whole program shows it: the service reads it again.
            counts["refused as a whole"] += 1
            assert code != 0 and str(error) in said, f"{where}\nas a whole: {error}"
            continue
        assert code == 0, where
        (wanted,) = programs(said)
        assert types == {**wanted.params, **{op.result: op.declared for op in wanted.ops}}, where
        values = {v.name: v._type for v in [*program.fd._inputs, *program.made]}
        for op in wanted.ops:
            of = values.get(op.result)
            if of is not None:
                now = text(of.dtype, read.sizes.axes(of) if of.is_tensor else None)
                # A size settled after its line may have made a stored axis of one: its extent is the same.
                assert extents_of(now) == extents_of(op.declared or ""), where
    print(f"seeds {SEEDS}: {dict(counts)}")
    assert len(counts) > 30 and counts["refused"] > len(SEEDS) // 10


def extents_of(of: str) -> list[str]:
    axes = [axis.strip().removeprefix("b:") for axis in re.split(r"[\[\],]", of)]
    return ["1" if axis == "b" else axis for axis in axes]
