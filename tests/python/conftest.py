"""A private daemon for the tests of one file, and what they share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import hostir
from hostir import private_daemon


@pytest.fixture(scope="session")
def daemon_program() -> str:
    """The path of hostird. Skips where this build can have none."""
    try:
        return private_daemon.find_daemon()
    except hostir.Unavailable as error:
        if os.environ.get("HOSTIR_TESTS_NEED_DAEMON") == "1":
            pytest.fail(f"this build has a service: {error}")
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def client(daemon_program: str) -> Iterator[hostir.Client]:
    """A client of a daemon with four CPU ranks."""
    with hostir.connect(devices="cpu:4", timeout=60) as client:
        yield client
