"""Checks what a compiler cannot: layering, vendor headers, leftovers, names. Runs as a test, in seconds.

tidy.py [ROOT] prints one line per fault and exits 1 when there is any. layers.txt holds the layering.
"""

import dataclasses
import fnmatch
import os
import pathlib
import re
import sys
from collections.abc import Iterator

SKIPPED_FOLDERS = {".git", ".venv", "build", "__pycache__", ".cache", ".pytest_cache", ".mypy_cache", ".ruff_cache"}
CODE = {".h", ".cc", ".def", ".py", ".proto", ".cmake"}
TEXT = CODE | {".md", ".txt", ".hir", ".json", ".toml", ".ini", ".yaml", ".yml", ".sh", ".cfg", ""}
LAYERED = ("csrc", "multidevice", "host_ir", "service")  # Top folders in which every folder has a layer.
LINE_COLUMNS_MAX = 120
README_LINES_MAX = 40
FILE_LINES_NOTED = 400
PARAGRAPH_WORDS_MAX = 120

# Split, so as not to find themselves.
LEFTOVER = re.compile(
    r"\b(FIX" + r"ME|XX" + r"X|HA" + r"CK|DO NOT SUB" + r"MIT)\b|^(<<<<<<<|>>>>>>>) |\bTO" + r"DO(?!\(#\d+\))"
)
MACHINE_PATH = re.compile(r"(?<![\w.\-/})\]>*])/(wor" + r"k|ro" + r"ot|ho" + r"me)(?![\w\-.])")
FORBIDDEN_NAME = re.compile(r"^(.*_)?(utils?|helpers?|common|misc|managers?)(_.*)?$")
BULLET = re.compile(r"\s*([*-]|\d+\.) ")
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.M)


@dataclasses.dataclass
class Layers:
    """layers.txt: which folder may include which, and which may include a vendor's headers."""

    allowed: dict[str, set[str]]
    part_of: dict[str, str]
    vendors: dict[str, list[str]]

    def layer_of(self, folder: str) -> str:
        return self.part_of.get(folder, folder)

    def vendor_folders(self, header: str) -> list[str] | None:
        """The patterns of the folders that may include `header`; None for a header of no vendor."""
        for prefix, folders in self.vendors.items():
            if header.startswith(prefix):
                return folders
        return None


def read_layers(path: pathlib.Path) -> Layers:
    layers = Layers({}, {}, {})
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if "=" in line:
            part, whole = line.split("=")
            layers.part_of[part.strip()] = whole.strip()
        elif line.startswith("<"):
            prefix, folders = line[1:].split(":")
            layers.vendors[prefix] = folders.split()
        elif line:
            folder, allowed = line.split(":")
            layers.allowed[folder] = set(allowed.split())
    return layers


def check_layers(layers: Layers) -> Iterator[str]:
    """The rows name each other only, and form no cycle."""
    for folder, allowed in layers.allowed.items():
        for unknown in sorted(allowed - layers.allowed.keys()):
            yield f"layers.txt: {folder} may include {unknown}, which has no row"
    rest = {folder: set(allowed) & layers.allowed.keys() for folder, allowed in layers.allowed.items()}
    while free := [folder for folder, allowed in rest.items() if not allowed]:
        for folder in free:
            del rest[folder]
        for allowed in rest.values():
            allowed.difference_update(free)
    if rest:
        yield f"layers.txt: a cycle among {', '.join(sorted(rest))}"


def may_include_vendor(folder: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatch(folder, p) or (p.endswith("/*") and folder == p[:-2]) for p in patterns)


def check_includes(path: pathlib.PurePath, text: str, layers: Layers) -> Iterator[str]:
    folder = str(path.parent)
    layer = layers.layer_of(folder)
    is_program = re.fullmatch(r"(.*_)?main\.cc", path.name) is not None
    for quote, header in INCLUDE.findall(text):
        patterns = layers.vendor_folders(header)
        if patterns is not None:
            if not may_include_vendor(folder, patterns):
                yield f"{path}: {folder} may not include the vendor header {header} (tests/tidy/layers.txt)"
            continue
        if quote == "<" or layer not in layers.allowed or is_program:
            continue
        used = layers.layer_of(str(pathlib.PurePath(header).parent))
        if used == ".":
            yield f"{path}: include {header} by its path from the root"
        elif used != layer and used not in layers.allowed[layer]:
            yield f"{path}: {layer} may not include {used} (tests/tidy/layers.txt)"


