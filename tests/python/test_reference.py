"""The reference of the API (./run docs) is made of docstrings: every public member has one, with an example.

An example is code in the docstring, ``like this`` or in a session, ``>>> f()``, that uses the member by its name;
test_docstrings.py runs them. Pointwise operations, made from the op table, and the classes of single errors need none:
their sentence says all.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import enum
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import hostir
from hostir import nn
from hostir.ops import Ops, PointwiseOps


def members() -> Iterator[tuple[str, Any]]:
    """(name, member) of all that is public and the package's own."""
    for name in hostir.__all__:
        yield name, getattr(hostir, name)
    for name in nn.__all__:
        yield f"nn.{name}", getattr(nn, name)
    jax: Any = None
    with contextlib.suppress(ModuleNotFoundError):  # JAX need not be there.
        import hostir.jax as jax
    for name in jax.__all__ if jax else ():
        yield f"jax.{name}", getattr(jax, name)
    owners = [jax.Jitted] if jax else []
    for owner in [*(getattr(hostir, name) for name in hostir.__all__), Ops, *owners]:
        if inspect.isclass(owner) and not issubclass(owner, (hostir.HostirError, enum.Enum)):
            ours = {name for cls in owner.__mro__ if cls.__module__.startswith("hostir") for name in vars(cls)}
            for name in sorted(name for name in ours if not name.startswith("_")):
                member = inspect.getattr_static(owner, name)
                yield f"{owner.__name__}.{name}", getattr(member, "__func__", member)


MEMBERS = {name: member for name, member in members() if callable(member) or isinstance(member, property)}


def needs_example(name: str) -> bool:
    member = MEMBERS[name]
    if inspect.isclass(member) and issubclass(member, hostir.HostirError):
        return member is hostir.HostirError
    return not (name.startswith("Ops.") and name.split(".")[1] in vars(PointwiseOps))


def examples(name: str, text: str) -> list[str]:
    """The code in ``text`` that uses the member: a session, and code in a sentence that is more than its name."""
    word = name.split(".")[-1]
    session = "".join(example.source for example in doctest.DocTestParser().get_examples(text))
    codes = [session, *filter(is_code, re.findall(r"``(.+?)``", text, re.DOTALL))]
    return [code for code in codes if code != word and re.search(rf"\b{word}\b", code)]


def is_code(text: str) -> bool:
    try:
        return bool(ast.parse(text).body)
    except SyntaxError:
        return False


def test_an_example_is_code_that_uses_the_member() -> None:
    assert examples("Tensor.size", "For shapes: ``fd.ops.expand(t, [x.size(0), -1])``.")
    assert examples("connect", "A client.\n\n>>> client = connect()\n") == ["client = connect()\n"]
    assert not examples("Tensor.size", "The size, as of ``x``, which is ``size`` or ``size=``.")


@pytest.mark.parametrize("name", MEMBERS)
def test_every_member_has_a_docstring_with_an_example(name: str) -> None:
    text = inspect.cleandoc(MEMBERS[name].__doc__ or "")
    assert text
    assert examples(name, text) or not needs_example(name)
