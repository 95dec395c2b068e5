"""The service on GPUs: the examples, full devices, workers that die. `$SERVICE_TEST_DEVICES` says on what (cuda:all).

By pytest, or without it: `hostir-python tests/gpu/test_service.py` prints each test as it goes. On "cpu:2" the same
tests run on CPU workers with memory of their own.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import hostir
from hostir import DataType, DeviceMesh, FusionDefinition, private_daemon

try:
    import pytest
except ImportError:  # Where only a bundle is.
    pytest = None

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "examples"))
DEVICES = os.environ.get("SERVICE_TEST_DEVICES", "cuda:all")
MIB = 1 << 20


@contextlib.contextmanager
def daemon(*flags: str, devices: str = DEVICES) -> Iterator[hostir.Client]:
    """A client of a daemon of its own, started with ``flags``."""
    with tempfile.TemporaryDirectory(prefix="hostir-") as folder, open(os.path.join(folder, "log"), "wb") as log:
        alive_read, alive_write = os.pipe()
        address = f"unix:{folder}/socket"
        own = ["--own-memory"] if devices.startswith("cpu") else []
        command = [private_daemon.find_daemon(), f"--devices={devices}", f"--listen={address}", *own, *flags]
        process = subprocess.Popen(
            [*command, f"--alive-fd={alive_read}"], pass_fds=[alive_read], stdout=log, stderr=log
        )
        os.close(alive_read)
        try:
            with hostir.Client(address, timeout=60) as client:
                yield client
        finally:
            os.close(alive_write)
            process.wait(30)


def negate(devices: int) -> FusionDefinition:
    """One kernel; rows over all devices."""
    with FusionDefinition("negate") as fd:
        x = fd.define_tensor(shape=[-1, 1024], contiguity=True, dtype=DataType.Float)
        y = fd.ops.neg(x)
        fd.add_output(y)
        x.shard(DeviceMesh(list(range(devices))), {0: "mesh_x"})
    return fd


def raises(kind: type[hostir.HostirError], call: object) -> str:
    try:
        call()  # type: ignore[operator]
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def test_status_shows_the_devices() -> None:
    with daemon() as client:
        status = client.status()
        kind = DEVICES.split(":")[0]
        assert client.num_devices == len(status["devices"]) > 0
        assert client.device_kind == kind
        assert all(device["kind"] == kind for device in status["devices"])
        for device in (*status["devices"], *status["failed_devices"]):
            print(
                f"  {device['kind']}:{device['ordinal']} {device['model']} {device['memory_bytes'] / 2**30:.1f} GiB",
                end=" ",
            )
            print(device["error"]["message"] or "serves")


def test_the_examples_are_right() -> None:
    from example import run

    with daemon() as client:
        for name in ("adaptive_layernorm_backward", "rope", "tensor_parallel_mlp"):
            example = importlib.import_module(name).EXAMPLE
            inputs = example.make_inputs()
            outcome = run(client, example, client.num_devices, inputs, example.reference(inputs))
            assert outcome.passed, f"{name}: error {outcome.error:.1e}"
            first, each = outcome.first_seconds, outcome.seconds * 1e3
            print(f"  {name}: error {outcome.error:.1e}, first result {first:.2f} s, then {each:.3f} ms a run")


def test_a_profile_times_every_segment() -> None:
    with daemon() as client:
        with FusionDefinition("column_sums") as fd:
            x = fd.define_tensor(shape=[-1, 1024], contiguity=True, dtype=DataType.Float)
            y = fd.ops.sum(x * 2, dims=[0])
            fd.add_output(y)
            x.shard(DeviceMesh(list(range(client.num_devices))), {0: "mesh_x"})
            y.set_device_mesh(DeviceMesh(list(range(client.num_devices))))
        rows = client.num_devices * 512
        inputs = [np.ones((rows, 1024), np.float32)]
        client.run(fd, inputs, wait=True)
        profile = client.profile(fd, inputs, repeat=5)
        plan = client.explain(fd, sizes={"i0": rows})
        assert [s.name for s in profile.segments] == [s.name for s in plan.segments if s.kind != "view"]
        for segment in profile.segments:
            assert len(segment.rank_us) == client.num_devices and min(segment.rank_us) > 0, segment
        np.testing.assert_array_equal(profile.outputs[0].numpy(), np.full(1024, 2 * rows, np.float32))
        print("", *str(profile).splitlines(), sep="\n  ")


def test_a_full_device_refuses_a_run_and_serves_the_next() -> None:
    with daemon(f"--device-bytes-max={256 * MIB}") as client:
        fd = negate(client.num_devices)
        rows = client.num_devices * 160 * MIB // 4096  # 160 MiB on each device: not twice.
        large = np.ones((rows, 1024), np.float32)
        message = raises(hostir.ResourceExhausted, lambda: client.run(fd, [large], wait=True))
        assert "device_bytes_max" in message and str(256 * MIB) in message, message
        print(f"  {message}")
        small = np.arange(client.num_devices * 1024, dtype=np.float32).reshape(-1, 1024)
        (y,) = client.run(fd, [small])
        np.testing.assert_array_equal(y.numpy(), -small)
        assert client.status()["generation"] == 1, "no mesh died of it"


def test_what_lived_on_a_worker_that_died_is_lost_and_the_mesh_heals() -> None:
    with daemon() as client:
        fd = negate(client.num_devices)
        x = np.random.default_rng(1).standard_normal((client.num_devices * 8, 1024), np.float32)
        (y,) = client.run(fd, [x], wait=True)
        os.kill(client.status()["devices"][-1]["pid"], signal.SIGKILL)
        started = time.monotonic()
        while not (client.status()["serving"] and client.status()["generation"] > 1):
            assert time.monotonic() - started < 60, client.status()["last_failure"]
            time.sleep(0.01)
        print(f"  healed in {time.monotonic() - started:.2f} s")
        message = raises(hostir.DataLoss, y.numpy)
        assert f"rank {client.num_devices - 1} died" in message, message
        print(f"  {message}")
        assert y.state == "lost"
        (again,) = client.run(fd, [x])
        np.testing.assert_array_equal(again.numpy(), -x)


def test_a_gpu_that_there_is_not() -> None:
    if DEVICES.startswith("cpu"):
        return
    with daemon(devices="cuda:0,99") as client:
        assert client.num_devices == 1
        (failed,) = client.status()["failed_devices"]
        assert failed["ordinal"] == 99
        print(f"  {failed['error']['message']}")


def test_without_a_gpu_the_daemon_serves_and_says_why() -> None:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        with daemon(devices="cuda:all") as client:
            assert client.num_devices == 0
            message = raises(hostir.FailedPrecondition, lambda: client.run(negate(1), [np.ones((1, 1024), np.float32)]))
            print(f"  {message}")
    finally:
        del os.environ["CUDA_VISIBLE_DEVICES"]
        if visible is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = visible


def test_a_new_size_plans_again_at_most_8_times() -> None:
    with daemon() as client:
        with FusionDefinition("sizes") as fd:
            x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.Float)
            fd.add_output(fd.ops.sum(x, [1]))
        before = client.status()["plans"]
        # All of vectors of 8: with other vectors a size has other kernels (docs/decisions/0035).
        sizes = [8, 24, 72, 136, 520, 1000, 1024, 1032, 4096, 8192, 16384, 32768, 65536, 100000, 131072]
        for columns in sizes:
            ones = np.ones((3, columns), np.float32)
            (y,) = client.run(fd, [ones])
            np.testing.assert_array_equal(y.numpy(), ones.sum(1))
        plans = client.status()["plans"] - before
        print(f"  {plans} plans for {len(sizes)} sizes")
        assert plans <= 1 + 8


if pytest is not None:

    @pytest.fixture(autouse=True, scope="module")
    def devices() -> None:
        """Skips, and says why, where there are none."""
        try:
            with daemon() as client:
                if client.num_devices == 0:
                    pytest.skip(f"{DEVICES}: {client.status()['last_failure']}")
        except hostir.Unavailable as error:
            pytest.skip(str(error))


def main() -> int:
    failed = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_"):
            continue
        print(name, flush=True)
        try:
            test()
        except Exception as error:  # Every one is run.
            failed += 1
            print(f"  FAILED {type(error).__name__}: {error}", flush=True)
    print("all passed" if failed == 0 else f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
