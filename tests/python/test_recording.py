"""What is recorded for each call: the program's text, names, lines. No daemon is needed."""

from __future__ import annotations

import re
import textwrap

import numpy as np
import pytest

import hostir
from hostir import DataType, DeviceMesh, FusionDefinition, ParallelType, program


def lines(fd: FusionDefinition) -> list[str]:
    return str(fd).splitlines()


def body(fd: FusionDefinition) -> list[str]:
    return [line.strip() for line in lines(fd) if line.startswith("  ")]


def test_a_whole_program() -> None:
    mesh = DeviceMesh([[0, 1], [2, 3]])
    other = DeviceMesh([3])
    with FusionDefinition("whole") as fd:
        x = fd.define_tensor(shape=[-1, 8], contiguity=True, dtype=DataType.BFloat16)
        s = fd.define_scalar(dtype=DataType.Double)
        scaled = fd.ops.mul(x, s)
        total = fd.ops.sum(scaled, dims=[-1], keepdim=True)
        moved = fd.ops.set(total)
        fd.add_output(total)
        fd.add_output(moved, x)
        x.shard(mesh, {0: "mesh_y", 1: ParallelType.mesh_x})
        moved.set_device_mesh(other)
    assert str(fd) == textwrap.dedent(
        """\
        mesh @m = [[0, 1], [2, 3]]
        mesh @m1 = [3]
        fusion @whole(%x: bf16[i0, 8] {mesh=@m, shard(0, mesh_y), shard(1, mesh_x)}, %s: f64) {
          %scaled = mul(%x, %s)
          %total = sum(%scaled) {axes=[-1], keepdim=true, dtype=null}
          %moved {mesh=@m1} = set(%total)
          return %total, %moved alias %x
        }
        """
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (dict(shape=[-1, -1], contiguity=True), "f32[i0, i1]"),
        (dict(shape=[-1, 1, 5], contiguity=True), "f32[i0, b, 5]"),
        (dict(shape=[-1, -1, -1], contiguity=[None, None, True]), "f32[b:i0, b:i1, i2]"),
        (dict(shape=[4, 1], contiguity=[None, None]), "f32[b:4, b]"),
        (dict(shape=[-1, 0], contiguity=False), "f32[i0, 0]"),
        (dict(shape=[2, 3]), "f32[2, 3]"),
        (dict(shape=[]), "f32[]"),
        (dict(shape=[], is_cpu=True, dtype=np.float64), "f64[]"),
        (dict(shape=[7], dtype=np.dtype("int32")), "i32[7]"),
        (dict(shape=(np.int64(7),), dtype=bool), "bool[7]"),
        (dict(sizes=[4, 1, 3], strides=[0, 3, 1]), "f32[b:i0, b, i1]"),
        (dict(sizes=[4, 3], strides=[3, 1], static_sizes=True), "f32[4, 3]"),
        (dict(sizes=[4, 3]), "f32[i0, i1]"),
    ],
)
def test_define_tensor(arguments: dict[str, object], text: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(**arguments)  # type: ignore[arg-type]
        fd.add_output(x)
    assert f"%x: {text})" in lines(fd)[0]


def test_define_tensor_takes_sizes_and_strides_by_position() -> None:
    with FusionDefinition() as fd:
        fd.define_tensor([4, 3], [0, 1], DataType.Half)
    assert lines(fd)[0] == "fusion @main(%t0: f16[b:i0, i1]) {"


@pytest.mark.parametrize(
    ("order", "contiguity", "text"),
    [
        ([2, 0, 1], [True, False, None], "f32[i0, b:i1, 5]"),  # Axis 1 has the smallest stride, axis 0 the largest.
        ([0, 1, 2], [None, True, True], "f32[i0, i1, b:5]"),
        ([2, 1, 0], [True, None, True], "f32[i0, b:i1, 5]"),
    ],
)
def test_contiguity_is_in_the_order_of_memory(order: list[int], contiguity: list[bool | None], text: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1, 5], contiguity=contiguity, stride_order=order)
        fd.add_output(x)
    assert f"(%x: {text} {{stride_order(" in lines(fd)[0]


