"""A node that was evaluated for a pod class before all nodes were is evaluated again: the bulk
evaluation does not look at pending pods.
"""

from __future__ import annotations

import pytest

from services.scheduler.score.strategies.registry import STRATEGIES
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed, Unplaceable
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, zone

WHOLE = amounts(16, 64, 4)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_a_pod_that_was_evaluated_before_its_decision_harms_no_pending_admission(
    strategy: str,
) -> None:
    """The first pod needs all that is free in the zone with the GPU. The second pod would take a
    CPU there if the kubelet admitted it first.
    """
    made = World(CycleConfig(strategy=strategy))
    made.node("n0", zone(0, amounts(2, 2, 1), WHOLE), zone(1, amounts(2, 2), WHOLE))
    first = guaranteed("first", container("c0", amounts(1, 1)), container("c1", amounts(1, 1, 1)))
    second = guaranteed("second", container("c0", amounts(1, 1)))
    placed = made.cluster.place(first)
    assert isinstance(placed, Placed)
    made.cluster.assume(placed, first)
    assert not made.cluster.waiting_could_fit(second, ["n0"])
    assert isinstance(made.cluster.place(second), Unplaceable)
