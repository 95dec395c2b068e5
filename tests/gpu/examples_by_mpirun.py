"""The examples by `mpirun hostir-eval --device cuda`, one rank a GPU, against NumPy. Exits 77 where that cannot be.

    python examples_by_mpirun.py --eval build/gpu/hostir-eval --ranks 2 [--device cpu]

The client writes the programs, so it must be there: in a build with the service, or by `hostir-python` of a bundle.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "examples"))

try:
    import numpy as np

    import adaptive_layernorm_backward
    import rope
    import tensor_parallel_mlp
    from example import Example, relative_error
except ImportError as error:
    print(f"SKIPPED: {error}: use a build with the service, or hostir-python of a bundle")
    sys.exit(SKIPPED)

ENVIRONMENT = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def num_gpus() -> int:
    smi = shutil.which("nvidia-smi")
    listed = subprocess.run([smi, "-L"], capture_output=True, text=True, timeout=60).stdout if smi else ""
    return sum(line.startswith("GPU ") for line in listed.splitlines())


def measured(example: Example, ranks: int, evaluate: list[str]) -> tuple[float, float]:
    """The largest error of an output relative to NumPy's in float64, and the milliseconds of a run on the devices."""
    inputs = example.make_inputs()
    fd = example.define(ranks)
    with tempfile.TemporaryDirectory(prefix="hostir-") as folder:
        program = Path(folder) / "program.hir"
        program.write_text(str(fd))
        for array, tensor in zip(inputs, fd.fusion.inputs(), strict=True):
            np.save(Path(folder) / f"{tensor.name}.npy", np.ascontiguousarray(array) if array.ndim else array)
        out = Path(folder) / "out"
        out.mkdir()
        report = Path(folder) / "report.json"
        options = ["--in", folder, "--out", out, "--repeat", "20", "--json", report]
        subprocess.run([*evaluate, program, *options], env=ENVIRONMENT, check=True, timeout=120)
        errors = []
        for output, want in zip(fd.fusion.outputs(), example.reference(inputs), strict=True):
            got = np.load(out / f"{output.name}.npy")
            got = got.view(inputs[-1].dtype) if got.dtype.kind == "V" else got  # bfloat16.
            errors.append(relative_error(got, want) if got.shape == want.shape else float("inf"))
        return max(errors), json.loads(report.read_text())["median_ms"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--eval", required=True, help="the program hostir-eval")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    args = parser.parse_args()
    mpirun = shutil.which("mpirun")
    if mpirun is None or (args.device == "cuda" and num_gpus() < args.ranks):
        print(f"SKIPPED: needs mpirun and {args.ranks} GPUs; nvidia-smi lists {num_gpus()}")
        sys.exit(SKIPPED)
    evaluate = [mpirun, "--oversubscribe", "--bind-to", "none", "-n", str(args.ranks), args.eval]
    wrong = 0
    for module in (adaptive_layernorm_backward, rope, tensor_parallel_mlp):
        error, each = measured(module.EXAMPLE, args.ranks, [*evaluate, "--device", args.device])
        right = error <= module.EXAMPLE.tolerance  # A NaN is wrong.
        wrong += not right
        print(f"{module.__name__:32} error {error:.2e}{'' if right else ' WRONG'}, {each:.3f} ms a run", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
