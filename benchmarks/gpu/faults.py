"""The fault table on the devices of this machine, once, by hand; tests have it on two CPU ranks.

hostir/bin/hostir-python benchmarks/gpu/faults.py --devices cuda:0,1

Programs are replayed as graphs there, NCCL's kernels inside them. `--devices cpu:2` tries the script. It exits with 1
when an outcome is not as docs/faults.md says.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))

try:
    import fault_table
    from fault_table import EXPECTED, REQUESTS
    from hostir import private_daemon
except ImportError as error:
    sys.exit(f"{error}: use hostir-python of a bundle, or a build with the service")


LEFT_MS = 1500  # Of a limit, at most so much less.
LIMIT = re.compile(r"longer than (\d+) ms")


def asked_for(
    outcome: fault_table.Outcome, wanted: fault_table.Wanted, world: fault_table.World
) -> fault_table.Outcome:
    """On GPUs a run goes in two messages, and the second has what the first left of the limit: 2372 of 3000 ms."""
    asked = LIMIT.search(wanted.message)
    if not world.on_gpus or asked is None:
        return outcome

    def limit(left: re.Match[str]) -> str:
        return asked[0] if 0 <= int(asked[1]) - int(left[1]) <= LEFT_MS else left[0]

    return dataclasses.replace(outcome, message=LIMIT.sub(limit, outcome.message))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="cuda:0,1", help="two or more of one kind: cuda:0,1, cpu:2")
    parser.add_argument("--flag", action="append", default=[], help="of hostird: --flag=--peer-memory=off")
    parser.add_argument("--only", nargs="+", default=[""], help="situations whose name has one of: stop, 'in a kernel'")
    args = parser.parse_args()
    wrong = 0
    for fault, place in EXPECTED:
        if not any(part in f"{fault}, {place}" for part in args.only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            env = {"HOSTIR_TESTS_WRONG_PLAN": "1.2"} if fault == "wrong plan" else {}
            program = private_daemon.find_daemon()
            world = fault_table.World(program, args.devices, Path(folder), args.flag, env)
            try:
                situation = fault_table.play(world, fault, place)
            except fault_table.Skipped as reason:
                print(f"{fault}, {place}: skipped: {reason}", flush=True)
                continue
            except AssertionError as error:
                print(f"{fault}, {place}: WRONG: {error}", flush=True)
                wrong += 1
                continue
            finally:
                world.close()
        print(fault_table.line(fault, place, situation), flush=True)
        wanted = EXPECTED[fault, place]
        faults = [
            f"{request}: {fault_of}"
            for request in REQUESTS
            if request in situation.outcomes
            and (fault_of := wanted[request].fault_of(asked_for(situation.outcomes[request], wanted[request], world)))
        ]
        if situation.leaks:
            faults.append(f"left: {situation.leaks}")
        for one in faults:
            print(f"    WRONG: {one}", flush=True)
        wrong += len(faults)
    print("all as wanted" if wrong == 0 else f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