def test_stride_order_and_loop_annotations_are_kept_in_order() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, stride_order=[0, 1])
        y = fd.ops.exp(x)
        fd.add_output(y)
        y.set_device_mesh([0, 1])
        y.outer_split(0, 2)
        y.inner_split(-1, 4)
        y.split(1, 3)
        y.split(1, 3, inner_split=False)
        y.merge(2)
        y.axis(0).parallelize("mesh_x")
        y.axis(-1).parallelize(ParallelType.stream)
    assert lines(fd)[1] == "fusion @main(%x: f32[i0, i1] {stride_order(0, 1)}) {"
    assert body(fd)[0] == (
        "%y {mesh=@m, outer_split(0, 2), inner_split(-1, 4), inner_split(1, 3), outer_split(1, 3), merge(2), "
        "parallelize(0, mesh_x), parallelize(-1, stream)} = exp(%x)"
    )


def test_shard_over_two_dimensions() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[8])
        x.shard(DeviceMesh(np.arange(8).reshape(2, 2, 2)), {0: ("mesh_z", "mesh_x")})
    assert lines(fd) == [
        "mesh @m = [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]",
        "fusion @main(%x: f32[8] {mesh=@m, shard(0, mesh_z), shard(0, mesh_x)}) {",
        "}",
    ]


def test_equal_meshes_are_one() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[8])
        y = fd.ops.exp(x)
        x.set_device_mesh(DeviceMesh([1, 0]))
        y.set_device_mesh(DeviceMesh(np.array([1, 0], np.int32)))
    assert lines(fd)[0] == "mesh @m = [1, 0]"
    assert body(fd) == ["%y {mesh=@m} = exp(%x)"]


def test_scalars() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[2])
        given = fd.define_scalar(dtype=DataType.Int)
        half = fd.define_scalar(0.5)
        three = fd.define_scalar(3, dtype=DataType.Double)
        inverse = fd.ops.reciprocal(three)
        y = x * half + inverse - given
        fd.add_output(y)
        assert isinstance(inverse, hostir.Scalar)
        assert (half.value, three.value, inverse.value, given.value) == (0.5, 3.0, None, None)
    assert lines(fd)[0] == "fusion @main(%x: f32[2], %given: i64) {"
    assert body(fd) == [
        "%half = constant() {value=0.5, dtype=f64}",
        "%three = constant() {value=3.0, dtype=f64}",
        "%inverse = reciprocal(%three)",
        "%t0 = mul(%x, %half)",
        "%t1 = add(%t0, %inverse)",
        "%y = sub(%t1, %given)",
        "return %y",
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (True, "value=1.0, dtype=bool"),
        (-7, "value=-7.0, dtype=i64"),
        (np.int32(4), "value=4.0, dtype=i64"),
        (np.float32(0.5), "value=0.5, dtype=f64"),
        (np.array(3), "value=3.0, dtype=i64"),
        (float("inf"), "value=inf, dtype=f64"),
        (float("nan"), "value=nan, dtype=f64"),
        (-0.0, "value=-0.0, dtype=f64"),
        (1e-30, "value=1e-30, dtype=f64"),
        (2**53, "value=9007199254740992.0, dtype=i64"),
    ],
)
def test_numbers_as_operands(number: object, text: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[2])
        fd.ops.add(x, number)
    assert body(fd) == [f"%t0 = constant() {{{text}}}", "%t1 = add(%x, %t0)"]


