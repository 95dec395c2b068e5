"""Each rule of tidy.py fires on a tree that breaks it, and on nothing in a tree that keeps it.

Method: a small clean tree is written to a temporary folder; each case adds or changes one file and names the one
fault that must appear.
"""

import pathlib

import pytest
import tidy

LAYERS = """\
# comment
csrc/base:
csrc/ir: csrc/base
csrc/ir/ops = csrc/ir
<llvm/: csrc/cpu csrc/cpu/*
"""

CLEAN = {
    "tests/tidy/layers.txt": LAYERS,
    "csrc/base/README.md": "# base\n",
    "csrc/base/status.h": "#pragma once\n",
    "csrc/ir/README.md": "# ir\n",
    "csrc/ir/graph.h": '#pragma once\n#include "csrc/base/status.h"\n',
    "csrc/ir/ops/add.cc": '#include "csrc/ir/graph.h"\n',
    "csrc/ir/graph.cc": '#include "csrc/ir/graph.h"\n#include <vector>\n#include "csrc/ir/ops/add.h"\n',
    "tests/csrc/ir/graph_test.cc": '#include "csrc/ir/graph.h"\n',
    "docs/plan.md": "See csrc/base/work/pool, network/root, TO" + "DO(#12): later.\n",
}


def write_tree(root: pathlib.Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def faults_with(root: pathlib.Path, files: dict[str, str]) -> list[str]:
    write_tree(root, {**CLEAN, **files})
    return tidy.faults(root)[0]


def test_a_clean_tree_has_no_fault(tmp_path: pathlib.Path) -> None:
    assert faults_with(tmp_path, {}) == []


CASES = {
    "layer": (
        {"csrc/base/a.cc": '#include "csrc/ir/graph.h"\n'},
        "csrc/base/a.cc: csrc/base may not include csrc/ir (tests/tidy/layers.txt)",
    ),
    "layer of a part": (
        {"csrc/base/a.cc": '#include "csrc/ir/ops/add.h"\n'},
        "csrc/base/a.cc: csrc/base may not include csrc/ir (tests/tidy/layers.txt)",
    ),
    "own header not first": (
        {"csrc/ir/a.h": "#pragma once\n", "csrc/ir/a.cc": '#include "csrc/ir/b.h"\n#include "csrc/ir/a.h"\n'},
        "csrc/ir/a.cc: include csrc/ir/a.h first",
    ),
    "include without its folder": (
        {"csrc/ir/a.cc": '#include "graph.h"\n'},
        "csrc/ir/a.cc: include graph.h by its path from the root",
    ),
    "vendor header": (
        {"csrc/ir/a.cc": "#include <llvm/IR/Module.h>\n"},
        "csrc/ir/a.cc: csrc/ir may not include the vendor header llvm/IR/Module.h (tests/tidy/layers.txt)",
    ),
    "vendor header in quotes": (
        {"tests/a.cc": '#include "llvm/IR/Module.h"\n'},
        "tests/a.cc: tests may not include the vendor header llvm/IR/Module.h (tests/tidy/layers.txt)",
    ),
    "folder without a row": (
        {"csrc/new/a.cc": "\n", "csrc/new/README.md": "# new\n"},
        "csrc/new: has no row in tests/tidy/layers.txt",
    ),
    "folder without README": (
        {"tests/tidy/layers.txt": LAYERS + "csrc/new:\n", "csrc/new/a.cc": "\n"},
        "csrc/new: has no README.md",
    ),
    "long README": ({"csrc/ir/README.md": "x\n" * 41}, "csrc/ir/README.md: 41 lines, at most 40"),
    "cycle": (
        {"tests/tidy/layers.txt": LAYERS.replace("csrc/base:", "csrc/base: csrc/ir")},
        "layers.txt: a cycle among csrc/base, csrc/ir",
    ),
    "row that names no row": (
        {"tests/tidy/layers.txt": LAYERS + "csrc/x: csrc/y\n"},
        "layers.txt: csrc/x may include csrc/y, which has no row",
    ),
    "header without guard": ({"csrc/ir/a.h": "int F();\n"}, "csrc/ir/a.h: no #pragma once"),
    "long line": ({"csrc/ir/a.cc": "//" + "x" * 119 + "\n"}, "csrc/ir/a.cc:1: 121 columns, at most 120"),
    "leftover": ({"csrc/ir/a.cc": "\n// FIX" + "ME\n"}, "csrc/ir/a.cc:2: leftover FIX" + "ME"),
    "leftover without a number": ({"run": "# TO" + "DO: later\n"}, "run:1: leftover TO" + "DO"),
    "conflict marker": ({"docs/a.md": "<<<<" + "<<< main\n"}, "docs/a.md:1: leftover <<<<" + "<<<"),
    "machine path": ({"docs/a.md": "In /wor" + "k/main.\n"}, "docs/a.md:1: a path of one machine: /wor" + "k"),
    "home folder": ({"a.py": 'X = "/ho' + 'me/me"\n'}, "a.py:1: a path of one machine: /ho" + "me"),
    "forbidden file": ({"csrc/ir/graph_utils.cc": "\n"}, "csrc/ir/graph_utils.cc: name the concept, not graph_utils"),
    "forbidden folder": ({"tests/common/a.txt": "\n"}, "tests/common/a.txt: name the concept, not common"),
    "long paragraph": ({"docs/a.md": "# a\n\n" + "word\n" * 121}, "docs/a.md:3: a paragraph of 121 words, at most 120"),
    "long bullet": (
        {"README.md": "* a\n* " + "word " * 121 + "\n* b\n"},
        "README.md:2: a paragraph of 122 words, at most 120",
    ),
    "dead link": (
        {"docs/a.md": "[b](b.md#part), [web](https://b.md)\n"},
        "docs/a.md: a link to b.md, which is not there",
    ),
    "no newline at the end": ({"csrc/ir/a.cc": "int x;"}, "csrc/ir/a.cc: no newline at the end"),
}


@pytest.mark.parametrize("case", CASES)
def test_rule_fires(tmp_path: pathlib.Path, case: str) -> None:
    files, expected = CASES[case]
    assert faults_with(tmp_path, files) == [expected]


def test_programs_include_every_folder_but_no_vendor(tmp_path: pathlib.Path) -> None:
    main = '#include "csrc/ir/graph.h"\n#include <llvm/IR/Module.h>\n'
    found = faults_with(tmp_path, {"csrc/base/main.cc": main, "csrc/base/domain.cc": main})
    assert [fault.split(":")[0] for fault in found] == [
        "csrc/base/domain.cc",
        "csrc/base/domain.cc",
        "csrc/base/main.cc",
    ]


def test_vendor_pattern_covers_the_folder_and_below(tmp_path: pathlib.Path) -> None:
    include = '#include "llvm/IR/Module.h"\n'
    rows = LAYERS + "csrc/cpu:\ncsrc/cpu/jit:\n"
    files = {"tests/tidy/layers.txt": rows, "csrc/cpu/a.cc": include, "csrc/cpu/jit/a.cc": include}
    files |= {"csrc/cpu/README.md": "# cpu\n", "csrc/cpu/jit/README.md": "# jit\n"}
    assert faults_with(tmp_path, files) == []


def test_long_files_are_noted_not_refused(tmp_path: pathlib.Path) -> None:
    write_tree(tmp_path, {**CLEAN, "csrc/ir/long.cc": "\n" * 401})
    found, notes = tidy.faults(tmp_path)
    assert found == []
    assert "csrc/ir/long.cc has 401 lines" in notes[0]


def test_code_tables_and_several_paragraphs_may_be_long(tmp_path: pathlib.Path) -> None:
    many = "word " * 100 + "\n"
    page = f"{many}\n{many}```\n{many}{many}```\n{many}| {many}| {many}\n* {many}* {many}"
    assert faults_with(tmp_path, {"docs/a.md": page}) == []


def test_build_folders_are_not_looked_at(tmp_path: pathlib.Path) -> None:
    assert faults_with(tmp_path, {"build/dev/a.h": "int x;", ".venv/lib/utils.py": "x"}) == []
