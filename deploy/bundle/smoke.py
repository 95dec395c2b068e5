"""Unpacks a bundle into an empty folder and runs what it is for, with an empty environment and no source tree.

    python3 deploy/bundle/smoke.py build/hostir-bundle.tar.zst [--devices cpu:2]

By the first of these that has the client's libraries, or whose version the bundle carries them for: the `python3.N` of
the bundle, `/usr/bin/python3`, the Python that runs this. Needs nothing but the standard library.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def run(command: list[object], python: str = "") -> str:
    """Its output; ends everything when it fails."""
    bare = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **({"PYTHON": python} if python else {})}
    done = subprocess.run([str(c) for c in command], cwd="/", env=bare, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"smoke: {command[0]} exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def interpreter(root: Path) -> str:
    carried = [f"python{path.name[2]}.{path.name[3:]}" for path in (root / "python").glob("cp*")]
    candidates = [*(shutil.which(name) for name in carried), "/usr/bin/python3", sys.executable]
    for python in filter(None, candidates):
        ready = [root / "bin/hostir-python", "-c", "import google.protobuf, grpc, ml_dtypes, numpy"]
        environment = {"PATH": "/usr/bin:/bin", "PYTHON": python}
        if subprocess.run(ready, env=environment, capture_output=True, timeout=60).returncode == 0:
            return python
    sys.exit(f"smoke: no Python for the client: it carries libraries for {', '.join(carried) or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--devices", default="cpu:2")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hostir-smoke-") as folder:
        subprocess.run(["tar", "xf", args.archive.resolve(), "-C", folder], check=True)
        root = Path(folder) / "hostir"
        for program in ("hostird", "hostir-worker"):
            run([root / "bin" / program, "--help"])
        python = interpreter(root)
        out = run([root / "bin/hostir-python", root / "examples/demo.py", "--devices", args.devices], python)
        if "WRONG" in out or out.count(" ms ") < 3:
            sys.exit(f"smoke: the examples are not right:\n{out}")
        print("\n".join(line for line in out.splitlines() if " ms " in line))
        print(f"smoke: three examples on {args.devices}, by {python}: right")


if __name__ == "__main__":
    main()
