"""Over four ranks beside JAX on one device: data- and tensor-parallel steps, constraints, donation, layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hostir
import hostir.jax
from beside_jax import assert_close
from hostir import DeviceMesh, Sharding
from models import Sizes, adam, adam_state, batch, loss, parameters, sgd

SEED = 6
STEPS = 5
SIZES = Sizes()
RANKS = DeviceMesh([0, 1, 2, 3], names=("dp",))
of_new_jax = pytest.mark.skipif(
    not hasattr(jax.sharding, "use_abstract_mesh"), reason="this JAX traces no PartitionSpec without devices"
)
GRID = DeviceMesh([[0, 1], [2, 3]], names=("dp", "tp"))


def tensor_parallel(axis: str) -> Any:
    """How the parameters of a block lie: heads and hidden units are split."""
    return {
        "embedding": P(),
        "attention": {
            "norm": P(),
            "q": P(None, axis),
            "k": P(None, axis),
            "v": P(None, axis),
            "o": P(axis),
        },
        "mlp": {"norm": P(), "gate": P(None, axis), "up": P(None, axis), "down": P(axis)},
        "norm": P(),
        "head": P(None, axis),
    }


def attended(q: Any, k: Any, v: Any, gradient: Any, of: Any) -> tuple[Any, ...]:
    """Causal attention `of` somebody, and its gradients."""
    values, back = jax.vjp(lambda q, k, v: of(q, k, v, is_causal=True), q, k, v)
    return values, *back(gradient)


@pytest.mark.parametrize("groups", [8, 2])
def test_a_long_sequence_is_split(client: hostir.Client, groups: int) -> None:
    """Keys go round, those that heads share, too; short ones are gathered. Gradients lie as what they are of."""
    lies = P(None, "dp")
    ours = hostir.jax.jit(
        lambda *args: attended(*args, hostir.jax.dot_product_attention),
        client=client,
        mesh=RANKS,
        in_shardings=(lies, lies, lies, lies),
    )
    theirs = jax.jit(lambda *args: attended(*args, jax.nn.dot_product_attention))
    rng = np.random.default_rng(SEED)
    for length, note in ((4096 // groups, "go round 4 ranks"), (64, "are gathered")):
        shapes = [(1, length, heads, 256) for heads in (8, groups, groups, 8)]
        args = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        plan = client.explain(ours.definition(*args))
        assert plan.notes
        assert all(note in each for each in plan.notes)
        sums = {each.type for each in plan.communications}
        assert sums == ({"CollectivePermute"} if "round" in note else {"Allgather", "ReduceScatter"})
        results = ours(*args)
        assert all(each.sharding == Sharding(RANKS, {1: "mesh_x"}) for each in results)
        assert_close(results, theirs(*args), 1e-5)


def check_steps(ours: Any, client: hostir.Client) -> list[Any]:
    """Steps of gradient descent; the parameters at the end."""
    theirs = jax.jit(sgd(loss))
    p = of_jax = parameters(SIZES, SEED)
    for turn in range(STEPS):
        data = batch(SIZES, SEED + turn)
        p, value = ours(p, *data)
        of_jax, wanted = theirs(of_jax, *data)
        assert_close(value, wanted, 1e-5)
    assert_close(p, of_jax, 1e-5)
    assert len(ours._traced) == 1
    leaves: list[Any] = jax.tree.leaves(p)
    return leaves


def communications(jitted: Any, client: hostir.Client, *args: Any) -> set[str]:
    return {each.type for each in client.explain(jitted.definition(*args)).communications}


def test_a_data_parallel_step(client: hostir.Client) -> None:
    step = hostir.jax.jit(sgd(loss), client=client, mesh=RANKS, in_shardings=(P(), P("dp"), P("dp")), donate_argnums=0)
    leaves = check_steps(step, client)
    assert all(leaf.sharding == Sharding(RANKS) for leaf in leaves)
    data = batch(SIZES, SEED)
    assert communications(step, client, parameters(SIZES, SEED), *data) == {"Allreduce"}


def test_a_tensor_parallel_step(client: hostir.Client) -> None:
    layout = tensor_parallel("tp")
    mesh = DeviceMesh([0, 1], names=("tp",))
    step = hostir.jax.jit(sgd(loss), client=client, mesh=mesh, in_shardings=(layout, P(), P()), donate_argnums=0)
    check_steps(step, client)
    p, *_ = step(parameters(SIZES, SEED), *batch(SIZES, SEED))
    assert p["mlp"]["down"].sharding == Sharding(mesh, {0: "tp"})
    assert p["attention"]["q"].sharding == Sharding(mesh, {1: "tp"})


def test_data_and_tensors_in_a_grid(client: hostir.Client) -> None:
    layout = tensor_parallel("tp")
    step = hostir.jax.jit(
        sgd(loss),
        client=client,
        mesh=GRID,
        in_shardings=(layout, P("dp"), P("dp")),
        out_shardings=(layout, None),
        donate_argnums=0,
    )
    check_steps(step, client)


def test_steps_of_adam_with_split_states(client: hostir.Client) -> None:
    """Means and squares are split over the ranks that split the batch, as ZeRO does it."""
    split = jax.tree.map(lambda w: P("dp") if w.shape[0] % 4 == 0 else P(), parameters(SIZES, SEED))
    states = {"step": P(), "mean": split, "square": split}
    ours = hostir.jax.jit(
        adam(loss),
        client=client,
        mesh=RANKS,
        in_shardings=(P(), states, P("dp"), P("dp")),
        out_shardings=(P(), states, P()),
        donate_argnums=(0, 1),
    )
    theirs = jax.jit(adam(loss))
    p = of_jax = parameters(SIZES, SEED)
    state = of_jax_state = adam_state(p)
    for turn in range(STEPS):
        data = batch(SIZES, SEED + turn)
        p, state, value = ours(p, state, *data)
        of_jax, of_jax_state, wanted = theirs(of_jax, of_jax_state, *data)
        assert_close(value, wanted, 1e-5)
    assert_close((p, state), (of_jax, of_jax_state), 1e-5)
    assert state["mean"]["mlp"]["up"].sharding == Sharding(RANKS, {0: "dp"})


@of_new_jax
@pytest.mark.parametrize("way", ["spec", "named"])
def test_constraints_inside(way: str, client: hostir.Client) -> None:
    """By a PartitionSpec of the mesh of ``jit``, and by a NamedSharding of an abstract mesh of that shape."""
    abstract = AbstractMesh((4,), ("dp",))

    def function(x: Any) -> Any:
        spec = P(None, "dp")
        y = jax.lax.with_sharding_constraint(x * 2, spec if way == "spec" else NamedSharding(abstract, spec))
        return y + 1

    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    backwards = DeviceMesh([3, 2, 1, 0], names=("dp",))
    (y,) = [hostir.jax.jit(function, client=client, mesh=backwards)(x)]
    assert y.sharding == Sharding(backwards, {1: "dp"})  # Propagated; its devices are those of the mesh that was given.
    np.testing.assert_array_equal(y.numpy(), 2 * x + 1)


@of_new_jax
def test_a_result_may_lie_otherwise_than_its_constraint_says(client: hostir.Client) -> None:
    constrained = hostir.jax.jit(
        lambda x: jax.lax.with_sharding_constraint(x * 2, P("dp")),
        client=client,
        mesh=RANKS,
        out_shardings=P(None, "dp"),
    )
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    y = constrained(x)
    assert y.sharding == Sharding(RANKS, {1: "dp"})
    np.testing.assert_array_equal(y.numpy(), 2 * x)
    assert communications(constrained, client, x) == {"AllToAll"}


@of_new_jax
def test_constraints_have_gradients(client: hostir.Client) -> None:
    def of(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.square(jax.lax.with_sharding_constraint(x @ w, P("dp", "tp"))))

    rng = np.random.default_rng(SEED)
    w, x = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 4), (8, 6)))
    ours = hostir.jax.jit(jax.grad(of), client=client, mesh=GRID, in_shardings=(P(None, "tp"), P("dp")))
    assert_close(ours(w, x), jax.grad(lambda w, x: jnp.sum(jnp.square(x @ w)))(w, x), 1e-5)


def test_shardings_of_hostir(client: hostir.Client) -> None:
    rows, columns = Sharding(RANKS, {0: "dp"}), Sharding(RANKS, {1: "dp"})
    jitted = hostir.jax.jit(lambda x: {"y": x * 2}, client=client, in_shardings=rows, out_shardings={"y": columns})
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    y = jitted(x)["y"]
    assert y.sharding == columns
    np.testing.assert_array_equal(y.numpy(), 2 * x)
    assert communications(jitted, client, x) == {"AllToAll"}


@of_new_jax
def test_meshes_of_jax(client: hostir.Client) -> None:
    """An abstract one is of the first devices; a mesh of devices says their numbers."""
    x = np.ones((2, 2), np.float32)
    abstract = hostir.jax.jit(jnp.sin, client=client, mesh=AbstractMesh((2, 2), ("a", "b")), in_shardings=P("a", "b"))
    assert abstract(x).sharding == Sharding([[0, 1], [2, 3]], {0: "mesh_y", 1: "mesh_x"})
    real = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("a",))
    assert hostir.jax.jit(jnp.sin, client=client, mesh=real)(x).sharding == Sharding([0])


def test_an_array_without_a_told_layout_stays_as_it_lies(client: hostir.Client) -> None:
    layout = Sharding(RANKS, {0: "dp"})
    x = client.put(np.ones((4, 8), np.float32), sharding=layout)
    y = hostir.jax.jit(lambda x: x + 1)(x)  # On the client of the Array.
    assert y.sharding == layout
    assert y[0, 0] == 2


def test_an_array_that_lies_otherwise_is_refused(client: hostir.Client) -> None:
    jitted = hostir.jax.jit(lambda x: x + 1, client=client, mesh=RANKS, in_shardings=P("dp"))
    x = client.put(np.ones((4, 8), np.float32))
    with pytest.raises(hostir.InvalidArgument) as caught:
        jitted(x)
    assert "input 0 (x): the tensor lies on [0], replicated; the program wants it on [0, 1, 2, 3]" in str(caught.value)


def test_a_donated_array_is_used_up(client: hostir.Client) -> None:
    def function(state: Any, x: Any) -> Any:
        return x.sum(), {"b": state["b"] * 2, "a": state["a"] + 1}

    jitted = hostir.jax.jit(function, client=client, donate_argnums=0)
    state = {"a": client.put(np.ones(3, np.float32)), "b": client.put(np.ones((2, 2), np.float32))}
    x = client.put(np.ones(3, np.float32))
    total, new = jitted(state, x)
    assert (total.item(), new["a"].tolist(), new["b"].tolist()) == (3, [2, 2, 2], [[2, 2], [2, 2]])
    assert x.state == "ready"
    for array in state.values():
        with pytest.raises(hostir.FailedPrecondition, match="was consumed by a run of function"):
            array.numpy()


def test_a_donated_array_that_lies_otherwise_than_the_result_stays(client: hostir.Client) -> None:
    told = (P("dp"), P(None, "dp"))
    jitted = hostir.jax.jit(
        lambda a, b: (a * 2, b * 3),
        client=client,
        mesh=RANKS,
        in_shardings=told,
        out_shardings=(P(None, "dp"), P()),
        donate_argnums=(0, 1),
    )
    x = np.ones((4, 8), np.float32)
    a, b = (client.put(x, sharding=Sharding(RANKS, {axis: "dp"})) for axis in (0, 1))
    twice, thrice = jitted(a, b)
    assert (twice.sharding, thrice.sharding) == (Sharding(RANKS, {1: "dp"}), Sharding(RANKS))
    assert (twice[0, 0], thrice[0, 0], a[0, 0]) == (2, 3, 1)
    with pytest.raises(hostir.FailedPrecondition, match="was consumed"):  # By the first result, which lies as it did.
        b.numpy()


def test_a_donated_argument_may_be_a_result(client: hostir.Client) -> None:
    jitted = hostir.jax.jit(lambda x, y: (y, x, x), client=client, donate_argnums=(0, 1))
    x, y = np.arange(3, dtype=np.float32), np.arange(3, 6, dtype=np.float32)
    found = jitted(client.put(x), client.put(y))
    for array, wanted in zip(found, (y, x, x), strict=True):
        np.testing.assert_array_equal(array.numpy(), wanted)
