"""Earlier questions change no answer: an answer that a small budget left undecided stays undecided
next to an own reservation.
"""

from __future__ import annotations

import msgspec
import pytest

from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.score.strategies.registry import STRATEGIES
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed, Unplaceable
from shared.domain.pod import Pod
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.scheduling_events import NodeCharged, PodReserved
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, zone


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_an_undecided_answer_stays_undecided_next_to_an_own_reservation(strategy: str) -> None:
    """Two pending pods of 2 and 3 CPUs and a reservation of 1 fill the zone of 6 CPUs in any order.
    To find that a pod of 7 fits the other zone, the search needs more than one step. Only the last
    resort has them, before the reservation and after it.
    """
    later, reserved = (
        guaranteed("later", container("c", amounts(7))),
        guaranteed("reserved", container("c", amounts(1))),
    )
    answers = []
    for asked in (False, True):
        world = World(
            CycleConfig(strategy=strategy, steps_node=1, steps_last_resort=512, steps_pod=1024)
        )
        world.node("n", zone(0, amounts(6)), zone(1, amounts(9)))
        for cpus in (2, 3):
            world.bound(guaranteed(f"p{cpus}", container("c", amounts(cpus))), "n")
        if asked:
            assert isinstance(world.cluster.place(later), Placed)
        world.cluster.assume(Placed("n", 0, 0, 0), reserved)
        answers.append(world.cluster.place(later))
    assert isinstance(answers[0], Placed)
    assert answers[0] == answers[1]


def test_a_refusal_next_to_an_own_reservation_is_computed_again_once_the_ledger_has_it() -> None:
    """If a pod on the node is charged in several zones, the refusal says that no pod is evicted. An
    own reservation is not in the ledger yet.
    """
    world = World()
    world.node(
        "n", zone(0, amounts(4)), zone(1, amounts(4)), allocatable={"cpu": 4000, "pods": 110}
    )
    reserved, later = (
        guaranteed("reserved", container("c", amounts(2))),
        guaranteed("later", container("c", amounts(3))),
    )
    world.fold("pod/reserved", PodObserved(reserved))
    world.cluster.assume(Placed("n", 0, 0, 0), reserved)
    refusal = world.cluster.place(later)
    world.ledger_fold("pod/reserved", PodReserved("reserved", "n"))
    world.fold("node/n", NodeCharged("n", "reserved"))
    assert refusal != world.cluster.place(later) == place_without_history(world, later)


def test_a_pod_that_came_and_ended_under_a_reused_name_is_among_the_ended() -> None:
    """The bounds and the pods of the node are the same, so a kept answer would be found, but an
    answer within few steps is not kept.
    """
    world = World(CycleConfig(steps_node=6, steps_last_resort=6, steps_pod=6))
    world.node("n", zone(0, amounts(6)), zone(1, amounts(4)))
    for name, cpus in (("web", 2), ("other", 3)):
        world.bound(guaranteed(name, container("c", amounts(cpus))), "n")
    later = guaranteed("later", container("c", amounts(5)))
    refusal = world.cluster.place(later)
    earlier = msgspec.structs.replace(guaranteed("web", container("c", amounts(2))), uid="earlier")
    world.ledger_fold("pod/earlier", PodObserved(earlier, node="n"))
    world.fold("pod/earlier", PodEnded("earlier", "deleted", "n"))
    assert refusal != world.cluster.place(later) == place_without_history(world, later)


def place_without_history(world: World, pod: Pod) -> Placed | Unplaceable:
    """Return the answer of a cluster that had no earlier queries."""
    fresh = ColumnarPlacing(world.cluster.config)
    for node in world.ledger.nodes.values():
        fresh.put_node(node)
    return fresh.place(pod)
