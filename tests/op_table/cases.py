"""Every op that a program may write, as programs with what NumPy makes of them.

A case is one op on one set of shapes, for every element type that the op takes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import numpy_random
from attention import Attention
from numpy_ops import ALL, BF16, BOOL, F16, F32, F64, FLOATS, I8, I32, I64, INTS, NUMBERS, POINTWISE, U8, rounded

Array = np.ndarray[Any, Any]
DType = np.dtype[Any]
Shape = tuple[int, ...]

NAMES = {BF16: "bf16", F16: "f16", F32: "f32", F64: "f64", U8: "u8", I8: "i8", I32: "i32", I64: "i64", BOOL: "bool"}
SMALLEST = {BF16: 2.0**-133, F16: 2.0**-24, F32: 2.0**-149, F64: 2.0**-1074}
NORMAL = {BF16: 2.0**-126, F16: 2.0**-14, F32: 2.0**-126, F64: 2.0**-1022}
GREATEST = {BF16: 2.0**128 - 2.0**120, F16: 65504.0, F32: 2.0**128 - 2.0**104, F64: np.finfo(F64).max}
# Of a result that is not rounded correctly, relative: kernels compute 16-bit floats in float32 and round once.
UNIT = {F64: 1e-14, F32: 2e-6, F16: 1.1e-3, BF16: 8.5e-3}


@dataclass(frozen=True)
class Input:
    shape: Shape | None  # None: a host scalar.
    dtype: DType | None = None  # None: the type that the case is about.
    values: Callable[[DType, str, Shape], Array] | None = None  # By type, op and shape, instead of made-up ones.
    shard: int | None = None  # The axis that is split over the mesh.


@dataclass(frozen=True)
class Case:
    op: str
    name: str
    inputs: tuple[Input, ...]
    call: str  # "add(%0, %1)"; T is the element type. Lines in front of the last one are ops of their own.
    want: Callable[..., Any]  # Of the element type and the inputs.
    dtypes: tuple[DType, ...] = ALL
    refused: tuple[DType, ...] = ()  # Element types that the op does not take.
    symbols: bool = False  # Extents but 1 are not known before the run.
    ranks: int = 1
    exact: bool = True
    scale: Callable[..., Any] | None = None  # What an error is relative to, if not to the result.
    any_zero: bool = False  # Which zero comes out of 0 and -0 is not said.
    extremes: bool = True  # Made-up values go up to the greatest of the type.
    skipped: dict[str, str] = field(default_factory=dict)  # Executors with the reason.

    @property
    def title(self) -> str:
        return f"{self.op}.{self.name}"


def over_ranks(case: Case) -> Iterator[Case]:
    """The case, and again with its tensors split over two ranks and over four, on each axis of the first."""
    yield case
    for axis in range(len(case.inputs[0].shape or ())):
        inputs = tuple(replace(given, shard=None if given.shape is None else axis) for given in case.inputs)
        for ranks in (2, 4):
            name = f"{case.name}, axis {axis} over {ranks} ranks"
            yield replace(case, name=name, inputs=inputs, ranks=ranks, symbols=False, refused=())


def specials(dtype: DType, extremes: bool = True) -> list[Any]:
    if dtype == BOOL:
        return [False, True]
    if dtype in INTS:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        return [0, 1, -1, 2, -7, 31, 33, 64, low, high, low + 1, 12]
    tiny = [SMALLEST[dtype], -SMALLEST[dtype], NORMAL[dtype] - SMALLEST[dtype], NORMAL[dtype]]
    ends = [GREATEST[dtype], -GREATEST[dtype]] if extremes else [3.0, -0.25]
    return [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.5, -3.5, 0.5, *tiny, *ends]


def made_up(case: Case, number: int, dtype: DType) -> Array:
    """Random numbers with the type's special ones among them; two operands meet each pair of those."""
    given = case.inputs[number]
    shape = given.shape or ()
    if given.values is not None:
        return given.values(dtype, case.op, shape).astype(dtype)
    rng = np.random.default_rng(zlib.crc32(f"{case.title} {dtype} {number}".encode()))
    if dtype == BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    x = (
        rounded(rng.standard_normal(shape) * 3, dtype)
        if dtype in FLOATS
        else rng.integers(-20, 20, shape).astype(dtype)
    )
    if case.op in ("erfinv", "erfcinv") and dtype in FLOATS:
        x = rounded(np.tanh(x.astype(F64)) + (case.op == "erfcinv"), dtype)
    return with_specials(x, number, case.extremes)


