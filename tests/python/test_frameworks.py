"""Tensors of PyTorch and arrays of JAX on the CPU, there and back by DLPack. Where one is not installed its tests are
skipped, and say so; those of PyTorch also run on what stands in for it (torch_stand_in.py). (What DLPack says of any
producer is in test_values.py.)"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import hostir
import torch_stand_in

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # On a machine with a GPU its arrays would be there.

DTYPES = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "bool"]


def values(dtype: str) -> np.ndarray[Any, Any]:
    """That every dtype holds, some of them negative or false."""
    table = np.arange(12).reshape(3, 4) - 5
    return table % 2 == 0 if dtype == "bool" else table


@pytest.fixture(params=["torch", "stand-in"])
def torch(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip("torch") if request.param == "torch" else torch_stand_in


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch(client: hostir.Client, torch: Any, dtype: str) -> None:
    tensor = torch.tensor(values(dtype)).to(getattr(torch, dtype))
    array = client.put(tensor)
    assert array.shape == (3, 4)
    back = torch.from_dlpack(array)
    assert back.dtype == tensor.dtype and torch.equal(back, tensor)
    assert torch.equal(torch.from_dlpack(client.put(tensor.t()[1:])), tensor.t()[1:])  # Strided.
    assert torch.equal(torch.from_dlpack(client.put(tensor[:1].expand(3, 4))), tensor[:1].expand(3, 4))


def test_torch_in_a_program(client: hostir.Client, torch: Any) -> None:
    with hostir.FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=hostir.DataType.BFloat16)
        fd.add_output(fd.ops.cast(fd.ops.relu(x), hostir.DataType.BFloat16))
    tensor = torch.tensor(np.random.default_rng(3).standard_normal((5, 7))).to(torch.bfloat16)
    (y,) = client.run(fd, [tensor])
    assert torch.equal(torch.from_dlpack(y), torch.relu(tensor))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_tensor_that_requires_a_gradient(client: hostir.Client, torch: Any, dtype: str) -> None:
    """Its values are taken, as of a module's parameter."""
    tensor = torch.tensor(values(dtype)).to(getattr(torch, dtype)).requires_grad_()
    for given in (tensor, tensor.detach()):
        assert torch.equal(torch.from_dlpack(client.put(given)), tensor.detach())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_of_an_expanded_tensor_one_element_moves(client: hostir.Client, torch: Any, dtype: str) -> None:
    with hostir.FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 4], contiguity=[None, True], dtype=hostir.DataType.Float)
        fd.add_output(x * 2.0)
    tensor = torch.tensor(values(dtype)).to(getattr(torch, dtype))[:1].expand(1 << 20, 4)
    before = client.status()["tensor_bytes"]
    array = client.put(tensor, x)
    assert (array.shape, client.status()["tensor_bytes"] - before) == ((1 << 20, 4), 16)
    (y,) = client.run(fd, [tensor[:3]])
    np.testing.assert_array_equal(y.numpy(), np.tile([-10.0, -8, -6, -4], (3, 1)))


def test_numbers_of_torch(client: hostir.Client, torch: Any) -> None:
    with hostir.FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1])
        fd.add_output(x * fd.define_scalar() + fd.define_scalar(dtype=hostir.DataType.Int))
    number = torch.tensor(0.5).to(torch.bfloat16).requires_grad_()
    (y,) = client.run(fd, [np.ones(2, np.float32), number, torch.tensor(3)])
    np.testing.assert_array_equal(y.numpy(), [3.5, 3.5])
    with pytest.raises(hostir.InvalidArgument, match=r"^input 1 \(t0\): a number is wanted, not a Tensor"):
        client.run(fd, [np.ones(2, np.float32), torch.tensor([0.5]), 3])


@pytest.mark.parametrize("dtype", DTYPES)
def test_jax(client: hostir.Client, dtype: str) -> None:
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    if dtype in ("float64", "int64") and not jax.config.jax_enable_x64:
        dtype = dtype.replace("64", "32")  # As JAX itself does.
    source = jnp.asarray(values(dtype), dtype=dtype)
    array = client.put(source)
    back = jnp.from_dlpack(array)
    assert back.dtype == source.dtype and bool((back == source).all())


def test_arrays_of_jax_that_cannot_be_read(client: hostir.Client) -> None:
    jax = pytest.importorskip("jax")
    with pytest.raises(hostir.InvalidArgument, match=r"^int4 is no element type"):
        client.put(jax.numpy.ones(3, dtype="int4"))
    deleted = jax.numpy.ones(3)
    deleted.delete()
    with pytest.raises(hostir.InvalidArgument, match=r"cannot be read: .*deleted"):
        client.put(deleted)


def test_numbers_and_wrapped_arrays_of_jax(client: hostir.Client) -> None:
    jnp = pytest.importorskip("jax").numpy

    class Variable:  # As those of libraries on top of JAX.
        def __jax_array__(self) -> Any:
            return jnp.arange(3, dtype="float32")

    with hostir.FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1])
        fd.add_output(x * fd.define_scalar())
    (y,) = client.run(fd, [Variable(), jnp.float32(0.5)])
    np.testing.assert_array_equal(y.numpy(), [0, 0.5, 1])


def test_jax_in_a_program(client: hostir.Client) -> None:
    jax = pytest.importorskip("jax")
    with hostir.FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=hostir.DataType.Float)
        fd.add_output(fd.ops.mul(x, x))
    source = jax.numpy.linspace(-1, 1, 15, dtype="float32").reshape(5, 3)
    (y,) = client.run(fd, [source])
    np.testing.assert_array_equal(np.asarray(jax.numpy.from_dlpack(y)), np.asarray(source) ** 2)
