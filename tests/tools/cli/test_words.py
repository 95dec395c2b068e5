"""Help, version and completion: the words of hostir. GOLDEN_UPDATE=1 rewrites help/*.txt."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import HOSTIR, good

HELP = Path(__file__).parent / "help"
COMMANDS = [
    *("run", "replay", "explain", "diff", "status", "health", "top", "drain", "undrain"),
    *("dump", "bench", "certs", "completion"),
]

pytestmark = pytest.mark.skipif(
    not HOSTIR.exists() and not os.environ.get("HOSTIR_TESTS_NEED_DAEMON"), reason="hostir is not built"
)


@pytest.mark.parametrize("command", ["hostir", *COMMANDS])
def test_help_is_the_golden_one(command):
    said = good("--help") if command == "hostir" else good(command, "--help")
    golden = HELP / f"{command}.txt"
    if os.environ.get("GOLDEN_UPDATE"):
        golden.write_text(said)
    assert said == golden.read_text()
    assert "Exit codes" in said or command in ("certs", "completion")
    if command != "hostir":
        assert f"  hostir {command} " in said or f"hostir {command}\n" in said, "an example"


def test_version():
    assert good("--version") == "hostir 0.1.0\n"


def options_of(command: str) -> set[str]:
    return set(re.findall(r"^\s+(?:-h,)?(--[a-z-]+)", good(command, "--help"), re.M))


def complete(*words: str, cwd: Path | None = None) -> set[str]:
    """What bash offers for the last of `words`."""
    script = (
        f'source <("{HOSTIR}" completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _hostir; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    command = ["bash", "--norc", "-c", script, "bash", *words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return set(filter(None, done.stdout.split("\n")))


def test_bash_completes_commands():
    assert complete("hostir", "") == {*COMMANDS, "--help", "--version"}
    assert complete("hostir", "st") == {"status"}
    assert complete("hostir", "nothing") == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_bash_completes_the_options_that_help_shows(command):
    offered = complete("hostir", command, "--")
    assert offered == options_of(command)


def test_bash_completes_values(tmp_path):
    (tmp_path / "a.hir").touch()
    (tmp_path / "a.txt").touch()
    (tmp_path / "folder").mkdir()
    assert complete("hostir", "completion", "") == {"bash", "zsh", "fish"}
    assert complete("hostir", "completion", "z") == {"zsh"}
    assert complete("hostir", "run", "", cwd=tmp_path) == {"a.hir", "folder/"}
    assert complete("hostir", "run", "a.hir", "--in", "", cwd=tmp_path) == {"folder"}
    assert complete("hostir", "explain", "a.hir", "--svg", "a.", cwd=tmp_path) == {"a.hir", "a.txt"}
    assert complete("hostir", "run", "a.hir", "--random", "") == set()


def test_bash_completes_files_of_any_name(tmp_path):
    for name in ("my prog.hir", "*.hir", "b.hir"):
        (tmp_path / name).touch()
    (tmp_path / "my folder").mkdir()
    assert complete("hostir", "run", "", cwd=tmp_path) == {"my prog.hir", "*.hir", "b.hir", "my folder/"}
    assert complete("hostir", "run", "a.hir", "--in", "", cwd=tmp_path) == {"my folder"}


def test_zsh_offers_again_what_may_be_repeated():
    script = good("completion", "zsh")
    assert script.count("'*--size[") == script.count("--size[") == 4
    assert "'*--in[" not in script


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_their_script(shell, tmp_path):
    script = tmp_path / f"hostir.{shell}"
    script.write_text(good("completion", shell))
    for command in COMMANDS:
        for option in options_of(command):
            assert option.removeprefix("--") in script.read_text()
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine: what it says was not tried")
    done = subprocess.run([shell, "-n", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
