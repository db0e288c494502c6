"""Columns of a large cluster: columns written in portions are the same, and nodes of one make share
their common data.
"""

from __future__ import annotations

import numpy as np
import pytest

from services.scheduler.snapshot import node_arrays as columns
from tests.scheduler.cycle_worlds import World, amounts, zone


def world(nodes: int) -> World:
    new_world = World()
    for number in range(nodes):
        zones = [
            zone(at, amounts(16 - number % 5, 64, at), amounts(16, 64, 4))
            for at in range(1 + number % 3)
        ]
        new_world.node(
            f"n{number}",
            *zones,
            allocatable={"cpu": 64_000, "pods": 100 + number, f"example.com/of-{number}": 1},
        )
    return new_world


def test_arrays_written_in_portions_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = world(70).cluster
    plain.places([])
    monkeypatch.setattr(columns, "AT_ONCE", 3)
    portioned = world(70).cluster
    portioned.places([])
    for name in ("free_min", "free_max", "whole", "largest", "totals", "free", "offered"):
        first, second = getattr(plain._arrays, name), getattr(portioned._arrays, name)
        assert np.array_equal(first, second), name
    assert plain._arrays.free.any()
    assert plain._arrays.free_min.any()


def test_nodes_of_one_machine_type_share_its_values() -> None:
    cluster = world(7).cluster
    first, like, second = (cluster.node(name) for name in ("n1", "n4", "n2"))
    assert first is not None
    assert like is not None
    assert second is not None
    assert first.free_min != like.free_min
    assert first.sizes is like.sizes
    assert first.profile is like.profile
    assert first.sizes != second.sizes
