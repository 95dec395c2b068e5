"""Each bug of the museum (bugs.py) is put back into a copy of its file, and a test catches it.

The copy is compiled as its original is, and linked before the library that has that. No file of the project changes.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from bugs import BUGS, SEQUENCER, Bug

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("HOSTIR_BUILD_DIR", ROOT / "build" / "dev")).resolve()


def compile_command(file: str, made: Path, headers: Path) -> list[str]:
    """Of ``file`` as it is built, for the object ``made``; ``headers`` go before the project's."""
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        if Path(BUILD, entry["file"]).resolve() == ROOT / file:
            words = [word for word in shlex.split(entry["command"]) if not word.endswith("ccache")]
            words[words.index("-o") + 1] = str(made)
            # A test wants it soon, not fast.
            return [words[0], f"-I{headers}", *words[1:], "-Wno-error", "-O0", "-g0"]
    raise LookupError(file)


def link_command(test: str, made: Path, objects: list[Path]) -> str:
    command = subprocess.run(
        ["ninja", "-t", "commands", f"tests/{test}"], cwd=BUILD, capture_output=True, text=True, check=True
    ).stdout.splitlines()[-1]
    assert f"-o tests/{test} " in command, command
    return command.replace(f"-o tests/{test} ", f"-o {made} {' '.join(map(str, objects))} ")


def build(bug: Bug, folder: Path) -> Path:
    text = (ROOT / bug.file).read_text()
    assert text.count(bug.right) == 1, f"{bug.name}: what it replaces is there {text.count(bug.right)} times"
    copy = folder / bug.file
    copy.parent.mkdir(parents=True)
    copy.write_text(text.replace(bug.right, bug.wrong))
    test = f"tests/service/engine/{bug.test}.cc"
    objects = []
    for source in [bug.file] if bug.file.endswith(".cc") else [SEQUENCER, test]:
        objects.append(folder / f"{Path(source).stem}.o")
        command = compile_command(source, objects[-1], folder)
        if source == bug.file:
            at = next(i for i, word in enumerate(command) if word.endswith(source))
            command[at] = str(copy)
        subprocess.run(command, cwd=BUILD, check=True, capture_output=True, text=True)
    made = folder / bug.test
    command = link_command(bug.test, made, objects)
    if len(objects) > 1:  # The test's own is among them.
        command = re.sub(rf"\S*/{bug.test}\.cc\.o", "", command, count=1)
    subprocess.run(command, cwd=BUILD, shell=True, check=True, capture_output=True, text=True)
    return made


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_test_catches(bug: Bug, tmp_path: Path) -> None:
    program = build(bug, tmp_path)
    environment = {**os.environ, "HOSTIR_SEEDS": "300"}
    done = subprocess.run([program], capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode != 0, f"{bug.name} passes: {bug.story}"
    seen = done.stdout + done.stderr
    assert "[  FAILED  ]" in seen or "HIR_CHECK" in seen or "check failed" in seen, seen[-2000:]
