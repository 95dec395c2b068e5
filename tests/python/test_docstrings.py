"""The examples of docstrings run as they stand, and what their comments say is so.

Each runs in one of two scenes. That of a definition: inside its block, with tensors ``x`` and ``i``; then the program
runs, with all tensors of the example as results. That of a client: ``x`` on the host, a program ``fd`` of it and its
result ``y``. A comment behind an expression that has a value says it. test_nn.py runs the examples of hostir.nn.
"""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fake_gpu
import hostir
from hostir import FusionDefinition, Scalar, Tensor
from test_reference import MEMBERS, examples, needs_example

X, INDICES = np.array([[1, 2, 3], [4, 5, 6]], np.float32), np.array([[2, 0], [1, 1]])
NAMES = {name: getattr(hostir, name) for name in hostir.__all__}
NAMES |= {"hostir": hostir, "np": np, "json": json, "Path": Path}
OF_A_CLIENT = {
    "Array",
    "Client",
    "Communication",
    "HostirError",
    "Jitted",
    "KernelCost",
    "NamedProgram",
    "Plan",
    "PlanProgress",
    "Profile",
    "Segment",
}
OF_A_CLIENT |= {"SegmentTime", "Sharding", "FusionDefinition.execute", "connect", "from_shards", "jax"}
OF_A_CLUSTER = {"Client.drain"}  # tests/cluster/test_etcd.py has it.
EXAMPLES = [
    pytest.param(name, code, id=name)
    for name, member in MEMBERS.items()
    if needs_example(name) and not name.startswith("nn.") and name not in OF_A_CLUSTER
    for code in examples(name, inspect.getdoc(member) or "")
]


def run(code: str, names: dict[str, Any]) -> list[tuple[Any, str]]:
    """The values of the expressions of ``code`` and the comments behind them."""
    lines, shown = code.splitlines(), []
    for statement in ast.parse(code).body:
        if isinstance(statement, ast.Expr):
            value = eval(compile(ast.Expression(statement.value), "docstring", "eval"), names)
            comment = lines[(statement.end_lineno or 0) - 1][statement.end_col_offset :].strip(" #")
            if value is not None and comment:
                shown.append((value, comment))
        else:
            exec(compile(ast.Module([statement], []), "docstring", "exec"), names)
    return shown


def is_tensors(value: Any) -> bool:
    values = value if isinstance(value, tuple) else (value,)
    return bool(values) and all(isinstance(v, Tensor) for v in values)


def given(value: Any) -> Any:
    """For an input that the example defines itself."""
    if isinstance(value, Scalar):
        return 1
    if value.data_type == hostir.DataType.Bool and value.ndim == 1:
        return len(X)  # A size.
    return np.ones([n if isinstance(n, int) else len(X) for n in value.shape], value.dtype)


def elements(result: Any) -> Any:
    return tuple(map(elements, result)) if isinstance(result, tuple) else result.tolist()


def check_definition(code: str, client: hostir.Client) -> None:
    with FusionDefinition() as fd:
        x, i = fd.define_tensor(shape=[-1, 3], name="x"), fd.define_tensor(shape=[2, 2], dtype=np.int64, name="i")
        names = {**NAMES, "fd": fd, "x": x, "i": i}
        shown = run(code, names)
        known = [(repr(value), comment) for value, comment in shown if not is_tensors(value)]
        made = [(value, comment) for value, comment in shown if is_tensors(value)]
        fd.add_output([value for value, _ in made])
        inputs = {value.name: given(value) for value in fd.fusion.inputs()}
        own = [value for value in names.values() if isinstance(value, Tensor) and value._definition is fd]
        fd.add_output([x.copy(), *(value for value in own if value.name not in inputs)])
    *_, results, _ = client.run(fd, {**inputs, "x": X, "i": INDICES})
    known += [(elements(result), ast.literal_eval(text)) for result, (_, text) in zip(results, made, strict=True)]
    assert [value for value, _ in known] == [said for _, said in known]


def check_client(code: str, client: hostir.Client) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 3])
        fd.add_output(x * 2)
    with FusionDefinition() as step:
        x, w = step.define_tensor(shape=[-1, 3], name="x"), step.define_tensor(shape=[3], name="params.w")
        step.add_output((x * w).sum())
        step.add_output({"w": w - 0.5}, {"w": w})
    with hostir.Client(client.address) as own:  # Its own, which may be closed.
        names = {**NAMES, "client": own, "address": client.address, "fd": fd, "step": step, "x": X}
        names |= {"y": own.run(fd, [X])[0], "plan": own.explain(fd), "profile": own.profile(fd, [X])}
        names |= {"params": {"w": X[0]}, "torch": SimpleNamespace(from_dlpack=fake_gpu.elements_of)}
        own.publish(fd, "mlp")
        names["mlp"] = own.program("mlp")
        names["loss"], _ = own.run(step, [X, X[0]])
        for value, comment in run(code, names):
            assert repr(value) == comment


@pytest.mark.parametrize(("name", "code"), EXAMPLES)
def test_the_examples_of_docstrings(
    name: str, code: str, client: hostir.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOSTIR_ADDRESS", client.address)
    monkeypatch.setattr("hostir.connecting._default", None)  # That of fd.execute.
    driver = fake_gpu.FakeDriver()
    monkeypatch.setattr("hostir.cuda.driver", lambda: driver)
    check = check_client if {name, name.split(".")[0]} & OF_A_CLIENT else check_definition
    check(code, client)


def test_a_wrong_comment_is_seen(client: hostir.Client) -> None:
    check_definition("fd.ops.sum(x, [0])  # [5, 7, 9]\nx.shape  # (i0, 3)", client)
    for wrong in ("fd.ops.sum(x, [0])  # [5, 7, 8]", "x.shape  # (i0, 4)"):
        with pytest.raises(AssertionError):
            check_definition(wrong, client)
    check_client("y.shape  # (2, 3)", client)
    with pytest.raises(AssertionError):
        check_client("y.shape  # (2, 4)", client)
