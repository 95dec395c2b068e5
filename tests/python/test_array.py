"""Arrays as NumPy's users know them: numbers, indices, comparisons, what they look like.

Method: the same of NumPy's array of the same values; a daemon whose workers are stopped for what must not block.
"""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hostir
from hostir import DeviceMesh, FusionDefinition, Sharding

TABLE = np.arange(12, dtype=np.float32).reshape(3, 4)
READS: list[Callable[[Any], Any]] = [
    lambda a: a[1],
    lambda a: a[1, 2],
    lambda a: a[:, ::-2],
    lambda a: a[..., None, -1],
    lambda a: a[[2, 0]],
    lambda a: a[TABLE > 5],
    lambda a: list(a),
    lambda a: a.tolist(),
    lambda a: len(a),
    lambda a: a.item(7),
    lambda a: a.item(1, 2),
    lambda a: 7.0 in a,
    lambda a: 70 in a,
    lambda a: a == 3,
    lambda a: a != TABLE.T[:1].T,
    lambda a: TABLE.__eq__(a),
    lambda a: a == TABLE.tolist(),
    lambda a: a == a,
    lambda a: np.add(a, 1),
]


@pytest.mark.parametrize("number", range(len(READS)))
def test_reads_are_numpys(client: hostir.Client, number: int) -> None:
    got, wanted = (READS[number](a) for a in (client.put(TABLE, sharding=Sharding([0, 1], {1: "mesh_x"})), TABLE))
    assert type(got) is type(wanted)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    "dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.int32, np.bool_]
)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
def test_numbers(client: hostir.Client, dtype: Any, shape: tuple[int, ...]) -> None:
    array, kind = client.put(np.ones(shape, dtype)), np.dtype(dtype).kind
    assert (float(array), int(array), bool(array), complex(array)) == (1.0, 1, True, 1 + 0j)
    assert type(array.item()) is {"b": bool, "i": int}.get(kind, float)
    assert not client.put(np.zeros(shape, dtype))
    if kind == "i" and shape == ():
        assert ["a", "b"][array] == "b"
    else:
        with pytest.raises(TypeError, match=r"^only an integer without axes is an index, not "):
            ["a", "b"][array]


def test_what_is_no_number(client: hostir.Client) -> None:
    array = client.put(TABLE)
    for convert in (float, int):
        with pytest.raises(
            TypeError, match=rf"^only an array of one element is {convert.__name__}; the shape is \(3, 4\)"
        ):
            convert(array)
    with pytest.raises(
        ValueError, match=r"^an array of shape \(3, 4\) is neither true nor false; \(a == b\)\.all\(\) is"
    ):
        bool(array == array) if array else None
    with pytest.raises(ValueError, match=r"^item\(\) of an array of shape \(3, 4\), which has 12 elements"):
        array.item()
    with pytest.raises(IndexError):
        array[3]
    with pytest.raises(TypeError, match=r"^iteration over an array without axes"):
        iter(client.put(1.0))
    with pytest.raises(TypeError, match="unhashable"):
        hash(array)
    assert copy.copy([array])[0] is array


def test_comparisons_of_two_arrays(client: hostir.Client) -> None:
    a, b = client.put(TABLE), client.put(TABLE.T.copy())
    assert (a == client.put(TABLE)).all() and isinstance(a == a, np.ndarray)
    with pytest.raises(ValueError):
        a == b  # noqa: B015


def test_formats(client: hostir.Client) -> None:
    loss = client.put(np.float32(0.25))
    assert f"{loss:.3f}" == "0.250"
    assert f"{loss}" == str(loss) == repr(loss) == "hostir.Array(0.25, dtype=float32)"
    with pytest.raises(TypeError, match="format"):
        f"{client.put(TABLE):.3f}"


# --- repr ---


