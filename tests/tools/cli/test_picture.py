"""hostir explain --svg: nothing overlaps, everything is there, widths say bytes.

Method: the document's own rectangles, texts and paths; a text is as wide as a monospaced font makes it (0.602 of its
size a character: DejaVu Sans Mono, Menlo). Programs: the corpus on four ranks, one of a single kernel, one in
rows.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from conftest import CORPUS, Daemon, good, size_flags, sizes_of

FOLDER = Path("tests/corpus")
ADVANCE = 0.602


@dataclass(frozen=True)
class Rect:
    left: float
    top: float
    right: float
    bottom: float
    name: str = ""

    def meets(self, other: Rect) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def holds(self, other: Rect) -> bool:
        inside = self.left <= other.left and other.right <= self.right
        return inside and self.top <= other.top and other.bottom <= self.bottom


class Picture:
    def __init__(self, document: str) -> None:
        root = ET.fromstring(document)
        self.paper = Rect(0, 0, float(root.attrib["width"]), float(root.attrib["height"]))
        self.boxes: list[tuple[Rect, list[Rect], str, str]] = []  # Where, its texts, kind, tooltip.
        self.texts: list[Rect] = []  # In no box.
        self.lanes: list[Rect] = []
        self.arrows: list[list[tuple[float, float]]] = []
        order = []
        for element in root:
            tag = element.tag.rpartition("}")[2]
            order.append(tag)
            kind = element.attrib.get("class", "")
            if tag == "g":
                parts = {child.tag.rpartition("}")[2]: child for child in element}
                texts = [text_rect(child) for child in element if child.tag.endswith("text")]
                tooltip = parts["title"].text or ""
                self.boxes.append((rect(parts["rect"]), texts, parts["rect"].attrib["class"].split()[1], tooltip))
            elif tag == "text":
                self.texts.append(text_rect(element))
            elif tag == "path":
                self.arrows.append(list(corners(element.attrib["d"])))
            elif kind == "lane":
                self.lanes.append(rect(element))
        # Boxes are drawn over arrows that pass behind them.
        behind = order[: order.index("g")].count("path")
        assert behind == len(self.arrows) - 1, "all but that of the legend"
        self.edges = self.arrows[:-1]

    def all_texts(self) -> list[Rect]:
        return self.texts + [text for _, texts, _, _ in self.boxes for text in texts]


def rect(element: ET.Element) -> Rect:
    x, y, width, height = (float(element.attrib.get(name, 0)) for name in ("x", "y", "width", "height"))
    return Rect(x, y, x + width, y + height)


def text_rect(element: ET.Element) -> Rect:
    size = 18 if element.attrib["class"] == "title" else 12
    x, y = float(element.attrib["x"]), float(element.attrib["y"])
    text = element.text or ""
    return Rect(x, y - 0.8 * size, x + ADVANCE * size * len(text), y + 0.25 * size, text)


def corners(path: str) -> Iterator[tuple[float, float]]:
    x = y = 0.0
    for command, numbers in re.findall(r"([MHV])([\d. -]+)", path):
        values = [float(number) for number in numbers.split()]
        x = values[0] if command in "MH" else x
        y = values[-1] if command in "MV" else y
        yield x, y


def segments(arrow: list[tuple[float, float]]) -> Iterator[Rect]:
    for (x0, y0), (x1, y1) in pairwise(arrow):
        yield Rect(min(x0, x1) - 0.1, min(y0, y1) - 0.1, max(x0, x1) + 0.1, max(y0, y1) + 0.1)


def draw(daemon: Daemon, program: Path, folder: Path, *flags: str) -> str:
    path = folder / "plan.svg"
    said = good("explain", program, "--svg", path, *flags, "--address", daemon.address)
    assert said.startswith(f"{path}: ")
    return path.read_text()


def chain(length: int) -> str:
    """A program of `length` matmuls in a row: a segment each."""
    lines = [f"  %y{i} = matmul(%{'x' if i == 0 else f'y{i - 1}'}, %w)" for i in range(length)]
    return "\n".join(["fusion @chain(%x: f32[i0, 64], %w: f32[64, 64]) {", *lines, f"  return %y{length - 1}", "}\n"])


def layers(count: int) -> str:
    """A program of `count` tensor-parallel perceptrons in a row on four devices: six ops and an all-reduce each."""
    lines = [
        "mesh @m = [0, 1, 2, 3]",
        "fusion @layers(%x: f32[i0, 24] {mesh=@m}, %up: f32[48, 24] {mesh=@m, shard(0, mesh_x)},",
        "    %down: f32[24, 48] {mesh=@m, shard(1, mesh_x)}) {",
    ]
    for i in range(count):
        x = f"z{i - 1}" if i else "x"
        lines += [f"  %h{i} = linear(%{x}, %up)", f"  %g{i} = gelu(%h{i})"]
        lines += [f"  %y{i} {{mesh=@m}} = linear(%g{i}, %down)"]
        lines += [f"  %r{i} = add(%y{i}, %{x})", f"  %s{i} = tanh(%r{i})", f"  %z{i} = mul(%s{i}, %r{i})"]
    return "\n".join([*lines, f"  return %z{count - 1}", "}\n"])


def check_geometry(picture: Picture) -> None:
    for (first, *_), (second, *_) in combinations(picture.boxes, 2):
        assert not first.meets(second), (first, second)
    for box, texts, _, _ in picture.boxes:
        for text in texts:
            assert box.holds(text), (box, text)
    for first, second in combinations(picture.all_texts(), 2):
        assert not first.meets(second), (first, second)
    for text in picture.texts:
        assert picture.paper.holds(text), text
        assert not any(text.meets(box) for box, *_ in picture.boxes), text
        assert not any(text.meets(lane) for lane in picture.lanes), text
        assert not any(text.meets(segment) for edge in picture.arrows for segment in segments(edge)), text
    for box, *_ in picture.boxes:
        assert any(lane.holds(box) for lane in picture.lanes), box
    for first, second in combinations(picture.edges, 2):
        tail, tip = next(segments(first)), list(segments(second))[-1]
        assert not tail.meets(tip), "where one begins none ends"
        assert not next(segments(second)).meets(list(segments(first))[-1])
    for edge in picture.edges:
        starts = [b for b, *_ in picture.boxes if b.right == edge[0][0] and b.top <= edge[0][1] <= b.bottom]
        ends = [b for b, *_ in picture.boxes if b.left == edge[-1][0] and b.top <= edge[-1][1] <= b.bottom]
        assert len(starts) == len(ends) == 1, "an arrow goes from a box to a box"


@pytest.mark.parametrize("program", CORPUS, ids=lambda path: path.stem)
def test_nothing_overlaps(four, program, tmp_path):
    check_geometry(Picture(draw(four, program, tmp_path, *size_flags(sizes_of(program)))))


def test_sixty_ops(four, tmp_path):
    program = tmp_path / "layers.hir"
    program.write_text(layers(10))
    assert len(re.findall(r"^  %\w+.* = ", program.read_text(), re.M)) == 60
    flags = ["--size", "i0=8"]
    document = draw(four, program, tmp_path, *flags)
    assert document == draw(four, program, tmp_path, *flags), "equal plans give equal pictures"
    picture = Picture(document)
    check_geometry(picture)
    plan = json.loads(good("explain", program, *flags, "--json", "--address", four.address))["explanation"]
    working = [s for s in plan["segments"] if s["kind"] != "view"]
    assert len(picture.boxes) >= len(working)
    for kind in ("kernel", "library", "communication"):
        drawn = [box for box in picture.boxes if box[2] == kind]
        assert len(drawn) >= len([s for s in working if s["kind"] == kind])
    # Each op is in a tooltip, and each communication has its bytes.
    tooltips = "\n".join(tooltip for *_, tooltip in picture.boxes)
    for segment in working:
        if segment["kind"] in ("kernel", "library"):
            assert all(op in tooltips.split("\n") for op in segment["ops"])
    drawn = [texts for _, texts, kind, _ in picture.boxes if kind == "communication"]
    for record, texts in zip(plan["communications"], drawn, strict=True):
        assert texts[0].name.startswith(f"{written(record['type'])} #{record['number']} ")
        assert re.fullmatch(r"[\d.]+ (B|KiB|MiB), 1 team of 4", texts[1].name)
    assert picture.paper.right < 1800
    legend = {text.name for text in picture.texts}
    assert {"kernel", "library call", "communication", "fill", "stream 0", program.stem} <= legend


def written(kind: str) -> str:
    """A kind of communication as the host program has it: AllToAll is all_to_all."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", kind).lower()


