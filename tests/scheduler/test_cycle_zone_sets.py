"""LeastNUMANodes in the cycle: fewer zones and nearer ones first, under the policies that let a pod
have several.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.score.ranks import score_of
from services.scheduler.score.strategies.least_numa_nodes import (
    LeastNumaNodes,
    fewest_zones,
    smallest_set,
)
from services.scheduler.score.strategies.strategy import ZoneView
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import PodClass
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Pod
from shared.domain.report import DeviceGroup
from tests.fixtures.examples import examples
from tests.scheduler.cycle_worlds import GPU, World, amounts, container, guaranteed, report, zone

WHOLE = amounts(8)
SEVERAL = ["none", "best-effort", "restricted"]


def world(policy: str, **nodes: tuple[float, float, int]) -> World:
    """Nodes of two zones of 8 CPUs: free in zone 0, free in zone 1, distance between them."""
    made = World(CycleConfig(strategy="LeastNUMANodes"))
    for name, (first, second, far) in nodes.items():
        zones = [zone(at, amounts(free), WHOLE) for at, free in enumerate((first, second))]
        made.node(
            name,
            *(
                msgspec.structs.replace(each, costs={each.id: 10, 1 - each.id: far})
                for each in zones
            ),
            policy=policy,
        )
    return made


def chosen(made: World, pod: Pod) -> tuple[str, int]:
    placed = made.cluster.place(pod)
    assert isinstance(placed, Placed)
    node_info = made.cluster.node(placed.node)
    assert node_info is not None
    rank = made.cluster.evaluator.evaluate(made.cluster.evaluator.pod_class(pod), node_info)
    assert placed.score == score_of(rank)
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
        for zone_id in range(3):
            free = amounts(8) if zone_id in pair else amounts(1)
            costs = {
                other: 10 if other == zone_id else 12 if {zone_id, other} == {0, 1} else 40
                for other in range(3)
            }
            zones.append(msgspec.structs.replace(zone(zone_id, free, WHOLE), costs=costs))
        made.node(name, *zones, policy="restricted")
    assert chosen(made, guaranteed("p", container("c", amounts(12)))) == ("near", 81)


def test_each_container_is_scored_on_what_those_before_it_leave() -> None:
    """Two containers of 5 CPUs: on `pair` each has a zone; on `shared` the second has to take of
    both.
    """
    pod = guaranteed("p", container("a", amounts(5)), container("b", amounts(5)))
    made = world("best-effort", pair=(5, 5, 20), shared=(8, 2, 20))
    assert chosen(made, pod) == ("pair", 93)
    node_info = made.cluster.node("shared")
    assert node_info is not None
    rank = made.cluster.evaluator.evaluate(made.cluster.evaluator.pod_class(pod), node_info)
    assert score_of(rank) == 81


@pytest.mark.parametrize("policy", [*SEVERAL, "single-numa-node"])
def test_single_zones_are_all_alike(policy: str) -> None:
    made = world(policy, a=(8, 8, 20), b=(4, 4, 20))
    assert chosen(made, guaranteed("p", container("c", amounts(4))))[1] == 93


HELD = st.one_of(st.integers(0, 9), st.just(2**62))
# Three zones each: CPUs and memory that are free.
NODES = st.lists(st.lists(st.tuples(HELD, HELD), min_size=3, max_size=3), min_size=1, max_size=4)
NEAR = st.lists(st.integers(10, 12), min_size=9, max_size=9)


@settings(max_examples=examples(200), deadline=None)
@given(
    nodes=NODES,
    near=NEAR,
    asked=st.tuples(HELD, HELD),
    limits=st.lists(st.integers(1, 4), min_size=4, max_size=4),
)
def test_no_score_is_above_its_bulk_bound(
    nodes: list[list[tuple[int, int]]], near: list[int], asked: tuple[int, int], limits: list[int]
) -> None:
    """This holds for amounts of any size."""
    request = {
        name: amount for name, amount in zip(("cpu", "memory"), asked, strict=True) if amount
    }
    rows = [at for at, amount in enumerate(asked) if amount]
    available = np.array(nodes, dtype=np.int64).transpose(2, 1, 0)[rows]
    wanted, distances = (
        np.array(list(request.values()), dtype=np.int64),
        {(at // 3, at % 3): cost for at, cost in enumerate(near)},
    )
    most = LeastNumaNodes().most_nodes(wanted, available, np.array(limits[: len(nodes)]))
    fewest = fewest_zones(wanted, available) if rows else np.zeros(len(nodes))
    for number, holdings in enumerate(nodes):
        whole = {"cpu": 2**62, "memory": 2**62}
        views = [
            ZoneView(at, {"cpu": cpu, "memory": memory}, whole)
            for at, (cpu, memory) in enumerate(holdings)
        ]
        score = LeastNumaNodes().score(request, views, distances, {}, limits[number])
        smallest = smallest_set(request, views, distances, 3)
        assert score <= most[number]
        if rows and smallest is not None and len(smallest.ids) == 1:
            assert fewest[number] == 1
            assert most[number] - score < 100 / limits[number]


def test_few_nodes_are_evaluated_if_a_bound_shows_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One zone of each node is enough, so the first evaluated node is as good as any node can
    be.
    """
    made = world("single-numa-node", **{f"n{at}": (8.0, 8.0, 20) for at in range(50)})
    looked_at, evaluate = [], made.cluster.evaluator.evaluate

    def noted(pod_class: PodClass, node_info: NodeInfo, predicted_rank: int) -> int:
        looked_at.append(node_info.name)
        return evaluate(pod_class, node_info, predicted_rank)

    monkeypatch.setattr(made.cluster.evaluator, "evaluate", noted)
    for number in range(20):
        pod = guaranteed(f"p{number}", container("c", amounts(2)))
        placed = made.cluster.place(pod)
        assert isinstance(placed, Placed)
        assert placed.score == 93
        made.cluster.assume(placed, pod)
    assert len(looked_at) == 20


def test_devices_of_no_zone_cost_no_zone() -> None:
    """The device plugin of `placeless` reports no zones, and one zone has all other requested
    resources.
    """
    made, gpus = World(CycleConfig(strategy="LeastNUMANodes")), WHOLE | {GPU: 1}
    made.node(
        "zoned",
        zone(0, amounts(5), gpus),
        zone(1, amounts(5) | {GPU: 1}, gpus),
        policy="best-effort",
    )
    made.observe("placeless")
    listed = report("placeless", [zone(0, WHOLE), zone(1, WHOLE)], "best-effort")
    made.report(msgspec.structs.replace(listed, devices=(DeviceGroup(GPU, ids="a,b"),)))
    assert chosen(made, guaranteed("p", container("c", amounts(6) | {GPU: 1}))) == ("placeless", 93)
