"""The fault table: what becomes of requests when something happens to a process of the service.

A situation is a fault at a place: "stop", "worker in a kernel". In each, requests of all kinds are made, and each has
an outcome: its code, what it says, and when. `EXPECTED` says which; test_fault_table.py compares on CPUs,
benchmarks/gpu/faults.py on GPUs.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import hostir
from hostir import DeviceMesh, FusionDefinition

FAULTS = ("kill", "stop", "frozen", "slow", "oom", "wrong plan")
DESCRIPTORS_OF_A_PLANNER = 4  # Its channel, its process, and what wakes the thread that waits for it.
PLACES = ("worker at rest", "worker in a kernel", "worker in a communication", "planner", "client")
REQUESTS = ("compile", "put", "run", "get", "heal")

COMM_S, PLAN_S, RUN_S, IN_COMM_S, BEAT_S = 4.0, 3.0, 2.0, 5.0, 0.2
FLAGS = ["--comm-timeout-ms=4000", "--plan-timeout-ms=3000", "--heartbeat-ms=200", "--drain-timeout-ms=1000"]
DEAD_S, LATE_S, HEAL_S, QUIET_S = 2.0, 2.0, 10.0, 5.0  # Bounds: of a death, behind a deadline, of healing, of others.
SLOW_S = 60.0  # Several times what a run of seconds takes, on a machine with much else to do.
SILENCE_S = 3 * BEAT_S + 2

# Why a situation is none.
NO_SENSE = {
    ("oom", "worker at rest"): "nothing takes memory at rest; that the system kills it is `kill`",
    ("oom", "worker in a communication"): "the memory of a run is taken before its first kernel: `oom` in a kernel",
    ("oom", "client"): "its own memory: it raises there, or is killed, which is `kill`",
    ("wrong plan", "worker at rest"): "a plan is loaded by a run",
    ("wrong plan", "worker in a kernel"): "it is noticed as the plan is loaded, before the first kernel",
    ("wrong plan", "planner"): "what it makes is the one plan of all ranks",
    ("wrong plan", "client"): "clients have none",
}


class Skipped(Exception):
    """This machine cannot have the situation: why."""


@dataclass
class Outcome:
    """How a request ended: "OK" or the name of its code, what it said, and the seconds it took."""

    code: str
    message: str
    seconds: float


@dataclass
class Wanted:
    """The codes and the message that an outcome may have, and its seconds at most."""

    codes: str = "OK"
    message: str = ""
    within: float = QUIET_S

    def fault_of(self, outcome: Outcome) -> str:
        if not re.fullmatch(self.codes, outcome.code):
            return f"{outcome.code} {outcome.message!r}: want {self.codes}"
        if outcome.code != "OK" and not re.search(self.message, outcome.message):
            return f"{outcome.message!r} has no {self.message!r}"
        if outcome.seconds > self.within:
            return f"took {outcome.seconds:.2f} s: at most {self.within} s"
        return ""


def code_of(error: BaseException) -> str:
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).upper()
    return name


def outcome_of(call: Callable[[], Any]) -> Outcome:
    began = time.monotonic()
    try:
        call()
    except hostir.HostirError as error:
        return Outcome(code_of(error), str(error), time.monotonic() - began)
    return Outcome("OK", "", time.monotonic() - began)


class Request(threading.Thread):
    """A request under way."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.call = call
        self.outcome = Outcome("UNKNOWN", "it raised what is no error of hostir's", 0)
        self.ended = 0.0
        self.start()

    def run(self) -> None:
        try:
            self.outcome = outcome_of(self.call)
        except AssertionError as error:
            self.outcome = Outcome("WRONG", str(error), 0)
        self.ended = time.monotonic()

    def since(self, moment: float, limit: float = 60) -> Outcome:
        """Its outcome, with the seconds from `moment` on."""
        self.join(limit)
        if self.is_alive():
            return Outcome("HANGS", "", limit)
        return Outcome(self.outcome.code, self.outcome.message, max(0.0, self.ended - moment))


STILL = 20  # Equal counts in a row, some milliseconds apart, are those of a daemon at rest.


