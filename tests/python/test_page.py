"""The page in the browser: what is served beside the metrics, and what headless Chromium makes of it."""

from __future__ import annotations

import html.parser
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hostir
from eventually import eventually
from hostir import DeviceMesh, FusionDefinition
from observed_daemon import ObservedDaemon

TWO = DeviceMesh([0, 1])
X = np.ones((2, 64), np.float32)
HOSTILE = "<script>document.title='taken'</script><img src=x onerror=alert(1)>"
CHROMIUM = shutil.which("chromium")


def sum_over_ranks(name: str = "sum_over_ranks") -> FusionDefinition:
    with FusionDefinition(name) as fd:
        x = fd.define_tensor(shape=[2, 64], contiguity=True)
        y = fd.ops.sum(x, [0])
        fd.add_output(y)
        x.shard(TWO, {0: "mesh_x"})
        y.set_device_mesh(TWO)
    return fd


def a_run_and_one_that_fails(client: hostir.Client) -> None:
    """Leaves a mesh that ended and serves again, too."""
    fd = sum_over_ranks()
    x = client.put(X, fd.fusion.inputs()[0])
    (first,) = client.run(fd, [x], wait=True)  # Kept: freeing it would be one more request that the rank can die in.
    worker = client.status()["devices"][1]["pid"]
    os.kill(worker, signal.SIGSTOP)
    (y,) = client.run(fd, [x])
    eventually(lambda: client.status()["queued_runs"] == 0)  # It has its turn: it is not left to the next workers.
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(hostir.Unavailable, match=r"^rank 1 died"):
        y.numpy()
    eventually(lambda: client.status()["serving"])
    del first


@pytest.fixture(scope="module")
def daemon(daemon_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedDaemon]:
    """A daemon to which something of each kind has happened."""
    daemon = ObservedDaemon(daemon_program, tmp_path_factory.mktemp("daemon"), devices="cpu:2")
    try:
        with hostir.connect(daemon.address) as client:
            a_run_and_one_that_fails(client)
            with pytest.raises(hostir.InvalidArgument, match="cannot name a program"):
                client.explain(sum_over_ranks(HOSTILE))
            client.run(sum_over_ranks(), [X], wait=True)
            yield daemon
    finally:
        daemon.stop()


