"""Makes the generated modules of the package: the protocol's by protoc, the pointwise operations by the C++ compiler.

Where a build folder of this source tree has them already, they are copied from there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent.parent
MADE = ["_op_table.json", "_pointwise.py"]


def need(program: str, package: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise SystemExit(
            f"hostir: {program} is missing (Debian package {package}), and no build folder has the generated modules; "
            f"install it, or run ./run build python_stubs first"
        )
    return path


def generate(out: Path) -> None:
    """Writes v1/ and MADE to the folder `out`, which is a package hostir."""
    protos = sorted(path.relative_to(ROOT / "proto") for path in (ROOT / "proto/hostir/v1").glob("*.proto"))
    protoc, plugin = need("protoc", "protobuf-compiler"), need("grpc_python_plugin", "protobuf-compiler-grpc")
    outputs = [f"--{kind}_out={out.parent}" for kind in ("python", "pyi", "grpc")]
    plugins = [f"--plugin=protoc-gen-grpc={plugin}"]
    subprocess.run([protoc, "-I", str(ROOT / "proto"), *outputs, *plugins, *map(str, protos)], check=True)
    compiler = os.environ.get("CXX") or need("g++", "g++")
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/op_table"
        source = str(ROOT / "csrc/fusion/op_table_main.cc")
        subprocess.run([compiler, "-std=c++20", "-I", str(ROOT), source, "-o", program], check=True)
        for name, form in zip(MADE, ("json", "python"), strict=True):
            (out / name).write_bytes(subprocess.run([program, form], check=True, stdout=subprocess.PIPE).stdout)


class Build(build_py):
    def run(self) -> None:
        super().run()
        out = Path(self.build_lib) / "hostir"
        (out / "v1").mkdir(parents=True, exist_ok=True)
        (out / "v1" / "__init__.py").touch()
        built = [path.parent for path in ROOT.glob("build/*/python/hostir/_pointwise.py")]
        if not built:
            generate(out)
            return
        newest = max(built, key=lambda path: (path / "_pointwise.py").stat().st_mtime)
        for path in (*newest.glob("v1/*_pb2*.py*"), *(newest / name for name in MADE)):
            shutil.copy(path, out / path.relative_to(newest))


setup(cmdclass={"build_py": Build})