def until(condition: Callable[[], Any], what: str, limit: float = 20) -> Any:
    """The value of `condition` once it is true."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.002)
    raise AssertionError(f"{what}: not within {limit} s")


# --- programs -----------------------------------------------------------------------------------------------------


def column_sums(ranks: int, name: str = "column_sums") -> FusionDefinition:
    """The sum over an axis that is split: an all-reduce."""
    mesh = DeviceMesh(list(range(ranks)))
    with FusionDefinition(name) as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        s = fd.ops.sum(x, dims=[0])
        fd.add_output(s)
        x.shard(mesh, {0: "mesh_x"})
        s.set_device_mesh(mesh)
    return fd


def products(ranks: int, repeats: int, name: str = "products") -> FusionDefinition:
    """Products one behind the other on every rank, and no communication."""
    mesh = DeviceMesh(list(range(ranks)))
    with FusionDefinition(name) as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        w = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = x
        for _ in range(repeats):
            y = fd.ops.matmul(y, w)
        fd.add_output(y)
        x.shard(mesh, {0: "mesh_x"})
        w.set_device_mesh(mesh)
    return fd


def gathers(ranks: int, repeats: int, name: str = "gathers") -> FusionDefinition:
    """Split, gathered, and split again, many times."""
    mesh = DeviceMesh(list(range(ranks)))
    with FusionDefinition(name) as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        x.shard(mesh, {0: "mesh_x"})
        y = x
        for _ in range(repeats):
            whole = fd.ops.set(fd.ops.add(y, 1.0))
            whole.set_device_mesh(mesh)
            y = fd.ops.set(whole)
            y.shard(mesh, {0: "mesh_x"})
        fd.add_output(y)
    return fd


# --- a daemon and its clients -------------------------------------------------------------------------------------


class World:
    """A daemon, one client whose requests are hit (`a`), and one beside it (`b`)."""

    def __init__(self, program: str, devices: str, folder: Path, flags: list[str], env: dict[str, str]) -> None:
        self.address = f"unix:{folder}/socket"
        self.log = folder / "log"
        read, write = os.pipe()
        command = [program, f"--devices={devices}", f"--listen={self.address}", f"--ready-fd={write}"]
        with self.log.open("wb") as log:
            self.daemon = subprocess.Popen(
                [*command, "--log-level=debug", *FLAGS, *flags],
                pass_fds=[write],
                stdout=log,
                stderr=log,
                env={**os.environ, **env},
            )
        os.close(write)
        with os.fdopen(read) as ready:
            assert ready.readline(), self.log.read_text()[-2000:]
        self.a, self.b = (hostir.connect(self.address) for _ in range(2))
        self.ranks = self.a.num_devices
        self.on_gpus = devices.startswith("cuda")
        self.x = np.arange(64 * 8, dtype=np.float32).reshape(64, 8)
        self.known = column_sums(self.ranks)
        self.kept = self.b.put(self.x)
        self.names = 0
        for _ in range(3):  # The runs from the second on are replayed, where devices have graphs.
            self.right()

    def close(self) -> None:
        for client in (self.a, self.b):
            client.close()
        self.daemon.send_signal(signal.SIGTERM)
        try:
            assert self.daemon.wait(20) == 0, self.log.read_text()[-2000:]
        finally:
            self.daemon.kill()
            self.daemon.wait()

    def status(self) -> dict[str, Any]:
        return self.b.status()

    def worker(self, rank: int) -> int:
        return int(self.status()["devices"][rank]["pid"])

    # The five requests.

    def compile(self, client: hostir.Client) -> None:
        self.names += 1
        client.explain(column_sums(self.ranks, f"fresh{self.names}"))

    def put(self, client: hostir.Client) -> None:
        client.put(self.x)

    def right(self, client: hostir.Client | None = None, timeout: float | None = None) -> None:
        (y,) = (client or self.b).run(self.known, [self.x], wait=True, timeout=timeout)
        np.testing.assert_allclose(y.numpy(), self.x.sum(0), rtol=1e-5)

    def get(self) -> None:
        np.testing.assert_array_equal(self.kept.numpy(), self.x)

    def healed(self, began: float, generation: int) -> Outcome:
        """Until a generation behind `generation` serves, and a run is right."""

        def serves() -> bool:
            status = self.status()
            return bool(status["serving"] and status["generation"] > generation)

        outcome = outcome_of(lambda: (until(serves, "healing", 30), self.right()))
        outcome.seconds = time.monotonic() - began
        if self.on_gpus:  # What was kept was there alone.
            self.kept = self.b.put(self.x)
        return outcome

    def settled(self) -> dict[str, int]:
        """What is held once nothing goes on, and clients have given back what they no longer hold."""
        gc.collect()
        self.right(self.a)
        found: list[dict[str, int]] = []

        def is_still() -> bool:
            """Nothing goes on, and nothing that ended is on its way out."""
            now = self.holdings()
            found[:] = [*found, now] if now["requests"] == 1 and now in found[:1] else [now]
            return len(found) == STILL

        until(is_still, "what was before is over")
        return found[0]

    def holdings(self) -> dict[str, int]:
        """All that must be the same before and after."""
        status = self.status()
        # Memory of tensors is counted by its bytes: freed outputs are kept for the next.
        fds = [self._link(fd) for fd in Path(f"/proc/{self.daemon.pid}/fd").iterdir()]
        children = Path(f"/proc/{self.daemon.pid}/task").glob("*/children")
        planners = len(status["planner_pids"])  # Others than the first start when they are needed, and stay.
        return {
            "tensors": status["tensors"],
            "bytes": status["tensor_bytes"],
            "sessions": status["sessions"],
            "requests": status["requests_under_way"],
            "queued": status["queued_runs"] + status["queued_plans"],
            "lingering": len(status["lingering"]),
            "descriptors": len([fd for fd in fds if fd and not fd.startswith("/memfd:")])
            - status["connections"]
            - DESCRIPTORS_OF_A_PLANNER * planners,
            "processes": sum(len(of_thread.read_text().split()) for of_thread in children) - planners,
        }

    @staticmethod
    def _link(fd: Path) -> str:
        with contextlib.suppress(FileNotFoundError):  # It has just been closed.
            return str(fd.readlink())
        return ""


# --- faults -------------------------------------------------------------------------------------------------------

TRACER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
failed = libc.ptrace(0x4206, int(sys.argv[1]), None, None) != 0
print(os.strerror(ctypes.get_errno()) if failed else "held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[str]:
    """The process does nothing, and SIGKILL does not end it, until this is left. By which means: a control group's
    freezer, where we may; else it is stopped, and traced by a process that does not let it go."""
    for freezer, key, on, off in (
        (Path("/sys/fs/cgroup/freezer"), "freezer.state", "FROZEN", "THAWED"),
        (Path("/sys/fs/cgroup"), "cgroup.freeze", "1", "0"),
    ):
        group = freezer / f"hostir-fault-{os.getpid()}-{pid}"
        try:
            group.mkdir()
            (group / key).write_text(off)
            (group / "cgroup.procs").write_text(str(pid))
        except OSError:
            with contextlib.suppress(OSError):
                group.rmdir()
            continue
        (group / key).write_text(on)
        try:
            yield "the freezer of a control group"
        finally:
            (group / key).write_text(off)
            with contextlib.suppress(OSError, AssertionError):
                until(lambda members=group / "cgroup.procs": not members.read_text(), "the end of what was frozen", 5)
                group.rmdir()
        return
    command = [sys.executable, "-c", TRACER, str(pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tracer:
        assert tracer.stdin is not None and tracer.stdout is not None
        with tracer.stdin:  # Closed, it lets go.
            if (said := tracer.stdout.readline().strip()) != "held":
                raise Skipped(f"no freezer of control groups can be written here, and no process traced: {said}")
            os.kill(pid, signal.SIGSTOP)
            yield "SIGSTOP and a tracer"


@contextlib.contextmanager
def slow(pid: int) -> Iterator[str]:
    """The process has a twentieth of its time."""
    over = threading.Event()

    def throttle() -> None:
        with contextlib.suppress(ProcessLookupError):
            while not over.is_set():
                os.kill(pid, signal.SIGSTOP)
                over.wait(0.057)
                os.kill(pid, signal.SIGCONT)
                over.wait(0.003)

    thread = threading.Thread(target=throttle)
    thread.start()
    try:
        yield "a twentieth of its time"
    finally:
        over.set()
        thread.join()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def states(pid: int) -> set[str]:
    """Of its threads, by letter: T is stopped."""
    texts = [task.joinpath("stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return {text.rpartition(")")[2].split()[0] for text in texts}


@contextlib.contextmanager
def hit(fault: str, pid: int, room: int = 64 << 20) -> Iterator[str]:
    """`fault` happens to the process, until this is left. How, in words. `room`: bytes that it may still take."""
    if fault == "frozen":
        with frozen(pid) as how:
            yield how
    elif fault == "slow":
        with slow(pid) as how:
            yield how
    elif fault == "oom":
        lines = Path(f"/proc/{pid}/status").read_text()
        size = int(re.search(r"VmSize:\s+(\d+)", lines)[1]) << 10  # type: ignore[index]
        resource.prlimit(pid, resource.RLIMIT_AS, (size + room, resource.RLIM_INFINITY))
        try:
            yield f"{room >> 20} MiB of address space are left"
        finally:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    else:
        os.kill(pid, {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[fault])
        try:
            if fault == "stop":  # A thread on another core goes on until it hears of it.
                until(lambda: states(pid) <= {"T"}, "all of its threads stand")
            yield "a signal"
        finally:
            if fault == "stop":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


# --- situations ---------------------------------------------------------------------------------------------------


@dataclass
class Situation:
    """What came of it: by request; and how the fault was made."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    how: str = ""
    leaks: str = ""


