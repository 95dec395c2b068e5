"""Element types, meshes, shardings and host arrays. No daemon is needed."""

from __future__ import annotations

import array as buffers
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hostir
from hostir import DataType, DeviceMesh, ParallelType, Sharding, dlpack, wire
from hostir.dtypes import as_data_type
from hostir.numbers import as_number
from hostir.sharding import assemble

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("name", "numpy", "text"),
    [
        ("Double", np.float64, "f64"),
        ("Float", np.float32, "f32"),
        ("Half", np.float16, "f16"),
        ("BFloat16", BFLOAT16, "bf16"),
        ("Int", np.int64, "i64"),
        ("Int32", np.int32, "i32"),
        ("Bool", np.bool_, "bool"),
    ],
)
def test_data_types(name: str, numpy: Any, text: str) -> None:
    data_type = DataType[name]
    assert data_type.numpy == np.dtype(numpy)
    assert data_type.value == text
    assert as_data_type(numpy) is data_type
    assert as_data_type(np.dtype(numpy)) is data_type
    assert as_data_type(data_type) is data_type
    assert wire.data_type(wire.dtype_number(data_type)) is data_type


def test_python_types_are_data_types() -> None:
    assert [as_data_type(t) for t in (float, int, bool)] == [DataType.Double, DataType.Int, DataType.Bool]