def test_each_communication_has_its_bytes(four, tmp_path):
    """A step of data-parallel training queues its all-reduces in another order than the program has them."""
    program = FOLDER / "data_parallel_mlp.hir"
    flags = [*size_flags(sizes_of(program)), "--address", four.address]
    plan = json.loads(good("explain", program, *flags, "--json"))["explanation"]
    amounts = {"loss": 4, "down_gradient": 192, "down_bias_gradient": 12, "up_gradient": 768, "up_bias_gradient": 64}
    records = plan["communications"]
    assert {record["tensor"]: record["bytes_value"] for record in records} == amounts
    assert [record["number"] for record in records] == list(range(5))
    names = [f"allreduce #{number}" for number in range(5)]
    assert [s["name"] for s in plan["segments"] if s["kind"] == "communication"] == names

    picture = Picture(draw(four, program, tmp_path, *size_flags(sizes_of(program))))
    drawn = [[text.name for text in texts[:2]] for _, texts, kind, _ in picture.boxes if kind == "communication"]
    wanted = [(f"{name} {record['tensor']}", record) for name, record in zip(names, records, strict=True)]
    assert drawn == [[label, f"{record['bytes_value']} B, 1 team of 4"] for label, record in wanted]

    text = good("explain", program, *flags)
    for number, record in enumerate(records):
        row = rf"^Allreduce #{number} +{record['tensor']} +\[0, 1, 2, 3\] +{record['bytes_value']} B$"
        assert re.search(row, text, re.M), text