def beside(world: World, outcomes: dict[str, Outcome]) -> None:
    """Requests of the other client that no rank is needed for."""
    outcomes["compile"] = outcome_of(lambda: world.compile(world.b))
    outcomes["put"] = outcome_of(lambda: world.put(world.b))
    if not world.on_gpus:  # There it needs the ranks.
        outcomes["get"] = outcome_of(world.get)


def at(world: World) -> str:
    return str((world.status().get("run_under_way") or {}).get("where", ""))


def worker_at_rest(world: World, fault: str, into: Situation) -> None:
    generation = world.status()["generation"]
    began = time.monotonic()
    with hit(fault, world.worker(world.ranks - 1)) as into.how:
        beside(world, into.outcomes)
        if fault == "slow":
            into.outcomes["run"] = outcome_of(world.right)
            into.outcomes["heal"] = outcome_of(world.right)
            assert world.status()["generation"] == generation, "one that is slow is replaced by nobody"
            return
        into.outcomes["heal"] = world.healed(began, generation)  # Nobody asked for anything.
        if fault != "kill":
            said = world.status()["last_failure"]
            wanted = rf"DEADLINE_EXCEEDED: {_SILENT} at rest, for 2600 ms; heartbeat_ms = 200"
            assert re.match(wanted, said), said
    generation = world.status()["generation"]
    began = time.monotonic()
    with hit(fault, world.worker(world.ranks - 1)):
        into.outcomes["run"] = outcome_of(lambda: world.right(timeout=RUN_S))
        world.healed(began, generation)


