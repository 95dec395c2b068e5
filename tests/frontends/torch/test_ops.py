"""ATen's ops, one program each, beside PyTorch: values, types, strides of what comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: ./run setup --torch")
import hostir.torch  # noqa: E402

F = torch.nn.functional
NAN, INF = float("nan"), float("inf")


def _floats(*shape: int, dtype: Any = None) -> Any:
    return torch.randn(*shape, dtype=dtype or torch.float32)


def _read(tensors: list[Any]) -> list[Any]:
    """Views alone would be left to PyTorch."""
    return [each + 1 for each in tensors]


X = torch.tensor([[0.0, -0.0, 1.5, -2.5], [INF, -INF, NAN, 1e-3], [3.0, -7.0, 0.5, 2.0]])
WHOLE = torch.tensor([[3, -7, 0, 5], [2, 9, -1, 4], [-6, 1, 8, 2]])
INDEX = torch.tensor([2, 0, 2, 1])

BACKWARD = torch.ops.aten.embedding_dense_backward

WORDS = torch.tensor([[3.0, NAN, -1.0, 3.0], [0.0, -0.0, INF, 0.0]])

CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "unary": (
        lambda x: [x.exp(), x.tanh(), x.neg(), x.abs(), x.sigmoid(), x.relu(), x.isnan(), x.isinf(), x.sign()],
        [X],
    ),
    "roots": (lambda x: [x.sqrt(), x.rsqrt(), x.log(), x.log1p(), x.reciprocal()], [X.abs()]),
    "rounding": (lambda x: [x.floor(), x.ceil(), x.round(), x.trunc(), x.frac()], [_floats(5, 3)]),
    "arithmetic": (
        lambda x, y: [x + y, x - y, x * y, x / y, x**2, x**3.0, 2**x, 1 - x, torch.add(x, y, alpha=3)],
        [X, X.flip(0)],
    ),
    "quotients": (
        lambda x, y: [x // y, torch.div(x, y, rounding_mode="trunc"), x // 0.1, x % y],
        [torch.tensor([1.0, -7.5, 6.0, 0.0, INF]), torch.tensor([0.1, 2.0, -4.0, 3.0, 2.0])],
    ),
    "compare": (lambda x, y: [x == y, x != y, x < y, x >= y, torch.maximum(x, y), torch.minimum(x, y)], [X, X.flip(1)]),
    "integers": (
        lambda x, y: [x + y, x * y, x // 3, x % 3, x & y, x | y, x ^ y, ~x, x / 2, x**2],
        [WHOLE, WHOLE.flip(0)],
    ),
    "int and float": (lambda x, i: [x * i, i + 0.5, i * 2, x + i[0]], [X, WHOLE]),
    "a tensor without axes": (lambda x, s: [x * s, x + s, s.expand(3, 4)], [X, torch.tensor(2.0, dtype=torch.float64)]),
    "where": (lambda x: [torch.where(x > 0, x, 0.0), torch.where(x > 0, 1, 2), torch.where(x.isnan(), 0.0, x)], [X]),
    "masks": (lambda x: [x.masked_fill(x > 0, -1.0), (x > 0) & (x < 2), torch.logical_not(x > 0)], [X]),
    "clamp": (lambda x: [x.clamp(-1, 1), x.clamp(min=0), x.clamp(max=0.5), torch.clamp_min(x, 0.25)], [X]),
    "activations": (
        lambda x: [
            F.gelu(x),
            F.gelu(x, approximate="tanh"),
            F.silu(x),
            F.softplus(x),
            F.leaky_relu(x),
            F.elu(x),
            F.hardtanh(x),
            F.mish(x),
        ],
        [_floats(6, 5)],
    ),
    "softmax": (lambda x: [x.softmax(-1), x.log_softmax(0), x.logsumexp(1)], [_floats(5, 7)]),
    "sums": (
        lambda x: [
            x.sum(),
            x.sum(0),
            x.sum((0, 2), keepdim=True),
            x.mean(1),
            x.prod(2),
            x.amax((0, 1)),
            x.amin(),
            x.var(1),
            x.std(),
        ],
        [_floats(3, 4, 5)],
    ),
    "sums of ints": (lambda i: [i.sum(), i.sum(0), i.prod(1), i.to(torch.bool).sum(1), i.max(), i.amax(0)], [WHOLE]),
    "any and all": (lambda i: [i.any(), (i > 0).all(1), (i > 5).any(0, keepdim=True)], [WHOLE]),
    "places": (
        lambda x: [x.argmax(1), x.argmin(0, keepdim=True), x.argmax(), x.flip(0), x.flip((0, 1))],
        [WORDS],
    ),
    "order": (
        lambda x: [*x.sort(1), *x.sort(0, descending=True), *x.topk(2), *x.topk(1, 0, largest=False)],
        [X + 0.25 * (X == 0) * torch.tensor([1.0, -1.0, 0.0, 0.0])],
    ),
    "running sums": (lambda x, i: [x.cumsum(0), i.cumsum(1), (i > 0).cumsum(0)], [_floats(5, 9), WHOLE]),
    "lists": (
        lambda x, y: [
            *torch._foreach_add([x, y], [y, x], alpha=2),
            *torch._foreach_mul([x, y], 0.5),
            *torch._foreach_add([x, y], [1.0, 2.0]),
            *torch._foreach_sqrt([x * x, y * y]),
            *torch._foreach_pow(2.0, [x, y]),
            *torch._foreach_addcdiv([x, y], [x, y], [y * y + 1, x * x + 1], value=3),
            *torch._foreach_lerp([x, y], [y, x], 0.25),
        ],
        [_floats(3, 4), _floats(3, 4)],
    ),
    "var_mean": (lambda x: list(torch.var_mean(x, 1, correction=0)), [_floats(4, 6)]),
    "views": (
        lambda x: _read(
            [x.view(4, 15), x.reshape(-1), x.permute(2, 0, 1), x.transpose(0, 2), x.unsqueeze(1), x[:, :1].squeeze(1)]
        ),
        [_floats(3, 4, 5)],
    ),
    "slices": (lambda x: _read([x[1:], x[:, ::2], x[-2:, 1:-1], x[1], x[:, -1], x.narrow(1, 1, 2)]), [_floats(5, 6)]),
    "parts": (lambda x: _read([*x.split(2), *x.split([1, 3], 1), *x.chunk(2, 1), *x.unbind(0)]), [_floats(4, 4)]),
    "joins": (
        lambda x, y: [torch.cat([x, y]), torch.cat([x, y], -1), torch.stack([x, y], 1)],
        [_floats(2, 3), _floats(2, 3)],
    ),
    "join of types": (lambda x, y: [torch.cat([x, y])], [_floats(2, 3), torch.ones(2, 3, dtype=torch.float64)]),
    "expand and repeat": (
        lambda x: _read([x.expand(4, 3, 2), x.repeat(2, 3), x[:, None].expand(3, 5, 2), x.repeat_interleave(2, 0)]),
        [_floats(3, 2)],
    ),
    "pad": (lambda x: [F.pad(x, (1, 2)), F.pad(x, (0, 0, 1, -1), value=9.0)], [_floats(3, 4)]),
    "new": (
        lambda x: _read(
            [
                torch.zeros_like(x),
                torch.ones(2, 3),
                torch.full((2,), 7),
                torch.arange(2, 11, 3),
                x.new_zeros(3),
                torch.arange(4.0),
            ]
        ),
        [X],
    ),
    "triangles": (lambda x: [x.tril(), x.triu(1), torch.ones(4, 4).tril(-1)], [_floats(4, 4)]),
    "products": (
        lambda x, y: [
            x @ y,
            torch.mm(x, y),
            x @ y[:, 0],
            F.linear(x, y.t()),
            torch.addmm(x[:, :2], x, y, beta=2, alpha=3),
        ],
        [_floats(3, 5), _floats(5, 2)],
    ),
    "batches": (
        lambda x, y: [torch.bmm(x, y), torch.einsum("bij,bjk->bik", x, y), torch.baddbmm(x[:, :, :4], x, y)],
        [_floats(2, 3, 5), _floats(2, 5, 4)],
    ),
    "embedding": (
        lambda w, i: [F.embedding(i, w), F.embedding(i.view(2, 2), w, padding_idx=1)],
        [_floats(3, 4), INDEX],
    ),
    "take": (
        lambda x, i: [x[i], x[:, i[:3]], x.index_select(0, i), x[i, i], x.gather(1, i[None]), x[i[:, None], i]],
        [_floats(3, 5), INDEX],
    ),
    "put": (
        lambda x, i: [
            x.index_put((i[1:],), torch.tensor(5.0)),
            x.index_put((i,), x[i], accumulate=True),
            x.scatter(1, i[None].expand(3, 4), 7.0),
        ],
        [_floats(3, 5), INDEX],
    ),
    "scatter": (
        lambda x, i, s: [
            x.scatter(1, i, s),
            x.scatter(1, i[:, :1], -1.0),
            x.select_scatter(s[0], 0, 1),
            x.slice_scatter(s[:, :2], 1, 1, 3),
        ],
        [_floats(3, 4), torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2]]), _floats(3, 4)],
    ),
    "table gradients": (
        lambda g, i: [
            BACKWARD(g, i, 6, -1, False),
            BACKWARD(g, i.int(), 6, 2, False),
            BACKWARD(g, i, 6, -1, True),
            BACKWARD(g.bfloat16().view(1, 3, 4), i.view(1, 3), 7, 5, False),
            BACKWARD(g.double(), i, 6, 5, True),
        ],
        [X, torch.tensor([2, 5, 2])],
    ),
    "table gradients of nothing": (
        lambda g, i: [BACKWARD(g, i, 4, -1, False), BACKWARD(g.view(2, 0, 3), i.view(2, 0), 4, 1, True)],
        [_floats(0, 3), torch.zeros(0, dtype=torch.int64)],
    ),
    "sums by index": (
        lambda x, i, v: [
            x.index_put((i,), v, accumulate=True),
            x.index_put((i - 3,), v[0], accumulate=True),
            x.index_put((i, i.flip(0)), v[:, 0], accumulate=True),
            x.index_add(0, i, v),
            x.index_add(1, i, v[:3], alpha=-2),
            x.index_add(0, i[:0], v[:0]),
            x.double().index_put((i.int(),), v.double(), accumulate=True),
        ],
        [X, INDEX, torch.cat([X, X[:1] - 3])],
    ),
    "sums by index of 16 bits": (
        lambda x, i, v: [x.index_put((i,), v, accumulate=True), torch.zeros_like(x).index_add(0, i, v)],
        [_floats(3, 4, dtype=torch.bfloat16), INDEX, _floats(4, 4, dtype=torch.bfloat16)],
    ),
    "sums of integers by index": (
        lambda x, i: [x.index_add(0, i, x[i]), x.index_put((i,), x[i].int() + 2**30, accumulate=True)],
        [WHOLE.int(), INDEX],
    ),
    "sums by place": (
        lambda x, i, v: [
            x.scatter_add(1, i, v),
            x.scatter_add(0, i[:, :2] % 3, v),
            x.scatter_add(-1, i[:2, :1], v),
            x.scatter_add(1, i[:0], v),
            x.scatter_reduce(1, i, v, "sum"),
            x.double().scatter_add(1, i, v.double()),
            x.sum().scatter_add(0, i[0, 0], v[0, 1]),
        ],
        [X, torch.tensor([[0, 1, 1, 1], [3, 3, 1, 0], [2, 2, 2, 2]]), X.flip(1)],
    ),
    "bfloat16": (
        lambda x: [x * 1.1, x.float() + 1, x.sum(1), x @ x.t(), x.softmax(-1)],
        [_floats(4, 8, dtype=torch.bfloat16)],
    ),
    "sums in another type": (
        lambda x: [x.mean(1, dtype=torch.float32), x.sum(0, dtype=torch.float32)],
        [_floats(4, 333, dtype=torch.bfloat16)],
    ),
    "float16": (lambda x: [x * 1.1, x.exp(), x.mean(0)], [_floats(4, 8, dtype=torch.float16)]),
    "float64": (
        lambda x: [x.exp(), x @ x, x.to(torch.float32), x.to(torch.int64)],
        [_floats(4, 4, dtype=torch.float64)],
    ),
    "losses": (
        lambda x, i: [
            F.cross_entropy(x, i, reduction="none"),
            F.nll_loss(x, i),
            F.mse_loss(x, x * 2),
            F.cross_entropy(x, i, ignore_index=2),
        ],
        [_floats(4, 3), INDEX],
    ),
    "norms": (lambda x: [F.layer_norm(x, (6,)), F.rms_norm(x, (6,)), F.normalize(x)], [_floats(4, 6)]),
    "empty": (lambda x: [x + 1, x.sum(0), x.amax(1), torch.cat([x, x])], [_floats(0, 4)]),
    "lerp": (
        lambda x, y: [torch.lerp(x, y, 0.3), torch.addcmul(x, y, y, value=0.5), torch.addcdiv(x, y, y.exp(), value=2)],
        [_floats(3, 3), _floats(3, 3)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_op(name: str) -> None:
    """The compiled function's results, and PyTorch's."""
    function, inputs = CASES[name]
    wanted = function(*(each.clone() for each in inputs))
    made = torch.compile(function, backend="hostir")(*inputs)
    for place, (ours, theirs) in enumerate(zip(made, wanted, strict=True)):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, place
        assert ours.stride() == theirs.stride() or ours.numel() < 2, (place, ours.stride(), theirs.stride())
        tolerance = {torch.bfloat16: 2e-2, torch.float16: 2e-3}.get(ours.dtype, 2e-6)
        torch.testing.assert_close(
            ours,
            theirs,
            rtol=tolerance,
            atol=tolerance,
            equal_nan=True,
            msg=f"{name}, result {place}: {ours} and {theirs}",
        )
    report = hostir.torch.report()
    assert not report.fallen, report
    assert report.bytes == 1.0 and sum(graph.lowered for graph in report.graphs) > 0