def ask(daemon: ObservedDaemon, path: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
    """Status, headers and text."""
    request = urllib.request.Request(f"http://{daemon.metrics_address}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read().decode()


def ask_json(daemon: ObservedDaemon, path: str) -> Any:
    status, headers, text = ask(daemon, path)
    assert (status, headers["Content-Type"]) == (200, "application/json"), text
    return json.loads(text)


def test_a_browser_may_load_the_page_and_nothing_else(daemon: ObservedDaemon) -> None:
    types = {"/": "text/html", "/page.js": "text/javascript", "/page.css": "text/css"}
    for path, of in types.items():
        status, headers, text = ask(daemon, path)
        assert (status, headers["Content-Type"]) == (200, f"{of}; charset=utf-8")
        policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["require-trusted-types-for"] == "'script'"
        assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")
        assert len(text.encode()) == int(headers["Content-Length"])
        assert "://" not in text, "it comes from the daemon alone"
        assert ask(daemon, path, "HEAD")[::2] == (200, "")
    markup = ask(daemon, "/")[2]
    assert not re.search(r"\son\w+=|\sstyle=|<style|<script>", markup)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", ask(daemon, "/page.js")[2])


def test_the_state_is_what_status_says(daemon: ObservedDaemon) -> None:
    with hostir.connect(daemon.address) as client:
        said, shown = client.status(), ask_json(daemon, "/state.json")
    assert set(said) - {"run_under_way"} <= set(shown), "JSON has no message that is not set"
    assert [int(device["pid"]) for device in shown["devices"]] == [device["pid"] for device in said["devices"]]
    assert {limit["name"]: int(limit["value"]) for limit in shown["limits"]} == {
        limit["name"]: limit["value"] for limit in said["limits"]
    }
    assert shown["serving"] is said["serving"] is True
    assert shown["generation"] == str(said["generation"]) == "2"
    assert "rank 1 died" in shown["last_failure"]
    assert [principal["name"] for principal in shown["principals"]] == [f"uid:{os.getuid()}"]


def test_events_can_be_asked_for_from_where_one_is(daemon: ObservedDaemon) -> None:
    every = ask_json(daemon, "/events.json")
    kinds = {(event["kind"], event["code"]) for event in every["events"]}
    unavailable, invalid = 14, 3
    assert {("run", 0), ("run", unavailable), ("request", invalid), ("plan", 0), ("mesh", 0)} <= kinds
    total = int(every["earlier"]) + len(every["events"])
    later = ask_json(daemon, f"/events.json?after={total - 2}")
    assert later["earlier"] == str(total - 2)
    assert [event["number"] for event in later["events"]] == [event["number"] for event in every["events"][-2:]]
    assert ask_json(daemon, f"/events.json?after={total}") == {"events": [], "earlier": str(total)}
    assert ask(daemon, "/events.json?after=all")[0] == 400


def test_plans_of_programs_that_are_kept(daemon: ObservedDaemon) -> None:
    plans = ask_json(daemon, "/plans.json")
    (program,) = plans["programs"]
    assert (plans["total"], program["name"]) == (1, "sum_over_ranks")
    assert program["requests"] >= 3
    plan = ask_json(daemon, f"/plan.json?id={program['id']}")
    assert [segment["kind"] for segment in plan["segments"]] == ["kernel", "communication"]
    assert [(record["type"], record["bytes_value"]) for record in plan["communications"]] == [("Allreduce", "256")]
    status, _, text = ask(daemon, "/plan.json?id=99")
    assert (status, text) == (404, "No program 99 is kept; /plans.json has those that are.\n")
    assert ask(daemon, "/plan.json")[0] == 400


def test_an_id_is_no_handle(daemon: ObservedDaemon) -> None:
    """Whoever reads the page cannot run a program by it."""
    (program,) = ask_json(daemon, "/plans.json")["programs"]
    everything = "".join(ask(daemon, path)[2] for path in ("/state.json", "/events.json", "/plans.json"))
    with hostir.connect(daemon.address) as client:
        plan = client.explain(sum_over_ranks())
        assert plan.program_id not in everything
        assert plan.program_id != str(program["id"])


def test_nothing_else_is_answered(daemon: ObservedDaemon) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        status, headers, _ = ask(daemon, "/state.json", method)
        assert (status, headers["Allow"]) == (405, "GET, HEAD")
    for path in ("/page.html", "/favicon.ico", "/page.js/", "/state", "/service/metrics/page/page.js"):
        assert ask(daemon, path)[0] == 404, path


def test_a_name_that_means_this_machine(daemon: ObservedDaemon) -> None:
    """A site that has its own name mean 127.0.0.1 makes a visitor's browser ask so."""
    host, port = daemon.metrics_address.rsplit(":", 1)
    for named, status in (("localhost", 200), (daemon.metrics_address, 200), ("example.org", 403)):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(f"GET /state.json HTTP/1.1\r\nHost: {named}\r\n\r\n".encode())
            with connection.makefile("rb") as answer:
                assert int(answer.readline().split()[1]) == status, named


class Dom(html.parser.HTMLParser):
    """Elements of a page as (tag, attributes, text of its own), in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.elements:
            tag, attributes, text = self.elements[-1]
            self.elements[-1] = (tag, attributes, text + data)

    def texts(self, tag: str) -> list[str]:
        return [text.strip() for found, _, text in self.elements if found == tag]

    def of_class(self, name: str) -> list[str]:
        return [tag for tag, attributes, _ in self.elements if attributes.get("class") == name]


def browse(url: str, profile: pathlib.Path) -> Dom:
    """The page after some seconds of the browser's own clock. Fails for what its console has of errors."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    command += ["--enable-logging=stderr", "--virtual-time-budget=4000", "--dump-dom", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=25, check=True)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not console, console
    return Dom(done.stdout)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here (Debian's package `chromium`)")
def test_in_chromium(daemon: ObservedDaemon, tmp_path: pathlib.Path) -> None:
    dom = browse(f"http://{daemon.metrics_address}/", tmp_path)
    cells = dom.texts("td")
    pids = [device["pid"] for device in ask_json(daemon, "/state.json")["devices"]]
    assert len(pids) == 2 and set(pids) <= set(cells)
    assert f"uid:{os.getuid()}" in cells
    assert "serving" in dom.texts("span")
    # The timeline: runs behind their waits, one that failed, the mesh that ended and serves again.
    assert dom.of_class("run") == ["rect"] * 2
    assert dom.of_class("run failed") == ["rect"]
    assert dom.of_class("wait") == ["rect"] * 3
    assert dom.of_class("ended") and dom.of_class("serves")
    # The plan: a box for each segment.
    assert dom.of_class("box kernel") == dom.of_class("box communication") == ["g"]
    assert any(text.startswith("k0: kernel, ") for text in dom.texts("title"))
    # Names of clients are text.
    assert any(HOSTILE[:40] in cell for cell in cells)
    assert [attributes for tag, attributes, _ in dom.elements if tag == "script"] == [{"src": "/page.js", "defer": ""}]
    assert "img" not in {tag for tag, _, _ in dom.elements}
    assert dom.texts("title")[0] == "hostird"


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here (Debian's package `chromium`)")
def test_a_daemon_that_has_gone_is_said(daemon_program: str, tmp_path: pathlib.Path) -> None:
    """Method: a page that the daemon has sent, and files in its place that have no state."""
    folder = tmp_path / "daemon"
    folder.mkdir()
    daemon = ObservedDaemon(daemon_program, folder, devices="cpu:1")
    pages = {path: ask(daemon, path)[2] for path in ("/", "/page.js")}
    daemon.stop()
    gone = (
        pages["/"]
        .replace('<script src="/page.js" defer></script>', "")
        .replace("</body>", f"<script>{pages['/page.js']}</script></body>")
    )
    (tmp_path / "gone.html").write_text(gone)
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    command += ["--virtual-time-budget=3000", "--dump-dom", f"file://{tmp_path}/gone.html"]
    dom = Dom(subprocess.run(command, capture_output=True, text=True, timeout=25, check=True).stdout)
    (alarm,) = [(attributes, text) for _, attributes, text in dom.elements if attributes.get("id") == "gone"]
    assert "hidden" not in alarm[0]
    assert alarm[1].startswith("The daemon has not answered since ")
