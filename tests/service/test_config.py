"""hostird's configuration: who wins, what is refused and how, exit codes, the manager of services.

Method: the program itself. --check-config is the oracle's subject: the expected table is written by hand.
"""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess

import pytest

BUILD = pathlib.Path(os.environ.get("HOSTIR_BUILD_DIR", "build/dev")).resolve()
HOSTIRD = BUILD / "hostird"
UNIT = pathlib.Path("deploy/systemd/hostird@.service")

pytestmark = pytest.mark.skipif(
    not HOSTIRD.exists() and not os.environ.get("HOSTIR_TESTS_NEED_DAEMON"), reason="hostird is not built"
)


def clean_environment(**variables: str) -> dict[str, str]:
    others = ("HOSTIR_", "PMIX_", "OMPI_", "PMI_", "SLURM_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    return {**kept, **variables}


def hostird(*flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [HOSTIRD, *flags]
    return subprocess.run(
        command, env=clean_environment(**variables), capture_output=True, text=True, timeout=60, check=False
    )


def check(*flags: str, **variables: str) -> dict[str, tuple[str, str]]:
    """{key: (value, origin)} of what --check-config prints."""
    done = hostird("--check-config", *flags, **variables)
    assert done.returncode == 0, done.stderr
    rows = [re.fullmatch(r"(\w+) = (.*?) +# (.*)", line) for line in done.stdout.splitlines()]
    assert all(rows), done.stdout
    return {row[1]: (row[2], row[3]) for row in rows if row}


def write(path: pathlib.Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_defaults():
    rows = check(XDG_RUNTIME_DIR="/run/user/7")
    assert {origin for _, origin in rows.values()} == {"default"}
    assert rows["devices"][0] == '"cpu:1"'
    assert rows["listen"][0] == '"unix:/run/user/7/hostir/socket"'
    assert rows["queued_runs_max"][0] == "1024"
    assert check(XDG_RUNTIME_DIR="")["listen"][0] == f'"unix:/tmp/hostir-{os.getuid()}/socket"'


# Which of flag, environment and file give a value, and who wins.
@pytest.mark.parametrize(
    ("flag", "variable", "file", "value", "origin"),
    [
        (None, None, None, "1024", "default"),
        (None, None, "30", "30", "{file}:2"),
        (None, "20", None, "20", "HOSTIR_QUEUED_RUNS_MAX"),
        (None, "20", "30", "20", "HOSTIR_QUEUED_RUNS_MAX"),
        ("10", None, None, "10", "--queued-runs-max"),
        ("10", None, "30", "10", "--queued-runs-max"),
        ("10", "20", None, "10", "--queued-runs-max"),
        ("10", "20", "30", "10", "--queued-runs-max"),
    ],
)
def test_precedence(tmp_path, flag, variable, file, value, origin):
    path = write(tmp_path / "hostird.toml", f"# comment\n{f'queued_runs_max = {file}' if file else ''}\n")
    flags = [f"--config={path}", *([f"--queued-runs-max={flag}"] if flag else [])]
    variables = {"HOSTIR_QUEUED_RUNS_MAX": variable} if variable else {}
    assert check(*flags, **variables)["queued_runs_max"] == (value, origin.format(file=path))


# The first of a launcher's variables is a node's number; a flag, the environment or a file say more.
@pytest.mark.parametrize(
    ("flags", "variables", "value", "origin"),
    [
        ([], {"SLURM_PROCID": "2"}, "2", "SLURM_PROCID"),
        ([], {"SLURM_PROCID": "0", "PMI_RANK": "1"}, "1", "PMI_RANK"),
        ([], {"PMI_RANK": "0", "OMPI_COMM_WORLD_RANK": "1"}, "1", "OMPI_COMM_WORLD_RANK"),
        ([], {"OMPI_COMM_WORLD_RANK": "0", "PMIX_RANK": "1"}, "1", "PMIX_RANK"),
        (["--node=0"], {"PMIX_RANK": "1"}, "0", "--node"),
        ([], {"PMIX_RANK": "1", "HOSTIR_NODE": "2"}, "2", "HOSTIR_NODE"),
    ],
)
def test_the_number_of_a_node(folder, flags, variables, value, origin):
    nodes = ",".join(f"unix:{folder}/{node}" for node in range(3))
    assert check(f"--nodes={nodes}", *flags, **variables)["node"] == (value, origin)


def test_the_number_of_a_node_that_will_not_do(folder):
    nodes = f"--nodes=unix:{folder}/0,unix:{folder}/1"
    wanted = {
        "": "which of --nodes this one is, from 0 on, nobody says, and no launcher: none of PMIX_RANK, "
        "OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID is set",
        "2": "--node=2 (PMI_RANK): --nodes has 2, from 0 on",
        "one": 'the launcher\'s PMI_RANK="one" is not the number of a process',
        "-1": 'the launcher\'s PMI_RANK="-1" is not the number of a process',
    }
    for text, said in wanted.items():
        done = hostird(nodes, **({"PMI_RANK": text} if text else {}))
        assert (done.returncode, said in done.stderr, len(done.stderr.splitlines())) == (2, True, 1), done.stderr


def test_a_launchers_number_is_nothing_to_a_daemon_that_is_alone():
    assert check(PMIX_RANK="5000", SLURM_PROCID="x")["node"] == ("-1", "default")


def test_every_kind_of_value_by_every_way(tmp_path):
    path = write(
        tmp_path / "hostird.toml",
        'devices = "cpu:3"\ninsecure_tcp = true\nown_memory = true\nlog_level = "warn"\nthreads_per_rank = 2\n',
    )
    rows = check(
        "--config",
        path,
        "--own-memory=false",
        "--log-level=off",
        HOSTIR_DEVICES="cuda:0,2",
        HOSTIR_LISTEN="tcp:localhost:0",
        HOSTIR_WORKER='/opt/a "b"\\c',
    )
    assert {key: rows[key] for key in ("devices", "listen", "insecure_tcp", "own_memory", "log_level", "worker")} == {
        "devices": ('"cuda:0,2"', "HOSTIR_DEVICES"),
        "listen": ('"tcp:localhost:0"', "HOSTIR_LISTEN"),
        "insecure_tcp": ("true", f"{path}:2"),
        "own_memory": ("false", "--own-memory"),
        "log_level": ('"off"', "--log-level"),
        "worker": (r'"/opt/a \"b\"\\c"', "HOSTIR_WORKER"),
    }
    assert rows["threads_per_rank"] == ("2", f"{path}:5")


def test_what_is_printed_is_a_file_that_says_the_same(tmp_path):
    first = hostird("--check-config", "--devices=cpu:2", '--worker=/a "b"\\c', "--rpc-threads=7", "--own-memory").stdout
    path = write(tmp_path / "printed.toml", first)
    second = check("--config", path)
    assert {origin.rsplit(":", 1)[0] for _, origin in second.values()} == {path}
    values = re.findall(r"^(\w+) = (.*?) +#", first, re.M)
    assert [(key, value) for key, (value, _) in second.items()] == values


def test_the_example_of_deploy_is_good():
    rows = check("--config", "deploy/systemd/hostird.toml")
    assert rows["devices"][1].startswith("deploy/systemd/hostird.toml:")


# (file, environment, flags) and what the one line that is printed says. {f}: the file's path.
FAULTS = {
    "range in a file": (
        "\nqueued_runs_max = 0\n",
        {},
        [],
        "{f}:2: queued_runs_max = 0: 0 is not in range: want 1 to 1000000 (queued runs of one session)",
    ),
    "above the range": (
        "",
        {},
        ["--rpc-threads=1025"],
        "--rpc-threads=1025: 1025 is not in range: want 1 to 1024 (threads that carry out requests, and",
    ),
    "range in the environment": (
        "",
        {"HOSTIR_RPC_THREADS": "-1"},
        [],
        "HOSTIR_RPC_THREADS=-1: -1 is not in range: want 1 to 1024 (threads that carry out requests, and",
    ),
    "no number": ("", {}, ["--rpc-threads=four"], "--rpc-threads=four: want a whole number from 1 to 1024"),
    "a number with a fraction": ("rpc_threads = 1.5", {}, [], "{f}:1: rpc_threads = 1.5: want a whole number from 1"),
    "a number in quotes": ('rpc_threads = "4"', {}, [], '{f}:1: rpc_threads = "4": want a whole number from 1 to 1024'),
    "a text without quotes": ("log_level = 3", {}, [], "{f}:1: log_level = 3: want a text in quotes"),
    "a switch": ("own_memory = 1", {}, [], "{f}:1: own_memory = 1: want true or false"),
    "a switch in the environment": ("", {"HOSTIR_OWN_MEMORY": "yes"}, [], "HOSTIR_OWN_MEMORY=yes: want true or false"),
    "a word": ("", {}, ["--log-level=loud"], "--log-level=loud: want trace, debug, info, warn, error, off"),
    "devices": ("", {}, ["--devices=cpu:65"], "--devices=cpu:65: want cpu:N with N from 1 to 64"),
    "devices in a file": ('devices = "gpu:1"', {}, [], '{f}:1: devices = "gpu:1": want cpu:N'),
    "address": ("", {}, ["--listen=unix:socket"], "--listen=unix:socket: the path must be absolute"),
    "port": ("", {}, ["--listen=tcp:localhost:65536"], "want tcp:host:port with a port from 0 to 65535"),
    "long path": ("", {}, ["--listen=unix:/" + "x" * 107], "has at most 107 bytes, this one has 108"),
    "what gRPC reads otherwise": ("", {}, ["--listen=unix:/run/a#b"], '=unix:/run/a#b: the path has "#", which gRPC'),
    "tcp": ("", {}, ["--listen=tcp:localhost:0"], "--insecure-tcp allows it on loopback"),
    "tcp, by a file": (
        'listen = "tcp:localhost:0"',
        {},
        [],
        "--listen=tcp:localhost:0 ({f}:1): TCP by itself has neither",
    ),
    "beyond loopback": (
        "",
        {},
        ["--listen=tcp:0.0.0.0:0", "--insecure-tcp"],
        "--listen=tcp:0.0.0.0:0 (--listen): without encryption only loopback is served",
    ),
    "unknown key": (
        "\n\nqueued_run_max = 4\n",
        {},
        [],
        "{f}:3: queued_run_max = 4: no such key; did you mean queued_runs_max?",
    ),
    "a table": ("[limits]\nrpc_threads = 4\n", {}, [], "{f}:1: limits = a table: no such key"),
    "unknown variable": (
        "",
        {"HOSTIR_QUEUED_RUN_MAX": "4"},
        [],
        "HOSTIR_QUEUED_RUN_MAX: no such setting; did you mean HOSTIR_QUEUED_RUNS_MAX?",
    ),
    "unknown flag": ("", {}, ["--device=cpu:1"], "--device: no such flag; did you mean --devices?"),
    "argument": ("", {}, ["cpu:4"], "cpu:4: no such argument"),
    "syntax": ('\ndevices = "cpu:1\n', {}, [], "{f}:2: "),
    "twice": ("rpc_threads = 1\nrpc_threads = 2\n", {}, [], "{f}:2: "),
    "no file": (None, {}, [], "--config={f}: cannot be read"),
}


# Else the daemon starts with defaults, and who gave it the settings does not know.
def test_a_configuration_that_is_no_file(tmp_path):
    for mode in (["--check-config"], []):
        for path, what in ((str(tmp_path), "is no file"), ("/dev/null", "is no file"), ("", "the path is empty")):
            done = hostird("--config", path, *mode)
            assert (done.returncode, done.stdout, done.stderr) == (2, "", f"hostird: --config={path}: {what}\n")


@pytest.mark.parametrize("case", FAULTS)
def test_refused(tmp_path, case):
    text, variables, flags, expected = FAULTS[case]
    path = tmp_path / "hostird.toml"
    if text is not None:
        path.write_text(text)
    for mode in (["--check-config"], []):  # The daemon itself refuses the same.
        done = hostird(f"--config={path}", *flags, *mode, **variables)
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.startswith("hostird: ") and done.stderr.count("\n") == 1
        assert expected.format(f=path) in done.stderr


def test_all_faults_are_named(tmp_path):
    path = write(tmp_path / "hostird.toml", "rpc_threads = 0\nqueued_rpcs_max = 0\n")
    done = hostird("--check-config", f"--config={path}", "--tensors-max=0")
    assert done.returncode == 2
    assert [line.split(" ")[1] for line in done.stderr.splitlines()] == [f"{path}:1:", f"{path}:2:", "--tensors-max=0:"]


OF_CLIENTS = {"HOSTIR_CA": "x", "HOSTIR_CERT": "x", "HOSTIR_KEY": "x"}


def test_variables_of_others_are_nobodys_business():
    assert check(
        HOSTIR_ADDRESS="unix:/x",
        HOSTIR_BUILD_DIR="x",
        HOSTIR_DAEMON="x",
        HOSTIR_NVRTC="x",
        HOSTIR_SEED="1",
        **OF_CLIENTS,
    )


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--queued-runs-max"], "--queued-runs-max: 1 required 1 to 1000000 missing"),
        (["--devices", "cpu:1", "--devices", "cpu:2"], "--devices: At Most 1 required but received 2"),
        (["--ready-fd=x"], "--ready-fd = x"),
        (["--own-memory=maybe"], "--own-memory: maybe: want true or false"),
    ],
)
def test_a_flag_that_is_used_wrongly(flags, expected):
    done = hostird(*flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("hostird: ") and done.stderr.count("\n") == 1
    assert expected in done.stderr


def test_version():
    done = hostird("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hostird 0.1.0\n", "")


def test_a_switch_is_set_as_in_a_file():
    for value, flag in (("true", "--own-memory"), ("true", "--own-memory=1"), ("false", "--own-memory=false")):
        assert check(flag)["own_memory"][0] == value


def test_help_names_every_setting():
    done = hostird("--help")
    assert done.returncode == 0
    for key in check():
        assert f"--{key.replace('_', '-')}" in done.stdout
    for words in ("Exit codes", "HOSTIR_", "hostird --devices cpu:4", "1 to 1000000"):
        assert words in done.stdout


class Daemon:
    """A hostird that has said that it is ready."""

    def __init__(self, *flags: str, **variables: str) -> None:
        read, write_end = os.pipe()
        self.process = subprocess.Popen(
            [HOSTIRD, f"--ready-fd={write_end}", *flags],
            env=clean_environment(**variables),
            pass_fds=[write_end],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        os.close(write_end)
        with os.fdopen(read) as ready:
            self.address = ready.readline().strip()

    def stop(self) -> tuple[int, str]:
        """SIGTERM; its exit code and log."""
        self.process.send_signal(signal.SIGTERM)
        log, _ = self.process.communicate(timeout=60)
        return self.process.returncode, log


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    tmp_path.chmod(0o700)
    return tmp_path


def test_exit_codes_of_a_daemon_and_of_one_that_comes_second(folder):
    listen = f"--listen=unix:{folder}/socket"
    daemon = Daemon(listen)
    assert daemon.address == f"unix:{folder}/socket"
    second = hostird(listen)
    assert second.returncode == 4
    assert f"ALREADY_EXISTS: {listen}: another daemon listens on unix:{folder}/socket" in second.stdout
    code, log = daemon.stop()
    assert code == 0
    assert "draining" in log and log.rstrip().endswith("stopped")


def test_a_port_that_is_taken_is_4():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = hostird(f"--listen=tcp:127.0.0.1:{port}", "--insecure-tcp")
    assert done.returncode == 4
    assert f"another daemon listens on tcp:127.0.0.1:{port}" in done.stdout


def test_workers_that_do_not_start_are_3(folder):
    done = hostird(f"--listen=unix:{folder}/socket", "--worker=/nowhere/hostir-worker")
    assert done.returncode == 3
    assert "cannot start 1 workers: cannot start /nowhere/hostir-worker: No such file" in done.stdout
    done = hostird(f"--listen=unix:{folder}/socket", f"--worker={shutil.which('false')}")
    assert done.returncode == 3, done.stdout


def test_a_folder_that_others_may_enter_is_2(folder):
    folder.chmod(0o755)
    done = hostird(f"--listen=unix:{folder}/socket")
    assert done.returncode == 2
    assert f"{folder} must be this user's alone (chmod 700)" in done.stdout


@pytest.mark.parametrize(("kind", "name"), [("file", "a file"), ("folder", "a folder"), ("link", "a symbolic link")])
def test_a_path_where_something_else_is_is_2(folder, kind, name):
    """What is there stays, in whole."""
    path, other = folder / "socket", folder / "other"
    other.write_text("mine")
    {"file": lambda: path.write_text("mine"), "folder": path.mkdir, "link": lambda: path.symlink_to(other)}[kind]()
    done = hostird(f"--listen=unix:{path}")
    assert done.returncode == 2
    assert f"{path} is {name}, not a socket: name a path where nothing is, or remove it" in done.stdout
    assert path.is_dir() if kind == "folder" else path.read_text() == "mine"
    assert path.is_symlink() == (kind == "link")


def test_the_socket_of_a_daemon_that_was_killed_is_taken(folder):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(f"{folder}/socket")
    daemon = Daemon(f"--listen=unix:{folder}/socket")
    assert daemon.address == f"unix:{folder}/socket"
    assert daemon.stop()[0] == 0
    assert not (folder / "socket").exists()


def test_one_line_an_event(folder):
    """Whatever a client or a file calls itself, it cannot write a second line, or fields of its own."""
    worker = folder / 'a\n[critical] "b"'
    done = hostird(f"--listen=unix:{folder}/socket", f"--worker={worker}")
    assert done.returncode == 3
    lines = done.stdout.splitlines()
    assert all(re.match(r"\[\d{4}-\d\d-\d\d ", line) for line in lines), done.stdout
    assert r"/a\n[critical] \"b\": No such file" in lines[-1]


@pytest.mark.parametrize("abstract", [False, True])
def test_the_manager_of_services_is_told(folder, abstract):
    name = f"\0hostir-test-{os.getpid()}" if abstract else str(folder / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(60)
        manager.bind(name)
        daemon = Daemon(f"--listen=unix:{folder}/socket", NOTIFY_SOCKET=name.replace("\0", "@"))
        assert manager.recv(4096).decode() == f"READY=1\nSTATUS=serving on unix:{folder}/socket"
        assert daemon.stop()[0] == 0
        assert manager.recv(4096).decode() == "STOPPING=1"


def unit_values(key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.M)


def test_the_unit_starts_the_daemon(folder):
    """Method: what systemd would do with ExecStart and Type=notify, with the paths of this machine."""
    assert unit_values("Type") == ["notify"]
    (start,) = unit_values("ExecStart")
    program, *flags = start.split()
    assert program == "/opt/hostir/bin/hostird"
    config = folder / "hostird.toml"
    example = pathlib.Path("deploy/systemd/hostird.toml").read_text()
    config.write_text(example.replace("cuda:all", "cpu:1"))
    paths = {"/etc/hostir/hostird.toml": str(config), "unix:/run/hostir-%i/socket": f"unix:{folder}/socket"}
    daemon = Daemon(*[paths.get(flag, flag) for flag in flags])
    assert daemon.address == f"unix:{folder}/socket"
    assert daemon.stop()[0] == 0


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine")
def test_systemd_accepts_the_unit(folder):
    """systemd wants ExecStart to exist, so the copy that it reads names the one that was built."""
    unit = folder / "hostird@me.service"
    unit.write_text(UNIT.read_text().replace("/opt/hostir/bin/hostird", str(HOSTIRD)))
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "hostird" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
