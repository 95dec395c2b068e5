"""Arrays of PyTorch and JAX on GPUs, to a daemon on GPUs and back past the host: values, layouts, dtypes, lifetimes. By
pytest, or by hand where only a bundle is: bin/hostir-python tests/gpu/test_arrays.py. A library that is not there skips
its tests, and says so."""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import hostir
from hostir import DataType, FusionDefinition, Sharding, cuda
from hostir.gpu_array import CudaArray

try:
    import pytest
except ImportError:  # Where only a bundle is.
    pytest = None

DEVICES = os.environ.get("SERVICE_TEST_DEVICES", "cuda:all")
SEED = int(os.environ.get("HOSTIR_SEED", "28"))
_client: hostir.Client | None = None


def client() -> hostir.Client:
    global _client
    if _client is None:
        _client = hostir.connect(devices=DEVICES, timeout=120)
    return _client


class Skipped(Exception):
    """Why a test is not run."""


def torch_() -> Any:
    try:
        import torch
    except ImportError:
        raise Skipped("there is no PyTorch") from None
    if not torch.cuda.is_available():
        raise Skipped("PyTorch sees no GPU")
    return torch


def jax_() -> Any:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import jax
    except ImportError:
        raise Skipped("there is no JAX") from None
    if jax.default_backend() != "gpu":
        raise Skipped("JAX sees no GPU")
    return jax


