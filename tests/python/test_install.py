"""The client installs without a compiler: from the source tree, with the modules that a build made and without, and
from a source distribution in a folder that holds nothing else.

Method: a copy of what is read of the source tree, a fresh environment that sees the packages of this one, and a PATH
that is an empty folder. Then a program of an empty folder runs on the hostird of the build by what was installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import hostir
from hostir import private_daemon

ROOT = Path(__file__).resolve().parents[2]
MADE = Path(os.environ.get("HOSTIR_BUILD_DIR", "build/dev")).resolve() / "python/hostir"
PROGRAM = """
import sys, numpy as np, hostir
with hostir.FusionDefinition() as fd:
    x = fd.define_tensor(shape=[-1, 3], contiguity=True, dtype=hostir.DataType.Float)
    fd.add_output(fd.ops.sum(fd.ops.relu(x), [1]))
with hostir.connect(devices="cpu:2") as client:
    (y,) = client.run(fd, [np.array([[1, -2, 3], [4, 5, -6]], np.float32)])
    print(hostir.__file__, *y.numpy())
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    proxies = {name: value for name, value in os.environ.items() if name.upper().endswith(("_PROXY", "_CERT"))}
    settings = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    return subprocess.run(
        command,
        cwd=cwd,
        env={**proxies, **settings, "HOME": str(cwd), **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.fixture
def bare(tmp_path: Path) -> tuple[Path, Path]:
    """The Python of a fresh environment beside the packages of this one, pip among them, and an empty folder."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, timeout=100)
    python = tmp_path / "venv/bin/python"
    asked = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path)
    (Path(asked.stdout.strip()) / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    return python, empty


def source(folder: Path) -> Path:
    """What backend.py reads of the source tree, without a build folder."""
    for part in ("python", "proto", "csrc/fusion/fusion_ops.def"):
        target = folder / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, target, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
        else:
            shutil.copy(ROOT / part, target)
    return folder


def install(python: Path, empty: Path, *arguments: str | Path) -> list[str]:
    """Installs, runs PROGRAM by it, and answers what the package says that it needs."""
    command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    installed = run(*command, *arguments, cwd=empty, PATH=str(empty))
    assert installed.returncode == 0, installed.stdout + installed.stderr
    ran = run(python, "-c", PROGRAM, cwd=empty, HOSTIR_DAEMON=private_daemon.find_daemon())
    assert ran.returncode == 0, ran.stderr
    where, *values = ran.stdout.split()
    assert Path(where).is_relative_to(python.parent.parent)
    assert values == ["4.0", "9.0"]
    asked = run(python, "-c", "import importlib.metadata as m; print(*m.requires('hostir'), sep='\\n')", cwd=empty)
    return asked.stdout.splitlines()


SOURCES = ["proto/hostir/v1/service.proto", "csrc/fusion/fusion_ops.def", "op_table.py", "backend.py", "setup.py"]
WIDEST = ["numpy>=1.26", "ml_dtypes>=0.4", "grpcio>=1.51", "protobuf>=4.21.12"]


def test_from_the_source_tree_with_the_modules_of_a_build(
    tmp_path: Path, bare: tuple[Path, Path], daemon_program: str
) -> None:
    tree = source(tmp_path / "tree")
    shutil.copytree(MADE, tree / "build/some/python/hostir")
    assert install(*bare, "--no-build-isolation", "--no-index", tree / "python")[:4] == WIDEST


def test_from_the_source_tree_with_nothing_made(tmp_path: Path, bare: tuple[Path, Path], daemon_program: str) -> None:
    """Modules of a newer protoc refuse older packages: pip gets what they want."""
    python, empty = bare
    wanted = ["setuptools>=77", "grpcio-tools>=1.51"]
    got = run(python, "-m", "pip", "download", "-q", "--no-deps", "--dest", tmp_path / "got", *wanted, cwd=empty)
    if got.returncode != 0:
        pytest.skip("pip finds no package index, and nothing made is at hand")
    (tools,) = (tmp_path / "got").glob("grpcio_tools-*")
    needs = install(python, empty, source(tmp_path / "tree") / "python")
    assert f"grpcio>={tools.name.split('-')[1]}" in needs, needs
    assert "protobuf>=4.21.12" not in needs, needs


def test_from_a_source_distribution_alone(tmp_path: Path, bare: tuple[Path, Path], daemon_program: str) -> None:
    python, empty = bare
    tree = source(tmp_path / "tree")
    shutil.copytree(MADE, tree / "build/some/python/hostir")
    packed = run(sys.executable, "setup.py", "-q", "sdist", "--dist-dir", empty, cwd=tree / "python")
    assert packed.returncode == 0, packed.stderr
    shutil.rmtree(tree)
    (archive,) = empty.iterdir()
    assert install(python, empty, "--no-build-isolation", "--no-index", archive)[:4] == WIDEST
    carried = run("/bin/tar", "tf", archive, cwd=empty).stdout.split()
    assert {f"hostir-{hostir.__version__}/{name}" for name in SOURCES} <= set(carried)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    """Without grpcio-tools, protoc and a build."""
    tree = source(tmp_path / "tree")
    code = (
        "import sys; sys.modules['grpc_tools'] = None; sys.argv = ['setup.py', 'build']; __file__ = 'setup.py'; "
        "exec(open('setup.py').read())"
    )
    ran = run(sys.executable, "-c", code, cwd=tree / "python", PATH=str(tmp_path))
    assert ran.returncode != 0
    assert "grpcio-tools" in ran.stderr and "./run build python_stubs" in ran.stderr, ran.stderr
