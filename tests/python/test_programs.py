"""The CUDA libraries of NVIDIA's wheels reach the programs: by folders laid out as those wheels lay theirs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import hostir
from hostir_programs import environment

WHEELS = {  # By the place where each was installed.
    "first": ["cu13/lib/libnvrtc.so.13", "cu13/lib/libnvrtc-builtins.so.13.0", "cu13/lib/libcublasLt.so.13"],
    "second": ["nccl/lib/libnccl.so.2", "cuda_nvrtc/lib/libnvrtc.so.12", "cublas/lib/libcublasLt.so.12"],
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two folders of sys.path that share the namespace package nvidia. No variable names a library."""
    for place, files in WHEELS.items():
        for file in files:
            path = tmp_path / place / "nvidia" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    elsewhere = [folder for folder in sys.path if not Path(folder, "nvidia").is_dir()]
    monkeypatch.setattr(sys, "path", [str(tmp_path / "second"), str(tmp_path / "first"), *elsewhere])
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    for name in ("HOSTIR_NVRTC", "HOSTIR_CUBLASLT", "HOSTIR_CUDNN", "HOSTIR_CUDART", "HOSTIR_NCCL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_the_newest_of_each_is_named(site: Path) -> None:
    assert environment({"PATH": "/bin"}) == {
        "PATH": "/bin",
        "HOSTIR_NVRTC": str(site / "first/nvidia/cu13/lib/libnvrtc.so.13"),
        "HOSTIR_CUBLASLT": str(site / "first/nvidia/cu13/lib/libcublasLt.so.13"),
        "HOSTIR_NCCL": str(site / "second/nvidia/nccl/lib/libnccl.so.2"),
    }


def test_one_that_is_named_stays(site: Path) -> None:
    assert environment({"HOSTIR_NVRTC": "/opt/libnvrtc.so"})["HOSTIR_NVRTC"] == "/opt/libnvrtc.so"


def test_without_wheels_nothing_is_named(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path[2:])
    assert environment({"PATH": "/bin"}) == {"PATH": "/bin"}


def test_a_private_daemon_is_told(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = site / "hostird"
    program.write_text('#!/bin/sh\necho "$HOSTIR_NVRTC,$HOSTIR_CUBLASLT,$HOSTIR_NCCL"; exit 3\n')
    program.chmod(0o755)
    monkeypatch.setenv("HOSTIR_DAEMON", str(program))
    with pytest.raises(hostir.Unavailable) as caught:
        hostir.connect(devices="cuda:all")
    named = str(caught.value).splitlines()[-1].strip().split(",")
    assert [Path(library).name for library in named] == ["libnvrtc.so.13", "libcublasLt.so.13", "libnccl.so.2"]
