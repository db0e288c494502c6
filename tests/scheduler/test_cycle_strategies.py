"""Every registered strategy ranks nodes in the cycle; the cheapest score is found without scoring in vain."""

from __future__ import annotations

import pytest

from services.scheduler.cycle.config import CycleConfig
from services.scheduler.cycle.outcome import Placed
from services.scheduler.scoring.registry import STRATEGIES
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, zone

WHOLE = amounts(16, 64)


def world(strategy: str, labels: dict[str, str] | None = None) -> World:
    """An empty node, a half full one, and one whose zones are full but for one."""
    made = World(CycleConfig(strategy=strategy))
    made.node("empty", zone(0, WHOLE), zone(1, WHOLE), labels=labels)
    made.node("half", zone(0, amounts(8, 32), WHOLE), zone(1, amounts(8, 32), WHOLE), labels=labels)
    return made


@pytest.mark.parametrize(
    ("strategy", "chosen"),
    [("LeastAllocated", "empty"), ("MostAllocated", "half"), ("KoordinatorMostAllocated", "half"),
     ("KoordinatorLeastAllocated", "empty")],
)  # fmt: skip
def test_a_strategy_chooses_the_node(strategy: str, chosen: str) -> None:
    placed = world(strategy).cluster.place(guaranteed("p", container("c", amounts(4, 16))))
    assert isinstance(placed, Placed)
    assert placed.node == chosen


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_every_strategy_fills_a_cluster_to_its_end(strategy: str) -> None:
    made = world(strategy)
    count = 0
    while isinstance(placed := made.cluster.place(guaranteed(f"p{count}", container("c", amounts(4, 16)))), Placed):
        assert 0 <= placed.score <= 100
        made.cluster.charge(placed, guaranteed(f"p{count}", container("c", amounts(4, 16))))
        count += 1
    assert count >= 6


def test_a_pod_without_a_demand_on_zones_is_scored_by_the_node() -> None:
    for strategy in sorted(STRATEGIES):
        pod = guaranteed("p", container("c", {"cpu": 500}))
        assert isinstance(world(strategy).cluster.place(pod), Placed)


def test_the_node_label_chooses_between_koordinators_strategies() -> None:
    labels = {"node.koordinator.sh/numa-allocate-strategy": "LeastAllocated"}
    placed = world("KoordinatorMostAllocated", labels).cluster.place(guaranteed("p", container("c", amounts(4, 16))))
    assert isinstance(placed, Placed)
    assert placed.node == "empty"


def test_an_unknown_strategy_is_refused_with_the_choice() -> None:
    with pytest.raises(ValueError, match="no strategy is called 'Best'; choose one of BalancedAllocation"):
        World(CycleConfig(strategy="Best"))
