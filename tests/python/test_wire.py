"""Conversions between the client's values and messages."""

import pytest

from hostir import wire
from hostir.mesh import DeviceMesh
from hostir.sharding import Sharding

MESH = DeviceMesh([[0, 1], [2, 3]])


@pytest.mark.parametrize(
    "sharding",
    [Sharding(MESH), Sharding(MESH, {1: "mesh_x"}), Sharding(MESH, {0: ("mesh_y", "mesh_x")}), Sharding([5])],
)
def test_shardings_come_back(sharding):
    message = wire.sharding_message(sharding, 2)
    back = wire.sharding_of(message)
    assert back.mesh == sharding.mesh and back.axes == sharding.axes and back.dealt == sharding.dealt
    # Equal messages are read once, whichever object they are.
    assert wire.sharding_of(wire.sharding_message(sharding, 2)) is back


def test_what_differs_is_read_apart():
    dealt = Sharding(MESH, {0: "mesh_x"}, dealt=[0])
    blocks = Sharding(MESH, {0: "mesh_x"})
    read = [wire.sharding_of(wire.sharding_message(sharding, 1)) for sharding in (dealt, blocks, dealt)]
    assert [sharding.dealt for sharding in read] == [(0,), (), (0,)]
