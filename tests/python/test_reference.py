"""The reference of the API (./run docs) is made of docstrings: every public member has one, with an example.

An example is code in the docstring, ``like this`` or in a block, that uses the member by its name. Properties, errors,
enumerations and pointwise operations need none: their sentence says all. without_example.txt lists the members that
lack what they need; it only shrinks.
"""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hostir
from hostir import nn
from hostir.ops import Ops, PointwiseOps

CODE = re.compile(r"``(.+?)``|```\w*\n(.+?)```|^ *>>> (.+?)$|(?<=::\n\n)((?: {4}.*\n?|\n)+)", re.DOTALL | re.MULTILINE)
EXEMPT = (hostir.HostirError, enum.Enum)

LISTED = Path(__file__).with_name("without_example.txt")


def members() -> Iterator[tuple[str, Any]]:
    """(name, member) of all that is public and the package's own."""
    for name in hostir.__all__:
        yield name, getattr(hostir, name)
    for name in nn.__all__:
        yield f"nn.{name}", getattr(nn, name)
    for owner in [*(getattr(hostir, name) for name in hostir.__all__), Ops]:
        if inspect.isclass(owner) and not issubclass(owner, EXEMPT):
            ours = {name for cls in owner.__mro__ if cls.__module__.startswith("hostir") for name in vars(cls)}
            for name in sorted(name for name in ours if not name.startswith("_")):
                yield f"{owner.__name__}.{name}", inspect.getattr_static(owner, name)


def needs_example(name: str, member: Any) -> bool:
    if inspect.isclass(member):
        return not issubclass(member, EXEMPT)
    return callable(member) and not (name.startswith("Ops.") and name.split(".")[1] in vars(PointwiseOps))


def has_example(name: str, text: str) -> bool:
    word = name.split(".")[-1]
    return any(re.search(rf"\b{word}\b", "".join(filter(None, code))) for code in CODE.findall(text))


def lacks(name: str, member: Any) -> bool:
    text = inspect.getdoc(member) or ""
    return not text or (needs_example(name, member) and not has_example(name, text))


def test_an_example_is_code_that_uses_the_member() -> None:
    assert has_example("Tensor.size", "For shapes: ``fd.ops.expand(t, [x.size(0), -1])``.")
    assert has_example("connect", "A client.\n\n>>> client = connect()\n")
    assert has_example("nn.softmax", "Softmax::\n\n    y = hostir.nn.softmax(x)\n")
    assert not has_example("Tensor.size", "The size, as of ``x``.")


def test_the_members_that_lack_an_example_are_those_listed() -> None:
    checked = {name: member for name, member in members() if callable(member) or isinstance(member, property)}
    assert len(checked) > 150
    lacking = {name for name, member in checked.items() if lacks(name, member)}
    listed = set(LISTED.read_text().split())
    assert sorted(lacking - listed) == [], "their docstrings need an example"
    assert sorted(listed - lacking) == [], "these have one, or are gone: take them off the list"
