"""`pip install ./python` needs no compiler: neither with the modules that a build made nor without.

Method: a copy of what it reads of the source tree, a fresh environment that sees the packages of this one, and a PATH
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
    """The Python of a fresh environment beside the packages that hostir needs, and an empty folder."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=100)
    python = tmp_path / "venv/bin/python"
    asked = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path)
    (Path(asked.stdout.strip()) / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    return python, empty


def source(folder: Path) -> Path:
    """What setup.py reads of the source tree, without a build folder."""
    for part in ("python", "proto", "csrc/fusion/fusion_ops.def"):
        target = folder / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, target, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
        else:
            shutil.copy(ROOT / part, target)
    return folder


def has_index(python: Path, empty: Path) -> bool:
    """Whether pip gets at the packages that a build needs."""
    wanted = ["setuptools>=61", "grpcio-tools>=1.51,<1.63"]
    got = run(python, "-m", "pip", "download", "-q", "--no-deps", "--dest", empty.parent / "got", *wanted, cwd=empty)
    return got.returncode == 0


@pytest.mark.parametrize("with_modules", [True, False], ids=["modules of a build", "nothing made"])
def test_install_without_a_compiler(
    tmp_path: Path, bare: tuple[Path, Path], daemon_program: str, with_modules: bool
) -> None:
    python, empty = bare
    tree = source(tmp_path / "tree")
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    if with_modules:
        shutil.copytree(MADE, tree / "build/some/python/hostir")
        outer = Path(sysconfig.get_path("purelib"))
        if not any(outer.glob("wheel*")) and not any(outer.glob("setuptools-[7-9]*")) and not has_index(python, empty):
            pytest.skip("no package wheel here, and no index to get one from")
    elif sys.version_info >= (3, 13):
        pytest.skip("grpcio-tools below 1.63 has no wheels for Python 3.13")
    elif not has_index(python, empty):
        pytest.skip("pip finds no package index, and nothing made is at hand")
    installed = run(*install, tree / "python", cwd=empty, PATH=str(empty))
    assert installed.returncode == 0, installed.stdout + installed.stderr
    ran = run(python, "-c", PROGRAM, cwd=empty, HOSTIR_DAEMON=daemon_program)
    assert ran.returncode == 0, ran.stderr
    where, *values = ran.stdout.split()
    assert Path(where).is_relative_to(tmp_path / "venv")
    assert values == ["4.0", "9.0"]


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