def worker_in_a_kernel(world: World, fault: str, into: Situation) -> None:
    if fault == "oom":
        return worker_without_memory(world, into)
    size = (16384 if world.on_gpus else 2048) // (2 if fault == "slow" else 1)
    fd = products(world.ranks, 60)
    arrays = [world.a.put(np.zeros((size, size), np.float32), value) for value in fd.fusion.inputs()]
    generation = world.status()["generation"]
    if fault == "slow":
        for _ in range(2):  # The first one loads the program.
            world.a.run(fd, arrays, wait=True)
        with hit(fault, world.worker(world.ranks - 1)) as into.how:
            run = Request(lambda: world.a.run(fd, arrays, wait=True))
            if not world.on_gpus:  # A host that is slow need not hold up its device.
                until(lambda: world.status()["run_under_way"]["slow"], "Status says that it is slow", SLOW_S)
                until(lambda: " under way for " in world.log.read_text(), "the log has it too")
            beside(world, into.outcomes)
        # From when it has all of its time again: to its end at a twentieth it would take as long as a machine is busy.
        into.outcomes["run"] = run.since(time.monotonic())
        into.outcomes["heal"] = outcome_of(world.right)
        assert world.status()["generation"] == generation, "one that is slow is replaced by nobody"
        return
    world.a.explain(fd)
    stuck = fault != "kill"
    run = Request(lambda: world.a.run(fd, arrays, wait=True, timeout=RUN_S + 1 if stuck else None))
    until(lambda: "still computing" in at(world), "the run is under way, and Status says where")
    queued = Request(world.right)
    began = time.monotonic()
    with hit(fault, world.worker(world.ranks - 1)) as into.how:
        beside(world, into.outcomes)
        if stuck:
            until(lambda: "does not answer" in at(world) or not run.is_alive(), "Status says what is stuck")
        into.outcomes["run"] = run.since(began)
        into.outcomes["heal"] = world.healed(time.monotonic(), generation)
        assert queued.since(began).code == "OK", "what was queued behind it runs on the new mesh"


