"""What the built programs contain: no oracle in the service; no compiler and no backend in the daemon."""

import os
import pathlib
import subprocess

import pytest

BUILD = pathlib.Path(os.environ.get("HOSTIR_BUILD_DIR", "build/dev"))


def symbols(program: str) -> str:
    path = BUILD / program
    if not path.exists():
        pytest.skip(f"{program} is not built (no gRPC on this machine?)")
    return subprocess.run(["nm", "-C", str(path)], capture_output=True, text=True, check=True).stdout


def test_the_symbols_of_a_program_can_be_read():
    assert "hir::service" in symbols("hostir-worker")


def test_a_worker_does_not_link_the_interpreter():
    assert "hir::fusion::Interpret" not in symbols("hostir-worker")


@pytest.mark.parametrize("name", ["llvm::", "ucp_", "dnnl_", "hir::codegen::", "hir::fusion::Interpret"])
def test_the_daemon_links_no_compiler_and_no_backend(name):
    assert name not in symbols("hostird")
