"""Tensors of many results are made while the run goes on, and nobody reads them before it is over.

A rank that is stopped holds a run for as long as a test wants.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: ./run setup --torch")
import hostir.torch  # noqa: E402
from hostir.torch import graphs  # noqa: E402

MANY = graphs._OVERLAPPED + 2
PATIENCE = 60.0


@contextlib.contextmanager
def patient_daemon() -> Iterator[hostir.Client]:
    """One that wants no signs of life of its rank, which may be stopped for as long as a busy machine takes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HOSTIR_HEARTBEAT_MS", "0")
        client = hostir.connect(devices="cpu:1", timeout=60)
    with client:
        yield client


@pytest.fixture(scope="module")
def client(there_is_a_daemon: None) -> Iterator[hostir.Client]:
    with patient_daemon() as client:
        yield client


@pytest.fixture
def own(client: hostir.Client) -> Iterator[hostir.Client]:
    """A daemon whose rank may die."""
    with patient_daemon() as own:
        hostir.torch.use(own)
        yield own
    hostir.torch.use(client)


def waits(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each run from now on, whether its request waits for its end."""
    told: list[bool] = []
    run = client._run

    def seen(fd: Any, inputs: Any, wait: bool, *arguments: Any, **options: Any) -> Any:
        told.append(wait)
        return run(fd, inputs, wait, *arguments, **options)

    monkeypatch.setattr(client, "_run", seen)
    return told


def tell_what_is_free(client: hostir.Client) -> list[Any]:
    """Has the ranks told what has been freed so far, which goes along with runs, and else has a message of its own that
    a rank which is stopped would not answer. Nothing is freed as long as the results are there."""
    with hostir.FusionDefinition("nothing") as fd:
        x = fd.define_tensor(shape=[1])
        fd.add_output(x + 1)
    gc.collect()
    one = client.put(torch.ones(1))  # What a run brings along is free behind it.
    return [one, *(client.run(fd, [one], wait=True) for _ in range(2))]


@contextlib.contextmanager
def rank_stopped(client: hostir.Client) -> Iterator[int]:
    there = tell_what_is_free(client)
    pid: int = client.status()["devices"][0]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    del there


def begun(client: hostir.Client, call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """A call on a thread, whose run is under way, and what it returns or raises."""
    told: list[Any] = []

    def work() -> None:
        try:
            told.append(call())
        except BaseException as error:
            told.append(error)

    runs = client.status()["runs"]
    thread = threading.Thread(target=work)
    thread.start()
    end = time.monotonic() + PATIENCE
    while (status := client.status())["runs"] == runs or status["queued_runs"] > 0:
        assert time.monotonic() < end, (status, told)
        select.select([], [], [], 0.01)
    return thread, told


def scaled(xs: list[Any]) -> list[Any]:
    return [x * (place + 2) for place, x in enumerate(xs)]


def test_a_call_returns_when_its_run_is_over(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    call = torch.compile(scaled, backend="hostir")
    xs = [torch.full((300,), float(place)) for place in range(MANY)]
    for _ in range(3):
        call(xs)
    with rank_stopped(client):
        told = waits(client, monkeypatch)
        thread, results = begun(client, lambda: call(xs))
        assert results == []
    thread.join(PATIENCE)
    assert told == [False], (told, results, client.status()["last_failure"])
    for place, (x, y) in enumerate(zip(xs, results[0], strict=True)):
        assert torch.equal(y, x * (place + 2))


def test_few_results_are_waited_for_at_once(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    call = torch.compile(scaled, backend="hostir")
    xs = [torch.ones(300)]
    call(xs)
    told = waits(client, monkeypatch)
    call(xs)
    assert told == [True]


def test_pytorch_reads_what_is_there(client: hostir.Client) -> None:
    """An op of PyTorch's behind a program, and strides that a copy is made for."""

    @torch.compile(backend="hostir")
    def call(xs: list[Any]) -> Any:
        made = scaled(xs)
        return *made, torch.special.bessel_j0(made[-1]), made[0].t().contiguous().t() + 1

    for step in range(4):
        xs = [torch.rand(40, 50) + step for _ in range(MANY)]
        want = scaled(xs)
        results = call(xs)
        for got, wanted in zip(results, [*want, torch.special.bessel_j0(want[-1]), want[0] + 1], strict=True):
            torch.testing.assert_close(got, wanted)


def test_what_is_replaced_is_written_when_the_run_is_over(
    client: hostir.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parameters keep their values until then, whether they lie in the daemon's memory or not."""

    @torch.compile(backend="hostir")
    def update(xs: list[Any], ys: list[Any]) -> None:
        for x, y in zip(xs, ys, strict=True):
            x.add_(y)

    xs, ys = [torch.zeros(300) for _ in range(MANY)], [torch.full((300,), float(place)) for place in range(MANY)]
    told = waits(client, monkeypatch)
    for step in range(1, 5):
        update(xs, ys)
        assert [float(x[7]) for x in xs] == [step * place for place in range(MANY)]
    assert told == [False] * 4


def test_a_rank_that_dies_meanwhile(own: hostir.Client) -> None:
    """The call raises, as where it had waited; what was to be replaced holds something, and is sent anew."""

    @torch.compile(backend="hostir")
    def update(xs: list[Any]) -> None:
        for x in xs:
            x.mul_(3)

    xs = [torch.ones(300) for _ in range(MANY)]
    for _ in range(2):
        update(xs)
    with rank_stopped(own) as pid:
        thread, told = begun(own, lambda: update(xs))
        os.kill(pid, signal.SIGKILL)
        thread.join(PATIENCE)
    assert isinstance(told[0], hostir.HostirError), told
    for x in xs:
        x.fill_(2)
    update(xs)
    update(xs)
    assert all(x.tolist() == [18.0] * 300 for x in xs)


def test_an_error_behind_a_run_waits_for_it(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who catches it reads no memory that a run still writes."""

    @torch.compile(backend="hostir")
    def update(xs: list[Any]) -> None:
        for x in xs:
            x.mul_(3)

    xs = [torch.ones(300) for _ in range(MANY)]
    for _ in range(2):
        update(xs)

    def fails(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(graphs.Graph, "_write", fails)
        with rank_stopped(client):
            thread, told = begun(client, lambda: update(xs))
            assert told == []
        thread.join(PATIENCE)
    assert isinstance(told[0], KeyboardInterrupt)
    assert all(x.tolist() == [27.0] * 300 for x in xs)
