"""A private daemon for the tests of one file, and what they share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hostir
from hostir import private_daemon


@pytest.fixture(scope="session")
def daemon_program() -> str:
    """The path of hostird; skips where this build has none."""
    try:
        return private_daemon.find_daemon()
    except hostir.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def client(daemon_program: str) -> Iterator[hostir.Client]:
    """A client of a daemon with four CPU ranks."""
    with hostir.connect(devices="cpu:4", timeout=60) as client:
        yield client
