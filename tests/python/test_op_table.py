"""fd.ops against the op table that the build wrote: every op that a user may write has a method that fits its row."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import hostir
from hostir.ops import Ops

TABLE: list[dict[str, Any]] = next(
    json.loads((Path(folder) / "_op_table.json").read_text())
    for folder in hostir.__path__
    if (Path(folder) / "_op_table.json").exists()
)
POINTWISE = [row for row in TABLE if row["kind"] == "pointwise"]
# An example of the arguments after the tensors, for each op that is no pointwise one.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "cast": {"dtype": hostir.DataType.Float},
    "set": {},
    "segment_set": {},
    "all": {"dims": [0]},
    "any": {"dims": [0]},
    "argmax": {"dim": 0},
    "argmin": {"dim": 0},
    "max": {"dims": [0]},
    "mean": {"dims": [0]},
    "min": {"dims": [0]},
    "prod": {"dims": [0]},
    "sum": {"dims": [0]},
    "var": {"dims": [0]},
    "var_sum": {"dims": [0]},
    "broadcast": {"is_broadcast_dim": [True, False]},
    "broadcast_in_dim": {"shape": [2, 3], "broadcast_dims": [1]},
    "cat": {"dim": 0},
    "expand": {"shape": [3]},
    "pad": {"pad_widths": [1, 1]},
    "permute": {"dims": [0]},
    "reshape": {"new_shape": [-1]},
    "slice": {"start_indices": [0], "end_indices": [1]},
    "squeeze": {"dims": [0]},
    "squeeze_expanded": {"dims": [0], "squeeze_expanded": True},
    "gather": {"dim": 0},
    "index_select": {"dim": 0},
    "index_sum": {"size": 4, "dim": 0},
    "scatter": {"dim": 0},
    "select": {"index": 0, "dim": 0},
    "take_along_axis": {"dim": 0},
    "flip": {"dims": [0]},
    "argsort": {"dim": 0},
    "cumprod": {"dim": 0},
    "cumsum": {"dim": 0},
    "full": {"shape": [2], "fill_value": 1, "dtype": hostir.DataType.Int},
    "iota": {"length": 3},
    "size": {"dim": 0},
    "one_hot": {"classes": 3, "dtype": hostir.DataType.Float},
    "tril": {},
    "triu": {},
    "normal": {"mean": 0, "std": 1, "shape": [2], "rng_seed": 0, "rng_offset": 0},
    "uniform": {"minval": 0, "maxval": 1, "shape": [2], "rng_seed": 0, "rng_offset": 0},
    "attention": {"mask": None, "result": "values", "causal": True, "offset": 1, "scale": 0.5},
    "attention_grad": {"result": "k", "mask": None, "causal": True, "offset": 1, "scale": 0.5},
    "grouped_matmul": {},
    "grouped_outer": {},
    "linear": {},
    "matmul": {},
}
KINDS: dict[str, Any] = {
    "int": int,
    "float": float,
    "bool": bool,
    "name": str,
    "ints": list,
    "expr": int,
    "exprs": list,
}


def test_the_table_is_whole() -> None:
    kinds = [row["kind"] for row in TABLE]
    assert kinds.count("pointwise") > 60
    assert kinds.count("communication") == 10
    assert len({row["name"] for row in TABLE}) == len(TABLE)


@pytest.mark.parametrize("row", POINTWISE, ids=lambda row: row["name"])
def test_pointwise_methods(row: dict[str, Any]) -> None:
    method = getattr(Ops, row["name"])
    assert method.__doc__ == row["doc"]
    assert len(inspect.signature(method).parameters) == 1 + row["operands"]
    with hostir.FusionDefinition() as fd:
        dtypes = {"bits": "Int", "ints": "Int", "select": "Bool"}
        x = fd.define_tensor(shape=[3], dtype=hostir.DataType[dtypes.get(row["rule"], "Float")])
        getattr(fd.ops, row["name"])(*[x] * row["operands"])
    (op,) = fd._record.ops
    assert (op.name, op.operands, op.attrs) == (row["name"], ("x",) * row["operands"], {})


def test_every_other_op_has_a_method_that_fits_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostir.FusionDefinition, "_infer", lambda *_: None)  # Not all examples fit their operands.
    rows = {row["name"]: row for row in TABLE if row["kind"] == "op"}
    assert set(rows) - set(ARGUMENTS) == {"constant", "extent"}, "an op of the table has no example here, or no method"
    for name, arguments in ARGUMENTS.items():
        row = rows[name]
        with hostir.FusionDefinition() as fd:
            x = fd.define_tensor(shape=[3])
            method = {"squeeze_expanded": "squeeze"}.get(name, name)
            if name == "cat":
                fd.ops.cat([x, x], **arguments)
            elif name in ("iota", "normal", "select", "uniform"):  # Some of their operands are numbers.
                getattr(fd.ops, name)(*[x] * (name == "select"), **arguments)
            else:
                variadic = {"attention": 3, "attention_grad": 6}.get(name, 2)
                operands = variadic if row["operands"] < 0 else row["operands"]
                first = [arguments["result"]] if name == "attention_grad" else []
                rest = {key: value for key, value in arguments.items() if not (first and key == "result")}
                getattr(fd.ops, method)(*first, *[x] * operands, **rest)
        op = fd._record.ops[-1]
        assert op.name == name
        assert list(op.attrs) == list(row["attrs"]), name
        for attr, kind in row["attrs"].items():
            assert isinstance(op.attrs[attr], KINDS[kind]), (name, attr)
        assert getattr(Ops, method).__doc__ or name in ("linear", "matmul"), f"{name} has no documentation"


def test_constants_fit_their_row() -> None:
    with hostir.FusionDefinition() as fd:
        fd.define_scalar(2)
    (row,) = [row for row in TABLE if row["name"] == "constant"]
    assert list(fd._record.ops[0].attrs) == list(row["attrs"])


def test_communications_have_no_method() -> None:
    for row in TABLE:
        if row["kind"] == "communication":
            assert not hasattr(Ops, row["name"])
