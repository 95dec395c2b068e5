"""The backward pass of an adaptive layer norm, its batch split over the ranks.

y = (xhat * weight + bias) * (1 + scale), xhat = (x - mean) * rstd, for x of [batch, tokens, features] in bfloat16.
Given the gradient of y: the gradients of x, of scale and of its additive sibling (sums over the tokens), and of
weight and bias (sums over batch and tokens). The batch is split, so only the batch-wide sums need the other ranks:
two small all-reduces.

Run it:  ./run python examples/adaptive_layernorm_backward.py --ranks 4
"""

import ml_dtypes
import numpy as np

from example import Array, Example, main
from hostir import DataType, DeviceMesh, FusionDefinition, Tensor

BATCH, TOKENS, FEATURES = 56, 1024, 1024


def define(ranks: int, batch: int = BATCH, tokens: int = TOKENS, features: int = FEATURES) -> FusionDefinition:
    full = [batch, tokens, features]
    with FusionDefinition("adaptive_layernorm_backward") as fd:
        ops = fd.ops

        def bf16(shape: list[int], contiguity: list[bool | None]) -> Tensor:
            return fd.define_tensor(shape=shape, contiguity=contiguity, dtype=DataType.BFloat16)

        # One row of features each, expanded over batch and tokens (stride 0): stored once.
        weight = bf16([-1, -1, -1], [None, None, True])
        bias = bf16([-1, -1, -1], [None, None, True])
        scale = bf16([-1, 1, -1], [True, None, True])
        grad = bf16([-1, -1, -1], [True, True, True])
        mean = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float)
        rstd = fd.define_tensor(shape=[-1, -1, 1], contiguity=[True, True, None], dtype=DataType.Float)
        x = bf16([-1, -1, -1], [True, True, True])

        # The forward pass again, in float32.
        mean_column = ops.broadcast_in_dim(mean, [batch, tokens, 1], [0, 1])
        centered = ops.sub(ops.cast(x, DataType.Float), ops.broadcast_in_dim(mean_column, full, [0, 1, 2]))
        rstd_full = ops.broadcast_in_dim(rstd, full, [0, 1, 2])
        xhat = ops.mul(centered, rstd_full)
        weight_f = ops.cast(weight, DataType.Float)
        normed = ops.add(ops.mul(xhat, weight_f), ops.cast(bias, DataType.Float))

        # 1 + scale is rounded to bfloat16 before it is used, as the forward pass does.
        gain = ops.cast(ops.add(1.0, ops.cast(scale, DataType.Float)), DataType.BFloat16)
        gain_full = ops.cast(ops.broadcast_in_dim(gain, full, [0, 1, 2]), DataType.Float)
        g = ops.cast(grad, DataType.Float)

        def sum_over_tokens(t: Tensor) -> Tensor:
            rounded = ops.cast(ops.sum(t, dims=[1]), DataType.BFloat16)
            row = ops.broadcast_in_dim(rounded, [batch, 1, features], [0, 2])
            return ops.cast(ops.sum(ops.cast(row, DataType.Float), dims=[1]), DataType.BFloat16)

        grad_shift = sum_over_tokens(g)
        grad_gain = sum_over_tokens(ops.mul(normed, g))

        g_normed = ops.mul(gain_full, g)
        grad_bias = ops.cast(ops.sum(g_normed, dims=[0, 1]), DataType.BFloat16)
        grad_weight = ops.cast(ops.sum(ops.mul(xhat, g_normed), dims=[0, 1]), DataType.BFloat16)

        # Through the normalisation: by xhat directly, by rstd and by the mean, each a sum over the features.
        g_xhat = ops.mul(weight_f, g_normed)
        direct = ops.mul(rstd_full, g_xhat)
        by_rstd = ops.broadcast_in_dim(ops.sum(ops.mul(centered, g_xhat), dims=[2]), [batch, tokens, 1], [0, 1])
        by_mean = ops.broadcast_in_dim(ops.sum(ops.neg(direct), dims=[2]), [batch, tokens, 1], [0, 1])
        by_variance = ops.sum(ops.mul(ops.mul(-0.5, by_rstd), ops.pow(rstd, 3.0)), dims=[2])
        variance_full = ops.broadcast_in_dim(
            ops.broadcast_in_dim(by_variance, [batch, tokens, 1], [0, 1]), full, [0, 1, 2]
        )
        mean_sum = ops.broadcast_in_dim(ops.sum(by_mean, dims=[2]), [batch, tokens, 1], [0, 1])
        mean_part = ops.mul(1.0 / features, ops.broadcast_in_dim(mean_sum, full, [0, 1, 2]))
        variance_part = ops.mul(
            ops.mul(ops.mul(2.0, variance_full), centered), ops.reciprocal(fd.define_scalar(float(features)))
        )
        grad_x = ops.cast(ops.add(direct, ops.add(mean_part, variance_part)), DataType.BFloat16)

        for output in (grad_shift, grad_gain, grad_bias, grad_weight, grad_x):
            fd.add_output(output)

        mesh = DeviceMesh(list(range(ranks)))
        for t in (weight, bias):
            t.set_device_mesh(mesh)
        for t in (scale, grad, mean, rstd, x):
            t.shard(mesh, {0: "mesh_x"})
        for t in (grad_bias, grad_weight):
            t.set_device_mesh(mesh)  # Replicated: the sums are over all ranks.
    return fd


