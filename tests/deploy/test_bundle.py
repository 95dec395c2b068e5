"""A bundle runs from an empty folder with an empty environment: the programs, and the examples through its daemon.

It packs the programs of this build ($HOSTIR_BUILD_DIR), without the client's libraries for another Python; or takes the
packed bundle that $HOSTIR_BUNDLE names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("HOSTIR_BUILD_DIR", ""))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked bundle."""
    folder = tmp_path_factory.mktemp("bundle")
    if packed := os.environ.get("HOSTIR_BUNDLE"):
        subprocess.run(["tar", "xf", packed, "-C", folder], check=True)
        return folder / "hostir"
    if not (BUILD / "hostird").exists():
        pytest.skip("this build has no daemon")
    archive = folder / "hostir-bundle.tar.xz"
    make = [sys.executable, ROOT / "deploy/bundle/make_bundle.py", "--build", BUILD, "--out", archive]
    made = subprocess.run([*make, "--wheels-for", "", "--fast"], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    subprocess.run(["tar", "xf", archive, "-C", folder], check=True)
    archive.unlink()
    return folder / "hostir"


def run(bundle: Path, *command: str, **environment: str) -> str:
    """Its output. Nothing of this shell's environment reaches it: no LD_LIBRARY_PATH, no PYTHONPATH."""
    bare = {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, **environment}
    ran = subprocess.run(command, cwd="/", env=bare, capture_output=True, text=True, timeout=250)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_programs_start(bundle: Path) -> None:
    for name in ("hostird", "hostir-worker"):
        assert name in run(bundle, str(bundle / "bin" / name), "--help")


def test_libraries_are_the_bundles(bundle: Path) -> None:
    """The loader takes none from elsewhere but the C library's."""
    allowed = re.compile(r"/(libc|libm|libdl|libpthread|librt|libresolv|libutil|libanl|libmvec|ld-linux-x86-64)\.so\.")
    for name in ("hostird", "hostir-worker"):
        loaded = re.findall(r"=> (\S+)", run(bundle, "/usr/bin/ldd", str(bundle / "bin" / name)))
        assert loaded
        resolved = [os.path.normpath(path) for path in loaded]
        foreign = [p for p in resolved if not p.startswith(str(bundle)) and allowed.search(p) is None]
        assert foreign == []


def test_what_the_unit_and_its_readme_name_is_there(bundle: Path) -> None:
    """With the bundle alone in /opt a daemon is installed, and its documentation is where the unit says."""
    unit = (bundle / "deploy/systemd/hostird@.service").read_text()
    readme = (bundle / "deploy/systemd/README.md").read_text()
    named = set(re.findall(r"/opt/hostir/([\w./@-]+)", unit + readme))
    assert {"docs/configuration.md", "bin/hostird", "deploy/systemd/hostird.toml"} <= named
    assert [path for path in sorted(named) if not (bundle / path).is_file()] == []
    installed = re.findall(r"install -D (\S+)", readme)
    assert installed and all(path.startswith("/opt/hostir/") for path in installed)


def test_no_build_is_needed(bundle: Path) -> None:
    """No path of this source tree is in a program's dynamic section."""
    for name in ("hostird", "hostir-worker"):
        section = run(bundle, "/usr/bin/readelf", "-d", str(bundle / "bin" / name))
        assert str(ROOT) not in section
        assert "(RPATH)" in section and "(RUNPATH)" not in section


def test_the_examples_run(bundle: Path) -> None:
    out = run(bundle, str(bundle / "bin/hostir-python"), str(bundle / "examples/demo.py"), "--devices", "cpu:2")
    assert "WRONG" not in out
    assert out.count(" ms ") >= 3, out


def test_in_a_root_of_its_own(bundle: Path, tmp_path: Path) -> None:
    """The daemon starts its workers where there is nothing but the C library and the bundle."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root, for chroot")
    root = tmp_path / "root"
    for name in ("ld-linux-x86-64", "libc", "libm", "libdl", "libpthread", "librt", "libresolv", "libutil", "libanl"):
        for folder in ("/lib64", "/lib/x86_64-linux-gnu"):
            for library in Path(folder).glob(f"{name}.so.*"):
                target = root / folder.lstrip("/") / library.name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, target)
    shutil.copytree(bundle, root / "hostir")
    for folder in ("proc", "tmp", "dev"):
        (root / folder).mkdir()
    script = (
        f"mount -t proc proc {root}/proc && exec chroot {root} /hostir/bin/hostird --devices=cpu:2 "
        "--listen=unix:/tmp/hostir/socket --ready-fd=1 --alive-fd=0"
    )
    daemon = subprocess.Popen(
        ["unshare", "--mount", "--pid", "--fork", "sh", "-c", script],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    out, _ = daemon.communicate("", timeout=60)  # The end of its input is the end of the daemon.
    assert "unix:/tmp/hostir/socket" in out.split("\n"), out
