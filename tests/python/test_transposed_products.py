"""Products whose operands lie transposed, in each way, against NumPy: ranks take them as they lie."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest

import hostir
from hostir import DataType, FusionDefinition

SEED = int(os.environ.get("HOSTIR_SEED", "28"))
DTYPES = {
    DataType.Float: 1e-5,
    DataType.Double: 1e-12,
    DataType.BFloat16: 1e-2,
    DataType.Half: 2e-3,
    DataType.Int: 0.0,
}


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_each_way(client: hostir.Client, dtype: DataType) -> None:
    print(f"HOSTIR_SEED={SEED}")
    numbers = np.random.default_rng(SEED)
    turned = 0
    for batch, x_turned, y_turned, has_bias in itertools.product([(), (3,), (2, 3)], [0, 1], [0, 1], [0, 1]):
        m, k, n = (int(size) for size in numbers.integers(1, 40, 3))
        x, y = (
            numbers.integers(-3, 4, (*batch, *sizes)).astype(dtype.numpy)
            for sizes in ([k, m] if x_turned else [m, k], [n, k] if y_turned else [k, n])
        )
        bias = numbers.integers(-3, 4, n).astype(dtype.numpy)
        dims = [*range(len(batch)), len(batch) + 1, len(batch)]
        with FusionDefinition("product") as fd:
            left, right, column = (fd.define_tensor(list(a.shape), True, dtype) for a in (x, y, bias))
            product = fd.ops.matmul(
                fd.ops.permute(left, dims) if x_turned else left, fd.ops.permute(right, dims) if y_turned else right
            )
            fd.add_output(fd.ops.relu(product + column) if has_bias else product)
        (found,) = client.run(fd, [x, y, bias])
        wide = [a.astype(np.float64) for a in (x, y, bias)]
        expected = (wide[0].swapaxes(-1, -2) if x_turned else wide[0]) @ (
            wide[1].swapaxes(-1, -2) if y_turned else wide[1]
        )
        if has_bias:
            expected = np.maximum(expected + wide[2], 0)
        scale = max(1.0, float(np.abs(expected).max()))
        assert np.abs(found.numpy().astype(np.float64) - expected).max() <= DTYPES[dtype] * scale, fd
        plan = client.explain(fd)
        schedules = [segment.schedule for segment in plan.segments]
        turned += any("transposed" in schedule for schedule in schedules)
        copies = sum("permute" in op for segment in plan.segments if segment.kind == "kernel" for op in segment.ops)
        assert copies == 0, f"{plan}"
    assert turned == (0 if dtype is DataType.Int else 18)