def make_inputs(batch: int = BATCH, tokens: int = TOKENS, features: int = FEATURES) -> list[Array]:
    rng = np.random.default_rng(2473)

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape, dtype=np.float32)

    def expanded() -> Array:
        row = normal(features).astype(ml_dtypes.bfloat16)
        return np.lib.stride_tricks.as_strided(row, (batch, tokens, features), (0, 0, row.strides[0]))

    return [
        expanded(),
        expanded(),
        normal(batch, 1, features).astype(ml_dtypes.bfloat16),
        normal(batch, tokens, features).astype(ml_dtypes.bfloat16),
        normal(batch, tokens),
        np.abs(normal(batch, tokens, 1)) + 0.5,
        normal(batch, tokens, features).astype(ml_dtypes.bfloat16),
    ]


def reference(inputs: list[Array]) -> list[Array]:
    """The same in float64, unrounded, one element of the batch at a time."""
    weight, bias, scale, grad, mean, rstd, x = inputs
    batch, _, features = x.shape
    w, b = weight[0, 0].astype(np.float64), bias[0, 0].astype(np.float64)
    grad_shift, grad_gain = np.empty((batch, features)), np.empty((batch, features))
    grad_bias, grad_weight = np.zeros(features), np.zeros(features)
    grad_x = np.empty(x.shape, np.float32)  # Rounded once, to save memory: far below the tolerance.
    for i in range(batch):
        g, r = grad[i].astype(np.float64), rstd[i].astype(np.float64)
        centered = x[i].astype(np.float64) - mean[i].astype(np.float64)[:, None]
        xhat = centered * r
        grad_shift[i] = g.sum(0)
        grad_gain[i] = np.einsum("tf,tf->f", xhat, g) * w + b * grad_shift[i]
        g *= 1.0 + scale[i].astype(np.float64)
        grad_bias += g.sum(0)
        grad_weight += np.einsum("tf,tf->f", xhat, g)
        g *= w
        by_variance = -0.5 * np.einsum("tf,tf->t", centered, g)[:, None] * r**3
        g *= r
        by_mean = -g.sum(1, keepdims=True)
        centered *= 2.0 * by_variance / features
        g += centered
        g += by_mean / features
        grad_x[i] = g
    return [grad_shift, grad_gain, grad_bias, grad_weight, grad_x]


EXAMPLE = Example("adaptive layer-norm backward", define, make_inputs, reference, tolerance=4e-3)

if __name__ == "__main__":
    main(EXAMPLE)
