"""How pip builds the client: setuptools, and the generated modules that the package takes along. No compiler is needed.

They are the protocol's (`hostir/v1`, by protoc) and what op_table.py makes of the op table. They come from

  made/hostir       which a source distribution carries, so that it needs setuptools alone;
  a build folder    $HOSTIR_BUILD_DIR, else the newest of this source tree;
  protoc            of grpcio-tools, which pip fetches where there is neither of these, or of this machine.

Modules by protoc 3.21, which Debian 12 has and which made those of the first two, run with every protobuf since 4.21.
Newer ones refuse a protobuf and a gRPC that are older than they are: `requirements` then says so.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from setuptools.build_meta import build_editable, build_sdist, build_wheel, prepare_metadata_for_build_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

__all__ = ["build_editable", "build_sdist", "build_wheel", "prepare_metadata_for_build_wheel"]

HERE = Path(__file__).resolve().parent
CARRIED = HERE / "made/hostir"
ROOT = HERE if CARRIED.is_dir() else HERE.parent  # Of the sources.
FROM_TABLE = {"_op_table.json": "json", "_pointwise.py": "python"}
TABLE = "csrc/fusion/fusion_ops.def"


def made() -> Path | None:
    """A package hostir of generated modules alone; none where they are yet to be generated."""
    if CARRIED.is_dir():
        return CARRIED
    if named := os.environ.get("HOSTIR_BUILD_DIR"):
        return Path(named).resolve() / "python/hostir"
    built = [path.parent for path in ROOT.glob("build/*/python/hostir/_pointwise.py")]
    return max(built, key=lambda path: (path / "_pointwise.py").stat().st_mtime, default=None)


def protoc() -> list[str]:
    """The beginning of a command line: protoc that makes gRPC's modules, too."""
    if importlib.util.find_spec("grpc_tools") is not None:
        return [sys.executable, "-m", "grpc_tools.protoc"]
    program, plugin = shutil.which("protoc"), shutil.which("grpc_python_plugin")
    if program is None or plugin is None:
        raise SystemExit(
            "hostir: no protoc: neither grpcio-tools (pip install grpcio-tools) nor protoc with grpc_python_plugin "
            "(Debian packages protobuf-compiler, protobuf-compiler-grpc) is installed, and no build folder has the "
            "generated modules (./run build python_stubs)"
        )
    return [program, f"--plugin=protoc-gen-grpc_python={plugin}"]


@functools.cache
def modules() -> Path:
    """As made(), which are generated first where there are none."""
    if (found := made()) is not None:
        return found
    out = HERE / "build/made/hostir"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    protos = sorted(path.relative_to(ROOT / "proto") for path in (ROOT / "proto/hostir/v1").glob("*.proto"))
    outputs = [f"--{kind}_out={out.parent}" for kind in ("python", "pyi", "grpc_python")]
    subprocess.run([*protoc(), "-I", str(ROOT / "proto"), *outputs, *map(str, protos)], check=True)
    for name, form in FROM_TABLE.items():
        maker = [sys.executable, HERE / "op_table.py", form, ROOT / TABLE]
        (out / name).write_bytes(subprocess.run(maker, check=True, stdout=subprocess.PIPE).stdout)
    return out


def copy_modules(package: Path, out: Path) -> None:
    (out / "v1").mkdir(parents=True, exist_ok=True)
    (out / "v1" / "__init__.py").touch()
    for path in (*package.glob("v1/*_pb2*.py*"), *(package / name for name in FROM_TABLE)):
        shutil.copy(path, out / path.relative_to(package))


def requirements(package: Path) -> list[str]:
    """The packages that the client runs with. No upper bounds: nothing newer is known to fail."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(package.glob("v1/*.py")))
    protobuf = re.search(r"^# Protobuf Python Version: ([\d.]+)", text, re.M)
    grpc = re.search(r"^GRPC_GENERATED_VERSION = '([\d.]+)", text, re.M)
    return [
        "numpy>=1.26",
        "ml_dtypes>=0.4",
        f"grpcio>={grpc[1] if grpc else '1.51'}",
        f"protobuf>={protobuf[1] if protobuf else '4.21.12'}",
    ]


class BuildPy(build_py):
    def run(self) -> None:
        super().run()
        copy_modules(modules(), Path(self.build_lib) / "hostir")


class Sdist(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        out = Path(base_dir)
        copy_modules(modules(), out / "made/hostir")
        for name in ("backend.py", "op_table.py"):
            shutil.copy(HERE / name, out)
        for source in (ROOT / TABLE, *(ROOT / "proto/hostir/v1").glob("*.proto")):
            target = out / source.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def _for_build(config: Mapping[str, object] | None = None) -> list[str]:
    """Beside pyproject.toml's: setuptools would run setup.py to ask, which protoc is needed for."""
    return [] if made() else ["grpcio-tools>=1.51"]


get_requires_for_build_wheel = get_requires_for_build_sdist = get_requires_for_build_editable = _for_build
