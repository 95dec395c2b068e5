"""Ops on numbers of the host, many at a time, beside the same ops one at a time."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: ./run setup --torch")

import hostir  # noqa: E402
import hostir.torch  # noqa: E402
from hostir.torch.on_host import OnHost, on_host  # noqa: E402

ATEN = torch.ops.aten
COUNTS = 6


def graph_of(seed: int) -> tuple[torch.fx.Graph, list[torch.Tensor]]:
    """Chains on numbers: most are the same for each of some numbers, in another order here and there, as an optimizer's
    are; some op stands alone, and reads one number twice."""
    draw = random.Random(seed)
    graph = torch.fx.Graph()
    given = [torch.tensor(draw.uniform(0.5, 2.0)) for _ in range(COUNTS)]
    given += [torch.tensor(draw.randint(1, 9)) for _ in range(2)]
    layers = [[graph.placeholder(f"x{place}") for place in range(len(given))]]

    def call(target: object, *args: object) -> torch.fx.Node:
        return graph.call_function(target, args)

    for _ in range(draw.randint(2, 5)):
        kind = draw.randrange(5)
        before = layers[-1]
        other = draw.choice(layers)
        shuffled = draw.sample(other, len(other))
        made = []
        for place, node in enumerate(before):
            if kind == 0:
                made.append(call(ATEN.add.Tensor, node, 1))
            elif kind == 1:
                made.append(call(ATEN.pow.Scalar, 0.9, node))
            elif kind == 2:
                made.append(call(ATEN.mul.Tensor, node, shuffled[place % len(shuffled)]))
            elif kind == 3:
                made.append(call(ATEN.mul.Tensor, node, node if place % 2 else before[0]))
            else:
                made.append(call(ATEN.sub.Tensor, node, call(ATEN.neg.default, node)))
        if draw.random() < 0.3:
            made[0] = call(ATEN.full_like.default, made[0], 0.5)  # It has no tag of element by element.
        layers.append(made)
    values = {}
    for node in graph.nodes:  # One at a time; what each makes is known to whoever reads the graph.
        args = torch.fx.node.map_arg(node.args, values.__getitem__)
        values[node] = given[len(values)] if node.op == "placeholder" else node.target(*args)
        node.meta["val"] = values[node]
    graph.output((layers[-1], layers[1][0]))
    return graph, given


@pytest.mark.parametrize("seed", range(40))
def test_many_at_a_time_are_what_each_is(seed: int) -> None:
    graph, given = graph_of(seed)
    nodes = [node for node in graph.nodes if node.op == "call_function"]
    found = on_host(graph, lambda node: False)
    assert found.issuperset(nodes)
    results = nodes[-2:]
    function = OnHost(nodes, results)
    by_node = dict(zip((node for node in graph.nodes if node.op == "placeholder"), given, strict=True))
    made = function(*(by_node[node] for node in function.inputs))
    assert len(made) == len(function.outputs) > 0
    for node, value in zip(function.outputs, made, strict=True):
        wanted = node.meta["val"]
        assert value.shape == () and value.dtype == wanted.dtype
        torch.testing.assert_close(value, wanted, rtol=1e-6, atol=0.0, equal_nan=True)
    memory = [
        value.untyped_storage().data_ptr()
        for node, value in zip(function.outputs, made, strict=True)
        if node in results
    ]
    assert len(set(memory)) == len(memory)  # What is returned shares none.


def test_what_an_optimizer_does_for_each_parameter_is_one_op_for_all() -> None:
    graph = torch.fx.Graph()
    last = []
    for place in range(50):
        node = graph.placeholder(f"step{place}")
        node.meta["val"] = torch.tensor(float(place))
        for target, args in ((ATEN.add.Tensor, (1,)), (ATEN.sqrt.default, ()), (ATEN.neg.default, ())):
            before, node = node, graph.call_function(target, (node, *args))
            node.meta["val"] = target(before.meta["val"], *args)
        last.append(node)
    graph.output(tuple(last))
    function = OnHost([node for node in graph.nodes if node.op == "call_function"], last)
    assert len(function._batches) == 3
    made = function(*(node.meta["val"] for node in function.inputs))
    assert torch.equal(torch.stack(made), torch.stack([node.meta["val"] for node in last]))


FOREACH = [
    "AdamW",
    "Adam",
    "NAdam",
    "RAdam",
    "Adagrad",
    "RMSprop",
    "ASGD",
    "Rprop",
    "Adamax",
    "Adadelta",
    "SGD",
]  # Lists of numbers, and ops that have one as their result.


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("name", FOREACH)
def test_optimizers(name: str, foreach: bool, client: hostir.Client) -> None:
    def made() -> tuple[list[torch.nn.Parameter], torch.optim.Optimizer]:
        torch.manual_seed(1)
        parameters = [torch.nn.Parameter(torch.randn(n)) for n in (8, 5)]
        return parameters, getattr(torch.optim, name)(parameters, lr=0.1, foreach=foreach)

    (ours, optimizer), (theirs, eager) = made(), made()
    step = torch.compile(lambda: optimizer.step(), backend="hostir")
    for k in range(3):
        for p, q in zip(ours, theirs, strict=True):
            p.grad, q.grad = torch.full_like(p, 0.3 + k), torch.full_like(q, 0.3 + k)
        step(), eager.step()
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", ["frexp", "max", "sort", "cummax"])
def test_an_op_on_a_number_that_has_several_results(op: str, client: hostir.Client) -> None:
    def function(x: torch.Tensor, s: torch.Tensor) -> object:
        results = getattr(torch, op)(s + 1, *([0] if op != "frexp" else []))
        return x * 2, results[0] + 1, results[1]

    x, s = torch.randn(3), torch.tensor(2.5)
    for ours, theirs in zip(torch.compile(function, backend="hostir")(x, s), function(x, s), strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)
