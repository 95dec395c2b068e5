"""More runs than the daemon has room for: the client waits for its own, and `nowait` is told at once.

Method: daemons whose limits are a few runs, or the memory of a few results; chains and fans of runs many times as long.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import threading
import time
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

import hostir
from hostir import FusionDefinition
from hostir.backlog import pauses

ROWS = 1 << 18  # A mebibyte: a run takes long enough for others to queue behind it.


def one_more() -> FusionDefinition:
    with FusionDefinition("one_more") as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        fd.add_output(fd.ops.tanh(x) + 1.0)
    return fd


@pytest.fixture
def few(daemon_program: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[hostir.Client]:
    """A daemon with room for two runs."""
    monkeypatch.setenv("HOSTIR_QUEUED_RUNS_MAX", "2")
    with hostir.connect(devices="cpu:1", timeout=60) as client:
        yield client


def test_a_chain_longer_than_the_queue(few: hostir.Client) -> None:
    fd, x = one_more(), few.put(np.zeros(ROWS, np.float32))
    for _ in range(100):
        (x,) = few.run(fd, [x])
    assert np.isfinite(x.numpy()).all()


@pytest.mark.parametrize("held", [True, False])
def test_results_that_are_held_and_that_nobody_has(few: hostir.Client, held: bool) -> None:
    """Without a result there is nothing to wait for, and the client looks again after pauses."""
    fd, x = one_more(), few.put(np.zeros(ROWS, np.float32))
    results = [few.run(fd, [x]) if held else few.run(fd, [x]) and None for _ in range(60)]
    (last,) = few.run(fd, [x])
    np.testing.assert_array_equal(last.numpy(), np.ones(ROWS, np.float32))
    assert len(results) == 60


def refused(client: hostir.Client, fd: FusionDefinition, x: hostir.Array, **options: float) -> hostir.HostirError:
    """What the first run is told that finds no room."""
    with pytest.raises(hostir.ResourceExhausted) as caught:
        for _ in range(10_000):
            client.run(fd, [x], **options)  # type: ignore[arg-type]
    return caught.value


def test_nowait_is_told_at_once(few: hostir.Client) -> None:
    fd, x = one_more(), few.put(np.zeros(16 * ROWS, np.float32))
    assert str(refused(few, fd, x, nowait=True)).startswith("queued_runs_max = 2: as many runs of this session wait")
    (y,) = few.run(fd, [x])
    assert y.numpy()[0] == 1


def test_the_time_of_a_run_bounds_its_wait_for_room(few: hostir.Client) -> None:
    fd, x = one_more(), few.put(np.zeros(16 * ROWS, np.float32))
    begin = time.monotonic()
    error = refused(few, fd, x, timeout=0.002)
    assert str(error).startswith("queued_runs_max = 2") and time.monotonic() - begin < 60


def test_memory_that_runs_under_way_hold(daemon_program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs have memory once a run is accepted: of a long chain it comes back as its runs end."""
    monkeypatch.setenv("HOSTIR_TENSOR_BYTES_MAX", str(8 * 4 * ROWS))
    with hostir.connect(devices="cpu:1", timeout=60) as client:
        fd, x = one_more(), client.put(np.zeros(ROWS, np.float32))
        for _ in range(100):
            (x,) = client.run(fd, [x])
        assert np.isfinite(x.numpy()).all()
        with pytest.raises(hostir.ResourceExhausted, match=r"^tensor_bytes_max = .* free some"):
            _held = [client.run(fd, [x]) for _ in range(100)]  # Ready, and held: nothing to wait for.


def test_memory_of_inputs_that_are_put_for_runs(daemon_program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which runs under way hold, too."""
    monkeypatch.setenv("HOSTIR_TENSOR_BYTES_MAX", str(8 * 4 * ROWS))
    with hostir.connect(devices="cpu:1", timeout=60) as client:
        fd, zeros = one_more(), np.zeros(ROWS, np.float32)
        for _ in range(50):
            (y,) = client.run(fd, [zeros])
        np.testing.assert_array_equal(y.numpy(), zeros + 1)
        with pytest.raises(hostir.ResourceExhausted, match=r"tensor_bytes_max = .* free some"):
            _held = [client.run(fd, [zeros], nowait=True) for _ in range(100)]
        with pytest.raises(hostir.ResourceExhausted, match=r"^tensor_bytes_max = "):
            _put = [client.put(zeros) for _ in range(100)]


def test_a_refused_run_keeps_no_array(client: hostir.Client) -> None:
    """What a refusal holds goes with it, without the collector: else a long chain runs out of memory."""
    x = client.put(np.zeros((2, 2), np.float32))  # Of two axes; the program wants one.
    ref = weakref.ref(x)
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(hostir.InvalidArgument):
            client.run(one_more(), [x])
        del x
        assert ref() is None
    finally:
        gc.enable()


def test_threads_share_what_is_under_way(few: hostir.Client) -> None:
    fd, x = one_more(), few.put(np.zeros(ROWS, np.float32))
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(30):
                few.run(fd, [x])[0].wait()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_pauses_grow_to_a_tenth_of_a_second() -> None:
    seconds = list(itertools.islice(pauses(), 10))
    assert seconds[:3] == [0.001, 0.002, 0.004] and seconds[-1] == 0.1 and seconds == sorted(seconds)
