"""A transformer's feed-forward block, tensor-parallel: gelu(x @ up.T + up_bias) @ down.T + down_bias.

`up` is split by rows (each rank makes a part of the hidden columns), `down` by columns (each rank adds a part of the
sum): the hidden activations stay where they are, and one all-reduce of the result is all that is communicated.

Run it:  ./run python examples/tensor_parallel_mlp.py --ranks 4
"""

from math import erf

import numpy as np

from example import Array, Example, main
from hostir import DataType, DeviceMesh, FusionDefinition, Tensor

TOKENS, WIDTH, HIDDEN = 512, 768, 3072


def define(ranks: int) -> FusionDefinition:
    with FusionDefinition("tensor_parallel_mlp") as fd:

        def f32(*shape: int) -> Tensor:
            return fd.define_tensor(shape=list(shape), contiguity=True, dtype=DataType.Float)

        x = f32(-1, WIDTH)  # Any number of tokens.
        up = f32(HIDDEN, WIDTH)
        up_bias = f32(HIDDEN)
        down = f32(WIDTH, HIDDEN)
        down_bias = f32(WIDTH)
        hidden = fd.ops.gelu(fd.ops.linear(x, up, up_bias))
        y = fd.ops.linear(hidden, down, down_bias)
        fd.add_output(y)

        mesh = DeviceMesh(list(range(ranks)))
        for t in (x, down_bias, y):
            t.set_device_mesh(mesh)
        up.shard(mesh, {0: "mesh_x"})
        up_bias.shard(mesh, {0: "mesh_x"})
        down.shard(mesh, {1: "mesh_x"})
    return fd


def make_inputs() -> list[Array]:
    rng = np.random.default_rng(4145)
    shapes = [(TOKENS, WIDTH), (HIDDEN, WIDTH), (HIDDEN,), (WIDTH, HIDDEN), (WIDTH,)]
    return [rng.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(shape[-1])) for shape in shapes]


def reference(inputs: list[Array]) -> list[Array]:
    x, up, up_bias, down, down_bias = (t.astype(np.float64) for t in inputs)
    hidden = x @ up.T + up_bias
    hidden *= 0.5 * (1.0 + np.vectorize(erf)(hidden / np.sqrt(2.0)))
    return [hidden @ down.T + down_bias]


EXAMPLE = Example("tensor-parallel MLP", define, make_inputs, reference, tolerance=1e-5)

if __name__ == "__main__":
    main(EXAMPLE)
