"""Where answers go: a stdout that takes nothing."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import pytest

from conftest import BUILD, HOSTIR, Daemon, clean_environment

NEGATE = "fusion @negate(%x: f32[i0]) {\n  %y = neg(%x)\n  return %y\n}\n"
PROGRAM = ["PROGRAM", "--random=1", "--size=i0=2"]
COMMANDS = [
    ["--help"],
    ["--version"],
    ["completion", "bash"],
    ["status"],
    ["status", "--json"],
    ["top", "--once"],
    ["top"],
    ["explain", "PROGRAM", "--json"],
    ["run", *PROGRAM],
    ["bench", *PROGRAM, "--repeat=1", "--json"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_full_disk_is_2(daemon: Daemon, tmp_path: Path, command: list[str]) -> None:
    program = tmp_path / "negate.hir"
    program.write_text(NEGATE)
    arguments = [str(program) if word == "PROGRAM" else word for word in command]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [HOSTIR, *arguments],
            env=clean_environment(HOSTIR_ADDRESS=daemon.address),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "hostir: UNAVAILABLE: cannot write standard output: No space left on device\n"


def no_files_grow() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([HOSTIR, "--help"], "hostir: UNAVAILABLE: cannot write standard output: File too large\n"),
        ([BUILD / "hostir-opt", "--help"], "hostir-opt: cannot write standard output\n"),
        ([BUILD / "hostir-opt", "tests/corpus/rms_norm.hir"], "hostir-opt: cannot write standard output\n"),
    ],
)
def test_a_file_that_may_not_grow_is_2(daemon: Daemon, tmp_path: Path, command: list[Path], message: str) -> None:
    """And does not end the program by a signal."""
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(
            command,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            preexec_fn=no_files_grow,
        )
    assert (done.returncode, done.stderr) == (2, message)
