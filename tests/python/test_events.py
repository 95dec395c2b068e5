"""The latest that a daemon did, afterwards: by the client, and by `hostir dump`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

import hostir
from hostir import DataType, FusionDefinition


def dump(daemon_program: str, *arguments: str) -> str:
    command = [str(Path(daemon_program).resolve().with_name("hostir")), "dump", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_events(daemon_program: str) -> None:
    """A plan, runs, a refusal and a rank that dies: in order, with their ends."""
    with FusionDefinition("doubled") as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.Float)
        fd.add_output(x + x)
    with hostir.connect(devices="cpu:2", timeout=60) as client:
        array = client.put(np.ones(8, np.float32))
        for _ in range(3):
            client.run(fd, [array], wait=True)
        with pytest.raises(hostir.NotFound):
            client.attach("nothing")
        generation = client.status()["generation"]
        os.kill(client.status()["devices"][1]["pid"], signal.SIGKILL)
        while client.status()["generation"] == generation or not client.status()["serving"]:
            pass
        client.run(fd, [array], wait=True)
        events = client.events()
        said = dump(daemon_program, "--address", client.address)
        as_json = json.loads(dump(daemon_program, "--address", client.address, "--json"))
    kinds = [event["kind"] for event in events]
    assert [kind for kind in kinds if kind in ("plan", "run")] == ["plan", "run", "run", "run", "run"]
    runs = [event for event in events if event["kind"] == "run"]
    assert [run["number"] for run in runs] == [1, 2, 3, 4]
    assert all(run["name"] == "doubled" and run["code"] == 0 and run["took_us"] > 0 for run in runs)
    (refused,) = [event for event in events if event["kind"] == "request"]
    assert (refused["name"], refused["code"]) == ("Attach", 5)
    assert "nothing" in refused["error"]
    ended, serves = [event for event in events if event["kind"] == "mesh"]
    assert (ended["name"], serves["name"]) == ("ended", "serves")
    assert "rank 1" in ended["error"]
    assert serves["number"] == ended["number"] + 1
    assert kinds.index("mesh") < len(kinds) - 1 - kinds[::-1].index("run"), "the last run came after"
    assert len(as_json["events"]) == len(events)
    assert "doubled" in said
    assert "NOT_FOUND" in said
