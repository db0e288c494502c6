"""If no node surely takes a pod within the ordinary budget, the larger one goes first to nodes that
it likely decides.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed, Unplaceable
from shared.domain.pod import Pod
from shared.domain.report import Placement, ZonedAmount
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.scheduling_events import NodeCharged, PodReserved
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, report, zone

LIMITS = CycleConfig(steps_node=1, steps_last_resort=40, steps_pod=80)
FEW = CycleConfig(steps_node=1, steps_last_resort=10, steps_pod=80)


def asks(name: str, cpus: int) -> Pod:
    return guaranteed(name, container("c", amounts(cpus)))


def node_with(
    world: World, node: str, before: Sequence[int] = (), after: Sequence[int] = ()
) -> None:
    """Zone 0 has 4 CPUs, which two pods of 2 CPUs filled, and zone 1 has 6. The two pods ended
    after the pods of `before` were bound and before those of `after` were; both lists have
    requested CPUs.
    """
    world.observe(node)
    old = [asks(f"{node}-old{number}", 2) for number in (0, 1)]
    for pod in old:
        world.running(pod, node)
    listed = [Placement("ns", pod.name, "c", (ZonedAmount("cpu", (0,), 2000),)) for pod in old]
    world.report(
        report(
            node,
            [zone(0, {"cpu": 0}, amounts(4)), zone(1, amounts(6))],
            placements=listed,
            tracked=("cpu",),
        )
    )
    send(world, node, "before", before)
    for pod in old:
        world.fold(f"pod/{pod.uid}", PodEnded(pod.uid, "succeeded", node))
    send(world, node, "after", after)


def send(world: World, node: str, when: str, each_cpus: Sequence[int]) -> None:
    for number, cpus in enumerate(each_cpus):
        pod = asks(f"{node}-{when}{number}", cpus)
        world.fold(f"pod/{pod.uid}", PodObserved(pod))
        world.fold(f"pod/{pod.uid}", PodReserved(pod.uid, node))
        world.fold(f"node/{node}", NodeCharged(node, pod.uid))


def crowded(world: World, node: str) -> None:
    """Return a node with so many admission orders that the search exceeds its budget."""
    node_with(world, node, before=(1, 2, 3, 1, 2))


def simple(world: World, node: str) -> None:
    """A pod of 4 CPUs was admitted after the others had ended: it is in zone 0, and zone 1 has 6
    free CPUs.
    """
    node_with(world, node, after=(4,))


@pytest.mark.parametrize("name", ["a", "z"])
def test_whatever_its_name_the_node_with_few_orders_is_searched(name: str) -> None:
    world = World(LIMITS)
    for number in range(4):
        crowded(world, f"n{number}")
    simple(world, name)
    placed = world.cluster.place(asks("late", 6))
    assert isinstance(placed, Placed)
    assert placed.node == name


def test_searches_that_end_early_leave_their_steps_to_others() -> None:
    """Three nodes refuse the pod after some twenty steps each, and the last one takes it. The pod's
    steps are enough for two whole searches only.
    """
    world = World(LIMITS)
    for number in range(3):
        node_with(world, f"n{number}", before=(4, 3))
    node_with(world, "z", after=(1, 1, 1, 1))
    placed = world.cluster.place(asks("late", 6))
    assert isinstance(placed, Placed)
    assert placed.node == "z"


def test_a_refusal_shows_what_the_larger_budget_found() -> None:
    """In the first order all pods find room in zone 0. On the crowded nodes the search ends before
    it finds the order in which they do not; on the other it finds it.
    """
    world = World(FEW)
    for number in range(4):
        node_with(world, f"n{number}", before=(1, 1, 1, 1))
    node_with(world, "z", before=(2, 2))
    decision = world.cluster.place(asks("late", 6))
    assert isinstance(decision, Unplaceable)
    assert decision.counts == {
        "node(s) had no NUMA zone with 6 free cpu": 1,
        "node(s) had too many possible states to check": 4,
    }
