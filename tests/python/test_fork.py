"""Processes forked from one that has a client end, and are refused; forked before, or spawned, they connect.

Each test is a program of its own, since a fork of this one would have all its threads' locks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import hostir

FORK = """
import os, signal, sys
import numpy as np
import hostir

def forked(work):  # Whether a child that does `work`, and then ends as programs do, exits with 0.
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)  # Whatever hangs ends with this.
        work()
        sys.exit()
    return os.waitpid(pid, 0)[1] == 0

with hostir.FusionDefinition() as fd:
    x = fd.define_tensor(shape=[-1], contiguity=True)
    fd.add_output(x + 1)
"""


def run(program: str, address: str) -> list[str]:
    """The lines that a program prints. It connects to ``address`` by default."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", FORK + textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOSTIR_ADDRESS": address},
        check=True,
    )
    return done.stdout.splitlines()


def test_a_forked_process_ends(client: hostir.Client) -> None:
    """With a client that is open, one that it closes, and one that it leaves."""
    program = """
        client = hostir.connect()
        array = client.put(np.ones(3))
        print(forked(lambda: None), forked(client.close), forked(lambda: client.__exit__()))
        print(array.numpy().sum())
    """
    assert run(program, client.address) == ["True True True", "3.0"]


def test_a_forked_process_is_refused(client: hostir.Client) -> None:
    """What it does with a client of the forking process, and connecting: no request of it reaches gRPC."""
    program = """
        client = hostir.connect()
        array = client.put(np.ones(3))
        execute = lambda: fd.execute([np.ones(3, np.float32)])
        execute()
        def work():
            client.close()
            put = lambda: client.put(np.ones(3))
            for call in (client.status, array.numpy, array.wait, put, hostir.connect, execute):
                try:
                    call()
                except hostir.FailedPrecondition as error:
                    print(error.args[0].partition(" (")[0])
        print(os.getpid())
        print(forked(work))
        print(array.numpy().sum())
    """
    pid, *said, ended, after = run(program, client.address)
    assert (ended, after) == ("True", "3.0")
    assert len(said) == 6, said
    for line in said:
        assert f" was forked from {pid}, which had connected; gRPC does not work after that: start it by multi" in line


def test_a_process_forked_before_its_parent_connects(client: hostir.Client) -> None:
    program = """
        def work():
            with hostir.connect() as own:
                print(own.put(np.ones(2)).numpy().sum())
            print(fd.execute([np.ones(4, np.float32)])[0].numpy().sum())
        print(forked(work))
        print(hostir.connect().put(np.ones(3)).numpy().sum())
    """
    assert run(program, client.address) == ["2.0", "8.0", "True", "3.0"]


def test_a_spawned_process_connects(client: hostir.Client) -> None:
    program = """
        import multiprocessing
        client = hostir.connect()
        spawned = multiprocessing.get_context("spawn").Process(target=hostir.connect)
        spawned.start()
        spawned.join()
        print(spawned.exitcode, client.put(np.ones(3)).numpy().sum())
    """
    assert run(program, client.address) == ["0 3.0"]
