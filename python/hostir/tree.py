"""Nested inputs and outputs: dicts, lists, tuples and named tuples, as flat lists and back.

A tree is a dict, list, tuple or named tuple of trees; anything else is a leaf, None as well. As in JAX the entries of a
dict come in the order of their sorted keys, so that equal dicts are equal trees.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .location import invalid

_LEAF = "leaf"


@dataclass(frozen=True)
class Structure:
    """What a tree is but for its leaves: hashable, and equal for trees of one shape. Made by ``flatten``."""

    kind: Any  # dict, list, tuple, a class of named tuples, or _LEAF.
    keys: tuple[Any, ...] = ()  # Of a dict, sorted.
    children: tuple[Structure, ...] = ()

    @property
    def is_leaf(self) -> bool:
        return self.kind is _LEAF

    @property
    def num_leaves(self) -> int:
        return 1 if self.is_leaf else sum(child.num_leaves for child in self.children)

    def names(self, prefix: str = "") -> list[str]:
        """What each leaf is called, as PyTorch calls parameters: "layers.0.weight"; ``prefix`` for a lone leaf."""
        return list(_names(self, prefix))


LEAF = Structure(_LEAF)


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of ``tree``, and its structure: ``flatten({"b": 1, "a": [2, 3]})[0]`` is ``[2, 3, 1]``.

    Raises InvalidArgument for a dict whose keys have no order among themselves.
    """
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves)


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The tree of ``structure`` with ``leaves``, which are as many: ``unflatten(s, [2, 3, 1])``."""
    listed = list(leaves)
    if len(listed) != structure.num_leaves:
        raise invalid(f"{len(listed)} values for a structure of {structure.num_leaves}")
    return _unflatten(structure, iter(listed))


def _flatten(tree: Any, leaves: list[Any]) -> Structure:
    if isinstance(tree, Mapping):
        try:
            keys = tuple(sorted(tree))
        except TypeError:
            raise invalid(f"a dict's keys are of one type that has an order, not {list(tree)!r}") from None
        return Structure(dict, keys, tuple(_flatten(tree[key], leaves) for key in keys))
    if isinstance(tree, (list, tuple)):
        kind = type(tree) if hasattr(tree, "_fields") else list if isinstance(tree, list) else tuple
        return Structure(kind, (), tuple(_flatten(entry, leaves) for entry in tree))
    leaves.append(tree)
    return LEAF


def _unflatten(structure: Structure, leaves: Iterator[Any]) -> Any:
    if structure.is_leaf:
        return next(leaves)
    parts = [_unflatten(child, leaves) for child in structure.children]
    if structure.kind is dict:
        return dict(zip(structure.keys, parts, strict=True))
    return structure.kind(*parts) if hasattr(structure.kind, "_fields") else structure.kind(parts)


def _names(structure: Structure, prefix: str) -> Iterator[str]:
    if structure.is_leaf:
        yield prefix
    steps: Any = structure.keys or getattr(structure.kind, "_fields", None) or range(len(structure.children))
    for step, child in zip(steps, structure.children, strict=True):
        yield from _names(child, f"{prefix}.{step}" if prefix else str(step))