def by_host(there: hostir.Client, call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What `call` returns, and the requests in it that would move elements through the host."""
    seen: list[str] = []
    methods = {}
    for name in ("Upload", "Download"):
        methods[name] = getattr(there._stub, name)

        def counted(*args: Any, _name: str = name, **options: Any) -> Any:
            seen.append(_name)
            return methods[_name](*args, **options)

        setattr(there._stub, name, counted)
    try:
        return call(), seen
    finally:
        for name, method in methods.items():
            setattr(there._stub, name, method)


def plus_one(
    shape: list[int], mesh: Any, axes: dict[int, str], data_type: DataType = DataType.Float
) -> FusionDefinition:
    with FusionDefinition("plus_one") as fd:
        x = fd.define_tensor(shape=shape, contiguity=True, dtype=data_type)
        fd.add_output(fd.ops.add(x, 1.0))
        x.shard(mesh, axes)
    return fd


def test_uuids_are_the_daemons() -> None:
    driver = cuda.driver()
    assert driver is not None
    status = client().status()
    found = [client()._gpu_of(device["number"]) for device in status["devices"]]
    print(f"  {[device['model'] for device in status['devices']]} are GPUs {found} here")
    assert None not in found


def test_torch_goes_in_and_out() -> None:
    torch = torch_()
    there = client()
    ranks = list(range(there.num_devices))
    x = torch.randn(4 * len(ranks) + 1, 1000, device="cuda")
    for axes in ({0: "mesh_x"}, {1: "mesh_x"}, {}):
        array, seen = by_host(there, lambda axes=axes: there.put(x, sharding=Sharding(ranks, axes)))
        assert not seen
        (y,) = there.run(plus_one([-1, -1], ranks, axes), [array])
        got, seen = by_host(there, lambda y=y: torch.from_dlpack(y))
        assert not seen and got.is_cuda
        assert torch.equal(got, x + 1)
        for rank, slices, part in y.cuda_shards():
            mine = torch.from_dlpack(part)
            assert mine.device.index == there._gpu_of(rank)
            assert torch.equal(mine.cpu(), (x + 1)[slices].cpu())
    z = torch.nn.Parameter(x.t())
    assert torch.equal(torch.from_dlpack(there.put(z, sharding=Sharding(ranks, {0: "mesh_x"}))), x.t())
    (y,) = there.run(plus_one([-1, -1], ranks, {}), [x[::2, 1:].contiguous()])
    assert torch.equal(torch.from_dlpack(y), x[::2, 1:] + 1)
    assert torch.equal(torch.from_dlpack(there.put(x[::2, 1:], sharding=Sharding(ranks, {0: "mesh_x"}))), x[::2, 1:])
    assert np.array_equal(np.asarray(y), (x[::2, 1:] + 1).cpu().numpy())


def test_torch_dtypes() -> None:
    torch = torch_()
    there = client()
    for dtype in (torch.bool, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x = torch.randint(0, 2, (3, 5, 7), device="cuda").to(dtype)
        got, seen = by_host(there, lambda x=x: torch.from_dlpack(there.put(x)))
        assert got.dtype == dtype and torch.equal(got, x)
        assert not seen


def test_torch_work_that_is_under_way() -> None:
    """Kernels of PyTorch that still write an array are waited for, and those that still read one keep its memory."""
    torch = torch_()
    there = client()
    x = torch.randn(4096, 4096, device="cuda")
    stream = torch.cuda.Stream()
    for _ in range(10):
        with torch.cuda.stream(stream):
            y = x
            for _ in range(20):
                y = y @ x * 0.01
            array = there.put(y, sharding=Sharding([0]))
            got = torch.from_dlpack(array)
            z = got + 1
            del got, array
            gc.collect()
        torch.cuda.synchronize()
        assert torch.equal(z, y + 1)


def test_jax_goes_in_and_out() -> None:
    jax = jax_()
    there = client()
    ranks = list(range(there.num_devices))
    x = jax.random.normal(jax.random.key(0), (64, 129))
    array, seen = by_host(there, lambda: there.put(x, sharding=Sharding(ranks, {0: "mesh_x"})))
    assert not seen
    (y,) = there.run(plus_one([-1, -1], ranks, {0: "mesh_x"}), [array])
    got, seen = by_host(there, lambda: jax.dlpack.from_dlpack(y.cuda(0)))
    assert not seen
    assert bool((got == x + 1).all())
    half = x.astype(jax.numpy.bfloat16)
    (y,) = there.run(plus_one([-1, -1], ranks, {0: "mesh_x"}, DataType.BFloat16), [half])
    assert bool((jax.dlpack.from_dlpack(y.cuda(0)) == half + 1).all())


def test_random_layouts() -> None:
    torch = torch_()
    there = client()
    print(f"  HOSTIR_SEED={SEED}")
    random_ = random.Random(SEED)
    for case in range(60):
        shape = [random_.choice([1, 2, 3, 5, 8, 100, 257]) for _ in range(random_.randrange(1, 4))]
        x = torch.arange(int(np.prod(shape)), device="cuda", dtype=torch.float32).reshape(shape)
        if len(shape) > 1 and random_.random() < 0.5:
            x = x.transpose(0, 1)
        if random_.random() < 0.3:
            x = x[::2]
        ranks = random_.sample(range(there.num_devices), random_.randint(1, there.num_devices))
        axes = {random_.randrange(x.ndim): "mesh_x"} if random_.random() < 0.7 else {}
        array = there.put(x, sharding=Sharding(ranks, axes))
        (y,) = there.run(plus_one([-1] * x.ndim, ranks, axes), [array])
        got = torch.from_dlpack(y)
        assert got.device.index == there._gpu_of(ranks[0])
        assert torch.equal(got.to(x.device), x + 1), f"case {case}: {tuple(x.shape)} {ranks} {axes}"
        assert torch.equal(torch.from_dlpack(array.cuda(0)), x), f"case {case}: {tuple(x.shape)} {ranks} {axes}"


def test_nothing_is_left() -> None:
    torch = torch_()
    there = client()
    x = torch.randn(1 << 22, device="cuda")

    def round_trip() -> None:
        array = there.put(x, sharding=Sharding([0]))
        assert torch.equal(torch.from_dlpack(array), x)

    round_trip()
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        round_trip()
    gc.collect()
    torch.cuda.synchronize()
    there.put(np.zeros(1, np.float32)).numpy()  # Tells what is collected.
    lost = before - torch.cuda.mem_get_info()[0]
    print(f"  {lost / 1e6:.1f} MB less are free after 200 round trips of 16.8 MB")
    assert lost < 64 << 20
    assert len(os.listdir("/proc/self/fd")) <= files


def test_results_lie_in_memory_that_was_lent() -> None:
    """PyTorch and the ranks see the same memory: each reads what the other writes, in turn."""
    torch = torch_()
    there = client()
    x = torch.randn(1000, 1000, device="cuda")
    fd = plus_one([1000, 1000], [0], {})
    (first,) = there.run(fd, [x], wait=True)
    assert there._map_on_gpu(first) is None
    for turn in range(20):
        (y,) = there.run(fd, [x], wait=True)
        view = there._map_on_gpu(y)
        assert view is not None, f"turn {turn}"
        mine = torch.from_dlpack(CudaArray(view))
        assert mine.data_ptr() == view.address
        assert torch.equal(mine, x + 1)
        big = torch.randn(4096, 4096, device="cuda")
        for _ in range(8):  # Work that is under way when the run is asked for, ahead of the write below.
            big = big @ big / 64
        mine.copy_(mine * 2 + 0 * big[0, 0].nan_to_num(0.0, 0.0, 0.0))
        (z,) = there.run(fd, [y], wait=True)
        assert torch.equal(torch.from_dlpack(z), (x + 1) * 2 + 1), f"turn {turn}"
        (w,) = there.run(fd, [mine + 1], wait=True)
        assert torch.equal(torch.from_dlpack(w), (x + 1) * 2 + 2)


if pytest is not None:

    @pytest.fixture(autouse=True, scope="module")
    def devices() -> None:
        """Skips, and says why, where there are none."""
        try:
            if client().num_devices == 0:
                pytest.skip(f"{DEVICES}: {client().status()['last_failure']}")
        except (hostir.Unavailable, hostir.FailedPrecondition) as error:
            pytest.skip(str(error))


def main() -> int:
    failed = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_"):
            continue
        print(name, flush=True)
        try:
            test()
        except Skipped as why:
            print(f"  skipped: {why}")
        except Exception as error:  # Every one is run.
            failed += 1
            print(f"  FAILED {type(error).__name__}: {error}", flush=True)
    print("all passed" if failed == 0 else f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
