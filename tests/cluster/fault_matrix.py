"""The fault matrix of a cluster that etcd knows: what is killed, stopped, cut off or slow, when, and what clients see.

    python tests/cluster/fault_matrix.py --only 'kill, head' --json rows.json

Three nodes of one CPU device, etcd, and two clients, each in a network namespace of its own, by TLS and links of
1 Gbit/s. Per row client A makes the request that the fault hits, client B is beside it, with a tensor on the nodes
that are not hit. Exit code 1: a limit is broken, a value wrong, or a tensor lost that a survivor held; 77: this machine
cannot play it.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
import hit_client
import hostir
from cluster import Cluster, Networks, certificates
from etcd import Etcd
from eventually import eventually
from fault_table import Outcome, Request, code_of, outcome_of
from hostir import Sharding

FAULTS = ("kill", "stop", "partition", "slow")
VICTIMS = ("node", "head", "etcd", "client")
MOMENTS = ("rest", "run", "put", "get", "heal")
NODES, ETCD, B, A = range(3), 3, 4, 5  # Places in the networks.
NOTICED_S, REPLACED_S, HEALED_S = 7.0, 10.0, 10.0  # A lease and 2 s; the others as docs/cluster.md promises.
LEASE_S, LATE_S = 2.0, 2.0  # Of a client that is killed.
HELD_S = 7.0  # Longer than the lease of a node.
SLOW_S = 5.0
UNDER_WAY_BYTES = 8 << 20  # Of a transfer's 96 MiB, at the place that is hit.
PATIENCE_S = 60.0
CANNOT = 77  # Exit code where this machine or user cannot.
_CLONE_NEWNET = 0x40000000


@dataclasses.dataclass
class Row:
    """One cell of the matrix. Times in seconds: since the fault; ``healed``: since its end."""

    fault: str
    victim: str
    moment: str
    a: dict[str, Any] = dataclasses.field(default_factory=dict)  # The request that is hit: code, message, seconds.
    b: dict[str, Any] = dataclasses.field(default_factory=dict)  # get, put, run of the other client.
    noticed: float | None = None
    replaced: float | None = None
    healed: float | None = None
    wrong: list[str] = dataclasses.field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.fault}, {self.victim}, {self.moment}"

    def within(self, what: str, seconds: float, limit: float) -> float:
        if seconds > limit:
            self.wrong.append(f"{what} in {seconds:.1f} s: at most {limit:g} s")
        return round(seconds, 2)


class World:
    """The cluster, which rows share while each leaves it whole."""

    def __init__(self, folder: Path, networks: Networks, rate: str) -> None:
        folder.chmod(0o700)
        self.folder = folder
        self.rate = rate  # Of a slow link.
        self.networks = networks
        try:
            hosts = [self.networks.address(place).split(":")[1] for place in range(4)]
            settings = certificates(folder / "certs", hosts)
            self.tls = {"ca": settings["tls_client_ca"], **{k: f"{folder}/certs/client.{e}" for k, e in _ENDS.items()}}
            self.etcd = Etcd(folder, host=hosts[ETCD], inside=self.networks.inside(ETCD), tls=settings)
            settings.update({f"etcd_{k}": settings[of] for k, of in _OF_ETCD.items()})
            self.listens = [f"tcp:{host}:7002" for host in hosts[: len(NODES)]]
            self.settings = settings
            self.enter(B)
            self.begin()
        except BaseException:
            self.networks.close()
            raise

    def begin(self) -> None:
        self.cluster = Cluster(
            str(Path(os.environ["HOSTIR_BUILD_DIR"]) / "hostird"),
            self.folder,
            len(NODES),
            devices="cpu:1",
            networks=self.networks,
            etcd=self.etcd,
            listens=self.listens,
            comm_timeout_ms=20000,
            **self.settings,
        )

    def enter(self, place: int) -> None:
        """This process: before it has a thread that connects."""
        with open(f"/run/netns/{self.networks.names[place]}") as of:
            if ctypes.CDLL(None, use_errno=True).setns(of.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")

    def connect(self) -> hostir.Client:
        return hostir.connect(",".join(self.listens), timeout=30, lease=60, progress=False, **self.tls)

    def log_ends(self) -> str:
        return "\n".join(f"--- node {n}\n" + "\n".join(self.cluster.log(n).splitlines()[-12:]) for n in NODES)

    def close(self) -> None:
        self.cluster.stop()
        self.etcd.stop()
        self.networks.close()


_ENDS = {"cert": "pem", "key": "key"}
_OF_ETCD = {"cert": "tls_cert", "key": "tls_key", "ca": "tls_client_ca"}


class ClientA:
    """A process, in a network of its own."""

    def __init__(self, world: World, name: str, lease: float) -> None:
        connect = {"timeout": 30, "lease": lease, **world.tls}
        options = {"address": ",".join(world.listens), "name": name, "connect": connect}
        command = ["ip", "netns", "exec", world.networks.names[A], sys.executable, "-B", hit_client.__file__]
        pipe = subprocess.PIPE
        self.log = (world.folder / "a.log").open("wb")
        self.process = subprocess.Popen(
            [*command, json.dumps(options)], stdin=pipe, stdout=pipe, stderr=self.log, text=True
        )
        assert self.says(), (world.folder / "a.log").read_text()

    def ask(self, name: str) -> Request:
        """Its answer is in ``answer`` once the thread is over."""
        assert self.process.stdin is not None
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        self.answer: dict[str, Any] = {}
        return Request(lambda: self.answer.update(self.says()))

    def says(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {}

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


class Play:
    """A row as it is played."""

    def __init__(self, world: World, row: Row, random: np.random.Generator) -> None:
        self.world, self.row = world, row
        self.cluster, self.networks = world.cluster, world.networks
        self.head = self.cluster.head()
        self.node = {"head": self.head, "node": 2 if self.head != 2 else 1}.get(row.victim)
        self.place = {"etcd": ETCD, "client": A}.get(row.victim, self.node)
        self.values = random.standard_normal((12, 64), np.float32)
        self.lease = LEASE_S if (row.fault, row.victim) == ("kill", "client") else 60.0

    def play(self) -> None:
        row = self.row
        with self.world.connect() as self.b:
            eventually(self.b_runs, PATIENCE_S)
            self.survivors = [n for n in NODES if n != self.node]
            self.kept = self.b.put(self.values, sharding=Sharding(self.survivors, {0: "mesh_x"}))
            self.survivors_run()
            self.a = ClientA(self.world, row.moment, self.lease)
            try:
                self.hit()
            finally:
                self.a.close()

    def hit(self) -> None:
        row = self.row
        asked = self.begin()
        undo = self.inject()
        self.began = time.monotonic()
        self.is_over, self.going = False, None
        try:
            if asked is None:
                asked = self.ask()
            beside = {
                "get": self.get,
                "put": lambda: self.b.put(self.values),
                "run": lambda: hit_client.runs(self.b),
                "survivors' run": self.survivors_run,
            }
            others = {name: Request(call) for name, call in beside.items()}
            self.during()
        finally:
            undo()
            ended = time.monotonic()
            self.is_over = True
        if self.going is not None:
            self.going.join(PATIENCE_S)
        if (row.fault, row.victim) != ("kill", "client"):
            outcome = self.until_right(self.b_runs)
            row.healed = row.within("healed", outcome - ended, HEALED_S)
        for name, request in others.items():
            row.b[name] = _told(request.since(self.began, PATIENCE_S))
        self.outcome_of_a(asked)
        self.kept_is_there()
        self.judge()

    # --- when

    def begin(self) -> Request | None:
        """A's request, under way; None: it is made when the fault has begun."""
        moment = self.row.moment
        if moment == "rest":
            return None
        if moment == "heal":
            rank = next(n for n in NODES if n != self.node)
            os.kill(int(self.b.status()["devices"][rank]["pid"]), signal.SIGKILL)
            return None
        place = self.place if self.place != ETCD else self.head
        # The place takes this of a put, and gives it of a get; a client the other way round.
        takes = (moment == "put") != (place == A)
        count = self.networks.bytes_received if takes else self.networks.bytes_sent
        before = count(place)
        asked = self.ask()
        if moment == "run":
            eventually(lambda: self.b.status()["run_under_way"])
        else:
            eventually(lambda: count(place) > before + UNDER_WAY_BYTES or not asked.is_alive())
        assert asked.is_alive(), f"{self.row.name}: over before the fault: {self.a.answer}"
        return asked

    def ask(self) -> Request:
        return self.a.ask(self.row.moment)

    # --- the fault

    def inject(self) -> Callable[[], None]:
        """Returns what ends it."""
        fault, place = self.row.fault, self.place
        assert place is not None
        if fault == "slow":
            self.networks.slow(place, on=True, rate=self.world.rate)
            return lambda: self.networks.slow(place, on=False)
        if fault == "partition":
            self.networks.cut(place, off=True)
            return lambda: self.networks.cut(place, off=False)
        victim: Any = self.world.etcd if place == ETCD else self.a.process if place == A else None
        if fault == "stop":
            send = {ETCD: lambda n: victim.signal(n), A: lambda n: victim.send_signal(n)}
            to = send.get(place, lambda n: self.cluster.signal(place, n))
            to(signal.SIGSTOP)
            return lambda: to(signal.SIGCONT)
        if victim is not None:
            victim.kill()
        else:
            self.cluster.kill(place)
        again: dict[int, Callable[[], None]] = {ETCD: self.world.etcd.start, A: lambda: None}
        return again.get(place, lambda: self.cluster.start(place))

    def during(self) -> None:
        """Until those who should have noticed have, and for as long as the fault lasts."""
        row = self.row
        if row.fault == "slow":
            self.goes_on()
            self.hold(SLOW_S)
        elif row.victim == "node":
            row.noticed = row.within("noticed", self.until_right(self.names_the_node) - self.began, NOTICED_S)
        elif row.victim == "head":
            self.until_right(lambda: any(self.cluster.heads(n) for n in NODES if n != self.node))
            self.b.status()
            row.replaced = row.within("replaced", time.monotonic() - self.began, REPLACED_S)
        elif row.fault == "kill" and row.victim == "client":
            sessions = self.until_right(lambda: self.b.status()["sessions"] == 1)
            row.noticed = row.within("its session ended", sessions - self.began, LEASE_S + LATE_S)
        else:
            self.goes_on()
            self.hold(HELD_S)
        if self.node is not None and row.fault != "slow":
            for name, call in (("get", self.get), ("survivors' run", self.survivors_run)):
                row.b[f"then {name}"] = _told(outcome_of(call))
        if self.node is not None and (row.fault in ("stop", "partition") or row.moment == "rest"):
            self.hold(HELD_S)  # Else it is started again before etcd knows of its death.

    def hold(self, seconds: float) -> None:
        """Since the fault."""
        with contextlib.suppress(AssertionError):
            eventually(lambda: False, max(0.0, seconds - (time.monotonic() - self.began)))

    def goes_on(self) -> None:
        """Runs of B, one behind the other, while the fault lasts; the first that fails is the row's."""

        def runs() -> None:
            while not self.is_over:
                outcome = outcome_of(lambda: hit_client.runs(self.b))
                if outcome.code != "OK":
                    self.row.b.setdefault("a later run", _told(outcome))

        self.going = Request(runs)

    # --- what becomes of it

    def until_right(self, condition: Callable[[], Any]) -> float:
        with contextlib.suppress(AssertionError):
            eventually(condition, 30.0)
        return time.monotonic()

    def b_runs(self) -> bool:
        try:
            hit_client.runs(self.b)
        except (hostir.Unavailable, hostir.DeadlineExceeded) as error:
            self.last = f"{code_of(error)}: {error}"
            return False
        return True

    def names_the_node(self) -> bool:
        try:
            hit_client.runs(self.b)
        except hostir.HostirError as error:
            return f"node {self.node} (" in str(error)
        return False

    def get(self) -> None:
        np.testing.assert_array_equal(self.kept.numpy(), self.values)

    def survivors_run(self) -> None:
        """What does not need the node that is hit."""
        (y,) = self.b.run(hit_client.copy(self.survivors), [self.kept], wait=True)
        np.testing.assert_array_equal(y.numpy(), self.values)

    def outcome_of_a(self, asked: Request) -> None:
        row = self.row
        asked.join(PATIENCE_S)
        if (row.fault, row.victim) == ("kill", "client"):
            return
        answer = self.a.answer
        if not answer:
            row.a = {"code": "HANGS", "message": "", "seconds": PATIENCE_S}
            return
        row.a = {**answer, "seconds": round(max(0.0, answer.pop("ended") - self.began), 2)}
        row.a.pop("ended", None)

        def next_run() -> bool:
            self.a.ask("rest").join(PATIENCE_S)
            return self.a.answer.get("code") == "OK"

        self.until_right(next_run)
        if self.a.answer.get("code") != "OK":
            row.wrong.append(f"A's next run: {self.a.answer}")

    def kept_is_there(self) -> None:
        outcome = outcome_of(self.get)
        if outcome.code != "OK":
            self.row.wrong.append(f"what survivors held: {outcome.code} {outcome.message}")

    def judge(self) -> None:
        """Codes and messages, and that nothing hangs."""
        row = self.row
        wanted = _wanted(row, self.node)
        for who, outcome in (("A", row.a), *((f"B's {name}", each) for name, each in row.b.items())):
            if not outcome:
                continue
            allowed = wanted.get(who, wanted["B"])
            said = outcome["code"] + ": " + outcome["message"]
            if not re.match(allowed, said):
                row.wrong.append(f"{who}: {said}: want {allowed}")