def with_specials(x: Array, number: int = 0, extremes: bool = True) -> Array:
    special = np.array(specials(x.dtype, extremes)).astype(x.dtype)
    n, count = len(special), x.size
    flat = x.reshape(-1)
    places = np.arange(min(n * n, count // 2) if count <= n * n else n * n)
    which = [places % n, places // n, places * 7 + places // n, places * 5 + places // 3][number]
    flat[places] = special[which % n]
    return x


# --- pointwise ---

POINTWISE_SHAPES: list[tuple[str, list[Shape], bool]] = [
    ("rows over two ranks", [(6, 37), (37,), (6, 1), (1,)], False),
    ("axes of one element", [(2, 1, 3), (1, 1), (3,), (1,)], True),
    ("no elements", [(0, 3), (1, 3), (3,), (1,)], True),
    ("special values", [(401,)] * 4, True),
]
SCALES: dict[str, Callable[..., Any]] = {
    "gelu": np.abs,
    "tanh_gelu": np.abs,
    "lerp": lambda x, y, z: abs(x) + abs(z) * (abs(x) + abs(y)),
    "lgamma": lambda x: 1 + 0 * x,
    "remainder": lambda x, y: np.abs(y),
    "addcmul": lambda x, y, z, w: abs(x) + abs(w * (y * z)),
}


def pointwise() -> Iterator[Case]:
    for op, definition in POINTWISE.items():
        for name, shapes, symbols in POINTWISE_SHAPES:
            sharded = name.startswith("rows")
            inputs = tuple(
                Input(shape, shard=0 if sharded and len(shape) == 2 else None) for shape in shapes[: definition.arity]
            )
            yield Case(
                op,
                name,
                inputs,
                f"{op}({', '.join(f'%{k}' for k in range(definition.arity))})",
                definition,
                definition.dtypes,
                tuple(t for t in ALL if t not in definition.dtypes) if name == "special values" else (),
                symbols,
                2 if sharded else 1,
                definition.exact,
                SCALES.get(op),
                any_zero=op in ("maximum", "minimum", "clamp"),
                # Sums and products of the greatest are not numbers of the type that kernels compute in.
                extremes=op not in ("addcmul", "lerp"),
            )
    for name, shapes, symbols in POINTWISE_SHAPES:
        shard = 0 if name.startswith("rows") else None
        yield Case(
            "where",
            name,
            (Input(shapes[0], BOOL, shard=shard), Input(shapes[1]), Input(shapes[2], shard=shard)),
            "where(%0, %1, %2)",
            lambda dtype, c, x, y: np.where(c, x, y),
            symbols=symbols,
            ranks=1 if shard is None else 2,
        )


def converted(dtype: DType, x: Array) -> Array:
    if x.dtype in FLOATS and dtype in INTS:
        info, wide = np.iinfo(dtype), x.astype(F64)
        inside = (wide > info.min) & (wide < float(info.max))  # 2^63 of int64.
        want = np.where(wide > 0, info.max, np.where(wide < 0, info.min, 0)).astype(dtype)
        want[inside] = np.trunc(wide[inside]).astype(dtype)
        return want
    if dtype == BOOL:
        return np.asarray(x.astype(F64) != 0)
    return rounded(x, dtype)


def casts() -> Iterator[Case]:
    for name, shape in (("matrix", (9, 31)), ("one element", (1, 1)), ("no elements", (0, 2))):
        for target in ALL:
            yield Case(
                "cast",
                f"{name} to {NAMES[target]}",
                (Input(shape),),
                f"cast(%0) {{dtype={NAMES[target]}}}",
                lambda dtype, x, to=target: converted(to, x),
                symbols=name != "matrix",
            )


# --- reductions ---


def summed(dtype: DType) -> DType:
    return dtype if dtype in FLOATS else I64


def wide(x: Array) -> Array:
    return x.astype(F64 if x.dtype in FLOATS else I64)


def reduced(op: str, axes: tuple[int, ...], keep: bool) -> Callable[..., Any]:
    def want(dtype: DType, x: Array) -> Any:
        over = axes or tuple(range(x.ndim))
        with np.errstate(all="ignore"):
            if op in ("max", "min"):
                if dtype in FLOATS:
                    x = x.astype(F64)
                return np.asarray(getattr(np, op)(x, axis=over, keepdims=keep)).astype(dtype)
            if op in ("any", "all"):
                return np.asarray(getattr(np, op)(x.astype(F64) != 0, axis=over, keepdims=keep))
            if op in ("sum", "prod"):
                return rounded(getattr(wide(x), op)(axis=over, keepdims=keep), summed(dtype))
            result = dtype if dtype in FLOATS else F32
            floats = x.astype(F64)
            count = np.prod([x.shape[a] for a in over])
            mean = np.asarray(floats.sum(axis=over, keepdims=True)) / count
            if op == "mean":
                return rounded(np.asarray(floats.sum(axis=over, keepdims=keep)) / count, result)
            squares = ((floats - mean) ** 2).sum(axis=over, keepdims=keep)
            return rounded(squares / max(count - 1, 0) if op == "var" else squares, result)

    return want


def reduction_scale(op: str, axes: tuple[int, ...], keep: bool) -> Callable[..., Any] | None:
    def scale(x: Array) -> Any:
        over = axes or tuple(range(x.ndim))
        size = np.abs(x)
        total = size.sum(axis=over, keepdims=keep)
        if op == "mean":
            return total / max(np.prod([x.shape[a] for a in over]), 1)
        return total if op == "sum" else (size * size).sum(axis=over, keepdims=keep)

    return None if op in ("max", "min", "prod", "any", "all") else scale


def special_rows(dtype: DType, op: str, shape: Shape) -> Array:
    """Rows that hold one special thing each."""
    if dtype not in FLOATS:
        x = np.random.default_rng(4).integers(0, 2 if dtype == BOOL else 4, shape)
        if dtype in INTS:
            x[0, :2] = [np.iinfo(dtype).max, 1]
            x[1, 0] = np.iinfo(dtype).min
        return x.astype(dtype)
    x = np.random.default_rng(4).standard_normal(shape)
    x[0, 4], x[1, 8], x[2, 0], x[3, 2:4] = np.nan, np.inf, -np.inf, [np.inf, -np.inf]
    x[4], x[5], x[6, :5], x[7] = -0.0, 0.0, SMALLEST[dtype], SMALLEST[dtype]
    x[8, :2] = [np.inf, np.nan]
    if op not in ("mean", "var", "var_sum"):  # Those square it, or add it up, in the type they compute in.
        x[9], x[9, :2] = 1, GREATEST[dtype]
    return rounded(x, dtype)


def reductions() -> Iterator[Case]:
    shapes: list[tuple[str, Shape, tuple[int, ...], bool, int | None]] = [
        ("rows over two ranks", (6, 37), (1,), False, 0),
        ("over what is split", (4, 5, 7), (0, 2), True, 0),
        ("special rows", (12, 9), (1,), False, None),
        ("everything", (3, 130), (), False, None),
        ("one element", (1, 3, 1), (0, 2), True, None),
        ("no elements", (2, 0, 3), (1,), False, None),
    ]
    for op in ("max", "min", "sum", "prod", "mean", "var", "var_sum", "any", "all"):
        for name, shape, axes, keep, shard in shapes:
            nothing = name == "no elements"
            attrs = f"axes=[{', '.join(map(str, axes))}], "
            attrs += "correction=1, " if op == "var" else ""
            attrs += f"keepdim={'true' if keep else 'false'}"
            attrs += ", dtype=null" if op in ("sum", "prod", "max", "min") else ""
            refused = nothing and op in ("max", "min")
            case = Case(
                op,
                name,
                (Input(shape, values=special_rows if name == "special rows" else plain, shard=shard),),
                f"{op}(%0) {{{attrs}}}",
                reduced(op, axes, keep),
                () if refused else ALL,
                ALL if refused else (),
                symbols=shard is None and not refused,
                ranks=1 if shard is None else 2,
                exact=op in ("max", "min", "any", "all"),
                scale=reduction_scale(op, axes, keep),
                any_zero=True,
            )
            if op in ("any", "all", "max", "min") and name == "special rows":  # One of four ranks has none of 9.
                yield from over_ranks(case)
            else:
                yield case


def places() -> Iterator[Case]:
    for op in ("argmax", "argmin"):
        for name, shape, axis, keep in (
            ("special rows", (12, 9), 1, False),
            ("rows", (7, 130), 0, True),
            ("the middle", (2, 5, 3), -2, False),
            ("one element", (3, 1), 1, True),
            ("nothing beside it", (0, 3), 1, False),
        ):
            whole = Case(
                op,
                name,
                (Input(shape, values=special_rows if name == "special rows" else None),),
                f"{op}(%0) {{axis={axis}, keepdim={'true' if keep else 'false'}}}",
                lambda dtype, x, op=op, axis=axis, keep=keep: getattr(np, op)(
                    x.astype(F64) if dtype in FLOATS else x, axis=axis, keepdims=keep
                ),
                symbols=True,
            )
            if name == "special rows":
                yield from over_ranks(whole)
            else:
                yield whole
        yield Case(op, "no elements", (Input((2, 0)),), f"{op}(%0) {{axis=1, keepdim=false}}", lambda *_: None, (), ALL)


def plain(dtype: DType, op: str, shape: Shape) -> Array:
    """Numbers whose sums and products stay small."""
    rng = np.random.default_rng([len(op), *shape])
    if dtype == BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in INTS:
        return rng.integers(-9, 10, shape).astype(dtype)
    values = rng.standard_normal(shape)
    return rounded(
        np.sign(values) * (0.8 + 0.4 * np.abs(np.tanh(values))) if op in ("prod", "cumprod") else values, dtype
    )


# --- shape ---


def shapes() -> Iterator[Case]:
    def case(op: str, name: str, shape: Shape, call: str, want: Callable[[Array], Any], **more: Any) -> Case:
        first = Input(shape, shard=more.pop("shard", None))
        ranks = 1 if first.shard is None else 2
        return Case(op, name, (first,), call, lambda dtype, x, *_: np.asarray(want(x)), ranks=ranks, **more)

    for op in ("set", "segment_set"):
        for name, shape, more in (
            ("rows over two ranks", (6, 5), {"shard": 0}),
            ("one element", (1, 1), {}),
            ("no elements", (0, 3), {"symbols": True}),
        ):
            yield case(op, name, shape, f"{op}(%0)", lambda a: a, **more)
    flags = "broadcast(%0) {is_broadcast_dim=[0, 1, 0, 1]}"
    yield case("broadcast", "between axes", (3, 4), flags, lambda a: a[:, None, :, None])
    yield case("broadcast", "split", (4, 3), flags, lambda a: a[:, None, :, None], shard=0)
    yield case(
        "broadcast", "in front", (9,), "broadcast(%0) {is_broadcast_dim=[1, 0]}", lambda a: a[None], symbols=True
    )
    yield case("broadcast", "of nothing", (0, 2), flags, lambda a: a[:, None, :, None], symbols=True)
    yield case(
        "broadcast_in_dim",
        "all axes",
        (3, 1, 4),
        "broadcast_in_dim(%0) {shape=[2, 3, 5, 4], dims=[1, 2, 3]}",
        lambda a: np.broadcast_to(a, (2, 3, 5, 4)),
    )
    yield case(
        "broadcast_in_dim",
        "apart",
        (3, 5),
        "broadcast_in_dim(%0) {shape=[i0, 2, i1], dims=[0, 2]}",
        lambda a: np.broadcast_to(a[:, None], (3, 2, 5)),
        symbols=True,
    )
    yield case(
        "broadcast_in_dim",
        "of a number",
        (),
        "broadcast_in_dim(%0) {shape=[2, 3], dims=[]}",
        lambda a: np.full((2, 3), a),
    )
    yield case("expand", "rows", (3, 1, 1), "expand(%0) {shape=[-1, 5, 2]}", lambda a: np.broadcast_to(a, (3, 5, 2)))
    yield case("expand", "split", (4, 1), "expand(%0) {shape=[-1, 5]}", lambda a: np.broadcast_to(a, (4, 5)), shard=0)
    yield case("expand", "to nothing", (1, 3), "expand(%0) {shape=[0, -1]}", lambda a: np.broadcast_to(a, (0, 3)))
    yield case(
        "squeeze", "two axes", (1, 3, 1, 4), "squeeze(%0) {axes=[0, -2]}", lambda a: a.reshape(3, 4), symbols=True
    )
    yield case("squeeze", "all", (1, 1), "squeeze(%0) {axes=[0, 1]}", lambda a: a.reshape(()))
    yield case("squeeze", "split", (4, 1, 3), "squeeze(%0) {axes=[1]}", lambda a: a.reshape(4, 3), shard=0)
    for name, shape, dims in (
        ("three axes", (2, 3, 4), (2, 0, 1)),
        ("a large matrix", (70, 131), (1, 0)),
        ("nothing", (0, 3), (1, 0)),
    ):
        yield case(
            "permute",
            name,
            shape,
            f"permute(%0) {{dims=[{', '.join(map(str, dims))}]}}",
            lambda a, dims=dims: a.transpose(dims),
            symbols=True,
        )
    yield case("permute", "split", (4, 3), "permute(%0) {dims=[1, 0]}", lambda a: a.T, shard=0)
    pads: list[tuple[str, Shape, str, Callable[[Array], Any]]] = [
        ("both axes", (3, 4), "widths=[1, 2, 0, 3], value=0.0", lambda a: np.pad(a, ((0, 3), (1, 2)))),
        ("by one", (3,), "widths=[1, 1], value=1.0", lambda a: np.pad(a, 1, constant_values=1)),
        ("and crop", (5, 6), "widths=[-1, 2, 1, -2], value=0.0", lambda a: np.pad(a[:3, 1:], ((1, 0), (0, 2)))),
        ("nothing", (0, 2), "widths=[0, 0, 1, 1], value=0.0", lambda a: np.zeros((2, 2), a.dtype)),
    ]
    for name, shape, attrs, want in pads:
        yield case("pad", name, shape, f"pad(%0) {{{attrs}}}", want, symbols=name != "nothing")
    slices: list[tuple[str, Shape, str, Callable[[Array], Any]]] = [
        ("a block", (6, 7), "start=[1, 2], end=[5, 7], strides=[1, 1]", lambda a: a[1:5, 2:7]),
        ("steps", (6, 7), "start=[0, 1], end=[6, 6], strides=[2, 3]", lambda a: a[::2, 1:6:3]),
        ("from the end", (9, 2), "start=[-3, 0], end=[-1, 2], strides=[1, 1]", lambda a: a[-3:-1]),
        ("nothing", (6, 7), "start=[3, 0], end=[3, 7], strides=[1, 1]", lambda a: a[3:3]),
    ]
    for name, shape, attrs, want in slices:
        yield case("slice", name, shape, f"slice(%0) {{{attrs}}}", want)
    reshapes: list[tuple[str, Shape, str, Callable[[Array], Any], bool]] = [
        ("apart", (6, 4), "2, 3, 4", lambda a: a.reshape(2, 3, 4), False),
        ("together", (2, 3, 5), "i0, i1*i2", lambda a: a.reshape(2, 15), True),
        ("across", (6, 4), "3, 8", lambda a: a.reshape(3, 8), False),
        ("nothing", (0, 4), "2, 0", lambda a: a.reshape(2, 0), False),
    ]
    for name, shape, attr, want, symbols in reshapes:
        yield case("reshape", name, shape, f"reshape(%0) {{shape=[{attr}]}}", want, symbols=symbols)
    for name, shape, axes, shard in (
        ("columns", (5, 7), (1,), None),
        ("rows, split", (6, 4), (0,), 0),
        ("columns of split rows", (6, 4), (-1,), 0),
        ("all of a large matrix", (70, 131), (), None),
        ("nothing", (0, 3), (0, 1), None),
        ("one element", (1, 1), (), None),
    ):
        yield case(
            "flip",
            name,
            shape,
            f"flip(%0) {{axes=[{', '.join(map(str, axes))}]}}",
            lambda a, axes=axes: np.flip(a, axes or None),
            shard=shard,
            symbols=shard is None,
        )
    yield from over_ranks(case("flip", "both axes", (6, 5), "flip(%0) {axes=[0, 1]}", np.flip))
    yield case("flip", "a known extent", (5, 7), "flip(%0) {axes=[1]}", lambda a: a[:, ::-1])
    yield case("flip", "nothing known", (0, 3), "flip(%0) {axes=[]}", lambda a: a)
    expanded = "%e = expand(%0) {shape=[-1, 5, -1]}\nsqueeze_expanded(%e) {axes=[1]}"
    yield case("squeeze_expanded", "an expanded axis", (3, 1, 4), expanded, lambda a: a[:, 0])
    yield case("squeeze_expanded", "split", (4, 1, 3), expanded, lambda a: a[:, 0], shard=0)
    yield case("squeeze_expanded", "an axis of one", (1, 3), "squeeze_expanded(%0) {axes=[0]}", lambda a: a[0])
    for name, left, right, axis in (
        ("rows", (3, 4), (2, 4), 0),
        ("columns", (3, 4), (3, 9), 1),
        ("with nothing", (3, 4), (3, 0), -1),
    ):
        yield Case(
            "cat",
            name,
            (Input(left), Input(right)),
            f"cat(%0, %1, %0) {{axis={axis}}}",
            lambda dtype, x, y, axis=axis: np.concatenate([x, y, x], axis),
            symbols=name == "columns",
        )


# --- indices, new values ---


def inside(index: Array, extent: int) -> Array:
    at = index.astype(I64)
    return np.clip(np.where(at < 0, at + extent, at), 0, extent - 1)


def indices(extent: int) -> Callable[[DType, str, Shape], Array]:
    """From both ends and beyond them."""

    def make(dtype: DType, op: str, shape: Shape) -> Array:
        index = np.random.default_rng([5, *shape]).integers(-extent - 3, extent + 3, shape)
        index.reshape(-1)[:2] = [np.iinfo(dtype).min, np.iinfo(dtype).max][: index.size]
        return index.astype(dtype)

    return make


def scattered(x: Array, index: Array, source: Array, axis: int) -> Array:
    out, n = x.copy(), x.shape[axis]
    rows, indexes, sources = (np.moveaxis(a, axis, -1) for a in (out, index, source))
    outer = np.broadcast_shapes(rows.shape[:-1], indexes.shape[:-1], sources.shape[:-1])
    assert outer == rows.shape[:-1]
    indexes = np.broadcast_to(indexes, (*outer, indexes.shape[-1]))
    sources = np.broadcast_to(sources, (*outer, sources.shape[-1]))
    for place in np.ndindex(outer):
        for k, at in enumerate(indexes[place].astype(I64)):
            at = at + n if at < 0 else at
            if 0 <= at < n:
                rows[place][at] = sources[place][k]
    return out


def index_sum(x: Array, index: Array, size: int, axis: int, dtype: DType) -> Array:
    """In the order of the indices; 16-bit floats are rounded once, behind the last."""
    rows = np.moveaxis(wide(x), axis, 0)
    out = np.zeros((size, *rows.shape[1:]), rows.dtype)
    with np.errstate(all="ignore"):
        np.add.at(out, inside(index, size), rows)
    return rounded(np.moveaxis(out, 0, axis), dtype)


def sums_by_index() -> Iterator[Case]:
    plain = [F32, F64, BF16, F16, I32, I64]
    for shape, size, axis, name in (
        ((9, 5), 4, 0, "rows"),
        ((40,), 3, 0, "elements, of few rows"),
        ((3, 70, 5), 11, 1, "an axis in the middle"),
        ((4, 130), 200, -1, "more rows than indices"),
        ((0, 6), 5, 0, "no indices"),
        ((7, 0), 5, 0, "no columns"),
        ((1, 6), 1, 0, "one of each"),
    ):
        for kind in (I32, I64):
            case = Case(
                "index_sum",
                f"{name} by {NAMES[kind]}",
                (Input(shape), Input((shape[axis],), kind, indices(size))),
                f"index_sum(%0, %1) {{axis={axis}, size={size}}}",
                lambda dtype, x, y, size=size, axis=axis: index_sum(x, y, size, axis, dtype),
                tuple(plain),
                (BOOL,),
                symbols=True,
                exact=False,
                scale=lambda x, y, size=size, axis=axis: index_sum(np.abs(x), y, size, axis, F64),
                any_zero=True,
                extremes=False,
            )
            yield case
    for axis, size in ((0, 6), (1, 12), (2, 5)):
        shape = (8, 4, 12)
        for split in range(3):
            for ranks in (2, 4):
                yield Case(
                    "index_sum",
                    f"along axis {axis}, axis {split} over {ranks} ranks",
                    (
                        Input(shape, shard=split),
                        Input((shape[axis],), I64, indices(size), shard=0 if split == axis else None),
                    ),
                    f"index_sum(%0, %1) {{axis={axis}, size={size}}}",
                    lambda dtype, x, y, size=size, axis=axis: index_sum(x, y, size, axis, dtype),
                    (F32, BF16, I32),
                    ranks=ranks,
                    exact=False,
                    scale=lambda x, y, size=size, axis=axis: index_sum(np.abs(x), y, size, axis, F64),
                    any_zero=True,
                    extremes=False,
                )


def by_index() -> Iterator[Case]:
    for shape, other, axis, name in (
        ((5, 7), (5, 3), 1, "columns"),
        ((5, 9), (40, 1), 0, "rows, broadcast"),
        ((4, 130), (4, 0), 1, "no indices"),
        ((33, 70), (33, 70), -1, "as many"),
    ):
        for kind in (I32, I64):
            yield Case(
                "take_along_axis",
                f"{name} by {NAMES[kind]}",
                (Input(shape), Input(other, kind, indices(shape[axis]))),
                f"take_along_axis(%0, %1) {{axis={axis}}}",
                lambda dtype, x, y, axis=axis: np.take_along_axis(x, inside(y, x.shape[axis]), axis),
                symbols=kind == I64,
            )
    for shape, other, axis, name in (
        ((5, 7), (2, 9), 1, "columns"),
        ((6, 4), (20, 3), 0, "rows"),
        ((3, 4, 6), (1, 4, 2), -1, "three axes"),
    ):
        own = tuple(slice(None) if k == axis % len(shape) else slice(n) for k, n in enumerate(other))
        yield Case(
            "gather",
            name,
            (Input(shape), Input(other, I64, indices(shape[axis]))),
            f"gather(%0, %1) {{axis={axis}}}",
            lambda dtype, x, y, axis=axis, own=own: np.take_along_axis(x[own], inside(y, x.shape[axis]), axis),
            symbols=name == "columns",
        )
    for shape, count, axis, name, shard in (
        ((5, 7), 9, 1, "columns", None),
        ((40,), 1, 0, "one index", None),
        ((4, 3, 6), 4, 1, "split", 0),
    ):
        yield Case(
            "index_select",
            name,
            (Input(shape, shard=shard), Input((count,), I32, indices(shape[axis]))),
            f"index_select(%0, %1) {{axis={axis}}}",
            lambda dtype, x, y, axis=axis: np.take(x, inside(y, x.shape[axis]), axis),
            symbols=shard is None,
            ranks=1 if shard is None else 2,
        )
        yield Case(
            "select",
            name,
            (Input(shape, shard=shard), Input(None, I64, lambda *_: np.array(-2))),
            f"select(%0, %1) {{axis={axis}}}",
            lambda dtype, x, y, axis=axis: np.take(x, x.shape[axis] - 2, axis),
            symbols=shard is None,
            ranks=1 if shard is None else 2,
        )
    for shape, count, axis, name, shard in (
        ((5, 7), 9, 1, "columns", None),
        ((40,), 40, 0, "as many as places", None),
        ((4, 3, 6), 5, -2, "split", 0),
    ):
        put = tuple(count if k == axis % len(shape) else n for k, n in enumerate(shape))
        yield Case(
            "scatter",
            name,
            (Input(shape, shard=shard), Input(put, I64, indices(shape[axis]), shard=shard), Input(put, shard=shard)),
            f"scatter(%0, %1, %2) {{axis={axis}}}",
            lambda dtype, x, y, z, axis=axis: scattered(x, y, z, axis),
            symbols=shard is None,
            ranks=1 if shard is None else 2,
        )


def cumulated(op: str, axis: int) -> Callable[..., Any]:
    def want(dtype: DType, x: Array) -> Any:
        with np.errstate(all="ignore"):
            return rounded(getattr(np, op)(wide(x), axis=axis, dtype=F64 if dtype in FLOATS else I64), summed(dtype))

    return want


def sorted_places(axis: int, descending: bool) -> Callable[..., Any]:
    """NumPy's stable order has NaN last and no other direction: that is the order of the reverse, reversed."""

    def want(dtype: DType, x: Array) -> Any:
        x = x.astype(F64) if dtype in FLOATS else x
        if not descending:
            return np.argsort(x, axis=axis, kind="stable")
        return x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)

    return want


def along() -> Iterator[Case]:
    for name, shape, axis, symbols in (
        ("special rows", (12, 9), 1, True),
        ("rows", (33, 5), 0, False),
        ("the middle", (2, 6, 3), -2, True),
        ("one element", (2, 1), 1, False),
        ("no elements", (2, 0), 1, False),
        ("split", (6, 7), 1, False),
    ):
        for descending in (False, True):
            case = Case(
                "argsort",
                f"{name}, {'descending' if descending else 'ascending'}",
                (Input(shape, values=special_rows if name == "special rows" else None),),
                f"argsort(%0) {{axis={axis}, descending={'true' if descending else 'false'}}}",
                sorted_places(axis, descending),
                symbols=symbols,
            )
            if name == "split":
                yield from over_ranks(case)
            else:
                yield case
    for op in ("cumsum", "cumprod"):
        for name, shape, axis, symbols in (
            ("special rows", (12, 9), 1, True),
            ("special rows of a known extent", (12, 9), 1, False),
            ("no elements", (0, 3), 0, False),
            ("one", (1,), 0, False),
            ("two", (3, 2), -1, False),
            ("seven", (7, 2), 0, False),
            ("one kernel", (64, 2), 0, False),
            ("blocks", (2, 65), 1, False),
            ("square blocks", (2, 100, 3), 1, False),
            ("many blocks", (1000,), 0, False),
            ("many of a symbol", (300,), 0, True),
            ("split", (6, 9), 1, False),
            ("split blocks", (6, 100), 1, False),
        ):
            if op == "cumprod" and max(shape) > 100:
                continue
            case = Case(
                op,
                name,
                (Input(shape, values=special_rows if name.startswith("special") else plain),),
                f"{op}(%0) {{axis={axis}, dtype=null}}",
                cumulated(op, axis),
                symbols=symbols,
                exact=False,
                scale=lambda x, op=op, axis=axis: getattr(np, op)(np.abs(x), axis=axis),
                any_zero=True,
            )
            if name.startswith("split"):
                yield from over_ranks(case)
            else:
                yield case


def triangle(op: str, x: Array, diagonal: int) -> Array:
    rows, columns = np.indices(x.shape[-2:])
    keep = columns - rows >= diagonal if op == "triu" else columns - rows <= diagonal
    return np.where(keep, x, np.zeros((), x.dtype))


def new_values() -> Iterator[Case]:
    for shape, diagonal, name, shard in (
        ((5, 7), 0, "wide", None),
        ((6, 4), -2, "split", 0),
        ((2, 4, 6), 1, "a batch", None),
        ((0, 3), 0, "no rows", None),
    ):
        for op in ("triu", "tril"):
            yield Case(
                op,
                name,
                (Input(shape, shard=shard),),
                f"{op}(%0) {{diagonal={diagonal}}}",
                lambda dtype, x, op=op, diagonal=diagonal: triangle(op, x, diagonal),
                symbols=shard is None,
                ranks=1 if shard is None else 2,
            )
    yield from over_ranks(
        Case("tril", "a matrix", (Input((6, 5)),), "tril(%0) {diagonal=1}", lambda dtype, x: triangle("tril", x, 1))
    )
    for shape, classes, name in (
        ((6, 5), 9, "a matrix"),
        ((300,), 1, "one class"),
        ((0, 3), 4, "no rows"),
        ((3,), 0, "no classes"),
    ):
        for kind in (I32, I64):
            whole = Case(
                "one_hot",
                f"{name} by {NAMES[kind]}",
                (Input(shape, kind, indices(classes)),),
                f"one_hot(%0) {{classes={classes}, dtype=T}}",
                lambda dtype, x, classes=classes: (x[..., None] == np.arange(classes)).astype(dtype),
                symbols=True,
            )
            if name == "a matrix":
                yield from over_ranks(whole)
            else:
                yield whole
    for name, length in (("one", 1), ("a few", 7), ("many", 300)):
        yield Case(
            "iota",
            name,
            (Input(None, I64, lambda *_: np.array(5)), Input(None, I64, lambda *_: np.array(-2))),
            f"iota(%0, %1) {{shape=[{length}], offset=[0], dtype=T}}",
            lambda dtype, start, step, length=length: rounded(start + np.arange(length) * step, dtype),
            NUMBERS,
            (BOOL,),
        )
    for name, shape, value in (("a matrix", (3, 5), 1.0), ("nothing", (0, 2), 1.0), ("a number", (), 0.0)):
        yield Case(
            "full",
            name,
            (),
            f"full() {{shape=[{', '.join(map(str, shape))}], value={value}, dtype=T}}",
            lambda dtype, shape=shape, value=value: np.full(shape, value).astype(dtype),
        )
    for name, value in (("infinity", -np.inf), ("minus zero", -0.0)):
        yield Case(
            "full",
            name,
            (),
            f"full() {{shape=[7], value={value}, dtype=T}}",
            lambda dtype, value=value: np.full(7, value).astype(dtype),
            FLOATS,
        )
    scalars: list[tuple[str, str, int]] = [
        ("size", "size(%0) {axis=-1}", 6),
        ("extent", "extent() {value=2*i0 + i1}", 14),
        ("constant", "constant() {value=3.0, dtype=i64}", 3),
    ]
    for op, call, value in scalars:
        for name, shape in (("a matrix", (4, 6)), ("a row", (1, 6)), ("no rows", (0, 6))):
            number = value + (2 * (shape[0] - 4) if op == "extent" else 0)
            if op == "extent" and name == "a row":
                continue
            yield Case(
                op,
                name,
                (Input(shape, values=plain),),
                f"%n: i64 = {call}\nmul(%0, %n)",
                lambda dtype, x, number=number: rounded(
                    x.astype(F64 if dtype in FLOATS else I64) * number, I64 if dtype == BOOL else dtype
                ),
                symbols=True,
            )
    yield Case(
        "constant",
        "below 0",
        (Input((4, 6), values=plain),),
        "%n: i64 = constant() {value=-3.0, dtype=i64}\nmul(%0, %n)",
        lambda dtype, x: rounded(x.astype(F64 if dtype in FLOATS else I64) * -3, I64 if dtype == BOOL else dtype),
        tuple(dtype for dtype in ALL if dtype != U8),  # mul refuses it there.
        symbols=True,
    )
    yield Case(
        "extent",
        "one axis",
        (Input((6,), values=plain),),
        "%n: i64 = extent() {value=i0}\nmul(%0, %n)",
        lambda dtype, x: rounded(x.astype(F64 if dtype in FLOATS else I64) * 6, I64 if dtype == BOOL else dtype),
        symbols=True,
    )


# --- random numbers ---


def drawn(op: str, seed: int, offset: int, shape: Shape) -> Callable[..., Any]:
    of = numpy_random.uniform if op == "uniform" else numpy_random.normal
    return lambda dtype, *_: of(seed, offset, shape, dtype)


def random_numbers() -> Iterator[Case]:
    for op in ("uniform", "normal"):
        for name, shape, seed, offset in (
            ("a row", (300,), 1, 2),
            ("a matrix", (7, 11), -(2**62) - 12345, 2**40 + 7),
            ("a number", (), 3, -1),
            ("three axes", (2, 1, 5), 0, 0),
            ("nothing", (0, 3), 5, 6),
        ):
            yield Case(
                op,
                name,
                tuple(Input(None, I64, lambda *_, number=number: np.array(number)) for number in (seed, offset)),
                f"{op}(%0, %1) {{shape=[{', '.join(map(str, shape))}], dtype=T}}",
                drawn(op, seed, offset, shape),
                FLOATS,
                (*INTS, BOOL) if name == "a row" else (),
                exact=op == "uniform",
                scale=lambda *_: 9,
            )
        yield from over_ranks(
            Case(
                op,
                "added to a tensor",
                (
                    Input((6, 5), values=lambda dtype, op, shape: np.zeros(shape)),
                    Input(None, I64, lambda *_: np.array(77)),
                    Input(None, I64, lambda *_: np.array(2**33)),
                ),
                f"%e = {op}(%1, %2) {{shape=[6, 5], dtype=T}}\nadd(%e, %0)",
                drawn(op, 77, 2**33, (6, 5)),
                FLOATS,
                exact=op == "uniform",
                scale=lambda *_: 9,
            )
        )


# --- contractions ---


def products() -> Iterator[Case]:
    # Of integers, which no library has, GPUs multiply in a kernel.
    library = {"gpu": "cuBLASLt's on a GPU, which is not emulated; the tests labelled gpu run it"}
    for dtypes, skipped in ((FLOATS, library), (INTS, {})):
        kind = "floats" if skipped else "integers"
        refused = () if skipped else (BOOL,)
        for name, left, right in (
            ("matrices", (5, 33), (33, 6)),
            ("vectors", (5,), (5,)),
            ("batches", (2, 1, 4, 5), (3, 5, 2)),
            ("no terms", (4, 0), (0, 6)),
        ):
            yield Case(
                "matmul",
                f"{name} of {kind}",
                (Input(left, values=product_operand), Input(right, values=product_operand)),
                "matmul(%0, %1)",
                lambda dtype, x, y: rounded(wide(x) @ wide(y), dtype),
                dtypes,
                refused if name == "matrices" else (),
                symbols=name == "matrices",
                exact=False,
                scale=lambda x, y: np.abs(x) @ np.abs(y),
                any_zero=True,
                skipped=skipped,
            )
        for name, leading, bias in (("rows", (4,), True), ("a vector", (), False), ("no rows", (0,), True)):
            operands = (Input((*leading, 7), values=product_operand), Input((5, 7), values=product_operand))
            yield Case(
                "linear",
                f"{name} of {kind}",
                (*operands, Input((5,), values=plain)) if bias else operands,
                "linear(%0, %1, %2)" if bias else "linear(%0, %1)",
                lambda dtype, x, w, *b: rounded(wide(x) @ wide(w).T + (wide(b[0]) if b else 0), dtype),
                dtypes,
                refused if name == "rows" else (),
                symbols=True,
                exact=False,
                scale=lambda x, w, *b: np.abs(x) @ np.abs(w).T + (np.abs(b[0]) if b else 0),
                any_zero=True,
                skipped=skipped,
            )


def group_ends(*ends: int) -> Callable[[DType, str, Shape], Array]:
    return lambda dtype, op, shape: np.array(ends, I64).clip(np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)


def groups_of(ends: Array, rows: int) -> Iterator[slice]:
    """A group begins where all before it have ended."""
    begin = 0
    for end in ends.astype(I64).tolist():
        last = min(max(begin, end), rows)
        yield slice(begin, last)
        begin = last


def grouped_matmul(x: Array, matrices: Array, ends: Array, dtype: DType) -> Array:
    out = np.zeros((len(x), matrices.shape[2]), wide(x).dtype)
    for group, rows in enumerate(groups_of(ends, len(x))):
        out[rows] = wide(x)[rows] @ wide(matrices)[group]
    return rounded(out, dtype)


def grouped_outer(x: Array, y: Array, ends: Array, dtype: DType) -> Array:
    sums = [wide(x)[rows].T @ wide(y)[rows] for rows in groups_of(ends, len(x))]
    return rounded(np.array(sums).reshape(len(ends), x.shape[1], y.shape[1]), dtype)


def products_of_groups() -> Iterator[Case]:
    big = 2**40
    for name, rows, k, n, ends in (
        ("in order", 13, 33, 6, (4, 7, 13)),
        ("some empty", 9, 5, 7, (0, 4, 4, 9, 9)),
        ("rows behind the last end", 300, 3, 2, (130, 131)),
        ("ends that fall, and outside", 11, 4, 9, (-3, 5, 2, big, 7, -big)),
        ("ends behind the rows", 6, 4, 3, (40, 41)),
        ("one of each", 1, 1, 1, (1,)),
        ("no groups", 4, 3, 2, ()),
        ("no rows", 0, 3, 2, (0, 2)),
        ("no terms", 5, 0, 2, (3, 5)),
    ):
        for kind in (I32, I64):
            yield from grouped_cases(f"{name}, by {NAMES[kind]}", rows, k, n, ends, kind, symbols=name == "in order")
    for axis in (None, 0, 1, 2):  # Of rows, k and n; or groups.
        for ranks in (2, 4):
            where = f"groups over {ranks} ranks" if axis is None else f"axis {axis} over {ranks} ranks"
            yield from grouped_cases(where, 12, 8, 4, (5, 2, 6, 10), I64, axis=axis, ranks=ranks)


def grouped_cases(
    name: str,
    rows: int,
    k: int,
    n: int,
    ends: tuple[int, ...],
    kind: DType,
    symbols: bool = False,
    axis: int | None = None,
    ranks: int = 1,
) -> Iterator[Case]:
    """``axis``: which of rows, k and n is split; with several ranks and none, the groups are."""

    def given(*axes: int | None) -> Input:
        shape = tuple(len(ends) if each is None else (rows, k, n)[each] for each in axes)
        shard = axes.index(axis) if ranks > 1 and axis in axes else None
        if axes == (None,):
            return Input(shape, kind, group_ends(*ends), shard=shard)
        return Input(shape, values=product_operand, shard=shard)

    turned = "%e = permute(%1) {dims=[0, 2, 1]}\n"
    for op, other, want, calls in (
        (
            "grouped_matmul",
            (given(None, 1, 2), given(None, 2, 1)),
            grouped_matmul,
            (
                "grouped_matmul(%0, %1, %2) {offset=[0, 0, 0]}",
                turned + "grouped_matmul(%0, %e, %2) {offset=[0, 0, 0]}",
            ),
        ),
        ("grouped_outer", (given(0, 2),), grouped_outer, ("grouped_outer(%0, %1, %2) {offset=[0, 0, 0, 0]}",)),
    ):
        for y, call in zip(other, calls, strict=True):
            is_turned = call.startswith(turned)

            def of(dtype: DType, x: Array, y: Array, z: Array, want: Any = want, is_turned: bool = is_turned) -> Array:
                return np.asarray(want(x, np.swapaxes(y, 1, 2) if is_turned else y, z, dtype))

            yield Case(
                op,
                f"{name}, matrices transposed" if is_turned else name,
                (given(0, 1), y, given(None)),
                call,
                of,
                (F32, F64, BF16, F16, I32, I64) if ranks == 1 else (F32, BF16, I64),
                (BOOL,) if symbols else (),
                symbols=symbols,
                ranks=ranks,
                exact=False,
                scale=lambda x, y, z, of=of: of(F64, np.abs(x), np.abs(y), z),
                any_zero=True,
            )


def attentions() -> Iterator[Case]:
    skipped = {"gpu": "products of it are cuBLASLt's on a GPU, which is not emulated"}
    shapes = (
        ("heads", (2, 5, 8), (2, 7, 8), (2, 7, 3), None, None),
        ("heads that share keys", (2, 3, 9, 4), (2, 1, 9, 4), (2, 1, 9, 4), None, 0),
        ("a mask of bools", (6, 4), (70, 4), (70, 5), Input((6, 70), BOOL, sometimes), None),
        ("numbers that are added", (3, 6, 4), (9, 4), (3, 9, 1), Input((1, 9), F32, plain), None),
        ("keys of before", (130, 16), (300, 16), (300, 16), None, 170),
        ("no keys", (3, 4), (0, 4), (0, 2), None, None),
    )
    for name, q, k, v, mask, offset in shapes:
        for ranks in (1, 2, 4) if name == "heads" else (1,):
            if ranks > 1:  # Each axis split, with as many queries as keys, and as long values.
                q = k = v = (4, 8, 8)
            for split in range(3) if ranks > 1 else (None,):
                inputs = tuple(Input(shape, values=plain, shard=split) for shape in (q, k, v))
                masks = () if mask is None else (mask,)
                where = "" if split is None else f", axis {split} over {ranks} ranks"
                yield from attention_cases(name + where, inputs, masks, offset if ranks == 1 else 0, ranks, skipped)


def attention_cases(
    name: str,
    inputs: tuple[Input, ...],
    masks: tuple[Input, ...],
    offset: int | None,
    ranks: int,
    skipped: dict[str, str],
) -> Iterator[Case]:
    (q, k, v), split = [given.shape or () for given in inputs], inputs[0].shard
    leading = np.broadcast_shapes(q[:-2], k[:-2], v[:-2])
    rank = len(leading)
    one = None if split is None or split > rank else split

    def attrs(result: str, at: int, axes: int) -> str:
        begins = [offset or 0 if axis == at else 0 for axis in range(axes)]
        return f"{{result={result}, causal={str(offset is not None).lower()}, offset={begins}, scale=0.25}}"

    def of(*given: Array) -> Attention:
        extra = given[3] if masks else None
        return Attention(*[wide(x) for x in given[:3]], extra, offset, 0.25)

    def case(op: str, title: str, given: tuple[Input, ...], text: str, want: Callable[..., Any]) -> Case:
        operands = ", ".join(f"%{place}" for place in range(len(given)))
        return Case(
            op,
            f"{title} of {name}",
            given,
            f"{op}({operands}) {text}",
            want,
            tuple(FLOATS),
            (I32, BOOL) if name == "heads" and title == "values" else (),
            symbols=ranks == 1 and name != "no keys",
            exact=False,
            scale=lambda *given: np.float64(8.0),
            any_zero=True,
            ranks=ranks,
            skipped=skipped,
        )

    yield case(
        "attention",
        "values",
        inputs + masks,
        attrs("values", rank, rank + 2),
        lambda dtype, *given: rounded(of(*given).values(), dtype),
    )
    yield case(
        "attention",
        "lse",
        inputs + masks,
        attrs("lse", rank, rank + 1),
        lambda dtype, *given: of(*given).lse().astype(F64 if dtype == F64 else F32),
    )
    if not k[-2]:
        return
    rows = (*leading, q[-2])
    for result, at in (("q", rank), ("k", rank + 2), ("v", rank + 2)):

        def want(dtype: DType, *given: Array, result: str = result) -> Array:
            made = of(*given[:3], *given[6:]).gradient(result, *[wide(x) for x in given[3:6]])
            return rounded(made, dtype)

        lse = Input(rows, F32, above, one)
        for kinds, wide_type in (([F32, BF16, F16], F32), ([F64], F64)):
            given = (
                *inputs,
                Input((*rows, v[-1]), values=plain, shard=split),
                replace(lse, dtype=wide_type),
                Input((*rows, v[-1]), values=plain, shard=one),
                *masks,
            )
            made = case("attention_grad", f"{result} by {NAMES[wide_type]}", given, attrs(result, at, rank + 3), want)
            yield replace(made, dtypes=tuple(kinds))


def sometimes(dtype: DType, op: str, shape: Shape) -> Array:
    """True for three of four, and for the first of each row."""
    made = np.random.default_rng([*shape]).integers(0, 4, shape) > 0
    made[..., 0] = True
    return made


def above(dtype: DType, op: str, shape: Shape) -> Array:
    """As much as the sums of some exponentials, so that weights stay small."""
    return rounded(3 + np.abs(np.random.default_rng([*shape]).standard_normal(shape)), dtype)


def product_operand(dtype: DType, op: str, shape: Shape) -> Array:
    """A NaN and an infinity in the first rows, which the others do not see."""
    x = plain(dtype, op, shape)
    if dtype in FLOATS and x.ndim == 2 and min(x.shape) > 2:
        x[0, 0], x[1, 1] = np.nan, np.inf
    return x


def every_case() -> list[Case]:
    return [
        *pointwise(),
        *casts(),
        *reductions(),
        *places(),
        *shapes(),
        *by_index(),
        *sums_by_index(),
        *along(),
        *new_values(),
        *random_numbers(),
        *products(),
        *products_of_groups(),
        *attentions(),
    ]
