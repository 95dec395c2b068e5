"""A private daemon for the tests of JAX programs, and the comparison with JAX as a fixture."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hostir
from hostir import private_daemon

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # Before a test file imports it.


@pytest.fixture(scope="session")
def client() -> Iterator[hostir.Client]:
    """A client of a daemon with four CPU ranks. Skips where this build can have none."""
    try:
        private_daemon.find_daemon()
    except hostir.Unavailable as error:
        if os.environ.get("HOSTIR_TESTS_NEED_DAEMON") == "1":
            pytest.fail(f"this build has a service: {error}")
        pytest.skip(str(error))
    with hostir.connect(devices="cpu:4", timeout=60) as client:
        yield client


@pytest.fixture()
def same(client: hostir.Client) -> Callable[..., None]:
    """Whether a function has the results that JAX finds for it."""
    import jax

    from beside_jax import assert_close

    def check(function: Callable[..., Any], *args: Any, tolerance: float = 2e-6) -> None:
        assert_close(hostir.jax.jit(function, client=client)(*args), jax.jit(function)(*args), tolerance)

    return check