def worker_without_memory(world: World, into: Situation) -> None:
    if world.on_gpus:
        raise Skipped("a limit of address space says nothing of a device's memory")
    fd = gathers(world.ranks, 2, "large_gathers")
    (x,) = (world.a.put(np.zeros((32768, 512), np.float32), value) for value in fd.fusion.inputs())
    world.a.explain(fd)
    with hit("oom", world.worker(world.ranks - 1)) as into.how:
        beside(world, into.outcomes)
        into.outcomes["run"] = outcome_of(lambda: world.a.run(fd, [x], wait=True))
        into.outcomes["heal"] = outcome_of(world.right)


def worker_in_a_communication(world: World, fault: str, into: Situation) -> None:
    if fault == "slow":
        fd = gathers(world.ranks, 30)
        (x,) = (world.a.put(np.zeros((1024, 256), np.float32), value) for value in fd.fusion.inputs())
        generation = world.status()["generation"]
        world.a.run(fd, [x], wait=True)
        with hit(fault, world.worker(world.ranks - 1)) as into.how:
            run = Request(lambda: world.a.run(fd, [x], wait=True))
            beside(world, into.outcomes)
            into.outcomes["run"] = run.since(time.monotonic())
        into.outcomes["heal"] = outcome_of(world.right)
        assert world.status()["generation"] == generation
        return
    generation = world.status()["generation"]
    first, last = world.worker(0), world.worker(world.ranks - 1)
    os.kill(first, signal.SIGSTOP)  # So the others wait for it in the all-reduce.
    run = Request(lambda: world.right(world.a, timeout=IN_COMM_S if fault != "kill" else None))
    # On GPUs a run is bound by all ranks before any of them enters it.
    waits = "does not answer" if world.on_gpus else "(is|are) waiting in allreduce #0"
    until(lambda: re.search(waits, at(world)), "the others wait, and Status says where")
    began = time.monotonic()
    with hit(fault, last) as into.how:
        with contextlib.suppress(ProcessLookupError):
            os.kill(first, signal.SIGCONT)
        beside(world, into.outcomes)
        into.outcomes["run"] = run.since(began)
        into.outcomes["heal"] = world.healed(time.monotonic(), generation)
    if fault == "stop" and not world.on_gpus:
        not_come_to(world)


def not_come_to(world: World) -> None:
    """One that does not come to a communication is what the others say after comm_timeout_ms."""
    for _ in range(5):
        generation = world.status()["generation"]
        x = world.a.put(world.x, world.known.fusion.inputs()[0])
        for _ in range(2):  # Then the ranks know its memory, and that of results: a run waits for no answer of theirs.
            world.a.run(world.known, [x], wait=True)
        with hit("stop", world.worker(0)):
            outcome = outcome_of(lambda x=x: world.a.run(world.known, [x], wait=True))
        world.healed(time.monotonic(), generation)
        if not re.match(rf"DEADLINE_EXCEEDED: {_SILENT} at rest", world.status()["last_failure"]):
            break  # Else it was found before the run came, on a machine with much to do.
    said = rf"allreduce #0.*, longer than comm_timeout_ms = 4000; {_SILENT}; the mesh is being restarted"
    wanted = Wanted("DEADLINE_EXCEEDED", said, COMM_S + LATE_S)
    assert not wanted.fault_of(outcome), wanted.fault_of(outcome)


def wrong_plan(world: World, fault: str, into: Situation) -> None:
    """World.__init__ had the first run of this daemon: HOSTIR_TESTS_WRONG_PLAN names a later generation."""
    generation = world.status()["generation"]
    os.kill(world.worker(0), signal.SIGKILL)
    until(lambda: world.status()["generation"] > generation and world.status()["serving"], "the generation to be hit")
    began = time.monotonic()
    run = Request(lambda: world.right(world.a))
    into.outcomes["run"] = run.since(began)
    beside(world, into.outcomes)
    into.outcomes["heal"] = world.healed(time.monotonic(), generation + 1)
    into.how = "a byte more behind the host program"