def test_repr_of_small_arrays(client: hostir.Client) -> None:
    assert repr(client.put(TABLE)) == (
        "hostir.Array([[ 0.,  1.,  2.,  3.],\n"
        "              [ 4.,  5.,  6.,  7.],\n"
        "              [ 8.,  9., 10., 11.]], dtype=float32)"
    )
    assert repr(client.put(np.zeros((0, 3), np.int32))) == "hostir.Array([], shape=(0, 3), dtype=int32)"
    assert repr(client.put(np.ones(2, ml_dtypes.bfloat16))) == "hostir.Array([1, 1], dtype=bfloat16)"
    sharding = Sharding(DeviceMesh([0, 1]), {0: "mesh_x"})
    assert repr(client.put([1, 2], sharding=sharding)) == f"hostir.Array([1, 2], dtype=int64, {sharding!r})"


def test_repr_of_large_arrays(client: hostir.Client) -> None:
    """No value of theirs moves."""
    assert repr(client.put(np.zeros((1001,)))) == "hostir.Array(shape=(1001,), dtype=float64)"
    array = client.put(np.zeros(1001), sharding=Sharding([1, 0]))
    assert repr(array) == "hostir.Array(shape=(1001,), dtype=float64, Sharding(DeviceMesh([1, 0]), {}))"


def test_repr_of_arrays_that_have_gone(client: hostir.Client) -> None:
    array = client.put(TABLE)
    client.free(array)
    assert repr(array) == "hostir.Array(shape=(3, 4), dtype=float32, was freed)"
    with hostir.Client(client.address) as other:
        array = other.put(TABLE)
    assert repr(array) == "hostir.Array(shape=(3, 4), dtype=float32, of a client that is closed)"


def test_repr_while_a_run_is_under_way(daemon_program: str) -> None:
    """The workers are stopped, so that no run ends: pending, soon said, and right when they go on."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1])
        fd.add_output(x * 2.0)
    with hostir.connect(devices="cpu:1", timeout=60) as client:
        small, large = client.put(np.ones(2, np.float32)), client.put(np.ones(2000, np.float32))
        client.run(fd, [small], wait=True)
        pid = client.status()["devices"][0]["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            ((y,), (z,)) = client.run(fd, [small]), client.run(fd, [large])
            begin = time.monotonic()
            assert repr(y) == "hostir.Array(shape=(2,), dtype=float32, pending)"
            assert repr(z) == "hostir.Array(shape=(2000,), dtype=float32, pending)"
            assert time.monotonic() - begin < 20, "repr waits for nobody"
        finally:
            os.kill(pid, signal.SIGCONT)
        z.wait()
        assert repr(y) == "hostir.Array([2., 2.], dtype=float32)"


def test_repr_when_the_daemon_has_gone_or_does_not_answer(daemon_program: str) -> None:
    with hostir.connect(devices="cpu:1", timeout=60) as client:
        array = client.put(TABLE)
        assert client._daemon is not None
        os.kill(client._daemon.pid, signal.SIGSTOP)
        client._collected.append("0" * 32)  # Which must not be freed first: nobody answers.
        begin = time.monotonic()
        assert repr(array) == "hostir.Array(shape=(3, 4), dtype=float32, pending)"
        assert time.monotonic() - begin < 20
        os.kill(client._daemon.pid, signal.SIGKILL)
        client._daemon._process.wait()
        assert repr(array) == "hostir.Array(shape=(3, 4), dtype=float32, unavailable)"


def test_repr_in_a_forked_process(daemon_program: str) -> None:
    program = """
        import os, numpy as np, hostir
        with hostir.connect(devices="cpu:1", timeout=60) as client:
            array = client.put(np.zeros(2))
            if (pid := os.fork()) == 0:
                print(repr(array), flush=True)
                os._exit(0)
            os.waitpid(pid, 0)
    """
    said = subprocess.run([sys.executable, "-B", "-c", textwrap.dedent(program)], capture_output=True, timeout=120)
    assert said.stdout == b"hostir.Array(shape=(2,), dtype=float64, of another process)\n"
