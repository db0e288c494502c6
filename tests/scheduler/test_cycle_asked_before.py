"""Who was asked about before changes no answer: what a small budget left undecided stays so beside an own reservation."""

from __future__ import annotations

import pytest

from services.scheduler.deciding.config import CycleConfig
from services.scheduler.deciding.outcome import Placed
from services.scheduler.scoring.registry import STRATEGIES
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, zone


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_what_was_left_undecided_is_undecided_beside_an_own_reservation(strategy: str) -> None:
    """Those of 2 and 3 CPUs on their way, and one of 1 that is reserved, fill the zone of 6 in whatever order. That one of 7
    finds the other takes a search of more than one step, which is for the last resort, before the reservation and after."""
    later, reserved = guaranteed("later", container("c", amounts(7))), guaranteed("reserved", container("c", amounts(1)))
    answers = []
    for asked in (False, True):
        world = World(CycleConfig(strategy=strategy, steps_node=1, steps_last_resort=512, steps_pod=1024))
        world.node("n", zone(0, amounts(6)), zone(1, amounts(9)))
        for cpus in (2, 3):
            world.bound(guaranteed(f"p{cpus}", container("c", amounts(cpus))), "n")
        if asked:
            assert isinstance(world.cluster.place(later), Placed)
        world.cluster.charge(Placed("n", 0, 0, 0), reserved)
        answers.append(world.cluster.place(later))
    assert isinstance(answers[0], Placed)
    assert answers[0] == answers[1]