def test_results_that_cross_streams_have_arrows(daemon, tmp_path):
    """Two large all-reduces beside the kernels: each reads a sum of theirs, and is read by the last of them."""
    program = tmp_path / "sums.hir"
    program.write_text("""mesh @m = [0, 1]
fusion @sums(%a: f32[8, 32768] {mesh=@m, shard(0, mesh_x)}, %b: f32[8, 6, 32768] {mesh=@m, shard(0, mesh_x)}) {
  %a_sum {mesh=@m} = sum(%a) {axes=[0], keepdim=false, dtype=null}
  %b_sum {mesh=@m} = sum(%b) {axes=[0, 1], keepdim=false, dtype=null}
  %y = mul(%a_sum, %b_sum)
  return %y
}
""")
    picture = Picture(draw(daemon, program, tmp_path))
    drawn = {texts[0].name: box for box, texts, _, _ in picture.boxes}
    found = set()
    for edge in picture.edges:
        (start,) = [n for n, b in drawn.items() if b.right == edge[0][0] and b.top <= edge[0][1] <= b.bottom]
        (end,) = [n for n, b in drawn.items() if b.left == edge[-1][0] and b.top <= edge[-1][1] <= b.bottom]
        found.add((start, end))
    sums = {"k0 reduction": "allreduce #0 a_sum", "k1 reduction": "allreduce #1 b_sum"}
    assert found == set(sums.items()) | {(name, "k2 pointwise") for name in sums.values()}
    assert {"stream 0", "stream 1"} <= {text.name for text in picture.texts}


def test_width_is_bytes(daemon, tmp_path):
    """Boxes that are wider than their text are as wide as their bytes: of two such the ratio is that of the bytes."""
    program = tmp_path / "p.hir"
    program.write_text(
        "fusion @p(%x: f32[i0, 64], %w: f32[64, 64], %v: f32[64, 32]) {\n"
        "  %a = matmul(%x, %w)\n  %b = matmul(%a, %v)\n  return %b\n}\n"
    )
    picture = Picture(draw(daemon, program, tmp_path, "--size", "i0=4096"))
    (wide, *_), (narrow, *_) = picture.boxes
    wide_bytes, narrow_bytes = 4 * (4096 * 128 + 64 * 64), 4 * (4096 * 96 + 64 * 32)
    assert (narrow.right - narrow.left) / (wide.right - wide.left) == pytest.approx(narrow_bytes / wide_bytes, abs=0.01)
    without = Picture(draw(daemon, program, tmp_path))
    check_geometry(without)
    assert "bytes" in without.boxes[0][1][1].name, "symbolic bytes are an expression"


def test_a_long_plan_goes_on_in_rows(daemon, tmp_path):
    program = tmp_path / "chain.hir"
    program.write_text(chain(40))
    picture = Picture(draw(daemon, program, tmp_path))
    check_geometry(picture)
    assert len(picture.boxes) == 40
    assert picture.paper.right < 1800
    assert len({box.top for box, *_ in picture.boxes}) >= 3


def test_names_are_text(daemon, tmp_path):
    """What a file is called cannot end the document early."""
    program = tmp_path / 'a<b>&"c.hir'
    program.write_text(chain(1))
    picture = Picture(draw(daemon, program, tmp_path))
    assert 'a<b>&"c' in [text.name for text in picture.texts]
