"""LeastNUMANodes in the cycle: fewer zones and nearer ones first, under the policies that let a pod have several."""

from __future__ import annotations

import msgspec
import pytest

from services.scheduler.deciding.config import CycleConfig
from services.scheduler.deciding.outcome import Placed
from shared.domain.pod import Pod
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, zone

WHOLE = amounts(8)
SEVERAL = ["none", "best-effort", "restricted"]


def world(policy: str, **nodes: tuple[float, float, int]) -> World:
    """Nodes of two zones of 8 CPUs: free in zone 0, free in zone 1, distance between them."""
    made = World(CycleConfig(strategy="LeastNUMANodes"))
    for name, (first, second, far) in nodes.items():
        zones = [zone(at, amounts(free), WHOLE) for at, free in enumerate((first, second))]
        made.node(name, *(msgspec.structs.replace(each, costs={each.id: 10, 1 - each.id: far}) for each in zones), policy=policy)
    return made


def chosen(made: World, pod: Pod) -> tuple[str, int]:
    placed = made.cluster.place(pod)
    assert isinstance(placed, Placed)
    facts = made.cluster.node(placed.node)
    assert facts is not None
    assert placed.score == made.cluster.judge(made.cluster.shape(pod), facts)
    return placed.node, placed.score


@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_a_node_where_one_zone_is_enough_comes_before_one_where_two_are_needed(policy: str) -> None:
    for name in ("p", "q", "r"):
        made = world(policy, split=(5, 5, 20), whole=(2, 6, 20), other=(5, 4, 20))
        assert chosen(made, guaranteed(name, container("c", amounts(6)))) == ("whole", 93)


@pytest.mark.parametrize("policy", SEVERAL)
def test_a_pod_larger_than_a_zone_is_scored_by_its_set(policy: str) -> None:
    made = world(policy, only=(8, 8, 20))
    assert chosen(made, guaranteed("p", container("c", amounts(10)))) == ("only", 81)


def test_nearer_sets_come_first_among_sets_of_one_size() -> None:
    """Three zones; on `near` the two that have room are the nearest pair, on `far` they are not."""
    made = World(CycleConfig(strategy="LeastNUMANodes"))
    for name, pair in (("near", (0, 1)), ("far", (0, 2))):
        zones = []
        for at in range(3):
            free = amounts(8) if at in pair else amounts(1)
            costs = {other: 10 if other == at else 12 if {at, other} == {0, 1} else 40 for other in range(3)}
            zones.append(msgspec.structs.replace(zone(at, free, WHOLE), costs=costs))
        made.node(name, *zones, policy="restricted")
    assert chosen(made, guaranteed("p", container("c", amounts(12)))) == ("near", 81)


def test_each_container_is_scored_on_what_those_before_it_leave() -> None:
    """Two containers of 5 CPUs: on `pair` each has a zone; on `shared` the second has to take of both."""
    pod = guaranteed("p", container("a", amounts(5)), container("b", amounts(5)))
    made = world("best-effort", pair=(5, 5, 20), shared=(8, 2, 20))
    assert chosen(made, pod) == ("pair", 93)
    facts = made.cluster.node("shared")
    assert facts is not None
    assert made.cluster.judge(made.cluster.shape(pod), facts) == 81


@pytest.mark.parametrize("policy", [*SEVERAL, "single-numa-node"])
def test_single_zones_are_all_alike(policy: str) -> None:
    made = world(policy, a=(8, 8, 20), b=(4, 4, 20))
    assert chosen(made, guaranteed("p", container("c", amounts(4))))[1] == 93
