"""Results beside those of JAX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def assert_close(found: Any, wanted: Any, tolerance: float) -> None:
    """Trees with equal structures, shapes, types, and elements within ``tolerance`` of the greatest finite one."""
    leaves, tree = jax.tree.flatten(found)
    expected, structure = jax.tree.flatten(wanted)
    assert tree == structure
    for leaf, of_jax in zip(leaves, expected, strict=True):
        assert (leaf.shape, leaf.dtype) == (of_jax.shape, of_jax.dtype)
        ours, theirs = (np.asarray(x).astype(np.float64) for x in (leaf, of_jax))
        finite = np.abs(theirs[np.isfinite(theirs)])
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * finite.max(initial=0))
