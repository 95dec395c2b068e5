"""Packs what was built, and what it needs, into one archive that runs elsewhere: see README.md beside it."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import zipfile
from pathlib import Path

from binaries import ROOT, check, check_paths, collect_programs, run

LIMIT_MIB = 60.0
GLIBC = (2, 39)  # Ubuntu 24.04's.
PROGRAMS = ("hostird", "hostir-worker")
OPTIONAL_PROGRAMS = ("hostir", "hostir-eval")
WHEELS = ("numpy>=1.26", "grpcio>=1.51", "protobuf>=4.21.12", "ml_dtypes>=0.4")
UNUSED = re.compile(r"(^|/)(tests?|testing/tests|f2py|include|_pyinstaller)/|\.pyi$|\.dist-info/(?!METADATA)|\.[ah]$")


def collect_client(build: Path, out: Path) -> None:
    skipped = shutil.ignore_patterns("__pycache__", "*.egg-info", "setup.py")
    shutil.copytree(ROOT / "python/hostir", out / "python/hostir", ignore=skipped)
    shutil.copy2(ROOT / "python/hostir_programs.py", out / "python")
    shutil.copytree(build / "python/hostir", out / "python/hostir", ignore=skipped, dirs_exist_ok=True)
    shutil.copytree(ROOT / "examples", out / "examples", ignore=skipped)
    for name in ("LICENSE", "README.md"):
        shutil.copy2(ROOT / name, out)
    shutil.copy2(ROOT / "deploy/bundle/README.md", out / "BUNDLE.md")
    for folder in ("deploy/mpi", "deploy/slurm", "deploy/systemd", "docs"):
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


def pack(out: Path, archive: Path, fast: bool) -> None:
    """Equal contents make equal archives."""
    xz, zstd = ("xz -0", "zstd -1 -q") if fast else ("xz -6 -T0", "zstd -19 --long=27 -T0 -q")
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
    collect_programs(args.build, out, PROGRAMS, OPTIONAL_PROGRAMS)
    shutil.copy2(ROOT / "deploy/bundle/hostir-python", out / "bin")
    collect_client(args.build, out)
    if args.wheels_for:
        collect_wheels(out, args.wheels_for, ROOT / "build/wheels")
    check(out, GLIBC)
    if not args.fast:  # Builds for tests have paths of sources in their messages.
        check_paths(out, args.build, [out / "python"])
    sizes(out)
    pack(out, archive, args.fast)
    packed = archive.stat().st_size / 2**20
    print(f"bundle: {packed:7.1f} MiB  {archive}")
    if packed > LIMIT_MIB and not args.fast:
        sys.exit(f"bundle: beyond {LIMIT_MIB:.0f} MiB")


if __name__ == "__main__":
    main()