def _told(outcome: Outcome) -> dict[str, Any]:
    return {"code": outcome.code, "message": outcome.message, "seconds": round(outcome.seconds, 2)}


def _wanted(row: Row, node: int | None) -> dict[str, str]:
    """Patterns of "CODE: message"."""
    rank_died = r"OK|UNAVAILABLE: .*rank \d+ died" if row.moment == "heal" else "OK"
    if row.victim in ("etcd", "client") or row.fault == "slow":
        return {"A": rank_died, "B": rank_died}
    if row.victim == "node":
        lost = rf"UNAVAILABLE: .*node {node} \("
        on = {f"B's then {name}": "OK" for name in ("get", "survivors' run")}
        return {"A": rf"{rank_died}|{lost}|DATA_LOSS: .*node {node} \(", "B": rf"{rank_died}|{lost}", **on}
    other = r"UNAVAILABLE: (another daemon goes on|.*node \d+ \()"
    return {"A": rf"{rank_died}|{other}|DATA_LOSS: .*node {node} \(", "B": rf"{rank_died}|{other}"}


# --- the whole ---------------------------------------------------------------------------------------------------


def rows(only: str) -> Iterator[Row]:
    for victim in VICTIMS:
        for fault in FAULTS:
            for moment in MOMENTS:
                row = Row(fault, victim, moment)
                if re.search(only, row.name):
                    yield row