def test_operators() -> None:
    with FusionDefinition() as fd:
        a = fd.define_tensor(shape=[2, 2], dtype=DataType.Int)
        b = fd.define_tensor(shape=[2, 2], dtype=DataType.Int)
        _ = [a + b, a - b, a * b, a / b, a % b, a**b, -a, abs(a), a @ b]
        _ = [a < b, a <= b, a > b, a >= b, a == b, a != b, a & b, a | b, a ^ b, ~a]
    names = [line.split(" = ")[1].split("(")[0] for line in body(fd)]
    assert names == [
        *("add", "sub", "mul", "truediv", "remainder", "pow", "neg", "abs", "matmul"),
        *("lt", "le", "gt", "ge", "eq", "ne", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"),
    ]


@pytest.mark.parametrize("number", [2.0, np.float32(2), np.float64(2)])
def test_operators_with_a_number_in_front(number: object) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[2])
        _ = [number + x, number - x, number * x, number / x, number**x, number < x]  # type: ignore[operator]
    calls = [line.split(" = ")[1] for line in body(fd) if "constant" not in line]
    assert calls == [
        *("add(%t0, %x)", "sub(%t2, %x)", "mul(%t4, %x)", "truediv(%t6, %x)", "pow(%t8, %x)", "gt(%x, %t10)"),
    ]


def test_every_other_op() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 6])
        n = x.size(0)
        one = fd.define_tensor(shape=[1, 1])
        bias = fd.define_tensor(shape=[-1])
        size = fd.define_scalar(3, dtype=DataType.Int)
        _ = [
            fd.ops.cast(x, dtype=DataType.Half),
            fd.ops.set(x),
            fd.ops.segment_set(x),
            fd.ops.sum(x),
            fd.ops.prod(x, dims=0),
            fd.ops.max(x, [0, 1], True),
            fd.ops.min(x, dims=(1,), dtype=np.float32),
            fd.ops.broadcast(x, [False, True, False]),
            fd.ops.broadcast_in_dim(x, [n, 4, 6], [0, 2]),
            fd.ops.reshape(x, [-1, 2, size]),
            fd.ops.permute(x, (1, 0)),
            fd.ops.expand(one, shape=fd.define_vector([n, size])),
            fd.ops.squeeze(one, dims=[0]),
            fd.ops.slice(x, [0, 1], [n, 5]),
            fd.ops.slice(x, [0, -3], [2, 6], [1, 2]),
            fd.ops.pad(x, [1, 2]),
            fd.ops.pad(x, [0, 0, 1, 1], -1),
            fd.ops.cat([x, x, x], -1),
            fd.ops.full([2, size], 0.5, DataType.BFloat16),
            fd.ops.full([2], size, np.int64),
            fd.ops.matmul(x, x),
            fd.ops.linear(x, x),
            fd.ops.linear(x, x, bias=bias),
            fd.ops.matmul(x, x, precision="tf32"),
            fd.ops.linear(x, x, bias, precision="tf32"),
        ]
    assert [line.split(" = ")[1] for line in body(fd)[1:]] == [
        "cast(%x) {dtype=f16}",
        "set(%x)",
        "segment_set(%x)",
        "sum(%x) {axes=[], keepdim=false, dtype=null}",
        "prod(%x) {axes=[0], keepdim=false, dtype=null}",
        "max(%x) {axes=[0, 1], keepdim=true, dtype=null}",
        "min(%x) {axes=[1], keepdim=false, dtype=f32}",
        "broadcast(%x) {is_broadcast_dim=[0, 1, 0]}",
        "broadcast_in_dim(%x) {shape=[i0, 4, 6], dims=[0, 2]}",
        "reshape(%x) {shape=[-1, 2, 3]}",
        "permute(%x) {dims=[1, 0]}",
        "expand(%one) {shape=[i0, 3]}",
        "squeeze(%one) {axes=[0]}",
        "slice(%x) {start=[0, 1], end=[i0, 5], strides=[1, 1]}",
        "slice(%x) {start=[0, -3], end=[2, 6], strides=[1, 2]}",
        "pad(%x) {widths=[1, 2], value=0.0}",
        "pad(%x) {widths=[0, 0, 1, 1], value=-1.0}",
        "cat(%x, %x, %x) {axis=-1}",
        "full() {shape=[2, 3], value=0.5, dtype=bf16}",
        "full() {shape=[2], value=3.0, dtype=i64}",
        "matmul(%x, %x)",
        "linear(%x, %x)",
        "linear(%x, %x, %bias)",
        "matmul(%x, %x) {precision=tf32}",
        "linear(%x, %x, %bias) {precision=tf32}",
    ]


