"""`await array`: the loop goes on meanwhile, errors arrive, a wait may be cancelled.

Method: the worker of a daemon is stopped, so that a run ends when the test says so.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest

import hostir
from hostir import FusionDefinition

COUNT = 100  # More waits at a time than a loop has threads.


@pytest.fixture(scope="module")
def one(daemon_program: str) -> Iterator[hostir.Client]:
    with hostir.connect(devices="cpu:1", timeout=60) as client:
        yield client


def double() -> FusionDefinition:
    with FusionDefinition("double") as fd:
        x = fd.define_tensor(shape=[-1])
        fd.add_output(x * 2.0)
    return fd


def worker(client: hostir.Client) -> int:
    pid: int = client.status()["devices"][0]["pid"]
    return pid


def test_an_array_that_is_ready(one: hostir.Client) -> None:
    async def ready() -> None:
        array = one.put(np.ones(2))
        assert await array is array

    asyncio.run(ready())


def test_the_loop_goes_on(one: hostir.Client) -> None:
    fd, x = double(), one.put(np.ones(2, np.float32))
    one.run(fd, [x], wait=True)

    async def results() -> list[hostir.Array]:
        arrays = [one.run(fd, [x])[0] for _ in range(COUNT)]

        async def wait(array: hostir.Array) -> hostir.Array:
            return await array

        waits = [asyncio.ensure_future(wait(array)) for array in arrays]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waits), "the worker is stopped"
        os.kill(pid, signal.SIGCONT)  # By the loop, which none of the waits holds up.
        assert await asyncio.gather(*waits) == arrays
        return arrays

    pid = worker(one)
    os.kill(pid, signal.SIGSTOP)
    try:
        arrays = asyncio.run(results())
    finally:
        os.kill(pid, signal.SIGCONT)
    assert all((array == 2).all() for array in arrays)


def test_a_wait_that_is_cancelled(one: hostir.Client) -> None:
    fd, x = double(), one.put(np.ones(2, np.float32))
    one.run(fd, [x], wait=True)
    pid = worker(one)
    os.kill(pid, signal.SIGSTOP)
    try:
        (y,) = one.run(fd, [x])

        async def give_up() -> None:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(y, 0.01)

        asyncio.run(give_up())
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (y == 2).all()


def test_errors(daemon_program: str) -> None:
    async def wait(array: hostir.Array) -> None:
        await array

    with hostir.connect(devices="cpu:1", timeout=60) as client:
        fd, x = double(), client.put(np.ones(2, np.float32))
        client.run(fd, [x], wait=True)
        pid = worker(client)
        os.kill(pid, signal.SIGSTOP)
        (y,) = client.run(fd, [x])
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(hostir.Unavailable, match=r"rank 0 died .*test_asyncio\.py:\d+: \(y,\) = client\.run"):
            asyncio.run(wait(y))
        client.free(x)
        with pytest.raises(hostir.FailedPrecondition, match=r"^the array of shape \(2,\) was freed"):
            asyncio.run(wait(x))
    with pytest.raises(hostir.FailedPrecondition, match=r"^this client is closed"):
        asyncio.run(wait(y))
