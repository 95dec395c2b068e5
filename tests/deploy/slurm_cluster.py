"""A program: a Slurm of three nodes on this machine, in namespaces of its own, and the jobs of test_slurm.py on it.

unshare --net --mount --uts --ipc --pid --fork --mount-proc --kill-child python slurm_cluster.py FOLDER SBATCH BIN

Nothing is authenticated: nobody else is there. Prints JSON: what became of each job.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
from eventually import eventually

NODES = [f"n{node}" for node in range(3)]
# An interface beside loopback: without one the resolver finds no address at all, not even of numbers.
ADDRESS = "10.79.0.1"


def run(command: str, folder: Path | None = None) -> str:
    done = subprocess.run(shlex.split(command), cwd=folder, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        sys.exit(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


def configuration(folder: Path) -> str:
    lines = [
        "ClusterName=test",
        f"SlurmctldHost=slurm({ADDRESS})",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/none",
        "CredType=cred/none",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "MpiDefault=none",
        "SelectType=select/linear",
        "KillWait=2",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool-%n",
        f"SlurmdPidFile={folder}/slurmd-%n.pid",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdLogFile={folder}/slurmd-%n.log",
        f"SlurmctldLogFile={folder}/slurmctld.log",
        "SchedulerParameters=batch_sched_delay=0,sched_interval=1",
        f"PartitionName=all Nodes={','.join(NODES)} Default=YES MaxTime=INFINITE State=UP",
    ]
    for number, node in enumerate(NODES):
        lines.append(f"NodeName={node} NodeHostname=slurm NodeAddr={ADDRESS} Port={17010 + number} CPUs=2")
    return "\n".join(lines) + "\n"


def start(folder: Path) -> None:
    run("ip link set lo up")
    run("ip link add eth0 type veth peer name eth1")
    run(f"ip address add {ADDRESS}/24 dev eth0")
    for end in ("eth0", "eth1"):
        run(f"ip link set {end} up")
    run("hostname slurm")
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{ADDRESS} slurm {' '.join(NODES)}\n")
    run(f"mount --bind {folder}/hosts /etc/hosts")
    (folder / "slurm.conf").write_text(configuration(folder))
    (folder / "state").mkdir()
    os.environ["SLURM_CONF"] = f"{folder}/slurm.conf"
    run("slurmctld")
    for node in NODES:
        run(f"slurmd -N {node}")
    eventually(lambda: run("sinfo --noheader --states=idle --format=%D").strip() == str(len(NODES)))


def hostirds() -> int:
    return sum((folder / "comm").read_text().startswith("hostird") for folder in Path("/proc").glob("[0-9]*"))


def submit(sbatch: str, folder: Path, command: str) -> str:
    """The number of the job."""
    folder.mkdir()
    return run(f"sbatch --parsable --nodes=3 {sbatch} {command}", folder).strip()


def result(job: str, folder: Path) -> dict[str, str | int | list[str]]:
    """When the job is over."""
    eventually(
        lambda: (
            run(f"squeue --noheader --jobs={job} --states=all --format=%T").strip()
            in ("COMPLETED", "FAILED", "CANCELLED")
        )
    )
    eventually(lambda: run("squeue --noheader") == "")
    code = next(word for word in run(f"scontrol --oneliner show job {job}").split() if word.startswith("ExitCode="))
    return {
        "code": code.removeprefix("ExitCode="),
        "out": (folder / f"slurm-{job}.out").read_text(),
        "log": (folder / f"hostir-{job}.log").read_text(),
        "left": sorted(path.name for path in folder.iterdir()),
        "hostirds": hostirds(),
    }


def main() -> None:
    folder, sbatch, bin_ = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    start(folder)
    os.environ |= {"BIN": bin_, "PORT_STEP": "1", "HOSTIR_DEVICES": "cpu:2", "TMPDIR": "/tmp"}
    job = submit(sbatch, folder / "well", "sh -c '" + f'"{bin_}/hostir" status --json; exit 7' + "'")
    results = {"well": result(job, folder / "well")}
    job = submit(sbatch, folder / "ended", "sh -c 'echo up; exec cat /dev/zero >/dev/null'")
    out = folder / "ended" / f"slurm-{job}.out"
    eventually(lambda: out.exists() and "up" in out.read_text().split())
    run(f"scancel --signal=TERM --batch {job}")  # As --signal=B:TERM@60 does.
    results["ended"] = result(job, folder / "ended")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