def play_all(world: World, wanted: list[Row], seed: int, messages: bool) -> None:
    random = np.random.default_rng(seed)
    for row in wanted:
        print(f"{row.name} ...", file=sys.stderr, flush=True)
        try:
            Play(world, row, random).play()
        except (AssertionError, hostir.HostirError) as error:
            row.wrong.append(f"{type(error).__name__}: {error}")
        print(line(row), flush=True)
        for who, outcome in (("A", row.a), *row.b.items()) if messages else ():
            if outcome and outcome["message"]:
                print(f"    {who}: {outcome['message']}", flush=True)
        if row.wrong:
            print(world.log_ends(), file=sys.stderr, flush=True)
            world.cluster.stop()
            world.begin()


def line(row: Row) -> str:
    """A row of the table."""
    times = [f"{k} {v:.1f} s" for k in ("noticed", "replaced", "healed") if (v := getattr(row, k)) is not None]
    cells = [f"A {row.a['code']} {row.a['seconds']:.1f} s" if row.a else ""]
    cells += [f"{name} {each['code']} {each['seconds']:.1f} s" for name, each in row.b.items()]
    return f"{row.name:24} {'; '.join([c for c in cells if c] + times)}" + "".join(
        f"\n    WRONG {w}" for w in row.wrong
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="PATTERN", help='rows whose name has it: "kill, head, run"')
    parser.add_argument("--seed", type=int, default=1, help="of the values that are kept")
    parser.add_argument("--rate", default="1mbit", help="of a slow link, as tc takes it: %(default)s")
    parser.add_argument("--repeat", type=int, default=1, help="plays of each row")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where all rows go, with messages")
    parser.add_argument("--messages", action="store_true", help="print them")
    options = parser.parse_args()
    done = [row for _ in range(options.repeat) for row in rows(options.only)]
    with tempfile.TemporaryDirectory() as folder:
        try:
            networks = Networks(6)
        except OSError as error:
            print(f"no network namespaces with shaped links: {error}", file=sys.stderr)
            return CANNOT
        try:
            world = World(Path(folder), networks, options.rate)
        except pytest.skip.Exception as error:
            print(error, file=sys.stderr)
            return CANNOT
        try:
            play_all(world, done, options.seed, options.messages)
        finally:
            world.close()
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(row) for row in done], indent=1))
    wrong = sum(bool(row.wrong) for row in done)
    print(f"{len(done)} rows, {wrong} wrong")
    return 1 if wrong or not done else 0


if __name__ == "__main__":
    sys.exit(main())
