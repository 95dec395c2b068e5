"""Products of groups of rows, as mixtures of experts make them: values and gradients beside PyTorch's in float64."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: ./run setup --torch")
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import hostir.torch  # noqa: E402
from hostir.torch.lowering import refusal  # noqa: E402

# Ends of groups, of so many rows.
ENDS: dict[str, tuple[int, list[int]]] = {
    "all rows": (23, [4, 9, 23]),
    "empty groups": (12, [0, 5, 5, 12, 12]),
    "rows behind the end": (16, [3, 10]),
    "no row has a group": (7, [0, 0]),
    "one group": (5, [5]),
}
DTYPES = [(torch.float32, 1e-5), (torch.float64, 1e-12), (torch.bfloat16, 1e-2), (torch.float16, 2e-3)]


def expected(x: Any, matrices: Any, ends: Any) -> Any:
    rows, begin = [], 0
    for matrix, end in zip(matrices, ends.tolist(), strict=True):
        rows.append(x[begin:end] @ matrix)
        begin = end
    return torch.cat([*rows, x.new_zeros(len(x) - begin, matrices.shape[2])])


def trained(function: Any, x: Any, matrices: Any, ends: Any, gradient: Any) -> list[Any]:
    own = [each.detach().clone().requires_grad_() for each in (x, matrices)]
    values = function(*own, ends)
    values.backward(gradient)
    return [values.detach(), *(each.grad for each in own)]


def check(function: Any, name: str, transposed: bool, dtype: Any, tolerance: float, ends_dtype: Any) -> None:
    """``function(x, matrices, ends)``; the matrices of groups are as they are, or transposed, as a model's weights."""
    count, ends = ENDS[name]
    k, n = 16, 24

    def given(f: Any) -> Any:
        return lambda x, y, z: f(x, y.transpose(-2, -1) if transposed else y, z)

    x, gradient = torch.randn(count, k).to(dtype), torch.randn(count, n).to(dtype)
    matrices = torch.randn(len(ends), *((n, k) if transposed else (k, n))).to(dtype)
    places = torch.tensor(ends, dtype=ends_dtype)
    want = trained(given(expected), x.double(), matrices.double(), places, gradient.double())
    got = trained(torch.compile(given(function), backend="hostir"), x, matrices, places, gradient)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype == dtype
        assert ours.shape == theirs.shape
        assert (ours.double() - theirs).abs().max() <= tolerance * theirs.abs().max()
    report = hostir.torch.report()
    assert not [op for op, _ in report.fallen if "grouped" in op], report
    # Nothing is transposed on the way: there is no kernel beside the calls.
    kinds = [segment.kind for plan in report.plans() for segment in plan.segments]
    assert kinds == ["library"] * 3 or not transposed, report.plans()


@pytest.mark.parametrize("transposed", [False, True], ids=["as they are", "transposed"])
@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("name", ENDS)
def test_experts_of_transformers(name: str, dtype: Any, tolerance: float, transposed: bool) -> None:
    pytest.importorskip("transformers.integrations.moe", reason="transformers is not installed")
    check(torch.ops.transformers.grouped_mm_fallback, name, transposed, dtype, tolerance, torch.int32)


@pytest.mark.parametrize("transposed", [False, True], ids=["as they are", "transposed"])
@pytest.mark.parametrize("name", ENDS)
def test_grouped_mm_of_pytorch(name: str, transposed: bool) -> None:
    if not hasattr(torch, "_grouped_mm"):
        pytest.skip("this PyTorch has no _grouped_mm")
    check(lambda x, y, z: torch._grouped_mm(x, y, offs=z), name, transposed, torch.bfloat16, 1e-2, torch.int32)


def test_columns_in_groups() -> None:
    """Two axes and two: a sum of outer products."""
    if not hasattr(torch, "_grouped_mm"):
        pytest.skip("this PyTorch has no _grouped_mm")
    x, y = torch.randn(16, 40).bfloat16(), torch.randn(40, 24).bfloat16()
    ends = torch.tensor([8, 8, 40], dtype=torch.int32)
    got = torch.compile(lambda x, y, z: torch._grouped_mm(x, y, offs=z), backend="hostir")(x, y, ends)
    wide, other = x.double(), y.double()
    want = torch.stack([wide[:, :8] @ other[:8], torch.zeros(16, 24).double(), wide[:, 8:] @ other[8:]])
    assert (got.double() - want).abs().max() <= 1e-2 * want.abs().max()
    assert not [op for op, _ in hostir.torch.report().fallen if "grouped" in op]


@pytest.mark.parametrize(("device", "stays"), [("cpu", False), ("cuda", True)])
def test_groups_on_a_gpu_stay_pytorchs(device: str, stays: bool) -> None:
    graph = torch.fx.Graph()
    places = [graph.placeholder(name) for name in ("x", "y", "ends")]
    node = graph.call_function(torch.ops.aten._grouped_mm.default, tuple(places))
    with FakeTensorMode():
        shapes = ((8, 4), torch.bfloat16), ((2, 4, 16), torch.bfloat16), ((2,), torch.int32), ((8, 16), torch.bfloat16)
        for each, (shape, dtype) in zip([*places, node], shapes, strict=True):
            each.meta["val"] = torch.empty(shape, dtype=dtype, device=device)
    assert ("GPU" in refusal(node)) == stays


def test_a_mixture_of_experts_trains() -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.MixtralConfig(**sizes, vocab_size=50, num_key_value_heads=2, num_local_experts=4)
    model = transformers.MixtralForCausalLM(config)
    tokens = torch.randint(0, 50, (2, 11))
    wanted = model(tokens, labels=tokens, use_cache=False).loss
    wanted.backward()
    gradients = {name: each.grad.clone() for name, each in model.named_parameters()}
    model.zero_grad()
    loss = torch.compile(lambda: model(tokens, labels=tokens, use_cache=False).loss, backend="hostir")()
    loss.backward()
    torch.testing.assert_close(loss, wanted)
    for name, each in model.named_parameters():
        torch.testing.assert_close(each.grad, gradients[name], rtol=1e-3, atol=1e-5)
    assert hostir.torch.report().flops == 1, hostir.torch.report()
