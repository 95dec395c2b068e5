"""Rotary position embedding of the queries and keys of grouped-query attention, the heads split over the ranks.

From one projection [batch, tokens, (queries + keys + values) * head size] in bfloat16: split into q, k and v, repeat
k and v for the queries that share them, rotate the first ROTATED elements of each head of q and k by the position.
Heads are independent, so no rank needs another.

Run it:  ./run python examples/rope.py --ranks 4
"""

import ml_dtypes
import numpy as np

from example import Array, Example, main
from hostir import DataType, DeviceMesh, FusionDefinition, Tensor

BATCH, TOKENS, HEADS, GROUPS, HEAD_SIZE, ROTATED = 2, 1024, 16, 4, 32, 8
SHARE = HEADS // GROUPS  # Queries that share one key and value.


def define(ranks: int) -> FusionDefinition:
    with FusionDefinition("rope") as fd:
        ops = fd.ops

        def bf16(*shape: int) -> Tensor:
            return fd.define_tensor(shape=list(shape), contiguity=True, dtype=DataType.BFloat16)

        cos = bf16(TOKENS, ROTATED)
        sin = bf16(TOKENS, ROTATED)
        qkv = bf16(BATCH, TOKENS, GROUPS * (SHARE + 2) * HEAD_SIZE)

        split = ops.reshape(qkv, [BATCH, TOKENS, GROUPS, SHARE + 2, HEAD_SIZE])
        split = ops.permute(split, [0, 2, 3, 1, 4])  # [batch, groups, share + 2, tokens, head size]

        def part(begin: int, end: int) -> Tensor:
            piece = ops.slice(split, [0, 0, begin, 0, 0], [BATCH, GROUPS, end, TOKENS, HEAD_SIZE])
            if end - begin == 1:
                piece = ops.expand(piece, [BATCH, GROUPS, SHARE, TOKENS, HEAD_SIZE])
            return ops.reshape(piece, [BATCH, HEADS, TOKENS, HEAD_SIZE])

        def columns(t: Tensor, begin: int, end: int) -> Tensor:
            return ops.slice(t, [0, 0, 0, begin], [BATCH, HEADS, TOKENS, end])

        def angles(t: Tensor) -> Tensor:
            shape = [BATCH, HEADS, TOKENS, ROTATED]
            return ops.cast(ops.broadcast_in_dim(t, shape, [2, 3]), DataType.Float)

        def rotate(t: Tensor) -> Tensor:
            head = columns(t, 0, ROTATED)
            first, second = columns(head, 0, ROTATED // 2), columns(head, ROTATED // 2, ROTATED)
            minus = ops.cast(ops.neg(ops.cast(second, DataType.Float)), DataType.BFloat16)
            turned = ops.cat([minus, first], 3)
            mixed = ops.add(
                ops.mul(ops.cast(head, DataType.Float), angles(cos)),
                ops.mul(ops.cast(turned, DataType.Float), angles(sin)),
            )
            return ops.cat([ops.cast(mixed, DataType.BFloat16), columns(t, ROTATED, HEAD_SIZE)], 3)

        q = rotate(part(0, SHARE))
        k = rotate(part(SHARE, SHARE + 1))
        v = part(SHARE + 1, SHARE + 2)
        for output in (q, k, v):
            fd.add_output(output)

        mesh = DeviceMesh(list(range(ranks)))
        for t in (cos, sin):
            t.set_device_mesh(mesh)
        qkv.shard(mesh, {2: "mesh_x"})
        for output in (q, k, v):
            output.shard(mesh, {1: "mesh_x"})
    return fd


def make_inputs() -> list[Array]:
    rng = np.random.default_rng(2577)
    shapes = [(TOKENS, ROTATED), (TOKENS, ROTATED), (BATCH, TOKENS, GROUPS * (SHARE + 2) * HEAD_SIZE)]
    return [rng.standard_normal(shape, dtype=np.float32).astype(ml_dtypes.bfloat16) for shape in shapes]


def reference(inputs: list[Array]) -> list[Array]:
    cos, sin, qkv = (t.astype(np.float64) for t in inputs)
    split = qkv.reshape(BATCH, TOKENS, GROUPS, SHARE + 2, HEAD_SIZE).transpose(0, 2, 3, 1, 4)

    def part(begin: int, end: int) -> Array:
        return np.broadcast_to(split[:, :, begin:end], (BATCH, GROUPS, SHARE, TOKENS, HEAD_SIZE)).reshape(
            BATCH, HEADS, TOKENS, HEAD_SIZE
        )

    def rotate(t: Array) -> Array:
        head, half = t[..., :ROTATED], ROTATED // 2
        turned = np.concatenate([-head[..., half:], head[..., :half]], -1)
        return np.concatenate([head * cos + turned * sin, t[..., ROTATED:]], -1)

    return [rotate(part(0, SHARE)), rotate(part(SHARE, SHARE + 1)), part(SHARE + 1, SHARE + 2)]


EXAMPLE = Example("rotary embedding (full RoPE)", define, make_inputs, reference, tolerance=4e-3)

if __name__ == "__main__":
    main(EXAMPLE)
