"""Packs what was built, and what it needs, into one archive that runs elsewhere: see README.md beside it."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT_MIB = 60.0
GLIBC_MAX = (2, 39)  # Ubuntu 24.04's.
PROGRAMS = ("hostird", "hostir-worker")
OPTIONAL_PROGRAMS = ("hostir", "hostir-eval")
# The C library is the machine's, and so are Open MPI (its parts must be of one version) and the GPU's driver.
SYSTEM = re.compile(
    r"(ld-linux.*|lib(c|m|dl|pthread|rt|resolv|util|anl|mvec|nss_\w+|nsl))\.so\.\d+$"
    r"|linux-vdso.*|lib(cuda|nvidia.*)\.so.*"
)
MPI = re.compile(r"lib(mpi|open-rte|open-pal)\.so.*")
WHEELS = ("numpy>=1.26,<3", "grpcio>=1.51,<2", "protobuf>=4.21.12,<5", "ml_dtypes>=0.4,<1")
UNUSED = re.compile(r"(^|/)(tests?|testing/tests|f2py|include|_pyinstaller)/|\.pyi$|\.dist-info/(?!METADATA)|\.[ah]$")


def run(*command: object) -> str:
    return subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def needed(elf: Path) -> list[str]:
    return re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-d", elf))


def found(program: Path) -> dict[str, Path]:
    """Where the loader finds what ``program`` needs, and what that needs."""
    lines = re.findall(r"^\s*(\S+) => (\S+)", run("ldd", program), re.M)
    missing = [name for name, path in lines if path == "not"]
    if missing:
        sys.exit(f"bundle: {program} lacks {', '.join(missing)} here")
    return {name: Path(path) for name, path in lines}


def strip(elf: Path) -> None:
    elf.chmod(0o755)
    run("strip", "--strip-unneeded", elf)


def collect_programs(build: Path, out: Path) -> None:
    for folder in ("bin", "lib"):
        (out / folder).mkdir(parents=True)
    libraries: dict[str, Path] = {}
    for name in PROGRAMS:
        if not (build / name).exists():
            sys.exit(f"bundle: {build / name} is not built")
        libraries |= found(build / name)
    for name in (*PROGRAMS, *(p for p in OPTIONAL_PROGRAMS if (build / p).exists())):
        shutil.copy2(build / name, out / "bin" / name)
        strip(out / "bin" / name)
    for name, path in sorted(libraries.items()):
        if SYSTEM.match(name) is None:
            shutil.copyfile(path.resolve(), out / "lib" / name)
            strip(out / "lib" / name)
    shutil.copy2(ROOT / "deploy/bundle/hostir-python", out / "bin")


def collect_client(build: Path, out: Path) -> None:
    skipped = shutil.ignore_patterns("__pycache__", "*.egg-info", "setup.py")
    shutil.copytree(ROOT / "python/hostir", out / "python/hostir", ignore=skipped)
    shutil.copytree(build / "python/hostir", out / "python/hostir", ignore=skipped, dirs_exist_ok=True)
    shutil.copytree(ROOT / "examples", out / "examples", ignore=skipped)
    for name in ("LICENSE", "README.md"):
        shutil.copy2(ROOT / name, out)
    shutil.copy2(ROOT / "deploy/bundle/README.md", out / "BUNDLE.md")
    for folder in ("deploy/systemd", "docs"):
        shutil.copytree(ROOT / folder, out / folder)


def collect_wheels(out: Path, version: str, cache: Path) -> None:
    """The client's libraries for Python ``version``, unpacked, without their tests."""
    tag = "cp" + version.replace(".", "")
    folder = cache / tag
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:", "--no-deps", "--dest", folder]
        where = ["--python-version", version, "--implementation", "cp"]
        for glibc in ("2014", "_2_17", "_2_27", "_2_28"):
            where += ["--platform", f"manylinux{glibc}_x86_64"]
        run(*pip, *where, *WHEELS, "typing_extensions")
        (folder / "complete").touch()
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            wanted = [name for name in archive.namelist() if UNUSED.search(name) is None]
            archive.extractall(out / "python" / tag, wanted)