def check_own_header(path: pathlib.PurePath, text: str, paths: set[pathlib.PurePath]) -> Iterator[str]:
    """A header that its own source includes first is known to stand alone: the build tries the others alone."""
    own = path.with_suffix(".h")
    if path.suffix == ".cc" and own in paths and next(iter(INCLUDE.findall(text)), ("", ""))[1] != str(own):
        yield f"{path}: include {own} first"


def check_text(path: pathlib.PurePath, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if match := LEFTOVER.search(line):
            yield f"{path}:{number}: leftover {match.group().strip()}"
        if match := MACHINE_PATH.search(line):
            yield f"{path}:{number}: a path of one machine: {match.group()}"
        if path.suffix in CODE and len(line) > LINE_COLUMNS_MAX:
            yield f"{path}:{number}: {len(line)} columns, at most {LINE_COLUMNS_MAX}"
    if text and not text.endswith("\n"):
        yield f"{path}: no newline at the end"
    if path.suffix == ".h" and "#pragma once" not in text:
        yield f"{path}: no #pragma once"
    if path.name == "README.md" and path.parent.name and text.count("\n") > README_LINES_MAX:
        yield f"{path}: {text.count(chr(10))} lines, at most {README_LINES_MAX}"


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """(first line, text) of each paragraph of Markdown: a bullet is one, code and tables are none."""
    lines: list[str] = []
    in_code = False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        in_code ^= line.lstrip().startswith("```")
        ends = not line.strip() or in_code or line.startswith(("#", "|", "```")) or BULLET.match(line)
        if ends and lines:
            yield number - len(lines), " ".join(lines)
            lines = []
        if line.strip() and not in_code and not line.startswith(("#", "|", "```")):
            lines.append(line)


def check_prose(path: pathlib.PurePath, text: str) -> Iterator[str]:
    if path.suffix != ".md":
        return
    for number, paragraph in paragraphs(text):
        if (words := len(paragraph.split())) > PARAGRAPH_WORDS_MAX:
            yield f"{path}:{number}: a paragraph of {words} words, at most {PARAGRAPH_WORDS_MAX}"


def check_links(root: pathlib.Path, path: pathlib.PurePath, text: str) -> Iterator[str]:
    """Links of Markdown to files of this tree lead somewhere."""
    if path.suffix != ".md":
        return
    for target in LINK.findall(text):
        if not (root / path.parent / target).exists():
            yield f"{path}: a link to {target}, which is not there"


def check_names(path: pathlib.PurePath) -> Iterator[str]:
    for part in [*path.parts[:-1], path.stem]:
        if FORBIDDEN_NAME.match(part):
            yield f"{path}: name the concept, not {part}"


def check_folders(root: pathlib.Path, paths: list[pathlib.PurePath], layers: Layers) -> Iterator[str]:
    folders = {str(p.parent) for p in paths if p.suffix in {".h", ".cc"} and p.parts[0] in LAYERED}
    for folder in sorted(folders):
        if folder in layers.part_of:
            continue
        if folder not in layers.allowed:
            yield f"{folder}: has no row in tests/tidy/layers.txt"
        if not (root / folder / "README.md").exists():
            yield f"{folder}: has no README.md"


def list_files(root: pathlib.Path) -> list[pathlib.PurePath]:
    files = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in SKIPPED_FOLDERS and not f.endswith(".egg-info")]
        files += [pathlib.PurePath(folder, name).relative_to(root) for name in names if name != ".git"]
    return sorted(p for p in files if p.suffix in TEXT)


def faults(root: pathlib.Path) -> tuple[list[str], list[str]]:
    """(faults, notes) of the tree at `root`."""
    layers = read_layers(root / "tests/tidy/layers.txt")
    paths = list_files(root)
    found = [*check_layers(layers), *check_folders(root, paths, layers)]
    notes = []
    known = set(paths)
    for path in paths:
        try:
            text = (root / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            found.append(f"{path}: not UTF-8 text")
            continue
        found += [*check_names(path), *check_text(path, text), *check_prose(path, text)]
        found += check_links(root, path, text)
        if path.suffix in {".h", ".cc", ".def"}:
            found += check_includes(path, text, layers)
            found += check_own_header(path, text, known)
        if path.suffix in CODE and text.count("\n") > FILE_LINES_NOTED:
            notes.append(f"note: {path} has {text.count(chr(10))} lines; does it hold two things?")
    notes.append(f"tidy: {len(paths)} files, {len(found)} faults")
    return found, notes


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2])
    found, notes = faults(root)
    print("\n".join(found + notes))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
