"""What the client knows of the fusion op table, made from csrc/fusion/fusion_ops.def: all of it as JSON, or the
pointwise ops as Python methods. By the standard library alone: the build runs it, and so does pip, where there is no
compiler.

  python3 op_table.py json > _op_table.json; python3 op_table.py python > _pointwise.py
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

TABLE = Path(__file__).resolve().parent.parent / "csrc/fusion/fusion_ops.def"
# In a row: a text in quotes, what nests, what separates, or anything else that stands alone.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[(){},]|[^"(){},\s]+')
_ROW = re.compile(r"^(POINTWISE|OP|COMPOSITE|COMM)\(", re.M)
# Which argument of a row is what; what it does not have is None.
_OPERANDS = {"POINTWISE": 2, "OP": 2, "COMPOSITE": 2, "COMM": None}
_DOC = {"POINTWISE": 5, "OP": 4, "COMPOSITE": 3, "COMM": 2}
_KIND = {"POINTWISE": "pointwise", "OP": "op", "COMPOSITE": "op", "COMM": "communication"}


def _arguments(text: str, at: int) -> list[list[str]]:
    """The arguments of the macro whose parenthesis ends before `at`, each as its tokens."""
    arguments: list[list[str]] = [[]]
    depth = 1
    for match in _TOKEN.finditer(text, at):
        token = match[0]
        depth += (token in "({") - (token in ")}")
        if depth == 0:
            return arguments
        if token == "," and depth == 1:
            arguments.append([])
        else:
            arguments[-1].append(token)
    raise ValueError(f"{TABLE.name}: a row does not end: {text[at : at + 40]}")


def _string(tokens: list[str]) -> str:
    """Texts side by side are one, as in C."""
    return "".join(json.loads(token) for token in tokens)


def _attribute(tokens: list[str]) -> tuple[str, str, str]:
    """Name, kind, and what it is where nobody writes it: {"axis", AttrKind::kInt}."""
    name, kind, *fallback = (token for token in tokens if token not in "{},")
    return _string([name]), kind.removeprefix("AttrKind::k").lower(), _string(fallback)


def rows(text: str) -> list[dict[str, Any]]:
    """One for each op, in the order of the table."""
    text = re.sub(r"^\s*(//|#).*$", "", text, flags=re.M)
    table = []
    for match in _ROW.finditer(text):
        macro, arguments = match[1], _arguments(text, match.end())
        operands = _OPERANDS[macro]
        count = "1" if operands is None else "".join(arguments[operands])
        attributes = [_attribute(argument) for argument in arguments[_DOC[macro] + 1 :]]
        table.append(
            {
                "name": _string(arguments[1]),
                "operands": -1 if count == "kVariadic" else int(count),
                "kind": _KIND[macro],
                "rule": "".join(arguments[3]).removeprefix("k").lower() if macro == "POINTWISE" else "",
                "doc": _string(arguments[_DOC[macro]]),
                "attrs": {name: kind for name, kind, fallback in attributes if not fallback},
                "optional": {name: kind for name, kind, fallback in attributes if fallback},
            }
        )
    return table


def as_json(table: list[dict[str, Any]]) -> str:
    return "[\n  " + ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in table) + "\n]\n"


_HEAD = '''"""Made by the build from the op table: the operations on single elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from .tensor import Tensor
    from .values import Number, Operand, Scalar


class PointwiseOps:
    """With a tensor among the operands each makes a tensor, of host scalars and numbers alone a host scalar."""

    def _record(self, name: str, operands: list[Any]) -> Any:
        raise NotImplementedError
'''


def as_python(table: list[dict[str, Any]]) -> str:
    """Operands are positional: x, y, z as in the documentation. RULES are those of csrc/fusion/promote.h."""
    out = [_HEAD]
    for row in table:
        if row["kind"] != "pointwise":
            continue
        names = "xyzw"[: row["operands"]]

        def signature(types: list[str], result: str, name: str = row["name"], names: str = names) -> str:
            parameters = ", ".join(f"{x}: {of}" for x, of in zip(names, types, strict=True))
            return f"    def {name}(self, {parameters}, /) -> {result}:"

        for k in range(len(names)):
            types = ["Operand"] * len(names)
            types[k] = "Tensor"
            out.append(f"\n    @overload\n{signature(types, 'Tensor')} ...\n")
        out.append(f"\n    @overload\n{signature(['Scalar | Number'] * len(names), 'Scalar')} ...\n")
        out.append(
            f"\n{signature(['Any'] * len(names), 'Any')}\n"
            f'        """{row["doc"]}"""\n'
            f'        return self._record("{row["name"]}", [{", ".join(names)}])\n'
        )
    rules = "".join(f'    "{row["name"]}": "{row["rule"]}",\n' for row in table if row["rule"])
    return "".join(out) + f"\n\nRULES = {{\n{rules}}}\n"


FORMS = {"json": as_json, "python": as_python}

if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in FORMS:
        sys.exit("usage: op_table.py json|python [TABLE]")
    table = Path(sys.argv[2]) if len(sys.argv) == 3 else TABLE
    sys.stdout.write(FORMS[sys.argv[1]](rows(table.read_text(encoding="utf-8"))))
