"""Makes the generated modules of the package: the protocol's by protoc, what it knows of the op table by op_table.py.
No compiler is needed: protoc comes with grpcio-tools, which pip installs for the build.

Where a build folder of this source tree has them already, they are copied from there.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
MADE = {"_op_table.json": "json", "_pointwise.py": "python"}


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


def generate(out: Path) -> None:
    """Writes v1/ and MADE to the folder `out`, which is a package hostir."""
    protos = sorted(path.relative_to(ROOT / "proto") for path in (ROOT / "proto/hostir/v1").glob("*.proto"))
    outputs = [f"--{kind}_out={out.parent}" for kind in ("python", "pyi", "grpc_python")]
    subprocess.run([*protoc(), "-I", str(ROOT / "proto"), *outputs, *map(str, protos)], check=True)
    for name, form in MADE.items():
        made = subprocess.run([sys.executable, HERE / "op_table.py", form], check=True, stdout=subprocess.PIPE).stdout
        (out / name).write_bytes(made)


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
