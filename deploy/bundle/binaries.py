"""The programs of a build and the shared libraries that go along: what a bundle and a wheel have in common.

OUT/bin     hostird, hostir-worker, ...: their RPATH is $ORIGIN/../lib
OUT/lib     what they need, but for the C library, which is the machine's; ucx/: UCX's modules, which it finds there
OUT/licences    of all that is not ours: what Debian's packages say, by their names
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# The C library is the machine's, and so are Open MPI (its parts must be of one version) and the GPU's driver.
SYSTEM = re.compile(
    r"(ld-linux.*|lib(c|m|dl|pthread|rt|resolv|util|anl|mvec|nss_\w+|nsl))\.so\.\d+$"
    r"|linux-vdso.*|lib(cuda|nvidia.*)\.so.*"
)
MPI = re.compile(r"lib(mpi|open-rte|open-pal)\.so.*")
UCX = "libucs.so.0"
# Packages whose code is in the programs themselves.
STATIC = ("llvm-19-dev", "libcli11-dev", "libtomlplusplus-dev")


def run(*command: object) -> str:
    return subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def needed(elf: Path) -> list[str]:
    return re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-d", elf))


def found(program: Path) -> dict[str, Path]:
    """Where the loader finds what ``program`` needs, and what that needs."""
    lines = re.findall(r"^\s*(\S+) => (\S+)", run("ldd", program), re.M)
    missing = [name for name, path in lines if path == "not"]
    if missing:
        sys.exit(f"packing: {program} lacks {', '.join(missing)} here")
    return {name: Path(path) for name, path in lines}


def copy(elf: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(elf.resolve(), to)
    to.chmod(0o755)
    run("strip", "--strip-unneeded", to)


def ucx_modules(ucx: Path, carried: set[str]) -> Iterator[Path]:
    """Transports that UCX loads from the folder ucx beside it: those that need no driver's library."""
    for module in sorted((ucx.resolve().parent / "ucx").glob("*.so.0")):
        if all(name in carried or SYSTEM.match(name) for name in needed(module)):
            yield module


def collect_licences(libraries: Iterable[Path], out: Path) -> None:
    """A file for each package. Says so where the machine has no such files."""
    paths = [path.resolve() for path in libraries]
    listed = [*paths, *(Path(str(path).removeprefix("/usr")) for path in paths)]  # dpkg knows one of both.
    asked = subprocess.run(["dpkg-query", "--search", *listed], capture_output=True, text=True, check=False)
    packages = {*STATIC, *re.findall(r"^([^:\s]+):", asked.stdout, re.M)}
    texts = {name: Path("/usr/share/doc") / name / "copyright" for name in sorted(packages)}
    if lacking := [name for name, text in texts.items() if not text.exists()]:
        print(f"packing: not to be passed on: there are no licences of {', '.join(lacking)} here", file=sys.stderr)
    out.mkdir(parents=True)
    for name, text in texts.items():
        if text.exists():
            shutil.copyfile(text, out / name)


def collect_programs(build: Path, out: Path, names: Sequence[str], optional: Sequence[str] = ()) -> None:
    """Copies the programs `names` and, where they are built, `optional`, whose libraries are the machine's to have."""
    libraries: dict[str, Path] = {}
    for name in names:
        if not (build / name).exists():
            sys.exit(f"packing: {build / name} is not built")
        libraries |= found(build / name)
    for name in (*names, *(p for p in optional if (build / p).exists())):
        copy(build / name, out / "bin" / name)
    libraries = {name: path for name, path in sorted(libraries.items()) if SYSTEM.match(name) is None}
    for name, path in libraries.items():
        copy(path, out / "lib" / name)
    for module in ucx_modules(libraries[UCX], set(libraries)) if UCX in libraries else ():
        copy(module, out / "lib/ucx" / module.name)
    collect_licences(libraries.values(), out / "licences")


def elves(out: Path) -> Iterator[Path]:
    for path in sorted(p for folder in ("bin", "lib") for p in (out / folder).rglob("*") if p.is_file()):
        with path.open("rb") as file:
            if file.read(4) == b"\x7fELF":
                yield path


def newest_glibc(elf: Path) -> tuple[int, int]:
    """The newest version of the C library that it takes a symbol of."""
    versions = re.findall(r"\(?GLIBC_(\d+)\.(\d+)", run("objdump", "-T", elf))
    return max(((int(major), int(minor)) for major, minor in versions), default=(0, 0))


def check(out: Path, glibc: tuple[int, int]) -> None:
    """That nothing is left to find but what a machine with the C library `glibc` has."""
    carried = {path.name for path in (out / "lib").rglob("*.so*")}
    newest = (0, 0)
    for elf in elves(out):
        for name in needed(elf):
            if name not in carried and SYSTEM.match(name) is None and MPI.match(name) is None:
                sys.exit(f"packing: {elf.name} needs {name}, which is not carried")
        used = newest_glibc(elf)
        if used > glibc:
            sys.exit(
                f"packing: {elf.name} needs glibc {used[0]}.{used[1]}, newer than the {glibc[0]}.{glibc[1]} that "
                "is promised: pack on a machine of that age (Debian 12 has 2.36)"
            )
        newest = max(newest, used)
        if elf.parent.name == "bin" and "$ORIGIN/../lib" not in run("readelf", "-d", elf):
            sys.exit(f"packing: {elf.name} has no RPATH of $ORIGIN/../lib")
    print(f"packing: {len(carried)} libraries; they need glibc {newest[0]}.{newest[1]}")


def check_paths(out: Path, build: Path, foreign: Sequence[Path] = ()) -> None:
    """That no file names a folder of this machine: of the source tree, the build, this Python or the home.

    Libraries in the folders `foreign` were made elsewhere: a home in them is no home of here.
    """
    folders = {str(path) for path in (ROOT, build.resolve(), Path(sys.prefix))}
    ours = folders | {str(Path.home())}
    for path in sorted(p for p in out.rglob("*") if p.is_file()):
        is_foreign = path.suffix == ".so" and any(path.is_relative_to(folder) for folder in foreign)
        wanted = folders if is_foreign else ours
        pattern = re.compile(b"(?:" + b"|".join(re.escape(f.encode()) for f in sorted(wanted)) + rb")/[\x20-\x7e]*")
        if (named := pattern.search(path.read_bytes())) is not None:
            sys.exit(f"packing: {path.relative_to(out)} names {named[0].decode()}, a path of this machine")
