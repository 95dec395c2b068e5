"""The files of deploy/containers: each step names what there is; and hostird as the first process of a container."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("HOSTIR_BUILD_DIR", "build/dev")).resolve()
sys.path += [str(ROOT / "tests/python"), str(ROOT / "deploy/bundle")]
from eventually import eventually  # noqa: E402
from make_bundle import OPTIONAL_PROGRAMS, PROGRAMS  # noqa: E402

KINDS = ("cpu", "cuda")
Step = tuple[str, str]  # "COPY", "--from=bundle /bundle/hostir/lib /opt/hostir/lib"


def stages(kind: str) -> list[tuple[str, list[Step]]]:
    """(what it is made from, its name), and its steps; the first is of what precedes them all."""
    text = (ROOT / f"deploy/containers/Containerfile.{kind}").read_text()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found: list[tuple[str, list[Step]]] = [("", [])]
    for line in whole.splitlines():
        if not line.strip():
            continue
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append((rest, []))
        else:
            found[-1][1].append((word, rest.strip()))
    return found


def last(kind: str) -> dict[str, list[str]]:
    """The steps of the stage that is the image."""
    steps: dict[str, list[str]] = {}
    for word, rest in stages(kind)[-1][1]:
        steps.setdefault(word, []).append(rest)
    return steps


@pytest.mark.parametrize("kind", KINDS)
def test_stages_name_what_comes_before(kind: str) -> None:
    named: set[str] = set()
    arguments = {rest.partition("=")[0] for word, rest in stages(kind)[0][1] if word == "ARG"}
    assert arguments == {"DEBIAN", "BUNDLE"}
    for made_from, steps in stages(kind)[1:]:
        base, _, name = made_from.partition(" AS ")
        variable = re.fullmatch(r"\$\{(\w+)\}", base)
        assert variable is not None and variable[1] in arguments
        for word, rest in steps:
            if word == "COPY" and (source := re.match(r"--from=(\w+) ", rest)):
                assert source[1] in named
        named.add(name)
    assert {"built", "ready", "bundle"} <= named
    default = next(rest for word, rest in stages(kind)[0][1] if rest.startswith("BUNDLE="))
    assert default.partition("=")[2] in named


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_copied_is_in_a_bundle(kind: str) -> None:
    copied = [words for rest in last(kind)["COPY"] for words in [rest.split()] if words[0] == "--from=bundle"]
    sources = {source.removeprefix("/bundle/hostir/") for words in copied for source in words[1:-1]}
    programs = {f"bin/{name}" for name in (*PROGRAMS, *OPTIONAL_PROGRAMS)}
    assert sources <= {"LICENSE", "licences", "lib"} | programs
    assert {"lib", "licences", "bin/hostird", "bin/hostir-worker", "bin/hostir"} <= sources
    # Programs find libraries beside them.
    places = {words[-1].rstrip("/") for words in copied}
    assert places == {"/opt/hostir", "/opt/hostir/licences", "/opt/hostir/lib", "/opt/hostir/bin"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_image_is_bare(kind: str) -> None:
    """No packages, caches or tools of builds come with it; its user is a number, which runAsNonRoot can tell."""
    steps = last(kind)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", steps["USER"][-1])
    assert not [rest for rest in steps["RUN"] if "apt" in rest or "pip" in rest]
    assert not steps.get("ADD")
    assert json.loads(steps["ENTRYPOINT"][0]) == ["hostird"]
    assert steps["STOPSIGNAL"] == ["SIGTERM"]
    labels = dict(word.split("=", 1) for word in shlex.split(steps["LABEL"][0]))
    assert labels["org.opencontainers.image.title"] == f"hostir-{kind}"
    assert f'"{labels["org.opencontainers.image.version"]}"' in (ROOT / "csrc/base/version.h").read_text()


def test_both_kinds_differ_in_cuda_alone() -> None:
    """The steps of the CPU image are all in the other, in their order."""
    alike = [step for step in stages("cpu")[-1][1] if step[0] not in ("LABEL", "HEALTHCHECK")]
    others = iter(stages("cuda")[-1][1])
    assert [step for step in alike if step not in others] == []


def test_cuda_comes_by_the_wheels_packages() -> None:
    """The versions that pip install hostir[cuda13] takes."""
    (extra,) = re.findall(r"^cuda13 = \[(.*)\]", (ROOT / "python/pyproject.toml").read_text(), re.M)
    wanted = set(re.findall(r'"([^"]+)"', extra))
    installed = {
        word for _, steps in stages("cuda") for _, rest in steps for word in re.findall(r"'(nvidia-[^']+)'", rest)
    }
    assert installed and installed <= wanted


@pytest.mark.parametrize("kind", KINDS)
def test_the_health_check_is_a_command_of_hostir(kind: str) -> None:
    if not (BUILD / "hostir").exists() and not os.environ.get("HOSTIR_TESTS_NEED_DAEMON"):
        pytest.skip("this build has no daemon")
    flags, _, command = last(kind)["HEALTHCHECK"][0].partition(" CMD ")
    assert "--start-period=" in flags
    program, *words = json.loads(command)
    assert program == "hostir"
    done = subprocess.run([BUILD / program, *words, "--help"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_the_context_has_the_bundle_and_no_build() -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert {".git", ".venv", "build/*"} <= set(ignored)
    (added,) = [rest.split()[0] for _, steps in stages("cpu") for word, rest in steps if word == "ADD"]
    assert ignored.index("build/*") < ignored.index(f"!{added}")


# --- the first process ------------------------------------------------------------------------------------------------


class Container:
    """hostird as process 1 of a namespace of processes."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o700)
        self.address = f"unix:{folder}/socket"
        alone = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = [*alone, str(BUILD / "hostird"), "--devices=cpu:2", f"--listen={self.address}"]
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self.outer = subprocess.Popen(command, stdout=log, stderr=log)
        eventually(lambda: " ready address=" in self.log() or self.outer.poll() is not None)
        assert self.outer.poll() is None, self.log()
        (self.first,) = self.children(self.outer.pid)

    def log(self) -> str:
        return self._log.read_text()

    @staticmethod
    def children(pid: int) -> list[int]:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    if not (BUILD / "hostird").exists() and not os.environ.get("HOSTIR_TESTS_NEED_DAEMON"):
        pytest.skip("this build has no daemon")
    if (
        shutil.which("unshare") is None
        or subprocess.run(["unshare", "--pid", "--fork", "true"], check=False).returncode
    ):
        pytest.skip("this user can make no namespace of processes")
    made = Container(tmp_path)
    yield made
    made.outer.kill()
    made.outer.wait()


