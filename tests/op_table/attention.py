"""Attention and its gradients by NumPy, in float64, with all scores at once."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Attention:
    """Of q [..., m, d], k [..., n, d], v [..., n, e], and perhaps a mask of bools or of numbers that are added. With
    ``offset`` it is causal: query i sees keys up to i + offset."""

    def __init__(
        self, q: Array, k: Array, v: Array, mask: Array | None = None, offset: int | None = None, scale: float = 1.0
    ) -> None:
        self.q, self.k, self.v, self.scale = q, k, v, scale
        scores = scale * (q @ np.swapaxes(k, -1, -2))
        if mask is not None:
            scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
        if offset is not None:
            rows, columns = np.arange(scores.shape[-2]), np.arange(scores.shape[-1])
            scores = np.where(columns <= rows[:, None] + offset, scores, -np.inf)
        self.scores = scores

    def lse(self) -> Array:
        with np.errstate(divide="ignore"):
            most = self.scores.max(-1, keepdims=True, initial=-np.inf)
            sums = np.exp(self.scores - np.where(np.isneginf(most), 0, most)).sum(-1)
            return np.asarray(most[..., 0] + np.log(sums))

    def weights(self) -> Array:
        lse = self.lse()[..., None]
        return np.asarray(np.exp(self.scores - np.where(np.isneginf(lse), 0, lse)))

    def values(self) -> Array:
        return np.asarray(self.weights() @ self.v)

    def gradient(self, of: str, gradient: Array, lse: Array, values: Array) -> Array:
        weights = np.exp(self.scores - lse[..., None])
        if of == "v":
            return np.asarray(np.swapaxes(weights, -1, -2) @ gradient)
        of_weights = gradient @ np.swapaxes(self.v, -1, -2)
        of_scores = self.scale * weights * (of_weights - (gradient * values).sum(-1, keepdims=True))
        return np.asarray(of_scores @ self.k if of == "q" else np.swapaxes(of_scores, -1, -2) @ self.q)
