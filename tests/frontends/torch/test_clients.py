"""Where a graph runs when nobody has said it; the daemons on GPUs are stood in for by one on a CPU."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: ./run setup --torch")

import hostir  # noqa: E402
import hostir.torch  # noqa: E402
from hostir.torch import clients  # noqa: E402


@pytest.fixture(autouse=True)
def nobody_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    hostir.torch.use(None)
    monkeypatch.delenv("HOSTIR_ADDRESS", raising=False)
    monkeypatch.setattr(clients, "_on_gpus", {})
    monkeypatch.setattr(clients, "_refused", {})


def given(*devices: str) -> tuple[torch.nn.Module, list[torch.Tensor]]:
    with torch._subclasses.FakeTensorMode():
        return torch.nn.Module(), [torch.empty(2, device=device) for device in devices]


def test_a_graph_of_a_gpu_gets_a_daemon_there(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def connect(devices: str) -> hostir.Client:
        asked.append(devices)
        return client

    monkeypatch.setattr(clients, "connect", connect)
    find = clients.client_of(*given("cpu", "cuda:1", "cuda:1"))
    assert asked == []  # When it runs, and no sooner.
    assert find() is client and find() is client
    assert asked == ["cuda:1"]  # One daemon for all graphs of a GPU.


def test_a_graph_of_cpus_gets_the_default_daemon(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "default_client", lambda: client)
    assert clients.client_of(*given("cpu"))() is client


def test_the_chosen_client_comes_first(client: hostir.Client) -> None:
    hostir.torch.use(client)
    assert clients.client_of(*given("cuda:0"))() is client


def test_an_address_comes_before_a_private_daemon(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTIR_ADDRESS", "unix:/run/hostir.sock")
    monkeypatch.setattr(clients, "default_client", lambda: client)
    assert clients.client_of(*given("cuda:0"))() is client


def test_without_a_daemon_there_it_warns_once(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(devices: str) -> hostir.Client:
        raise hostir.FailedPrecondition("this build has no CUDA")

    monkeypatch.setattr(clients, "connect", connect)
    monkeypatch.setattr(clients, "default_client", lambda: client)
    find = clients.client_of(*given("cuda:0"))
    with pytest.warns(UserWarning, match=r"cuda:0 run on CPUs.*no CUDA"):
        assert find() is client
    assert find() is client  # And says no more: warnings are errors in these tests.


def test_a_module_on_a_gpu_whose_inputs_are_on_the_host(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    module, inputs = given("cpu")
    with torch._subclasses.FakeTensorMode():
        module.weight = torch.nn.Parameter(torch.empty(2, device="cuda:1"))
    assert clients.client_of(module, inputs).args == (1,)


def test_threads_start_one_daemon(client: hostir.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, asked = threading.Barrier(4), []

    def connect(devices: str) -> hostir.Client:
        asked.append(devices)
        return client

    monkeypatch.setattr(clients, "connect", connect)

    def find() -> None:
        at_once.wait()
        clients.client_on(0)

    threads = [threading.Thread(target=find) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asked == ["cuda:0"]
