"""Runs the fuzz targets, each for its share of the time, and says what they found: what `./run fuzz` does.

Each core runs one libFuzzer process of a target; they share its corpus, build/fuzz-corpus/NAME, which is kept from run
to run. What a target finds is written to build/fuzz-findings, with the command that shows it again.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = ROOT / "build" / "fuzz-corpus"
FINDINGS = ROOT / "build" / "fuzz-findings"
# The largest input, where what a large one costs says nothing; and seconds after which one is a finding: planning takes
# longer under sanitizers.
LENGTH = {"parse": 16384, "convert": 16384, "admission": 4096, "config": 4096, "plan": 8192}
LENGTH_OTHERS = 32768
TIMEOUT = {"plan": 25, "service": 60}
TIMEOUT_OTHERS = 10
KINDS = ("crash-", "timeout-", "oom-", "leak-")
PULSE = re.compile(r"#(\d+)\s+(\w+)\s+cov: (\d+) ft: (\d+) corp: (\d+)\S* .*?exec/s: (\d+)")
END = re.compile(r"stat::number_of_executed_units:\s*(\d+)")


@dataclasses.dataclass
class Result:
    """The outcome of the runs of a target."""

    runs: int = 0
    seconds: float = 0.0
    coverage: int = 0
    features: int = 0
    findings: list[pathlib.Path] = dataclasses.field(default_factory=list)


def seconds_of(text: str) -> float:
    """`text`, "90", "90s", "10m" or "2h", in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text} is no time: 90, 90s, 10m and 2h are")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


class Job:
    """One libFuzzer process of a target, started again after a finding until its time is over."""

    def __init__(self, target: str, build: pathlib.Path, number: int, until: float) -> None:
        """`number`: which of the target's processes it is. `until`: of time.monotonic()."""
        self.target = target
        self.until = until
        self.executed_before = 0
        self.executed = 0
        self.coverage = 0
        self.features = 0
        self.new_findings: list[pathlib.Path] = []
        self.log = FINDINGS / f"{target}.{number}.log"
        self._program = build / "tests" / "fuzz" / f"{target}_fuzz"
        self._read = 0
        self._findings = FINDINGS / target
        self._process: subprocess.Popen[bytes] | None = None
        self._start()

    def _start(self) -> None:
        left = max(1, int(self.until - time.monotonic()))
        command = [
            str(self._program),
            f"-max_total_time={left}",
            f"-max_len={LENGTH.get(self.target, LENGTH_OTHERS)}",
            f"-timeout={TIMEOUT.get(self.target, TIMEOUT_OTHERS)}",
            "-rss_limit_mb=3072",
            f"-artifact_prefix={self._findings}/",
            "-print_final_stats=1",
            "-reload=1",
            "-verbosity=1",
            str(CORPUS / self.target),
        ]
        environment = dict(os.environ)
        environment.setdefault("ASAN_OPTIONS", "detect_leaks=1:allocator_may_return_null=1:max_allocation_size_mb=2048")
        environment.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")
        self._read = 0
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment
            )

    def look(self) -> bool:
        """Reads what the process said since the last time; whether it goes on."""
        assert self._process is not None
        over = self._process.poll() is not None
        with self.log.open("rb") as log:
            log.seek(self._read)
            said = log.read()
        whole = len(said) if over else said.rfind(b"\n") + 1
        self._read += whole
        for line in said[:whole].decode(errors="replace").splitlines():
            if match := PULSE.match(line):
                self.executed = int(match[1])
                self.coverage, self.features = int(match[3]), int(match[4])
            elif match := END.match(line):
                self.executed = int(match[1])
        if not over:
            return True
        if self._process.returncode == 0:
            return False
        self._keep_log()
        self.executed_before += self.executed
        self.executed = 0
        if len(self.new_findings) >= 5 or time.monotonic() + 1 > self.until:
            return False
        self._start()
        return True

    def _keep_log(self) -> None:
        """The finding of the process that has just ended, with its log beside it."""
        text = self.log.read_text(errors="replace")
        match = re.search(r"Test unit written to (\S+)", text)
        path = pathlib.Path(match[1]) if match else self._findings / f"no-input-{time.time_ns()}"
        shutil.copy(self.log, path.with_name(path.name + ".log"))
        self.new_findings.append(path)

    def stop(self) -> None:
        """Ends the process."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()


def fuzz(target: str, build: pathlib.Path, seconds: float, jobs: int) -> Result:
    """Runs `jobs` processes of `target` for `seconds`, and shows how it goes on."""
    corpus = CORPUS / target
    corpus.mkdir(parents=True, exist_ok=True)
    (FINDINGS / target).mkdir(parents=True, exist_ok=True)
    program = build / "tests" / "fuzz" / f"{target}_fuzz"
    subprocess.run([program, f"--write-seeds={corpus}"], cwd=ROOT, check=True)
    began = time.monotonic()
    running = [Job(target, build, number, began + seconds) for number in range(jobs)]
    everyone = list(running)
    result = Result()
    try:
        while running:
            time.sleep(0.5)
            running = [job for job in running if job.look()]
            result = Result(
                runs=sum(job.executed_before + job.executed for job in everyone),
                seconds=time.monotonic() - began,
                coverage=max(job.coverage for job in everyone),
                features=max(job.features for job in everyone),
                findings=[path for job in everyone for path in job.new_findings],
            )
            show(target, result, seconds)
    finally:
        for job in everyone:
            job.stop()
    if sys.stderr.isatty():
        print(file=sys.stderr)
    else:
        print(line(target, result, seconds), file=sys.stderr)
    for path in result.findings:
        print(f"  FOUND {path.relative_to(ROOT)}: {why(path)}", file=sys.stderr)
        print(f"    again: {program.relative_to(ROOT)} {path.relative_to(ROOT)}", file=sys.stderr)
    return result


def why(path: pathlib.Path) -> str:
    """The line of the finding's log that says what it is."""
    log = path.with_name(path.name + ".log")
    for text in log.read_text(errors="replace").splitlines():
        if re.search(r"FOUND: |runtime error: |ERROR: |check failed|CHECK", text):
            return text.strip()[:200]
    return "see " + log.name


def line(target: str, result: Result, seconds: float) -> str:
    """One target's row."""
    rate = result.runs / result.seconds if result.seconds else 0
    return (
        f"{target:13} {result.seconds:5.0f} of {seconds:.0f} s  {result.runs:>11,} runs  {rate:>8,.0f}/s  "
        f"edges {result.coverage:>6,}  features {result.features:>7,}  findings {len(result.findings)}"
    )


def show(target: str, result: Result, seconds: float) -> None:
    """The row as it grows, where somebody looks."""
    if sys.stderr.isatty():
        print("\r" + line(target, result, seconds), end="", file=sys.stderr, flush=True)


def main() -> int:
    """Runs what the arguments say; 1: something was found."""
    parser = argparse.ArgumentParser(prog="./run fuzz", description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "fuzz")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes at a time")
    parser.add_argument("time", type=seconds_of, help="90, 90s, 10m, 2h: of all targets together")
    parser.add_argument("targets", nargs="*", help="all when none is named")
    args = parser.parse_args()
    there = sorted(path.name.removesuffix("_fuzz") for path in (args.build / "tests" / "fuzz").glob("*_fuzz"))
    unknown = sorted(set(args.targets) - set(there))
    if unknown:
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(there)}")
    targets = args.targets or there
    results = {target: fuzz(target, args.build, args.time / len(targets), args.jobs) for target in targets}
    findings = sum(len(result.findings) for result in results.values())
    print(f"{sum(result.runs for result in results.values()):,} runs, {findings} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
