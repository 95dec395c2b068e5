"""The programs of the pages for users run, one after the other, as they stand there.

The tutorial has a test of its own, which also compares what its programs print.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
# By page: what its programs print, among other things.
PAGES: dict[str, list[str]] = {
    "python.md": [
        "fusion @scale(%x: f32[i0, 256], %s: f64) {",
        "3072.0",  # 8 x 256 times 1.5.
        "Allreduce",
    ],
    "from_pytorch.md": ["(8, 128) float32"],
    "from_jax.md": ["Sharding(DeviceMesh([0, 1, 2, 3]), {0: 'mesh_x'})"],
    "jax.md": [
        "Array (8, 128) float32",
        "0.841",
        "turn 19: loss 0.",
        "<hostir.jax.jit of step: 1 programs>",
        "Sharding(DeviceMesh([[0, 1], [2, 3]]), {0: 'mesh_y'})",
        "['Allreduce']",
        "4.0",
        "hostir_attention: keys and values of 2048 KiB a rank go round 4 ranks",
        "Sharding(DeviceMesh([0, 1, 2, 3]), {1: 'mesh_x'})",
        "hostir.jax: while of float32[3] -> float32[3]: how often it turns is not known",
    ],
    "from_nvfuser.md": ["[3. 3. 3. 3. 3. 3. 3. 3.]"],
}


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_the_documentation(
    page: str, daemon_program: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if page == "jax.md":
        pytest.importorskip("jax")
    monkeypatch.chdir(tmp_path)  # They write files.
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    shown = PAGES[page]
    assert blocks
    names: dict[str, object] = {"__name__": "docs"}
    for block in blocks:
        exec(compile(block, str(DOCS / page), "exec"), names)
    printed = capsys.readouterr().out
    assert [text for text in shown if text not in printed] == []


def test_every_page_with_programs_is_run() -> None:
    pages = {path.name for path in DOCS.glob("*.md") if "```python\n" in path.read_text()}
    assert pages == {*PAGES, "tutorial.md", "torch.md"}  # tests/frontends/torch runs the last.
