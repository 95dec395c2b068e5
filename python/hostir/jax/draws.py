"""Rules of random numbers whose key is data: JAX's Threefry, bit by bit, so that draws are those of JAX.

uint32 is int64 here, from 0 to 2^32 - 1; a key is two of them, on a last axis of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend.random import threefry_prng_impl

from ..values import Tensor
from .known import Known
from .refusals import refused
from .walk import Value, Walk, rule

_MASK = (1 << 32) - 1
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))  # Threefry-2x32's (Salmon et al. 2011).
_PARITY = 0x1BD11BDA


@rule("random_wrap", "random_unwrap")
def _same_bits(walk: Walk, equation: Any, values: list[Value]) -> Any:
    return values


def _of_each(function: Callable[..., Any], axes: int) -> Callable[..., Any]:
    for _ in range(axes):
        function = jax.vmap(function)
    return function


def _data(variable: Any) -> Any:
    """The type of an operand; of keys that of their bits."""
    shape, dtype = variable.aval.shape, variable.aval.dtype
    is_number = dtype == np.uint32 or not jax.dtypes.issubdtype(dtype, jax.dtypes.extended)
    return jax.ShapeDtypeStruct(shape, dtype) if is_number else jax.ShapeDtypeStruct((*shape, 2), np.uint32)


def _bits(keys: Any) -> np.ndarray[Any, Any]:
    return np.asarray(jax.random.key_data(keys))


@rule("random_bits", "random_split", "random_fold_in", "random_seed")
def _by_jax(walk: Walk, equation: Any, values: list[Value]) -> Any:
    """As JAX traces it on the bits of keys."""
    name, params = equation.primitive.name, equation.params
    if name == "random_bits" and params["bit_width"] != 32:
        remedy = "draw float32 and convert it: jax.random.uniform(key, shape).astype(jnp.bfloat16)"
        raise refused(equation, "bits are drawn 32 at a time", remedy)
    functions: dict[str, Callable[..., Any]] = {
        "random_bits": lambda key: threefry_prng_impl.random_bits(key, params["bit_width"], params["shape"]),
        "random_split": lambda key: threefry_prng_impl.split(key, params["shape"]),
        "random_fold_in": threefry_prng_impl.fold_in,
        "random_seed": threefry_prng_impl.seed,
    }
    axes = len(equation.invars[0].aval.shape)
    closed = jax.make_jaxpr(_of_each(functions[name], axes))(*map(_data, equation.invars))
    given = [Known(_bits(v.array)) if isinstance(v, Known) and v.is_key else v for v in values]
    return walk.run_inside(closed, given)


@rule("iota_2x32_shape")
def _iota_2x32_shape(walk: Walk, equation: Any, values: list[Value]) -> Any:
    """The place in row-major order, its upper and lower 32 bits."""
    shape = list(equation.outvars[0].aval.shape)
    place = walk.ops.reshape(walk.ops.iota(int(np.prod(shape, dtype=np.int64)), dtype=np.int64), shape)
    return [walk.ops.bitwise_right_shift(place, 32), walk.ops.bitwise_and(place, _MASK)]


@rule("threefry2x32")
def _threefry2x32(walk: Walk, equation: Any, values: list[Value]) -> Any:
    ops, shape = walk.ops, equation.outvars[0].aval.shape
    first, second, x, y = (walk.stretched(walk.tensor(value), shape) for value in values)
    keys = [first, second, ops.bitwise_xor(ops.bitwise_xor(first, second), _PARITY)]

    def masked(z: Any) -> Any:
        return ops.bitwise_and(z, _MASK)

    x, y = masked(x + first), masked(y + second)
    for turn in range(5):
        for bits in _ROTATIONS[turn % 2]:
            x = masked(x + y)
            rotated = ops.bitwise_or(masked(ops.bitwise_left_shift(y, bits)), ops.bitwise_right_shift(y, 32 - bits))
            y = ops.bitwise_xor(x, rotated)
        x = masked(x + keys[(turn + 1) % 3])
        y = masked(y + keys[(turn + 2) % 3] + (turn + 1))
    return [x, y]


@rule("bitcast_convert_type")
def _bitcast_convert_type(walk: Walk, equation: Any, values: list[Value]) -> Any:
    source, target = equation.invars[0].aval.dtype, np.dtype(equation.params["new_dtype"])
    x = walk.tensor(values[0])
    if (source, target) == (np.int32, np.uint32):
        return walk.ops.bitwise_and(walk.ops.cast(x, np.int64), _MASK)
    if (source, target) == (np.uint32, np.int32):
        return walk.ops.cast(x, np.int32)
    if (source, target) == (np.uint32, np.float32):
        return _float_of(walk, x)
    raise refused(equation, "bits are taken as another type for uint32 and float32 or int32 alone")


def _float_of(walk: Walk, bits: Tensor) -> Tensor:
    """The float32 that has the bits, (2^23 + mantissa) 2^(exponent - 150), by a table of powers, which is exact."""
    ops = walk.ops
    exponent = ops.bitwise_and(ops.bitwise_right_shift(bits, 23), 255)
    mantissa = ops.bitwise_and(bits, (1 << 23) - 1)
    powers = np.ldexp(np.float32(1), np.maximum(np.arange(256), 1) - 150).astype(np.float32)
    table = walk.tensor(walk.constant_of("powers", lambda: powers))
    line = ops.reshape(exponent, [-1])
    scale = ops.reshape(ops.index_select(table, line, 0), list(exponent.shape))
    leading = ops.where(ops.gt(exponent, 0), 1 << 23, 0)
    size = ops.cast(leading + mantissa, np.float32) * scale
    beyond = ops.where(ops.eq(mantissa, 0), float("inf"), ops.full(list(bits.shape), float("nan"), np.float32))
    size = ops.where(ops.eq(exponent, 255), beyond, size)
    made: Tensor = ops.where(ops.ge(bits, 1 << 31), -size, size)
    return made
