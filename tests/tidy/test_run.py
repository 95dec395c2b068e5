"""./run without the right to install, and what it tells before it acts.

Method: a copy of the script runs in a temporary folder with a PATH whose first entry holds stand-ins for the
package tools; each stand-in notes how it was called. Nothing is installed.
"""

import os
import pathlib
import shutil
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "run"

# name: body. `dpkg-query` finds everything but mold; `apt-get update` fails the first time.
STAND_INS = {
    "dpkg-query": 'shift 2; for p; do [ "$p" = mold ] || echo "installed $p"; done',
    "apt-get": '[ -e "$CALLS.updated" ] || case "$*" in *update*) touch "$CALLS.updated"; exit 1;; esac',
    "sleep": "",
    "find": "",  # No package lists.
}


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> pathlib.Path:
    shutil.copy(SCRIPT, tmp_path / "run")
    (tmp_path / "bin").mkdir()
    for name, body in STAND_INS.items():
        install(tmp_path, name, body)
    return tmp_path


def install(machine: pathlib.Path, name: str, body: str) -> None:
    path = machine / "bin" / name
    path.write_text(f'#!/bin/bash\necho "{name} $*" >>"$CALLS"\n{body}\n')
    path.chmod(0o755)


def run(machine: pathlib.Path, *args: str, cwd: pathlib.Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{machine}/bin:/usr/bin:/bin",
        "CALLS": f"{machine}/calls",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": "",
    }
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        [machine / "run", *args], env=environment, cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )


def calls(machine: pathlib.Path, tool: str) -> list[str]:
    path = machine / "calls"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if line.startswith(f"{tool} ")]


@pytest.mark.parametrize("command", [["setup"], ["demo"], ["test"], ["python", "-c", "1"]])
def test_without_root_or_sudo_it_prints_the_command_and_exits_2(machine: pathlib.Path, command: list[str]) -> None:
    install(machine, "id", "echo 1000")
    install(machine, "sudo", "exit 1")
    done = run(machine, *command)
    assert done.returncode == 2, done.stderr
    assert "apt-get update && apt-get install -y --no-install-recommends mold\n" in done.stderr
    assert "neither root nor has sudo without a password" in done.stderr
    assert calls(machine, "apt-get") == []


def test_print_only_says(machine: pathlib.Path) -> None:
    done = run(machine, "setup", "--print")
    assert done.returncode == 0, done.stderr
    assert "apt-get install -y --no-install-recommends mold\n" in done.stdout
    assert "to download" in done.stdout and "on disk" in done.stdout
    assert "-m venv .venv" in done.stdout
    assert all("--assume-no" in call for call in calls(machine, "apt-get"))
    assert not (machine / ".venv").exists()


def test_with_sudo_it_updates_again_after_a_failure_and_installs_what_is_missing(machine: pathlib.Path) -> None:
    install(machine, "id", "echo 1000")
    install(machine, "sudo", 'shift; "$@"')
    done = run(machine, "setup")
    made = [call.split()[-1] for call in calls(machine, "apt-get") if "--assume-no" not in call]
    assert made == ["update", "update", "mold"]
    assert "attempt 1 of 3 failed" in done.stderr
    # No index to take Python packages from: three attempts, the reason, and no mark of completeness.
    assert done.returncode == 1
    assert "pip failed three times" in done.stderr
    assert not (machine / ".venv/complete").exists()


def test_a_machine_without_apt_is_told_what_is_needed(machine: pathlib.Path) -> None:
    (machine / "bin/apt-get").unlink()
    for tool in ("bash", "dirname", "date", "env"):
        (machine / "bin" / tool).symlink_to(shutil.which(tool) or "")
    done = subprocess.run(
        ["/bin/bash", machine / "run", "setup"],
        env={"PATH": f"{machine}/bin", "CALLS": f"{machine}/calls"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "no apt" in done.stderr and "mold" in done.stderr


def test_python_runs_where_its_caller_is(machine: pathlib.Path) -> None:
    """Its file and its working directory are the caller's; the client is the checkout's."""
    install(machine, "dpkg-query", 'shift 2; for p; do echo "installed $p"; done')
    program = machine / ".venv/bin/python"
    for path in (program, machine / "build/dev/hostird"):
        path.parent.mkdir(parents=True)
        path.write_text('#!/bin/bash\necho "$PWD" "$PYTHONPATH" "$@"; cat "$1"\n')
        path.chmod(0o755)
    # Sourced, so that its key of a complete environment can be asked for.
    key = "source ./run --help >/dev/null; venv_key >.venv/complete"
    subprocess.run(["bash", "-c", key], cwd=machine, check=True)
    theirs = machine / "elsewhere" / "with a space"
    theirs.mkdir(parents=True)
    (theirs / "mine.py").write_text("print(1)\n")
    done = run(machine, "python", "mine.py", "--in", "data", cwd=theirs)
    assert (done.returncode, done.stderr) == (0, "")
    stubs = f"{machine}/python:{machine}/build/dev/python"
    assert done.stdout == f"{theirs} {stubs} mine.py --in data\nprint(1)\n"


def test_every_command_has_help(machine: pathlib.Path) -> None:
    assert run(machine, "--help").stdout == run(machine).stdout
    commands = "setup build demo test fuzz bench format tidy python docs wheel bundle"
    for command in commands.split():
        done = run(machine, command, "--help")
        assert done.returncode == 0
        assert done.stdout.startswith(f"usage: ./run {command}")
    assert calls(machine, "apt-get") == []


def test_an_unknown_command_is_refused(machine: pathlib.Path) -> None:
    done = run(machine, "tset")
    assert done.returncode == 1
    assert "unknown command: tset" in done.stderr


def test_what_failed_is_told_behind_the_list(machine: pathlib.Path) -> None:
    folder = machine / "build" / "dev" / "Testing" / "Temporary"
    folder.mkdir(parents=True)
    said = "\n".join(f"line {i}" for i in range(20))
    log = "".join(
        f"{i}/3 Testing: {name}\n{i}/3 Test: {name}\nOutput:\n----\n{said}\n{end}\n\n<end of output>\n"
        for i, (name, end) in enumerate([("A.Good", "fine"), ("tests/b.py", "wrong: 4"), ("C.Bad", "wrong: 5")], 1)
    )
    install(
        machine,
        "ctest",
        f"cat >{folder}/LastTest.log <<'END'\n{log}END\n" + f"cp {machine}/failed {folder}/LastTestsFailed.log; exit 8",
    )
    (machine / "failed").write_text("2:tests/b.py\n3:C.Bad\n")
    function = "eval \"$(sed -n '/^run_tests() {/,/^}/p' run)\"; preset=dev; run_tests -j 2"
    environment = os.environ | {"PATH": f"{machine}/bin:{os.environ['PATH']}", "CALLS": str(machine / "calls")}
    done = subprocess.run(["bash", "-ec", function], cwd=machine, env=environment, capture_output=True, text=True)
    shown = "\n".join(f"line {i}" for i in range(9, 20))
    assert done.returncode == 8
    assert done.stderr == f"\n== tests/b.py\n{shown}\nwrong: 4\n\n== C.Bad\n{shown}\nwrong: 5\n"
    assert (machine / "calls").read_text() == "ctest --preset dev -j 2\n"