def state(pid: int) -> str:
    """ "S", "Z", ...; "": there is no such process."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return re.search(r"^State:\s+(\w)", Path(f"/proc/{pid}/status").read_text(), re.M)[1]
    return ""


def test_sigterm_to_the_first_process_drains(container: Container) -> None:
    os.kill(container.first, signal.SIGTERM)
    assert container.outer.wait(timeout=60) == 0, container.log()
    assert " draining" in container.log() and " stopped" in container.log()


def test_orphans_are_reaped(container: Container) -> None:
    """A process whose parent has ended is the first one's."""
    before = set(container.children(container.first))
    read, held = os.pipe()  # The orphan lives for as long as `held` is open.
    enter = ["nsenter", f"--target={container.first}", "--pid", "--mount"]
    with os.fdopen(held, "wb"):
        subprocess.run([*enter, "sh", "-c", "exec 3<&0; cat <&3 >/dev/null &"], stdin=read, check=True)
        os.close(read)
        (orphan,) = eventually(lambda: set(container.children(container.first)) - before)
        assert state(orphan) in {"R", "S", "D"}
    eventually(lambda: state(orphan) == "")
    assert subprocess.run([BUILD / "hostir", "health", "--address", container.address], check=False).returncode == 0


def test_the_daemons_end_is_the_containers(container: Container) -> None:
    (daemon,) = container.children(container.first)
    os.kill(daemon, signal.SIGKILL)
    assert container.outer.wait(timeout=60) == 128 + signal.SIGKILL
