"""Packs what was built into one wheel, which runs where it is installed: see README.md beside it.

The client is packed as pip packs it; to that come the programs with their libraries (hostir/bin, hostir/lib), the
console scripts that start them, and the tag of the machines where they run.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from binaries import ROOT, check, check_paths, collect_programs

LIMIT_MIB = 60.0
GLIBC = "2.36"  # Debian 12's.
PROGRAMS = ("hostird", "hostir-worker", "hostir")
SCRIPTS = ("hostir", "hostird")  # Of python/hostir_programs.py.


def pack_client(build: Path, root: Path) -> Path:
    """The client, unpacked: what `pip install ./python` would install with the generated modules of `build`."""
    skipped = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist")
    shutil.copytree(ROOT / "python", root / "python", ignore=skipped)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps", "--no-index"]
    built_by = {**os.environ, "HOSTIR_BUILD_DIR": str(build)}
    subprocess.run([*command, "--no-build-isolation", "-w", root, root / "python"], env=built_by, check=True)
    (client,) = root.glob("*.whl")
    with zipfile.ZipFile(client) as archive:
        archive.extractall(root / "wheel")
    return root / "wheel"


def finish(out: Path, tag: str) -> Path:
    """Writes what says how it is installed. Returns the folder *.dist-info."""
    (info,) = out.glob("*.dist-info")
    fields = [line for line in (info / "WHEEL").read_text().splitlines() if line.partition(":")[0] == "Wheel-Version"]
    fields += ["Generator: hostir make_wheel", "Root-Is-Purelib: false", f"Tag: {tag}", ""]
    (info / "WHEEL").write_text("\n".join(fields))
    scripts = "".join(f"{name} = hostir_programs:{name}\n" for name in SCRIPTS)
    (info / "entry_points.txt").write_text("[console_scripts]\n" + scripts)
    shutil.copyfile(ROOT / "LICENSE", info / "LICENSE")
    (info / "RECORD").write_text("".join(f"{line}\n" for line in record(out, info)))
    return info


def record(out: Path, info: Path) -> list[str]:
    lines = []
    for path in sorted(p for p in out.rglob("*") if p.is_file() and p != info / "RECORD"):
        digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
        lines.append(f"{path.relative_to(out)},sha256={digest},{path.stat().st_size}")
    return [*lines, f"{(info / 'RECORD').relative_to(out)},,"]


def pack(out: Path, wheel: Path, level: int) -> None:
    """Equal contents make equal wheels."""
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for path in sorted(p for p in out.rglob("*") if p.is_file()):
            entry = zipfile.ZipInfo(str(path.relative_to(out)), (1980, 1, 1, 0, 0, 0))
            is_program = path.parent.name == "bin"
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes(), compresslevel=level)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/bundle", help="the build folder to pack")
    parser.add_argument("--out", type=Path, default=ROOT / "build", help="the folder that gets the wheel")
    parser.add_argument("--glibc", default=GLIBC, help=f"of the machines it is for ({GLIBC}): refused when too old")
    parser.add_argument("--fast", action="store_true", help="pack quickly, of whatever size: for tests")
    args = parser.parse_args()
    build, root = args.build.resolve(), args.build.resolve() / "wheel-root"
    shutil.rmtree(root, ignore_errors=True)
    major, minor = map(int, args.glibc.split("."))
    out = pack_client(build, root)
    package = out / "hostir"
    collect_programs(build, package, PROGRAMS)
    check(package, (major, minor))
    if not args.fast:  # Builds for tests have paths of sources in their messages.
        check_paths(package, build)
    tag = f"py3-none-manylinux_{major}_{minor}_x86_64"
    info = finish(out, tag)
    wheel = args.out / f"{info.name.removesuffix('.dist-info')}-{tag}.whl"
    pack(out, wheel, 1 if args.fast else 9)
    packed = wheel.stat().st_size / 2**20
    unpacked = sum(p.stat().st_size for p in out.rglob("*") if p.is_file()) / 2**20
    print(f"wheel: {packed:.1f} MiB, {unpacked:.1f} MiB installed\n{wheel}")
    if packed > LIMIT_MIB and not args.fast:
        sys.exit(f"wheel: beyond {LIMIT_MIB:.0f} MiB")


if __name__ == "__main__":
    main()
