"""Every pointwise op against NumPy: all its types, broadcasting, NaN, infinities, signed zeros, no elements."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

import hostir
from hostir import FusionDefinition
from numpy_ops import ALL, BF16, BOOL, F16, F32, F64, FLOATS, I32, I64, INTS, POINTWISE, rounded

# The first operand's shape gives the result's; the others broadcast to it.
SHAPES = [[(6, 17), (17,), (6, 1), (1,)], [(1, 1), (1, 1), (1,), ()], [(0, 3), (1, 3), (), (3,)]]
# Units in the last place, by type: the kernels' float32 and float64 functions are not rounded correctly.
TOLERANCE = {F64: 1e-14, F32: 2e-6, F16: 1.1e-3, BF16: 8.5e-3}


def values(op: str, dtype: np.dtype[Any], shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(zlib.crc32(f"{op} {dtype} {shape} {seed}".encode()))
    if dtype == BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in INTS:
        special = [0, 1, -1, np.iinfo(dtype).min, np.iinfo(dtype).max]
        x = rng.integers(-20, 20, shape).astype(dtype)
    else:
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.5, -3.5]
        x = rounded(rng.standard_normal(shape) * 3, dtype)
        if op in ("erfinv", "erfcinv"):
            x = rounded(np.tanh(x.astype(F64)) + (op == "erfcinv"), dtype)
    flat = x.reshape(-1)
    for i, value in enumerate(special[: flat.size // 2]):
        flat[rng.integers(flat.size)] = np.array(value).astype(dtype)
        flat[(7 * i) % flat.size] = np.array(value).astype(dtype)
    return x


def agree(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], exact: bool, what: str) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape), what
    if got.dtype not in FLOATS:
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    tolerance = 0.0 if exact else TOLERANCE[got.dtype]
    tiny = 0.0 if exact else {F64: 4e-16, F32: 2e-7, F16: 1e-7, BF16: 1e-7}[got.dtype]
    np.testing.assert_allclose(got.astype(F64), want.astype(F64), rtol=tolerance, atol=tiny, err_msg=what)
    if exact:
        zeros = want == 0
        np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(want[zeros]), err_msg=f"{what}: sign of 0")


@pytest.mark.parametrize("op", POINTWISE)
def test_against_numpy(client: hostir.Client, op: str) -> None:
    definition = POINTWISE[op]
    shapes = SHAPES if definition.arity > 1 else [shapes[:1] for shapes in SHAPES]
    ranks = {tuple(len(shape) for shape in each[: definition.arity]) for each in shapes}
    for rank in sorted(ranks):
        cases = [each for each in shapes if tuple(len(shape) for shape in each[: definition.arity]) == rank]
        for case in cases:
            with FusionDefinition(op) as fd:
                for dtype in definition.dtypes:
                    operands = [
                        fd.define_tensor(shape=[1 if n == 1 else -1 for n in shape], contiguity=True, dtype=dtype)
                        for shape in case[: definition.arity]
                    ]
                    fd.add_output(getattr(fd.ops, op)(*operands))
            arrays = [
                [values(op, dtype, shape, i) for i, shape in enumerate(case[: definition.arity])]
                for dtype in definition.dtypes
            ]
            outputs = client.run(fd, [array for each in arrays for array in each])
            for dtype, operands, output in zip(definition.dtypes, arrays, outputs, strict=True):
                agree(output.numpy(), definition(dtype, *operands), definition.exact, f"{op} of {dtype}{case}")


def test_where(client: hostir.Client) -> None:
    with FusionDefinition("where") as fd:
        condition = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=bool)
        for dtype in ALL:
            x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=dtype)
            y = fd.define_tensor(shape=[-1], contiguity=True, dtype=dtype)
            fd.add_output(fd.ops.where(condition, x, y))
    chosen = values("where", BOOL, (6, 17), 0)
    pairs = [(values("where", dtype, (6, 17), 1), values("where", dtype, (17,), 2)) for dtype in ALL]
    outputs = client.run(fd, [chosen, *(array for pair in pairs for array in pair)])
    for (x, y), output in zip(pairs, outputs, strict=True):
        agree(output.numpy(), np.where(chosen, x, y), True, f"where of {x.dtype}")


PROMOTED = [
    (BF16, F16, F32),
    (BF16, F32, F32),
    (F16, F64, F64),
    (I64, BF16, BF16),
    (I32, F16, F16),
    (I32, I64, I64),
    (BOOL, I32, I32),
    (BOOL, F32, F32),
    (F32, F64, F64),
]


def test_promotion_of_tensors(client: hostir.Client) -> None:
    with FusionDefinition("promotion") as fd:
        for a, b, _ in PROMOTED:
            x, y = (fd.define_tensor(shape=[-1], contiguity=True, dtype=dtype) for dtype in (a, b))
            fd.add_output(fd.ops.mul(x, y))
            fd.add_output(y * x)
    three, four = np.array([0, 1, 3]), np.array([1, 4, 2])
    inputs = [values.astype(t) for a, b, _ in PROMOTED for t, values in ((a, three), (b, four))]
    outputs = [output.numpy() for output in client.run(fd, inputs)]
    for i, (a, b, result) in enumerate(PROMOTED):
        want = three.astype(a).astype(F64) * four.astype(b).astype(F64)
        for output in outputs[2 * i : 2 * i + 2]:
            assert output.dtype == result, f"{a} and {b}"
            np.testing.assert_array_equal(output.astype(F64), want)


@pytest.mark.parametrize(
    ("dtype", "number", "result"),
    [
        (BF16, 1.5, BF16),
        (F16, 2, F16),
        (F32, True, F32),
        (F32, 1e300, F32),
        (I32, 2, I32),
        (I32, 1.5, F32),
        (I64, True, I64),
        (BOOL, 2, I64),
        (BOOL, 0.5, F32),
        (BOOL, True, BOOL),
    ],
)
def test_numbers_do_not_promote(client: hostir.Client, dtype: Any, number: Any, result: Any) -> None:
    with FusionDefinition("numbers") as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True, dtype=dtype)
        s = fd.define_scalar(dtype=hostir.DataType.Double)
        fd.add_output(x + number)
        fd.add_output(x * s)
    array = np.array([0, 1, 1]).astype(dtype)
    added, scaled = (output.numpy() for output in client.run(fd, [array, 0.5]))
    want = array | number if dtype == BOOL and number is True else array.astype(F64) + number
    np.testing.assert_array_equal(added, rounded(want, result))
    assert added.dtype == result
    assert scaled.dtype == (dtype if dtype in FLOATS else F32)
    np.testing.assert_array_equal(scaled.astype(F64), array.astype(F64) * 0.5)


@pytest.mark.parametrize("source", ALL, ids=str)
def test_cast(client: hostir.Client, source: np.dtype[Any]) -> None:
    """Floats to integers truncate and saturate, NaN becomes 0; integers wrap; to bool: not 0."""
    with FusionDefinition("cast") as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=source)
        for target in ALL:
            fd.add_output(fd.ops.cast(x, target))
    array = values("cast", source, (9, 31), 0)
    if source in FLOATS:
        array[0, :4] = rounded([2.5e4, -2.5e4, 0.49999, -1.75], source)
    for target, output in zip(ALL, client.run(fd, [array]), strict=True):
        if source in FLOATS and target in INTS:
            info, wide = np.iinfo(target), array.astype(F64)
            inside = (wide > info.min) & (wide < float(info.max))
            want = np.where(wide > 0, info.max, np.where(wide < 0, info.min, 0)).astype(target)
            want[inside] = np.trunc(wide[inside]).astype(target)
        elif target == BOOL:
            want = array.astype(F64) != 0
        else:
            want = rounded(array, target)
        agree(output.numpy(), want, True, f"{source} to {target}")
