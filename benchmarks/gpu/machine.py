"""What a figure was measured on, and by which command: kept with every result."""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import subprocess
import sys


def machine(**versions: str) -> dict[str, object]:
    """GPUs, driver, processors, date, and the command without the folders of this machine; `versions`: of the peers."""
    gpus, driver = [], ""
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        done = subprocess.run(query, capture_output=True, text=True, timeout=60)
        for line in done.stdout.splitlines():
            name, driver = (part.strip() for part in line.rsplit(",", 1))
            gpus.append(name)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        pass  # No driver: a trial run on a CPU.
    arguments = [os.path.basename(a) if os.path.isabs(a) else a for a in sys.argv]
    arguments[0] = os.path.join("benchmarks", "gpu", os.path.basename(sys.argv[0]))
    return {
        "gpus": gpus,
        "driver": driver,
        "processors": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        **versions,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(["python3", *arguments]),
    }
