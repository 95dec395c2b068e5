"""Philox 4x32-10 in NumPy, and the numbers that uniform and normal make of its words: a second definition."""

from __future__ import annotations

from typing import Any

import numpy as np

from numpy_ops import BF16, F16, F32, F64, rounded

_LOW = np.uint64(0xFFFFFFFF)
_BITS = {BF16: 8, F16: 11, F32: 24, F64: 53}


def words(seed: int, offset: int, count: int) -> list[np.ndarray[Any, Any]]:
    """Four words of 32 bits, in uint64, for each place below ``count``."""
    high = np.uint64(32)
    place = np.arange(count, dtype=np.uint64)
    wide = np.full(count, offset % 2**64, np.uint64)
    x = [place & _LOW, place >> high, wide & _LOW, wide >> high]
    key = [seed % 2**32, seed % 2**64 >> 32]
    for _ in range(10):
        first, second = x[0] * np.uint64(0xD2511F53), x[2] * np.uint64(0xCD9E8D57)
        k0, k1 = (np.uint64(k) for k in key)
        x = [(second >> high) ^ x[1] ^ k0, second & _LOW, (first >> high) ^ x[3] ^ k1, first & _LOW]
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return x


def _below_one(high: np.ndarray[Any, Any], low: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    made: np.ndarray[Any, Any] = ((high << np.uint64(32) | low) >> np.uint64(64 - bits)) * 2.0**-bits
    return made


def uniform(seed: int, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    x = words(seed, offset, int(np.prod(shape)))
    return rounded(_below_one(x[0], x[1], _BITS[dtype]).reshape(shape), dtype)


def normal(seed: int, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    x = words(seed, offset, int(np.prod(shape)))
    bits = 53 if dtype == F64 else 24
    a, b = x[0:2], x[2:4] if dtype == F64 else x[1:3]
    first, second = _below_one(a[0], a[1], bits) + 2.0**-bits, _below_one(b[0], b[1], bits)
    return rounded((np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * second)).reshape(shape), dtype)
