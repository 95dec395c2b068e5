"""The choices of a drawn workload, and what it is: inputs, a formula, and all that follows from these."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
from op_spaces import ArrayOps, HostirOps
from workloads import Array, Shape

from hostir import DataType, FusionDefinition

T = TypeVar("T")

# An element may be off, by dtype, by so much of its own magnitude and that of the whole output. bf16 rounds by 2e-3.
TOLERANCES = {"bf16": 5e-3, "f32": 1e-4}
DTYPES: dict[str, Any] = {"bf16": DataType.BFloat16, "f32": DataType.Float, "i64": DataType.Int}
# Extents are whole numbers as they come, multiples of a vector, and powers of two.
ROUNDED = {"as it comes": 2, "multiple": 1, "power": 1}
MULTIPLE = 16


class Draw:
    """Those of workload `index` of a seed, however many are drawn."""

    def __init__(self, seed: int, index: int, elements: tuple[float, float], bf16: float) -> None:
        """elements: of a workload's large arrays together, from ... to. bf16: the share of workloads that have it."""
        self.index = index
        self.random = random.Random(f"{seed} {index}")
        low, high = (math.log(bound) for bound in elements)
        self.elements = math.exp(self.random.uniform(low, high))
        # Drawn in either case: where a machine has no bf16, all else stays the same.
        self.dtype = "bf16" if self.random.random() < bf16 else "f32"
        self.symbolic = self.chance(0.3)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, options: Sequence[T]) -> T:
        return self.random.choice(options)

    def weighed(self, weights: dict[T, int]) -> T:
        return self.random.choices(list(weights), list(weights.values()))[0]

    def rank(self, least: int, most: int) -> int:
        return self.random.randint(least, most)

    def shape(self, rank: int, arrays: int) -> Shape:
        """Of one of `arrays` arrays, which together have the elements of this workload. Sizes are log-uniform."""
        if rank >= 3 and self.chance(0.1):
            return (1, *self.shape(rank - 1, arrays))
        left = self.elements / arrays
        cuts = sorted(self.random.random() for _ in range(rank - 1))
        parts = [b - a for a, b in zip([0.0, *cuts], [*cuts, 1.0], strict=True)]
        extents = [self._rounded(left**part) for part in parts]
        # One axis, which may be any, makes up for what was rounded.
        last = self.random.randrange(rank)
        others = math.prod(extents[:last] + extents[last + 1 :])
        extents[last] = max(2, round(left / others))
        return tuple(extents)

    def _rounded(self, extent: float) -> int:
        how = self.weighed(ROUNDED)
        if how == "multiple" and extent >= MULTIPLE:
            return round(extent / MULTIPLE) * MULTIPLE
        if how == "power":
            return 1 << max(1, round(math.log2(extent)))
        return max(2, round(extent))

    def axes(self, shape: Shape, most: int) -> tuple[int, ...]:
        """Some of them, one more often than several; never one of extent 1 alone."""
        large = [axis for axis, extent in enumerate(shape) if extent > 1]
        count = 1 if self.chance(0.6) else self.random.randint(1, min(most, len(large)))
        return tuple(sorted(self.random.sample(large, count)))

    def axis(self, shape: Shape) -> int:
        return self.axes(shape, 1)[0]


@dataclass(frozen=True)
class Drawn:
    """A workload. `formula` takes ops of `op_spaces` and the inputs, and computes in float32 or wider."""

    index: int
    pattern: str
    details: str
    inputs: list[Array]
    outputs: list[str]  # Their dtypes.
    formula: Callable[..., list[Any]]
    symbolic: bool  # Whether hostir's program is for all sizes. The peers' are for these.

    @property
    def name(self) -> str:
        dtypes = sorted({array.dtype for array in self.inputs if array.dtype != "i64"} | set(self.outputs))
        return f"{self.pattern} {self.details} {'/'.join(dtypes)}{' any size' if self.symbolic else ''}"

    def compute(self, ops: Any, *inputs: Any) -> list[Any]:
        """As the peers and hostir do: 16-bit floats widened, results rounded once."""
        wide = [ops.wide(x, array.dtype) for x, array in zip(inputs, self.inputs, strict=True)]
        results = self.formula(ops, *wide)
        return [ops.result(y, dtype) for y, dtype in zip(results, self.outputs, strict=True)]

    def program(self, symbolic: bool | None = None) -> FusionDefinition:
        any_size = self.symbolic if symbolic is None else symbolic
        with FusionDefinition(f"drawn_{self.index}") as fd:
            tensors = [
                fd.define_tensor(
                    shape=[-1 if any_size and extent > 1 else extent for extent in array.shape],
                    contiguity=[None if extent == 1 else True for extent in array.shape],
                    dtype=DTYPES[array.dtype],
                    name=array.name,
                )
                for array in self.inputs
            ]
            for y in self.compute(HostirOps(fd), *tensors):
                fd.add_output(y)
        return fd

    def output_arrays(self) -> list[Array]:
        results: list[Any] = self.program(symbolic=False).fusion.outputs()
        names = [result.name for result in self.program().fusion.outputs()]
        return [
            Array(name, dtype, tuple(result.shape))
            for name, dtype, result in zip(names, self.outputs, results, strict=True)
        ]

    def bytes(self) -> int:
        """What must move at least: every input read once, every output written once."""
        return sum(array.bytes for array in [*self.inputs, *self.output_arrays()])

    def values(self) -> list[np.ndarray[Any, Any]]:
        rng = np.random.default_rng(self.index)
        return [drawn_values(array, rng) for array in self.inputs]

    def reference(self, values: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        wide = [x if x.dtype == np.int64 else x.astype(np.float64) for x in values]
        return self.formula(ArrayOps(np), *wide)

    def check(self, side: str, results: Sequence[Any], expected: Sequence[Any]) -> None:
        """Raises ValueError where a side's results, NumPy's or PyTorch's arrays, are none of the expected ones."""
        for number, (got, want, dtype) in enumerate(zip(results, expected, self.outputs, strict=True)):
            if tuple(got.shape) != tuple(want.shape):
                raise ValueError(f"{side}: output {number} has shape {tuple(got.shape)}, not {tuple(want.shape)}")
            error = largest_error(got, want)
            if not error <= TOLERANCES[dtype]:  # Written so that a NaN is wrong.
                raise ValueError(f"{side}: output {number} is off by {error:.1e}, {TOLERANCES[dtype]:.0e} is allowed")


def drawn_values(array: Array, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """As kernels.py of benchmarks/gpu draws them on a GPU."""
    if array.drawn.startswith("index:"):
        return rng.integers(0, int(array.drawn[6:]), array.shape, dtype=np.int64)
    if array.drawn == "normal":
        values = rng.standard_normal(array.shape, dtype=np.float32)
    else:
        values = rng.random(array.shape, dtype=np.float32) + np.float32(0.5)
    return values.astype(ml_dtypes.bfloat16) if array.dtype == "bf16" else values


def largest_error(got: Any, want: Any) -> float:
    """Of an element, relative to its magnitude and the root mean square of all: one wrong element shows.

    got, want: arrays of NumPy, or of PyTorch, in float64.
    """
    if math.prod(want.shape) == 0:
        return 0.0
    scale = abs(want) + max(float((want * want).mean()) ** 0.5, 1e-30)  # All may be 0.
    return float((abs(got - want) / scale).max())
