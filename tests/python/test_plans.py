"""What explain says, through a daemon with four CPU ranks."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import hostir
from hostir import DeviceMesh, FusionDefinition, ParallelType

FOUR = DeviceMesh([0, 1, 2, 3])


def row_parallel() -> FusionDefinition:
    with FusionDefinition("row_parallel") as fd:
        x = fd.define_tensor(shape=[-1, 64], contiguity=True)
        w = fd.define_tensor(shape=[16, 64], contiguity=True)
        y = fd.ops.relu(fd.ops.linear(x, w))
        fd.add_output(y)
        for t in (x, w):
            t.shard(FOUR, {1: "mesh_x"})
        y.set_device_mesh(FOUR)
    return fd


def test_explain(client: hostir.Client) -> None:
    plan = client.explain(row_parallel())
    assert [segment.kind for segment in plan.segments].count("library") == 1
    (communication,) = plan.communications
    assert (communication.type, communication.team) == ("Allreduce", [[0, 1, 2, 3]])
    assert isinstance(communication.bytes, str)
    assert "i0" in communication.bytes
    text = str(plan)
    assert text.splitlines()[0].split()[0] == "segment"
    assert "Allreduce" in text
    assert "linear" in plan.fusion
    assert "communication" in plan.host_ir
    decoded = json.loads(plan.json())
    assert decoded["communications"][0]["team"] == [[0, 1, 2, 3]]
    assert decoded["segments"][0].keys() == {
        *("name", "kind", "schedule", "ops", "launches", "inputs", "outputs", "bytes", "loop", "iterations", "cost")
    }


def softmax(**given: str) -> FusionDefinition:
    with FusionDefinition("softmax", **given) as fd:
        x = fd.define_tensor(shape=[-1, 8], contiguity=True)
        below = fd.ops.exp(fd.ops.sub(x, fd.ops.max(x, [1], keepdim=True)))
        fd.add_output(fd.ops.div(below, fd.ops.sum(below, [1], keepdim=True)))
    return fd


def test_a_program_says_how_it_is_cut(client: hostir.Client) -> None:
    """Each rule gives a plan of its own, and one result."""
    x = np.random.default_rng(3).standard_normal((5, 8)).astype(np.float32)
    wanted = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    for rule, kernels in {"": 1, "fusing": 1, "reshardings": 1, "one_op": 5}.items():
        fd = softmax(segmentation=rule)
        assert [segment.kind for segment in client.explain(fd).segments] == ["kernel"] * kernels, rule
        np.testing.assert_allclose(client.run(fd, [x])[0].numpy(), wanted, rtol=1e-5)
        assert str(fd).startswith(f"segmentation {rule}\nfusion" if rule else "fusion")
    with pytest.raises(hostir.InvalidArgument, match=r"there are fusing, reshardings, one_op; did you mean one_op\?"):
        client.explain(softmax(segmentation="one_ops"))
    with pytest.raises(hostir.InvalidArgument, match="is no word"):
        client.explain(softmax(segmentation="one op"))


def test_explain_with_sizes(client: hostir.Client) -> None:
    plan = client.explain(row_parallel(), sizes={"i0": 32})
    assert plan.communications[0].bytes == 32 * 16 * 4
    assert all(isinstance(segment.bytes, int) for segment in plan.segments)
    assert "2.0 KiB" in str(plan)


def test_explain_tells_what_kernels_cost(client: hostir.Client) -> None:
    rows = 1 << 20
    (kernel,) = client.explain(softmax(), sizes={"i0": rows}).segments
    assert kernel.cost is not None
    assert kernel.cost.bytes == kernel.bytes == 2 * rows * 8 * 4
    assert (kernel.cost.again, kernel.cost.idle) == (0, 0)
    assert kernel.cost.arithmetic == rows * 8 * 2  # An exp is 2 bytes; a row is near, and its exps are kept.
    assert kernel.cost.total == kernel.cost.bytes + kernel.cost.of_launches

    few = client.explain(softmax(), sizes={"i0": 4})
    assert "takes as long as" in str(few)
    assert "of launches" in str(few)
    assert "takes as long as" not in str(client.explain(softmax()))
    library = client.explain(row_parallel(), sizes={"i0": 32}).segments
    assert [segment.cost is None for segment in library] == [segment.kind != "kernel" for segment in library]


def test_explain_tells_memory(client: hostir.Client) -> None:
    """Of each rank: its columns of x and w, all of y, and what is summed over ranks, in pieces of 64 bytes."""
    without = client.explain(row_parallel())
    assert without.memory == [] and "i0" in without.memory_unknown
    assert "memory is not known: it depends on i0" in str(without)
    plan = client.explain(row_parallel(), sizes={"i0": 32})
    (memory,) = plan.memory
    assert (memory.ranks, memory.inputs, memory.outputs) == ([0, 1, 2, 3], 32 * 16 * 4 + 16 * 16 * 4, 32 * 16 * 4)
    assert memory.live == memory.intermediates == 2 * 32 * 16 * 4
    assert memory.peak == memory.inputs + memory.outputs + memory.intermediates
    assert str(plan).splitlines()[-4].split()[:3] == ["memory", "of", "rank"]
    assert json.loads(plan.json())["memory"] == [vars(memory)]


# A second for the run, a millisecond a kernel or product, a tenth of a second a communication.
RATES = """hostir rates 1
device a CPU
ranks 4
multiprocessors 0
run 1
memory 1e12 0.001
product f32 1e12 0.001
communication allreduce 1e12 0.1
"""


def test_explain_tells_the_time(daemon_program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rates.txt").write_text(RATES)
    monkeypatch.setenv("HOSTIR_RATES", str(tmp_path / "rates.txt"))
    fd = row_parallel()
    with hostir.connect(devices="cpu:4", timeout=60) as client:
        without = client.explain(fd).time
        assert without.predicted_us is None and without.unknown.startswith("it depends on sizes")
        plan = client.explain(fd, sizes={"i0": 32})
        products = sum(s.kind != "communication" for s in plan.segments if s.kind != "view")
        assert plan.time.predicted_us == pytest.approx(1e6 + 1e3 * products + 1e5)
        assert (plan.time.work_us, plan.time.communication_us) == pytest.approx((1e3 * products, 1e5))
        assert (plan.time.rates, plan.time.runs) == ("a CPU, 4 ranks", 0)
        assert [name for name, _ in plan.time.segments] == [s.name for s in plan.segments if s.kind != "view"]
        assert dict(plan.time.segments)["allreduce #0"] == pytest.approx(1e5)
        assert "a run should take 1101 ms" in str(plan) or "a run should take 1102 ms" in str(plan)
        for _ in range(3):
            (y,) = client.run(fd, [np.ones((32, 64), np.float32), np.ones((16, 64), np.float32)])
            y.numpy()
        (y,) = client.run(fd, [np.ones((16, 64), np.float32), np.ones((16, 64), np.float32)])
        y.numpy()
        after = client.explain(fd, sizes={"i0": 32}).time
        assert after.runs == 3 and 0 < after.least_us <= after.last_us
        assert json.loads(plan.json())["time"]["rates"] == "a CPU, 4 ranks"


def test_every_op_of_a_loop_is_in_a_predicted_row(
    daemon_program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rates.txt").write_text(RATES)
    monkeypatch.setenv("HOSTIR_RATES", str(tmp_path / "rates.txt"))
    with FusionDefinition("loop") as fd:
        x = fd.define_tensor(shape=[64, 32], contiguity=True)
        w = fd.define_tensor(shape=[16, 32], contiguity=True)
        y = fd.ops.linear(x, w)
        y.outer_split(0, 4)
        y.axis(0).parallelize(ParallelType.stream)
        fd.add_output(y)
    with hostir.connect(devices="cpu:1", timeout=60) as client:
        plan = client.explain(fd)
    assert [(s.kind, s.loop) for s in plan.segments if s.kind == "library"] == [("library", "loop0")]
    assert sum(us for _, us in plan.time.segments) == pytest.approx(plan.time.work_us) == pytest.approx(4e3)
    rows = {row.split()[0]: row.split()[-2:] for row in str(plan).splitlines() if row.startswith("loop0")}
    assert rows["loop0.linear"] == ["4", "ms"] and rows["loop0"][-1] != "us"


def test_without_rates_explain_says_how_to_measure(client: hostir.Client) -> None:
    plan = client.explain(row_parallel(), sizes={"i0": 8})
    assert plan.time.predicted_us is None
    assert "hostir-eval --calibrate FILE, then hostird --rates=FILE" in str(plan)


@pytest.mark.parametrize(
    ("text", "fault"), [("speed 1", 'line 1: wants "hostir rates 1"'), (RATES + "memory 1", "line 9: memory wants")]
)
def test_a_file_of_rates_with_a_fault(
    daemon_program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, fault: str
) -> None:
    (tmp_path / "rates.txt").write_text(text)
    monkeypatch.setenv("HOSTIR_RATES", str(tmp_path / "rates.txt"))
    with pytest.raises(hostir.InvalidArgument, match=r"rates\.txt: ") as refused, hostir.connect(devices="cpu:1"):
        pass
    assert fault in str(refused.value).replace('\\"', '"')


def test_communications_have_the_host_programs_numbers(client: hostir.Client) -> None:
    plan = client.explain(row_parallel())
    assert [c.number for c in plan.communications] == [0]
    assert "seq=0" in plan.host_ir and "Allreduce #0" in str(plan)
    assert [s.name for s in plan.segments if s.kind == "communication"] == ["allreduce #0"]


def test_the_plan_explained_is_the_plan_executed(client: hostir.Client) -> None:
    fd = row_parallel()
    plan = client.explain(fd)
    assert plan.program_id == client._compile(fd).program_id
    x, w = np.ones((8, 64), np.float32), np.ones((16, 64), np.float32)
    np.testing.assert_array_equal(client.run(fd, [x, w])[0].numpy(), np.full((8, 16), 64, np.float32))


def test_status(client: hostir.Client) -> None:
    status = client.status()
    assert status["serving"] is True
    assert [device["kind"] for device in status["devices"]] == ["cpu"] * 4
    assert client.num_devices == 4
    assert {limit["name"] for limit in status["limits"]} >= {"tensor_bytes_max", "programs_max"}


def test_guards_are_shown(client: hostir.Client) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        fd.add_output(fd.ops.exp(x))
        x.shard(FOUR, {0: "mesh_x"})
    plan = client.explain(fd)
    assert any("i0 mod 4 == 0" in guard for guard in plan.guards)
    assert "holds for sizes with: " in str(plan)


@pytest.fixture
def command(daemon_program: str) -> str:
    """The command line beside the daemon. Skips where only the daemon was built."""
    path = Path(daemon_program).resolve().with_name("hostir")
    if not path.exists():
        pytest.skip(f"{path} was not built")
    return str(path)


def test_the_picture_is_the_command_lines(client: hostir.Client, command: str, tmp_path: Path) -> None:
    fd = row_parallel()
    plan = client.explain(fd, sizes={"i0": 32})
    (tmp_path / "row_parallel.hir").write_text(str(fd))
    arguments = ["--size=i0=32", f"--address={client.address}", f"--svg={tmp_path / 'plan.svg'}"]
    subprocess.run([command, "explain", tmp_path / "row_parallel.hir", *arguments], check=True, capture_output=True)
    assert plan.svg() == (tmp_path / "plan.svg").read_text()
    texts = [element.text for element in ET.fromstring(plan.svg()).iter() if element.tag.endswith("text")]
    assert texts[0] == "row_parallel" and "2.0 KiB" in str(texts)


def test_a_picture_needs_no_daemon(daemon_program: str, command: str) -> None:
    with hostir.connect(devices="cpu:1", timeout=60) as other:
        with FusionDefinition("odd name/../") as fd:
            fd.add_output(-fd.define_tensor(shape=[-1]))
        fd.name = "odd"
        plan = other.explain(fd)
    plan._title = ("odd name/../", {})
    assert ET.fromstring(plan.svg()).tag.endswith("svg")


def test_notebooks_show_picture_and_tables(
    client: hostir.Client, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = client.explain(row_parallel())
    shown = plan._repr_html_()
    (encoded,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', shown)
    assert base64.b64decode(encoded).decode() == plan.svg()
    assert "<pre>segment" in shown and "Allreduce" in shown
    monkeypatch.setattr(hostir.private_daemon, "find_daemon", lambda: str(tmp_path / "hostird"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(hostir.Unavailable, match=r"^no command hostir found, which draws plans: build it"):
        plan.svg()
    assert plan._repr_html_().startswith("<pre>segment"), "the tables alone"
    (tmp_path / "hostir").write_text("#!/bin/sh\necho no such option >&2; exit 2\n")
    (tmp_path / "hostir").chmod(0o755)
    with pytest.raises(hostir.Unavailable, match=r"hostir cannot draw the plan: no such option$"):
        plan.svg()
