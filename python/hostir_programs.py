"""The programs that a wheel carries in the package hostir, as console scripts, and the CUDA libraries they may load.

A module of its own: the package's import takes NumPy and gRPC, a fifth of a second for every ``hostir top``.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

# The variable that names a library to the programs, and its file in NVIDIA's wheels: nvidia/cu13/lib, .../nccl/lib
_CUDA = {
    "HOSTIR_NVRTC": "libnvrtc.so.",
    "HOSTIR_CUBLASLT": "libcublasLt.so.",
    "HOSTIR_CUDNN": "libcudnn.so.",
    "HOSTIR_CUDART": "libcudart.so.",
    "HOSTIR_NCCL": "libnccl.so.",
}


_PACKAGE = Path(__file__).resolve().parent / "hostir"


def _newest(file: str) -> Path | None:
    """The library ``file`` + major version in NVIDIA's wheels of this Python, where no loader looks."""
    nvidia = importlib.util.find_spec("nvidia")
    folders = [] if nvidia is None else nvidia.submodule_search_locations or []
    found = [path for folder in folders for path in sorted(Path(folder).glob(f"*/lib/{file}*"))]
    numbered = {int(version): path for path in reversed(found) if (version := path.name[len(file) :]).isdecimal()}
    return numbered[max(numbered)] if numbered else None


def environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """``given`` (``os.environ``) for a program of ours. Where it does not say otherwise CUDA's libraries are what this
    Python has by wheels (``pip install hostir[cuda13]``; PyTorch and JAX bring them, too), and the plugins of UCX and
    hwloc those that are packed: they would also load the machine's, of whatever version."""
    found = {variable: _newest(file) for variable, file in _CUDA.items()}
    if (packed := _PACKAGE / "lib").is_dir():
        found |= {"UCX_MODULE_DIR": packed / "ucx", "HWLOC_PLUGINS_PATH": packed}
    return {name: str(path) for name, path in found.items() if path} | dict(os.environ if given is None else given)


def _become(name: str) -> NoReturn:
    program = str(_PACKAGE / "bin" / name)
    os.execve(program, [program, *sys.argv[1:]], environment())


def hostir() -> NoReturn:
    _become("hostir")


def hostird() -> NoReturn:
    _become("hostird")
