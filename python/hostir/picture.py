"""Pictures of plans, drawn by the command line's own layout (`hostir explain --svg`)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from . import private_daemon
from .errors import Unavailable

_SECONDS = 60.0
_FILE_NAME = re.compile(r"\w[\w.-]{0,63}")


def draw(reply: bytes, name: str, sizes: Mapping[str, int]) -> str:
    """The SVG document of a plan. reply: a hostir.v1.ExplainReply; name and sizes are its title.

    Raises Unavailable where the command ``hostir`` is not to be found beside hostird or on ``$PATH``, or fails.
    """
    command = _find_command()
    with tempfile.TemporaryDirectory(prefix="hostir-") as folder:
        plan = Path(folder, (name if _FILE_NAME.fullmatch(name) else "plan") + ".plan")
        plan.write_bytes(reply)
        svg = Path(folder, "plan.svg")
        arguments = [command, "explain", str(plan), "--reply", f"--svg={svg}"]
        arguments += [f"--size={size}={value}" for size, value in sizes.items()]
        try:
            done = subprocess.run(arguments, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"{command} cannot draw the plan: {error}") from error
        if done.returncode != 0:
            raise Unavailable(f"{command} cannot draw the plan: {done.stderr.strip()}")
        return svg.read_text()


def _find_command() -> str:
    """The command ``hostir``: beside the hostird that ``connect()`` would start, else that of ``$PATH``."""
    try:
        beside = Path(private_daemon.find_daemon()).resolve().with_name("hostir")
    except Unavailable:
        beside = None
    if beside is not None and os.access(beside, os.X_OK):
        return str(beside)
    found = shutil.which("hostir")
    if found is None:
        raise Unavailable(
            "no command hostir found, which draws plans: build it (./run build hostir), or put it on $PATH"
        )
    return found