def planner(world: World, fault: str, into: Situation) -> None:
    pid = int(until(lambda: world.status()["planner_pid"], "a planner"))
    fd = gathers(world.ranks, 10 if fault == "slow" else 400, f"gathers_{fault}")

    def begun() -> int:
        return world.log.read_text().count(f"planner={pid} began")

    if fault == "oom":
        with hit(fault, pid, 1 << 20) as into.how:
            compiling = Request(lambda: world.a.explain(fd))
            into.outcomes["compile"] = compiling.since(time.monotonic())
    else:
        before = begun()
        compiling = Request(lambda: world.a.explain(fd))
        until(lambda: begun() > before, "the planner begins")
        began = time.monotonic()
        with hit(fault, pid) as into.how:
            into.outcomes["put"] = outcome_of(lambda: world.put(world.b))
            into.outcomes["run"] = outcome_of(world.right)  # Of a program that is planned.
            into.outcomes["get"] = outcome_of(world.get)
            beside = outcome_of(lambda: world.compile(world.b))
            assert beside.code == "OK", f"another client's program, by another planner: {beside}"
            into.outcomes["compile"] = compiling.since(began)
    began = time.monotonic()
    into.outcomes["heal"] = outcome_of(lambda: world.compile(world.b))
    into.outcomes.setdefault("run", outcome_of(world.right))


CLIENT = """
import os, sys, numpy as np, hostir
sys.path.insert(0, sys.argv[4])
import fault_table
client, request = hostir.connect(sys.argv[1]), sys.argv[2]
ranks = client.num_devices
big = np.ones((16384, 1024), np.float32)
fd = fault_table.products(ranks, 20)
arrays = [client.put(np.zeros((1024, 1024), np.float32), value) for value in fd.fusion.inputs()]
held = client.put(big)
if request in ("run", "heal"):
    client.explain(fd)
print("go", flush=True)
while True:
    if request == "compile":
        # A name that was never planned: from the cache it would be over before it is seen.
        client.explain(fault_table.gathers(ranks, 300, f"of_client_{os.getpid()}"))
        break
    elif request == "put":
        client.put(big)
    elif request == "get":
        held.numpy()
    else:
        client.run(fd, arrays, wait=True)
sys.stdin.read()
"""


