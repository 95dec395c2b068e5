"""Ops on numbers of the host, many at a time, beside the same ops one at a time."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: ./run setup --torch")

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