def test_values_are_named_after_variables() -> None:
    def layer(t: hostir.Tensor) -> hostir.Tensor:
        inner = fd.ops.exp(t)
        return fd.ops.log(inner)

    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[2])
        y = layer(x)
        y = layer(y)
        t0 = fd.ops.neg(fd.ops.neg(y))
        größe = fd.ops.neg(t0)
        fd.add_output(fd.ops.neg(größe))
    assert body(fd) == [
        "%inner = exp(%x)",
        "%y = log(%inner)",
        "%inner.1 = exp(%y)",
        "%y.1 = log(%inner.1)",
        "%t0 = neg(%y.1)",
        "%t0.1 = neg(%t0)",
        "%t1 = neg(%t0.1)",
        "%t2 = neg(%t1)",
        "return %t2",
    ]


def names_of(fd: FusionDefinition) -> list[str]:
    return [value.name for value in fd.fusion.inputs()]


def test_names_of_what_is_stored_together() -> None:
    with FusionDefinition() as fd:

        def made() -> hostir.Tensor:
            return fd.define_tensor(shape=[2])

        def layer() -> dict[str, hostir.Tensor]:
            return {"w": made(), "b": made()}

        a, b = made(), made()
        c, d, e, (f, g) = made(), made(), made(), (made(), made())
        pair = (made(), made())
        rows = [made() for _ in range(3)]
        params = {"w": made(), "more": {"deep": [made()]}}
        params["late"] = made()
        for k in range(2):
            params[k] = made()  # type: ignore[index]
        both = {key: made() for key in ("u", "v")}
        first = second = made()
        some = [made(), made() if pair else first]
        one = layer()
        layers = [layer() for _ in range(2)]
        grown: list[object] = []
        for _ in range(2):
            grown.append(made())
            grown.append({"w": made()})
        deep = {"blocks": [{"mlp": layer()} for _ in range(2)]}
        fd.add_output([a, b, c, d, e, f, g, *pair, *rows, both, some, first, second, one, layers, grown, deep])
    assert names_of(fd) == [
        *("a", "b", "c", "d", "e", "f", "g", "pair.0", "pair.1", "rows.0", "rows.1", "rows.2", "params.w"),
        *(
            "params.more.deep.0",
            "params.late",
            "params.0",
            "params.1",
            "both.u",
            "both.v",
            "first",
            "some.0",
            "t0",
            "one.w",
            "one.b",
        ),
        *("layers.0.w", "layers.0.b", "layers.1.w", "layers.1.b"),
        *("grown.0", "grown.0.w", "grown.1", "grown.1.w"),
        *("deep.blocks.0.mlp.w", "deep.blocks.0.mlp.b", "deep.blocks.1.mlp.w", "deep.blocks.1.mlp.b"),
    ]


def test_names_of_several_results() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[2, 2])
        spread, middle = fd.ops.var_mean(x, [0])
        both = fd.ops.var_mean(x, [0])
    assert [op.result for op in fd._record.ops] == [spread.name, middle.name, "both.0", "both.1"]
    assert [spread.name, middle.name, both[0].name] == ["spread", "middle", "both.0"]


def test_names_that_are_given() -> None:
    with FusionDefinition() as fd:
        w = fd.define_tensor(shape=[2], name="layers.0.weight")
        s = fd.define_scalar(name="rate")
        x = fd.define_tensor(shape=[2])
        for name, why in (
            ("x", "a value of this definition has it already"),
            ("0.w", "a name is at most 256 letters, digits, _ and ., a letter or _ first"),
            ("a b", "a name is at most 256 letters"),
            ("a" * 257, "a name is at most 256 letters"),
        ):
            with pytest.raises(hostir.InvalidArgument, match=re.escape(f"name {name!r}: {why}")):
                fd.define_tensor(shape=[2], name=name)
        fd.add_output(w * s + x)
    assert names_of(fd) == ["layers.0.weight", "rate", "x"]