class dtype:
    """Stands in for torch.dtype, which prints as "torch.float32"."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


def test_types_of_frameworks_are_data_types() -> None:
    for data_type in DataType:
        if data_type is not DataType.Null:
            assert as_data_type(dtype(str(data_type.numpy))) is data_type
    with pytest.raises(hostir.InvalidArgument, match="uint16 is no element type"):
        as_data_type(dtype("uint16"))
    with pytest.raises(hostir.InvalidArgument, match="'quint8' is no element type"):
        as_data_type(dtype("quint8"))
    jnp = pytest.importorskip("jax.numpy", reason="JAX is not installed")
    assert [as_data_type(t) for t in (jnp.bfloat16, jnp.float32, jnp.int32, jnp.bool_)] == [
        *(DataType.BFloat16, DataType.Float, DataType.Int32, DataType.Bool)
    ]


class Scalar0:
    """Stands in for an array of PyTorch without axes."""

    shape, dtype = (), dtype("float32")

    def __init__(self, number: Any) -> None:
        self.number = number

    def item(self) -> Any:
        return self.number


def test_arrays_without_axes_are_numbers() -> None:
    given = [
        3,
        2.5,
        True,
        np.float32(2.5),
        np.array(7),
        np.array(True),
        ml_dtypes.bfloat16(1.5),
        Scalar0(4),
        Scalar0(0.5),
    ]
    assert [as_number(value) for value in given] == [3, 2.5, True, 2.5, 7, True, 1.5, 4, 0.5]
    for value in ("2", 1j, np.complex64(1), np.ones(1), np.array("a"), [1], None, Scalar0(1j)):
        assert as_number(value) is None
    jnp = pytest.importorskip("jax.numpy", reason="JAX is not installed")
    number = as_number(jnp.ones((), jnp.bfloat16) * 3)
    assert number == 3.0 and type(number) is float
    with hostir.FusionDefinition() as fd:
        x = fd.define_tensor(shape=[2])
        y = x * jnp.float32(2) + Scalar0(3)
        assert isinstance(y, hostir.Tensor)
    assert [op.attrs["value"] for op in fd._record.ops if op.name == "constant"] == [2.0, 3.0]


def test_meshes_with_names() -> None:
    mesh = DeviceMesh([[0, 1], [2, 3]], names=("dp", "tp"))
    assert mesh.names == ("dp", "tp") and mesh.dimensions == ("mesh_y", "mesh_x")
    assert DeviceMesh([0, 1]).names == ("mesh_x",)
    assert mesh == DeviceMesh([[0, 1], [2, 3]]) and hash(mesh) == hash(DeviceMesh([[0, 1], [2, 3]]))
    assert repr(mesh) == "DeviceMesh([[0, 1], [2, 3]], names=('dp', 'tp'))"
    sharding = Sharding(mesh, {0: "tp", 1: ("dp",)})
    assert sharding == Sharding(mesh, {0: "mesh_x", 1: "mesh_y"})
    assert sharding.axes == {1: "dp", 0: "tp"} and str(sharding).endswith("{0: 'tp', 1: 'dp'})")
    assert Sharding(mesh, {0: ("dp", "tp")}).axes == {0: ("dp", "tp")}
    for names in (("dp",), ("dp", "dp"), "dp", ("dp", "mesh_y"), ("stream", "tp"), ("a b", "tp"), (1, 2)):
        with pytest.raises(hostir.InvalidArgument, match="names="):
            DeviceMesh([[0, 1], [2, 3]], names=names)  # type: ignore[arg-type]
    with pytest.raises(hostir.InvalidArgument, match=r"'pp' is no parallel type; there are serial, .*, stream, dp, tp"):
        Sharding(mesh, {0: "pp"})


def test_meshes() -> None:
    mesh = DeviceMesh([[2, 0], [1, 3]])
    assert (mesh.shape, mesh.devices, mesh.size) == ((2, 2), (2, 0, 1, 3), 4)
    assert mesh.dimensions == ("mesh_y", "mesh_x")
    assert DeviceMesh(np.arange(8).reshape(2, 2, 2)).dimensions == ("mesh_z", "mesh_y", "mesh_x")
    assert mesh == DeviceMesh(np.array([[2, 0], [1, 3]], np.uint8))
    assert mesh != DeviceMesh([2, 0, 1, 3])
    assert len({mesh, DeviceMesh([[2, 0], [1, 3]]), DeviceMesh(range(4))}) == 2
    assert repr(mesh) == "DeviceMesh([[2, 0], [1, 3]])"


def test_shardings() -> None:
    mesh = DeviceMesh([[0, 1, 2], [3, 4, 5]])
    sharding = Sharding(mesh, {1: "mesh_x", 0: ParallelType.mesh_y})
    assert sharding.axes == {0: "mesh_y", 1: "mesh_x"}
    assert sharding == Sharding(mesh, {0: "mesh_y", 1: "mesh_x"})
    assert sharding != Sharding(mesh, {0: "mesh_y"})
    assert repr(sharding) == "Sharding(DeviceMesh([[0, 1, 2], [3, 4, 5]]), {0: 'mesh_y', 1: 'mesh_x'})"
    both = Sharding(mesh, {2: ("mesh_y", "mesh_x")})
    assert both.axes == {2: ("mesh_y", "mesh_x")}
    for each in (sharding, both, Sharding(mesh), Sharding([3])):
        assert wire.sharding_of(wire.sharding_message(each, 3)) == each
    assert list(wire.sharding_message(both, 3).axis_of_dimension) == [2, 2]
    last = Sharding(mesh, {-1: "mesh_x"})
    assert list(wire.sharding_message(last, 3).axis_of_dimension) == [-1, 2]  # -1 of a message: no axis.
    for axis in (3, -4):
        with pytest.raises(hostir.InvalidArgument, match=f"axis {axis} is split over mesh_y, but the array has 3 axes"):
            wire.sharding_message(Sharding(mesh, {axis: "mesh_y"}), 3)
    assert wire.sharding_of(wire.tensor_pb2.Sharding()) == Sharding(DeviceMesh([0]))


@pytest.mark.parametrize(
    "axes", [{}, {0: "mesh_x"}, {1: "mesh_x", 0: "mesh_y"}, {0: ("mesh_y", "mesh_x")}, {1: "mesh_y"}, {-1: "mesh_x"}]
)
def test_assembling_shards(axes: dict[int, Any]) -> None:
    sharding = Sharding(DeviceMesh([[3, 1], [0, 2]]), axes)
    ways = {axis % 2: 2 ** (1 if isinstance(names, str) else len(names)) for axis, names in axes.items()}
    for rows, columns in [(8, 12), (5, 3), (1, 7), (0, 2)]:
        whole = np.arange(rows * columns).reshape(rows, columns)
        shards = [whole[sharding.block(position, whole.shape)] for position in range(4)]
        local = (-(-rows // ways.get(0, 1)), -(-columns // ways.get(1, 1)))
        assert all(shard.shape == local for shard in shards) or (rows, columns) != (8, 12)
        assert max(shard.shape[0] for shard in shards) == local[0]
        np.testing.assert_array_equal(assemble(shards, sharding), whole)


def test_two_dimensions_on_one_axis_split_it_outer_first() -> None:
    sharding = Sharding(DeviceMesh([[0, 1], [2, 3]]), {0: ("mesh_y", "mesh_x")})
    assert [sharding.block(k, (20,))[0].start for k in range(4)] == [0, 5, 10, 15]
    parts = [sharding.block(k, (5,))[0] for k in range(4)]  # Halves of 3, each of 2.
    assert [(part.start, part.stop) for part in parts] == [(0, 2), (2, 3), (3, 5), (5, 5)]


def test_dealt_axes() -> None:
    sharding = Sharding(DeviceMesh([[3, 1], [0, 2]]), {1: "mesh_x", 0: "mesh_y"}, dealt=[1])
    assert sharding.dealt == (1,)
    assert sharding != Sharding(sharding.mesh, sharding.axes)
    assert repr(sharding) == "Sharding(DeviceMesh([[3, 1], [0, 2]]), {0: 'mesh_y', 1: 'mesh_x'}, dealt=(1,))"
    assert wire.sharding_of(wire.sharding_message(sharding, 2)) == sharding
    assert list(wire.sharding_message(sharding, 2).dealt) == [False, True]
    whole = np.arange(30).reshape(5, 6)
    shards = [whole[sharding.block(position, whole.shape)] for position in range(4)]
    np.testing.assert_array_equal(shards[1], whole[:3, 1::2])
    np.testing.assert_array_equal(shards[2], whole[3:, 0::2])
    np.testing.assert_array_equal(assemble(shards, sharding), whole)
    with pytest.raises(hostir.InvalidArgument, match="axis 1 of 5 elements is dealt 2 ways, in whole turns"):
        sharding.block(0, (4, 5))
    with pytest.raises(hostir.InvalidArgument, match="axis 0 is dealt over 2 mesh dimensions; it is dealt over one"):
        Sharding(sharding.mesh, {0: ("mesh_y", "mesh_x")}, dealt=[0])
    with pytest.raises(hostir.InvalidArgument, match="axis -1 is dealt; axes that are count from the front"):
        Sharding(sharding.mesh, {-1: "mesh_x"}, dealt=[-1])


class Producer:
    """An array of another library: DLPack and nothing else."""

    def __init__(self, capsule: Callable[[], Any], device: tuple[int, int] = (1, 0)) -> None:
        self._capsule, self._device = capsule, device

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.float16, BFLOAT16])
@pytest.mark.parametrize(
    "view",
    [
        lambda a: a,
        lambda a: a.T,
        lambda a: a[::-2, 1:],
        lambda a: a[:, ::-1],
        lambda a: a[:0],
        lambda a: a[1, 2],
        lambda a: np.broadcast_to(a[0], (3, 5)).copy(),
    ],
)
def test_dlpack_in(dtype: Any, view: Callable[[np.ndarray], np.ndarray]) -> None:
    values = view(np.arange(20).reshape(4, 5).astype(dtype))
    if not isinstance(values, np.ndarray):
        values = np.array(values)
    got = dlpack.as_numpy(Producer(lambda: dlpack.to_capsule(values)))
    assert (got.dtype, got.shape) == (values.dtype, values.shape)
    np.testing.assert_array_equal(got, values)


def test_a_bfloat16_array_outlives_its_producer() -> None:
    values = np.arange(1000).astype(BFLOAT16)
    got = dlpack.as_numpy(Producer(lambda: dlpack.to_capsule(values.copy())))
    np.testing.assert_array_equal(got, values)


@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16])
def test_axes_of_stride_0_stay_such(dtype: Any) -> None:
    """Of 2^40 rows, which no copy could hold."""
    row = np.arange(8).astype(dtype)[::-2]
    values = np.lib.stride_tricks.as_strided(row, (1 << 40, 4), (0, *row.strides))
    got = dlpack.as_numpy(Producer(lambda: dlpack.to_capsule(values)))
    assert (got.shape, got.strides[0]) == ((1 << 40, 4), 0)
    np.testing.assert_array_equal(got[:2], [[7, 5, 3, 1]] * 2)


def test_an_array_on_a_device_is_refused() -> None:
    with pytest.raises(
        hostir.InvalidArgument, match=r"^the Producer is on a device \(DLPack type 2\); copy it to the h"
    ):
        dlpack.as_numpy(Producer(lambda: None, (2, 0)))


class Refusing:
    """Offers DLPack, and refuses each time it is asked."""

    def __init__(self, kind: type[Exception]) -> None:
        self._kind = kind

    def __dlpack__(self, **_: Any) -> Any:
        raise self._kind("no")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize("kind", [BufferError, RuntimeError, TypeError, ValueError])
def test_a_producer_that_refuses(kind: type[Exception]) -> None:
    with pytest.raises(hostir.InvalidArgument, match=r"^the Refusing cannot be read: no"):
        dlpack.as_numpy(Refusing(kind))


def test_lists_of_different_lengths() -> None:
    with pytest.raises(hostir.InvalidArgument, match=r"^the list cannot be read: "):
        dlpack.as_numpy([[1.0], [2.0, 3.0]])


def test_the_buffer_protocol_and_lists() -> None:
    np.testing.assert_array_equal(dlpack.as_numpy(buffers.array("d", [1, 2])), np.array([1.0, 2.0]))
    np.testing.assert_array_equal(dlpack.as_numpy(memoryview(b"ab").cast("B")), np.array([97, 98]))
    np.testing.assert_array_equal(dlpack.as_numpy([[1, 2]]), np.array([[1, 2]]))
    assert dlpack.as_numpy(np.float32(2)).shape == ()
