"""A wheel is all that a program needs: installed into a fresh environment, with an empty PATH, in an empty folder.

It packs the programs of this build ($HOSTIR_BUILD_DIR); or takes the wheel that $HOSTIR_WHEEL names. The environment is
its own but for NumPy, gRPC and the like, which are of the Python that runs this: no index is asked.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("HOSTIR_BUILD_DIR", "")).resolve()
sys.path.append(str(ROOT / "deploy/bundle"))
from binaries import check, elves, newest_glibc  # noqa: E402


@dataclass
class Installed:
    environment: Path
    packages: Path  # site-packages
    empty: Path

    def run(self, *command: str | Path) -> str:
        """Its output. The program is of the environment; nothing of this shell reaches it."""
        program, *arguments = command
        ran = subprocess.run(
            [self.environment / "bin" / program, *arguments],
            cwd=self.empty,
            env={"PATH": str(self.empty), "HOME": str(self.empty)},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if made := os.environ.get("HOSTIR_WHEEL"):
        return Path(made).resolve()
    if not (BUILD / "hostird").exists():
        pytest.skip("this build has no daemon")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, ROOT / "deploy/bundle/make_wheel.py", "--build", BUILD, "--out", folder, "--fast"]
    packed = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert packed.returncode == 0, packed.stdout + packed.stderr
    (wheel,) = folder.iterdir()
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True, timeout=100)
    (packages,) = folder.glob("venv/lib/python3*/site-packages")
    (packages / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (folder / "empty").mkdir()
    installed = Installed(folder / "venv", packages, folder / "empty")
    installed.run("python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", wheel)
    return installed


def test_the_readmes_program(installed: Installed) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    program = installed.environment / "program.py"
    program.write_text(block + "print(hostir.__file__)\n")
    *_, printed, where = installed.run("python", program).splitlines()
    assert printed == "Sharding(DeviceMesh([0, 1, 2, 3]), {1: 'mesh_x'}) (64, 1024)"
    assert Path(where).parent == installed.packages / "hostir"


def test_the_command_line_explains(installed: Installed) -> None:
    program = ROOT / "tests/corpus/transformer_layer_tensor_parallel.hir"
    explained = installed.run("hostir", "explain", program, "--devices", "cpu:4")
    assert "allreduce" in explained, explained


def test_the_daemon_starts(installed: Installed) -> None:
    assert re.fullmatch(r"hostird \d+\.\d+\.\d+\n", installed.run("hostird", "--version"))
    assert "listen = " in installed.run("hostird", "--check-config")


def test_the_loader_takes_nothing_from_elsewhere_but_the_c_library(installed: Installed) -> None:
    package = installed.packages / "hostir"
    allowed = re.compile(r"/(libc|libm|libdl|libpthread|librt|libresolv|libutil|libanl|libmvec|ld-linux-x86-64)\.so\.")
    for name in ("hostird", "hostir-worker", "hostir"):
        bare = {"PATH": "/usr/bin:/bin"}
        listed = subprocess.run(["ldd", package / "bin" / name], env=bare, capture_output=True, text=True, check=True)
        loaded = [os.path.normpath(path) for path in re.findall(r"=> (\S+)", listed.stdout)]
        assert loaded
        assert [p for p in loaded if not p.startswith(str(package)) and allowed.search(p) is None] == []


def test_plugins_are_the_wheels(installed: Installed) -> None:
    """UCX and hwloc look for none where another version of them may be."""
    package = installed.packages / "hostir"
    if (package / "lib/libucs.so.0").exists():
        assert [path.name for path in (package / "lib/ucx").iterdir()] == ["libuct_cma.so.0"]
    code = "import hostir_programs as p; e = p.environment(); print(e['UCX_MODULE_DIR'], e['HWLOC_PLUGINS_PATH'])"
    assert installed.run("python", "-c", code) == f"{package}/lib/ucx {package}/lib\n"


def test_its_tag_is_true_and_one_that_lies_is_refused(wheel: Path, installed: Installed) -> None:
    named = re.search(r"-py3-none-manylinux_(\d+)_(\d+)_x86_64\.whl$", wheel.name)
    assert named is not None
    promised = int(named[1]), int(named[2])
    package = installed.packages / "hostir"
    newest = max(newest_glibc(elf) for elf in elves(package))
    assert newest <= promised
    older = newest[0], newest[1] - 1
    said = rf"needs glibc {newest[0]}\.{newest[1]}, newer than the {older[0]}\.{older[1]} that is promised"
    with pytest.raises(SystemExit, match=said):
        check(package, older)


def test_the_readme_names_it(wheel: Path) -> None:
    assert f"pip install build/{wheel.name}\n" in (ROOT / "README.md").read_text()


def test_its_record_is_of_its_files(installed: Installed) -> None:
    """Package managers verify by it, and remove by it."""
    (info,) = installed.packages.glob("hostir-*.dist-info")
    rows = [row for row in csv.reader((info / "RECORD").open()) if not row[0].startswith("..") and row[1]]
    assert {"hostir/bin/hostir-worker", "hostir_programs.py", "hostir/v1/service_pb2.py"} <= {row[0] for row in rows}
    for name, said, size in rows:
        data = (installed.packages / name).read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert (said, int(size)) == (f"sha256={digest}", len(data)), name