def test_lines_are_recorded() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[2])
        y = fd.ops.exp(x) + 1.0
        fd.add_output(y)
        y.set_device_mesh([0])
    record = fd._record
    first = test_lines_are_recorded.__code__.co_firstlineno
    where = f"test_recording.py:{first}"[: -len(str(first))]
    assert record.params[0].location == f"{where}{first + 2}: x = fd.define_tensor(shape=[2])"
    assert [op.location for op in record.ops] == [f"{where}{first + 3}: y = fd.ops.exp(x) + 1.0"] * 3
    assert record.outputs[0].location == f"{where}{first + 4}: fd.add_output(y)"
    assert record.annotations["y"][0].location == f"{where}{first + 5}: y.set_device_mesh([0])"


def test_the_same_value_twice_and_an_input_as_output() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[2])
        for value in (x, x):
            fd.add_output(value)
    assert body(fd) == ["return %x, %x"]
    assert fd.fusion.inputs()[0] is x
    assert [value is x for value in fd.fusion.outputs()] == [True, True]


def test_the_style_of_generated_programs() -> None:
    """Vectors of scalars for shapes, Null, stride orders, contiguity None, scalar operations."""
    with FusionDefinition() as fd:
        T0 = fd.define_tensor(
            shape=[-1, -1, -1],
            contiguity=[None, None, True],
            dtype=DataType.BFloat16,
            is_cpu=False,
            stride_order=[2, 1, 0],
        )
        T1 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, stride_order=[1, 0])
        T2 = fd.ops.cast(T0, dtype=DataType.Float)
        S3 = fd.define_scalar(4, dtype=DataType.Int)
        S4 = fd.define_scalar(6, dtype=DataType.Int)
        S5 = fd.define_scalar(1, dtype=DataType.Int)
        V6 = fd.define_vector([S3, S4, S5], dtype=DataType.Int)
        T7 = fd.ops.broadcast_in_dim(T1, shape=V6, broadcast_dims=[0, 1])
        T8 = fd.ops.mul(T2, T7)
        S9 = fd.define_scalar(3.00000, dtype=DataType.Double)
        T10 = fd.ops.pow(T8, S9)
        T11 = fd.ops.sum(T10, dims=[0, 1], keepdim=False, dtype=DataType.Null)
        S12 = fd.define_scalar(6.00000, dtype=DataType.Double)
        S13 = fd.ops.reciprocal(S12)
        T14 = fd.ops.mul(T11, S13)
        fd.add_output(T14)
    assert str(fd) == textwrap.dedent(
        """\
        fusion @main(%T0: bf16[b:i0, b:i1, i2] {stride_order(2, 1, 0)}, %T1: f32[i3, i4] {stride_order(1, 0)}) {
          %T2 = cast(%T0) {dtype=f32}
          %S3 = constant() {value=4.0, dtype=i64}
          %S4 = constant() {value=6.0, dtype=i64}
          %S5 = constant() {value=1.0, dtype=i64}
          %T7 = broadcast_in_dim(%T1) {shape=[4, 6, 1], dims=[0, 1]}
          %T8 = mul(%T2, %T7)
          %S9 = constant() {value=3.0, dtype=f64}
          %T10 = pow(%T8, %S9)
          %T11 = sum(%T10) {axes=[0, 1], keepdim=false, dtype=null}
          %S12 = constant() {value=6.0, dtype=f64}
          %S13 = reciprocal(%S12)
          %T14 = mul(%T11, %S13)
          return %T14
        }
        """
    )