def check(out: Path) -> None:
    """That nothing is left to find but what the machine has."""
    carried = {path.name for path in (out / "lib").iterdir()}
    newest = (0, 0)
    for elf in [*(out / "bin").iterdir(), *(out / "lib").iterdir()]:
        if elf.read_bytes()[:4] != b"\x7fELF":
            continue
        for name in needed(elf):
            if name not in carried and SYSTEM.match(name) is None and MPI.match(name) is None:
                sys.exit(f"bundle: {elf.name} needs {name}, which is not carried")
        versions = re.findall(r"GLIBC_(\d+)\.(\d+)", run("objdump", "-T", elf))
        newest = max([newest, *((int(a), int(b)) for a, b in versions)])
        if elf.parent.name == "bin" and "$ORIGIN/../lib" not in run("readelf", "-d", elf):
            sys.exit(f"bundle: {elf.name} has no RPATH of $ORIGIN/../lib")
    if newest > GLIBC_MAX:
        sys.exit(f"bundle: needs glibc {newest[0]}.{newest[1]}, beyond {GLIBC_MAX[0]}.{GLIBC_MAX[1]}")
    print(f"bundle: {len(carried)} libraries; needs glibc {newest[0]}.{newest[1]}")


def check_paths(out: Path, build: Path) -> None:
    """That no file names a folder of this machine: of the source tree, the build, this Python or the home."""
    folders = {str(path) for path in (ROOT, build.resolve(), Path(sys.prefix))}
    ours = folders | {str(Path.home())}
    for path in sorted(p for p in out.rglob("*") if p.is_file()):
        # Wheels were made elsewhere: a home in them is no home of here.
        wanted = folders if path.is_relative_to(out / "python") and path.suffix == ".so" else ours
        pattern = re.compile(b"(?:" + b"|".join(re.escape(f.encode()) for f in sorted(wanted)) + rb")/[\x20-\x7e]*")
        if (named := pattern.search(path.read_bytes())) is not None:
            sys.exit(f"bundle: {path.relative_to(out)} names {named[0].decode()}, a path of this machine")


def pack(out: Path, archive: Path, fast: bool) -> None:
    """Equal contents make equal archives."""
    xz, zstd = ("xz -0", "zstd -1 -q") if fast else ("xz -6 -T0", "zstd -12 --long=27 -T0 -q")
    compress = xz if archive.suffix == ".xz" else zstd
    archive.unlink(missing_ok=True)
    fixed = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]
    run("tar", *fixed, f"--use-compress-program={compress}", "-cf", archive, "-C", out.parent, out.name)


def sizes(out: Path) -> None:
    def mib(path: Path) -> float:
        return sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) / 2**20

    for folder in sorted(p for p in out.iterdir() if p.is_dir()):
        print(f"bundle: {mib(folder):7.1f} MiB  {folder.name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / "build/bundle", help="the build folder to pack")
    parser.add_argument("--out", type=Path, help="the archive (default build/hostir-bundle.tar.zst)")
    parser.add_argument("--xz", action="store_true", help="an archive that Python's tarfile unpacks")
    parser.add_argument("--wheels-for", default="3.12", help="the Python whose libraries are carried; '' for none")
    parser.add_argument("--fast", action="store_true", help="pack quickly, of whatever size: for tests")
    args = parser.parse_args()
    archive = args.out or ROOT / "build" / ("hostir-bundle.tar.xz" if args.xz else "hostir-bundle.tar.zst")
    out = args.build / "bundle-root/hostir"
    shutil.rmtree(out.parent, ignore_errors=True)
    collect_programs(args.build, out)
    collect_client(args.build, out)
    if args.wheels_for:
        collect_wheels(out, args.wheels_for, ROOT / "build/wheels")
    check(out)
    if not args.fast:  # Builds for tests have paths of sources in their messages.
        check_paths(out, args.build)
    sizes(out)
    pack(out, archive, args.fast)
    packed = archive.stat().st_size / 2**20
    print(f"bundle: {packed:7.1f} MiB  {archive}")
    if packed > LIMIT_MIB and not args.fast:
        sys.exit(f"bundle: beyond {LIMIT_MIB:.0f} MiB")


if __name__ == "__main__":
    main()