def client(world: World, fault: str, into: Situation) -> None:
    """What the other client has, while one is hit in each of its requests; and that nothing is left of that one."""
    asked = {
        "compile": lambda: world.compile(world.b),
        "put": lambda: world.put(world.b),
        "run": world.right,
        "get": world.get,
    }
    before = world.holdings()
    for request in REQUESTS:
        generation = world.status()["generation"]
        command = [sys.executable, "-c", CLIENT, world.address, request, "", str(Path(__file__).parent)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None and process.stdout.readline() == "go\n"
            until(lambda: world.status()["requests_under_way"] > before["requests"], "its request is under way")
            if request == "heal":
                os.kill(world.worker(0), signal.SIGKILL)
            with hit(fault, process.pid) as into.how:
                if request == "heal":
                    into.outcomes[request] = world.healed(time.monotonic(), generation)
                else:
                    into.outcomes[request] = outcome_of(asked[request])
            process.kill()
            process.wait()
        gone = time.monotonic()
        until(lambda: world.status()["sessions"] == before["sessions"], "its session ends", DEAD_S)
        into.outcomes[request].seconds = max(into.outcomes[request].seconds, time.monotonic() - gone)


PLAYS: dict[str, Callable[[World, str, Situation], None]] = {
    "worker at rest": worker_at_rest,
    "worker in a kernel": worker_in_a_kernel,
    "worker in a communication": worker_in_a_communication,
    "planner": planner,
    "client": client,
}


def play(world: World, fault: str, place: str) -> Situation:
    """The situation, in a world that has settled. Raises AssertionError for what is wrong beside the outcomes."""
    situation = Situation()
    before = world.settled()
    (wrong_plan if fault == "wrong plan" else PLAYS[place])(world, fault, situation)
    after = world.settled()
    with contextlib.suppress(AssertionError):
        until(lambda: after.update(world.holdings()) or after == before, "what was there before", 8)
    situation.leaks = ", ".join(f"{key} {before[key]} -> {after[key]}" for key in before if before[key] != after[key])
    return situation


# --- what is wanted -----------------------------------------------------------------------------------------------

_DIED = r"rank \d+ died \(killed by signal 9\) during run \d+ of \w+; the mesh is being restarted"
_SILENT = r"rank \d+ does not answer( \((stopped|frozen, or in the kernel|traced)\))?"
_OTHERS = {request: Wanted() for request in REQUESTS}


def _with(within: float = HEAL_S, **wanted: Wanted) -> dict[str, Wanted]:
    return {**_OTHERS, "heal": Wanted(within=within), **wanted}


_DEAD = _with(run=Wanted("UNAVAILABLE", _DIED, DEAD_S))
_STUCK_AT_REST = _with(
    SILENCE_S + HEAL_S,
    run=Wanted("DEADLINE_EXCEEDED", rf"took longer than 2000 ms: {_SILENT}", RUN_S + LATE_S),
)
_STUCK_IN_A_KERNEL = _with(
    run=Wanted("DEADLINE_EXCEEDED", rf"run \d+ of products took longer than 3000 ms: {_SILENT}", RUN_S + 1 + LATE_S)
)
_STUCK_IN_A_COMMUNICATION = _with(
    run=Wanted(
        "DEADLINE_EXCEEDED",  # Of the run, or of the communication on the ranks that wait in it.
        # The rank that was held before may not have had its turn yet, on a machine with much to do.
        rf"run \d+ of column_sums( took longer than 5000 ms: |.*comm_timeout_ms = 4000; )"
        rf"({_SILENT}|ranks 0 and 1 do not answer)",
        COMM_S + LATE_S,
    )
)
_BESIDE_A_CLIENT = _with(run=Wanted(within=HEAL_S))  # Behind its run that is under way.
_SLOW = {request: Wanted(within=30) for request in REQUESTS}
EXPECTED: dict[tuple[str, str], dict[str, Wanted]] = {
    # A run that begins in the milliseconds before the death is seen ends with it.
    ("kill", "worker at rest"): _with(run=Wanted("OK|UNAVAILABLE", _DIED, HEAL_S)),
    ("kill", "worker in a kernel"): _DEAD,
    ("kill", "worker in a communication"): _DEAD,
    ("kill", "planner"): _with(
        compile=Wanted("UNAVAILABLE", r"the planner died \(killed by signal 9\) while it planned program \w+", DEAD_S)
    ),
    **{(fault, "worker at rest"): _STUCK_AT_REST for fault in ("stop", "frozen")},
    **{(fault, "worker in a kernel"): _STUCK_IN_A_KERNEL for fault in ("stop", "frozen")},
    **{(fault, "worker in a communication"): _STUCK_IN_A_COMMUNICATION for fault in ("stop", "frozen")},
    **{
        (fault, "planner"): _with(
            compile=Wanted("DEADLINE_EXCEEDED", "planning took longer than plan_timeout_ms = 3000", PLAN_S + LATE_S)
        )
        for fault in ("stop", "frozen")
    },
    **{(fault, "client"): _BESIDE_A_CLIENT for fault in ("kill", "stop", "frozen", "slow")},
    **{("slow", place): _SLOW for place in PLACES if place != "client"},
    ("oom", "worker in a kernel"): _with(run=Wanted("RESOURCE_EXHAUSTED", "", DEAD_S)),
    ("oom", "planner"): _with(compile=Wanted("RESOURCE_EXHAUSTED|OK", "planner_bytes_max = ", DEAD_S + PLAN_S)),
    ("wrong plan", "worker in a communication"): _with(
        run=Wanted("INTERNAL", r"rank \d+: the plan of column_sums that it loads has the digest \w+", DEAD_S)
    ),
}


def line(fault: str, place: str, situation: Situation) -> str:
    """A row of the table."""
    cells = [
        f"{request} {outcome.code} {outcome.seconds:.2f} s"
        for request in REQUESTS
        if (outcome := situation.outcomes.get(request)) is not None
    ]
    return f"{fault + ', ' + place:35} {'; '.join(cells)} (by {situation.how})"