def test_the_message_has_what_the_text_has_and_the_lines() -> None:
    with FusionDefinition("message") as fd:
        x = fd.define_tensor(shape=[-1, 1], contiguity=[None, None], dtype=DataType.Half)
        s = fd.define_scalar()
        y = fd.ops.pad(fd.ops.mul(x, s), [1, 1], 0.5)
        z = fd.ops.sum(y, keepdim=True)
        fd.add_output(z, x)
        y.shard([[0], [1]], {0: "mesh_y"})
        z.outer_split(-1, 1)
    message = program.source(fd).program
    assert (message.op_set, message.name) == ("fusion", "message")
    assert [(m.name, list(m.mesh.shape), list(m.mesh.devices)) for m in message.meshes] == [("m", [2, 1], [0, 1])]
    axes = message.params[0].type.tensor.axes
    assert [(axis.kind, axis.extent.text or axis.extent.value) for axis in axes] == [(1, "i0"), (1, 1)]
    assert (message.params[0].type.tensor.dtype, message.params[1].type.scalar) == ("f16", "f64")
    assert [op.name for op in message.ops] == ["mul", "pad", "sum"]
    attrs = {attr.name: attr for op in message.ops for attr in op.attrs}
    assert [extent.value for extent in attrs["widths"].extents.values] == [1, 1]
    assert (attrs["value"].float, attrs["keepdim"].bool, attrs["dtype"].word) == (0.5, True, "null")
    assert attrs["axes"].WhichOneof("value") == "extents"  # An empty list is there, too.
    assert [(o.value, o.alias) for o in message.outputs] == [("z", "x")]
    kinds = [(a.value, a.kind, a.mesh, a.axis, a.factor, a.parallel_type) for a in message.annotations]
    assert kinds == [("y", 1, "m", 0, 0, ""), ("y", 6, "", 0, 0, "mesh_y"), ("z", 2, "", -1, 1, "")]
    things = [*message.params, *message.ops, *message.outputs, *message.annotations]
    assert all(thing.location.startswith("test_recording.py:") for thing in things)
    assert message.ops[0].location.endswith(": y = fd.ops.pad(fd.ops.mul(x, s), [1, 1], 0.5)")


def test_programs_are_compared_without_their_lines() -> None:
    def define(number: float) -> FusionDefinition:
        with FusionDefinition() as fd:
            x = fd.define_tensor(shape=[2])
            fd.add_output(x + number)
        return fd

    with FusionDefinition() as again:
        x = again.define_tensor(shape=[2])
        again.add_output(x + 1.0)
    assert program.key(define(1.0)) == program.key(again)
    assert program.key(define(1.0)) != program.key(define(2.0))


def test_an_open_definition_is_no_program_yet() -> None:
    with FusionDefinition("open") as fd, pytest.raises(hostir.FailedPrecondition) as caught:
        program.source(fd)
    assert str(caught.value).startswith("open is still being defined; end its `with` block first (test_recording.py:")


def test_a_mesh_whose_dimensions_have_names() -> None:
    mesh = DeviceMesh([[0, 1], [2, 3]], names=("dp", "tp"))
    texts = []
    for dp, tp in (("dp", "tp"), ("mesh_y", "mesh_x"), (ParallelType.mesh_y, ParallelType.mesh_x)):
        with FusionDefinition() as fd:
            x = fd.define_tensor(shape=[-1, 8])
            y = fd.ops.exp(x)
            x.shard(mesh, {0: dp, 1: tp})
            y.set_device_mesh(mesh)
            y.outer_split(0, 2)
            y.axis(0).parallelize(dp)
            fd.add_output(y)
        texts.append(str(fd))
    assert texts[0] == texts[1] == texts[2]
    assert "{mesh=@m, shard(0, mesh_y), shard(1, mesh_x)}" in texts[0]
    assert "{mesh=@m, outer_split(0, 2), parallelize(0, mesh_y)}" in texts[0]


def test_a_program_without_outputs_is_refused() -> None:
    with FusionDefinition("mute") as fd:
        fd.ops.exp(fd.define_tensor(shape=[2]))
    assert "exp" in str(fd)
    with pytest.raises(hostir.InvalidArgument, match=r"mute has no outputs; fd\.add_output makes a value one"):
        program.source(fd)


def test_limits_of_an_input() -> None:
    with FusionDefinition() as fd:
        with pytest.raises(hostir.ResourceExhausted, match="define_tensor: a tensor has 17 axes; the limit is 16"):
            fd.define_tensor(shape=[2] * 17)
        with pytest.raises(hostir.InvalidArgument, match=r"define_tensor: f32\[.*\] has more than 2\^60 - 1 elements"):
            fd.define_tensor(shape=[2**40, 2**30])
    assert fd._record.params == []
