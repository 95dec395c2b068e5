"""A private daemon of one CPU rank that runs what tests compile."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import hostir
from hostir import private_daemon


@pytest.fixture(scope="session")
def there_is_a_daemon() -> None:
    """Skips where this build can have none."""
    try:
        private_daemon.find_daemon()
    except hostir.Unavailable as error:
        if os.environ.get("HOSTIR_TESTS_NEED_DAEMON") == "1":
            pytest.fail(f"this build has a service: {error}")
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def client(there_is_a_daemon: None) -> Iterator[hostir.Client]:
    with hostir.connect(devices="cpu:1", timeout=60) as client:
        yield client


@pytest.fixture(autouse=True)
def fresh(client: hostir.Client) -> Iterator[None]:
    """Each test compiles anew, on the daemon of all."""
    import torch

    import hostir.torch

    torch._dynamo.reset()
    torch.manual_seed(0)
    hostir.torch.reset()
    hostir.torch.use(client)
    yield
    hostir.torch.use(None)
