"""What a client hears of a plan that it waits for, and what a display makes of it.

Method: programs of a known number of kernels on a daemon; a display over a stream of this test's own, told by hand.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import struct
import termios
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import hostir
from hostir.progress import Display, PlanProgress


def steps(count: int, seed: float) -> hostir.FusionDefinition:
    """A program of so many kernels, no two of them equal."""
    with hostir.FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1], contiguity=True, dtype=hostir.DataType.Float)
        for i in range(count):
            t = fd.ops.segment_set(fd.ops.tanh(t + (seed + i)))
        fd.add_output(t)
    return fd


def test_stages_in_order(daemon_program: str) -> None:
    heard: list[PlanProgress] = []
    done = threading.Event()

    def told(progress: PlanProgress) -> None:
        heard.append(progress)
        if progress.stage == "done":
            done.set()

    with hostir.connect(devices="cpu:1", timeout=60, progress=told) as client:
        (y,) = client.run(steps(12, 0.25), [np.ones(3, np.float32)])
        assert np.isfinite(y.numpy()).all()
        assert done.wait(60)
        order = ["queued", "planning", "compiling", "done"]
        ranks = [order.index(progress.stage) for progress in heard]
        # One that is not read in time is left out; the last stays.
        assert ranks == sorted(ranks) and heard[-1].stage == "done", heard
        compiling = [progress for progress in heard if progress.stage == "compiling"]
        assert compiling and {progress.kernels for progress in compiling} == {12}
        counts = [progress.kernels_compiled for progress in compiling]
        assert counts == sorted(counts) and set(counts) <= set(range(13))
        del heard[:]
        client.run(steps(12, 0.25), [np.ones(5, np.float32)], wait=True)
        assert heard == [], "the plan is there"


def test_each_session_hears_of_its_own(daemon_program: str, tmp_path: Path) -> None:
    ours: list[PlanProgress] = []
    theirs: list[PlanProgress] = []
    with (
        hostir.connect(devices="cpu:1", timeout=60, progress=ours.append) as first,
        hostir.connect(first.address, progress=theirs.append) as second,
    ):
        first.explain(steps(3, 0.75))
        second.explain(steps(3, 0.75))
    assert ours and theirs == []


def test_what_the_function_raises_is_not_lost(daemon_program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[object] = []
    over = threading.Event()

    def hook(args: threading.ExceptHookArgs) -> None:
        raised.append(args.exc_value)
        over.set()

    def told(progress: PlanProgress) -> None:
        raise KeyError(progress.stage)

    monkeypatch.setattr(threading, "excepthook", hook)
    with hostir.connect(devices="cpu:1", timeout=60, progress=told) as client:
        (y,) = client.run(steps(2, 0.5), [np.ones(3, np.float32)])
        assert np.isfinite(y.numpy()).all()
        assert over.wait(60) and isinstance(raised[0], KeyError) and len(raised) == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def wait_for(condition: object, stream: io.StringIO) -> None:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:  # type: ignore[operator]
        time.sleep(0.01)
    assert condition(), stream.getvalue()  # type: ignore[operator]


def test_a_terminal_has_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostir.progress._PATIENCE", 0.05)
    monkeypatch.setattr("hostir.progress._REFRESH", 0.01)
    stream = Terminal()
    display = Display(stream)
    with display:
        display(PlanProgress("queued", 0, 0, 0))
        display(PlanProgress("compiling", 0, 3, 7))
        wait_for(lambda: "compiling" in stream.getvalue(), stream)
    said = stream.getvalue()
    assert re.fullmatch(r"(\r\x1b\[Khostir: compiling 3 of 7 kernels, \d+\.\d s)+\r\x1b\[K", said), said
    display(PlanProgress("compiling", 0, 4, 7))  # It comes late: nobody waits.
    time.sleep(0.1)
    assert stream.getvalue() == said


def test_a_narrow_terminal_has_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostir.progress._PATIENCE", 0.0)
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
    with os.fdopen(inner, "w") as stream:
        display = Display(stream)
        with display:
            display(PlanProgress("compiling", 0, 3, 7))
            seen = b""
            while b"compiling" not in seen:
                assert select.select([outer], [], [], 60)[0]
                seen += os.read(outer, 4096)
    os.close(outer)
    assert seen.decode().split("\r\x1b[K")[1] == "hostir: compiling 3"


def test_what_is_over_soon_is_not_mentioned() -> None:
    stream = Terminal()
    display = Display(stream)
    with display:
        display(PlanProgress("compiling", 0, 1, 2))
        display(PlanProgress("done", 0, 0, 0))
    assert stream.getvalue() == ""


def test_elsewhere_a_line_a_stage() -> None:
    stream = io.StringIO()
    display = Display(stream)
    with display:
        display(PlanProgress("queued", 0, 0, 0))
        display(PlanProgress("queued", 1, 0, 0))
        display(PlanProgress("planning", 0, 0, 0))
        for compiled in range(8):  # Within a second: the first alone.
            display(PlanProgress("compiling", 0, compiled, 7))
        display(PlanProgress("done", 0, 0, 0))
    said = [re.sub(r", \d+\.\d s$", "", line) for line in stream.getvalue().splitlines()]
    assert said == ["hostir: waiting for 1 other plan", "hostir: planning", "hostir: compiling 0 of 7 kernels"]


def test_nothing_is_said_unasked(
    daemon_program: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """stderr is no terminal here. No kernel is on disk: what is over at once is not mentioned."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with hostir.connect(devices="cpu:1", timeout=60) as client:
        client.explain(steps(12, 0.125))
    assert capfd.readouterr().err == ""
    with hostir.connect(devices="cpu:1", timeout=60, progress=True) as client:
        client.explain(steps(12, 0.375))
    assert "hostir: compiling" in capfd.readouterr().err
