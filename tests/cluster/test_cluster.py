"""Programs on several nodes: values are those of one node, byte for byte where the order of sums is the same."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hostir
from cluster import Cluster, Networks, certificates, networks
from etcd import Etcd
from eventually import eventually
from hostir import DataType, DeviceMesh, FusionDefinition, Sharding, private_daemon

BUILD = Path(os.environ["HOSTIR_BUILD_DIR"])
CORPUS = Path(__file__).parents[1] / "corpus"
FIRST, COUNT = int(os.environ.get("HOSTIR_SEED", "1")), int(os.environ.get("HOSTIR_SEEDS", "12"))
TOLERANCES = {"V2": 1e-2, "f2": 2e-3, "f4": 1e-5}


@pytest.fixture(scope="module")
def one() -> Iterator[hostir.Client]:
    """One node with as many devices as the clusters below have together."""
    with hostir.connect(devices="cpu:4", timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """By a list; with HOSTIR_TESTS_BY_ETCD by etcd."""
    folder = tmp_path_factory.mktemp("nodes")
    etcd = Etcd(folder) if os.environ.get("HOSTIR_TESTS_BY_ETCD") else None
    made = Cluster(private_daemon.find_daemon(), folder, etcd=etcd)
    yield made
    codes = made.stop()
    if etcd is not None:
        etcd.stop()
    assert codes == [0, 0]


class Refused(Exception):
    """By its guards: the sizes that a generator gives need not hold them."""


def run(address: str, program: Path, sizes: list[str], out: Path) -> dict[str, np.ndarray]:
    words = [word for size in sizes for word in ("--size", size)]
    command = [
        str(BUILD / "hostir"),
        "run",
        str(program),
        "--address",
        address,
        "--random",
        "7",
        *words,
        "--out",
        str(out),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if left := re.search(r"the program has no size \w+; its sizes are (.*)", done.stderr):  # Others follow from these.
        known = re.findall(r"\w+", left[1])
        return run(address, program, [size for size in sizes if size.split("=")[0] in known], out)
    if done.returncode == 1 and "INVALID_ARGUMENT" in done.stderr and "does not hold with" in done.stderr:
        raise Refused(done.stderr)
    assert done.returncode == 0, f"{program.stem}: {done.stderr}"
    return {path.stem: np.load(path) for path in out.glob("*.npy")}


def float64(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "V":  # bfloat16: the upper half of a float32.
        return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def check_same(got: dict[str, np.ndarray], want: dict[str, np.ndarray], tolerance: float | None = None) -> bool:
    """Whether they are the same bytes."""
    assert got.keys() == want.keys() and got
    for name, array in want.items():
        assert got[name].dtype == array.dtype and got[name].shape == array.shape
        near = TOLERANCES.get(array.dtype.str[1:], 0.0) if tolerance is None else tolerance
        np.testing.assert_allclose(float64(got[name]), float64(array), rtol=near, atol=near, err_msg=name)
    return all(got[name].tobytes() == array.tobytes() for name, array in want.items())


def ranks_of(text: str) -> int:
    devices = re.findall(r"\d+", " ".join(re.findall(r"^mesh @\w+ = (.*)$", text, re.MULTILINE)))
    return max(map(int, devices), default=0) + 1


def corpus() -> list[Path]:
    return [path for path in sorted(CORPUS.rglob("*.hir")) if 1 < ranks_of(path.read_text()) <= 4]


def compare(
    address: str, one: hostir.Client, programs: list[tuple[Path, list[str], float | None]], folder: Path
) -> None:
    same = 0
    for program, sizes, tolerance in programs:
        try:
            got = run(address, program, sizes, folder / "got" / program.stem)
        except Refused as refused:
            with pytest.raises(Refused, match=re.escape(str(refused))):
                run(one.address, program, sizes, folder / "want" / program.stem)
            print(f"{program.stem} is refused on both: {refused}")
            continue
        want = run(one.address, program, sizes, folder / "want" / program.stem)
        if check_same(got, want, tolerance):
            same += 1
        else:
            print(f"{program.stem}: within the tolerance, but other bytes")
    print(f"{len(programs)} programs, {same} of them the same bytes")


def corpus_programs() -> list[tuple[Path, list[str], float | None]]:
    listed = []
    for path in corpus():
        said = path.read_text()
        text = re.sub(r"^//.*\n", "", said, flags=re.MULTILINE)
        known = re.findall(r"\b(i\d+)=(\d+)", "".join(re.findall(r"^// Sizes: (.*)$", said, re.MULTILINE)))
        sizes = [f"{name}={extent}" for name, extent in known if re.search(rf"\b{name}\b", text)]
        listed.append((path, sizes, None))
    return listed


def random_programs(folder: Path, first: int, count: int, *mesh: int) -> list[tuple[Path, list[str], float | None]]:
    folder.mkdir()
    command = [str(BUILD / "tests/write-sharded-programs"), str(folder), str(first), str(count), *map(str, mesh)]
    subprocess.run(command, check=True, timeout=300)
    listed = []
    for seed in range(first, first + count):
        sizes, tolerances = (folder / f"{seed}.txt").read_text().splitlines()
        listed.append((folder / f"{seed}.hir", sizes.split(), 2 * max(map(float, tolerances.split()), default=0.0)))
    return listed


def test_corpus(cluster: Cluster, one: hostir.Client, tmp_path: Path) -> None:
    programs = corpus_programs()
    assert len(programs) >= 5
    with cluster.client() as client:
        compare(client.address, one, programs, tmp_path)


@pytest.mark.parametrize("mesh", [(4,), (2, 2)])
def test_random_programs(cluster: Cluster, one: hostir.Client, tmp_path: Path, mesh: tuple[int, ...]) -> None:
    """HOSTIR_SEEDS of each mesh, from HOSTIR_SEED on."""
    print(f"seeds {FIRST} to {FIRST + COUNT - 1} on {mesh}")
    with cluster.client() as client:
        compare(client.address, one, random_programs(tmp_path / "made", FIRST, COUNT, *mesh), tmp_path)


@pytest.mark.parametrize("mesh", [(6,), (2, 3)])
def test_three_nodes(tmp_path: Path, mesh: tuple[int, ...]) -> None:
    """Of which each has a row of two devices, or a part of two rows."""
    folder = tmp_path / "nodes"
    folder.mkdir()
    made = Cluster(private_daemon.find_daemon(), folder, nodes=3)
    try:
        with made.client() as client, hostir.connect(devices="cpu:6", timeout=60) as one:
            compare(client.address, one, random_programs(tmp_path / "made", FIRST, 6, *mesh), tmp_path)
    finally:
        codes = made.stop()
    assert codes == [0, 0, 0]


def test_shardings_go_there_and_back(cluster: Cluster) -> None:
    random = np.random.default_rng(1)
    mesh = DeviceMesh([[0, 1], [2, 3]])
    with cluster.client() as client:
        for shape in [(8, 8), (7, 5), (1, 9), (1 << 20,), (0, 4)]:
            values = random.standard_normal(shape).astype(np.float32)
            for placed in [{}, {0: "mesh_y"}, {0: "mesh_x"}, {len(shape) - 1: "mesh_x"}]:
                got = client.put(values, sharding=Sharding(mesh, placed)).numpy()
                np.testing.assert_array_equal(got, values)


def test_status_says_which_node_has_what(cluster: Cluster) -> None:
    with cluster.client() as client:
        devices = client.status()["devices"]
    assert [device["node"] for device in devices] == [cluster.addresses[0]] * 2 + [cluster.addresses[1]] * 2
    assert all(device["pid"] for device in devices)
    with cluster.client() as client:
        nodes = client.status()["nodes"]
    assert [node["address"] for node in nodes] == cluster.addresses
    for node in nodes:  # Within this machine.
        assert 0 < node["message_us"] <= 100_000, node
        assert node["bytes_per_us"] >= 16, node
    with cluster.client() as client:  # The other node says so about each second.
        eventually(lambda: all(device["resident_bytes"] > 0 for device in client.status()["devices"]))
        assert all(device["num_threads"] > 0 for device in client.status()["devices"])
    command = [str(BUILD / "hostir"), "status", "--address", ",".join(cluster.listens)]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    assert len([line for line in shown.splitlines() if cluster.addresses[1] in line and " cpu:" in line]) == 2, shown
    assert f"link of {cluster.addresses[1]}: " in shown, shown


def test_clients_share_what_nodes_keep(cluster: Cluster) -> None:
    """A name outlives its session; freed tensors leave nothing on any node."""
    mesh = DeviceMesh([0, 1, 2, 3])
    values = np.arange(64, dtype=np.int64)
    with cluster.client() as client:
        array = client.put(values, sharding=Sharding(mesh, {0: "mesh_x"}))
        client.publish(array, "weights")
    with cluster.client() as client:
        np.testing.assert_array_equal(client.attach("weights").numpy(), values)
        client.withdraw("weights")


def test_several_hosts(one: hostir.Client, tmp_path: Path) -> None:
    """Each node in a network of its own, 1 Gbit/s apart, without common shared memory: as on two machines."""
    with networks(2) as made:
        folder = tmp_path / "nodes"
        folder.mkdir()
        keys = certificates(tmp_path / "keys", [made.address(node).split(":")[1] for node in range(2)])
        cluster = Cluster(private_daemon.find_daemon(), folder, networks=made, **keys)
        try:
            with cluster.client() as client:
                programs = corpus_programs()[:4] + random_programs(tmp_path / "made", FIRST, 4, 4)
                compare(client.address, one, programs, tmp_path)
                check_bytes(client, made)
        finally:
            codes = cluster.stop()
        assert codes == [0, 0]


def check_bytes(client: hostir.Client, made: Networks) -> None:
    """An all-gather of 4 MiB: each rank's 1 MiB goes to the other node once, where both ranks get it; and of rows that
    both ranks of a node have, each sends a half."""
    link = client.status()["nodes"][0]
    assert 32 <= link["bytes_per_us"] <= 512, link  # Of 125: 1 Gbit/s, some of which goes at once.
    check_gather(client, made, DeviceMesh([0, 1, 2, 3]), "mesh_x")
    check_gather(client, made, DeviceMesh([[0, 1], [2, 3]]), "mesh_y")


def check_gather(client: hostir.Client, made: Networks, mesh: DeviceMesh, split: str) -> None:
    with FusionDefinition("gather") as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float)
        x.shard(mesh, {0: split})
        y = fd.ops.set(x)
        y.shard(mesh, {})
        fd.add_output(y)
    rows = np.ones((4, 1 << 18), np.float32)
    put = client.put(rows, fd.fusion.inputs()[0])
    client.run(fd, [put], wait=True)
    before = [made.bytes_sent(node) for node in range(2)]
    (got,) = client.run(fd, [put], wait=True)
    sent = [made.bytes_sent(node) - at for node, at in enumerate(before)]
    np.testing.assert_array_equal(got.numpy(), rows)
    print(f"bytes sent by each node, of 2 MiB: {sent}")
    for count in sent:
        assert (2 << 20) <= count <= 1.15 * (2 << 20)
