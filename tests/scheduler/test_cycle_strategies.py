"""Every registered strategy ranks nodes in the cycle; the cheapest score is found without scoring
in vain.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.score.ranks import RULED_OUT
from services.scheduler.score.strategies.registry import STRATEGIES
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from tests.fixtures.examples import examples
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, zone

WHOLE = amounts(16, 64)
WITH_GPUS = amounts(16, 64, 4)


def world(strategy: str, labels: dict[str, str] | None = None) -> World:
    """An empty node, a half full one, and one with a single free zone."""
    made = World(CycleConfig(strategy=strategy))
    made.node("empty", zone(0, WHOLE), zone(1, WHOLE), labels=labels)
    made.node("half", zone(0, amounts(8, 32), WHOLE), zone(1, amounts(8, 32), WHOLE), labels=labels)
    return made


@pytest.mark.parametrize(
    ("strategy", "chosen"),
    [
        ("LeastAllocated", "empty"),
        ("MostAllocated", "half"),
        ("KoordinatorMostAllocated", "half"),
        ("BestFit", "half"),
        ("KoordinatorLeastAllocated", "empty"),
    ],
)
def test_a_strategy_chooses_the_node(strategy: str, chosen: str) -> None:
    placed = world(strategy).cluster.place(guaranteed("p", container("c", amounts(4, 16))))
    assert isinstance(placed, Placed)
    assert placed.node == chosen


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_every_strategy_fills_a_cluster_to_its_end(strategy: str) -> None:
    made = world(strategy)
    count = 0
    while isinstance(
        placed := made.cluster.place(guaranteed(f"p{count}", container("c", amounts(4, 16)))),
        Placed,
    ):
        assert 0 <= placed.score <= 100
        made.cluster.assume(placed, guaranteed(f"p{count}", container("c", amounts(4, 16))))
        count += 1
    assert count >= 6


def test_a_pod_without_a_demand_on_zones_is_scored_by_the_node() -> None:
    for strategy in sorted(STRATEGIES):
        pod = guaranteed("p", container("c", {"cpu": 500}))
        assert isinstance(world(strategy).cluster.place(pod), Placed)


def test_the_node_label_chooses_between_koordinators_strategies() -> None:
    labels = {"node.koordinator.sh/numa-allocate-strategy": "LeastAllocated"}
    placed = world("KoordinatorMostAllocated", labels).cluster.place(
        guaranteed("p", container("c", amounts(4, 16)))
    )
    assert isinstance(placed, Placed)
    assert placed.node == "empty"


def test_an_unknown_strategy_is_refused_with_the_choice() -> None:
    with pytest.raises(
        ValueError, match="no strategy is called 'Best'; choose one of BalancedAllocation"
    ):
        World(CycleConfig(strategy="Best"))


FREE = st.tuples(st.integers(0, 16), st.integers(0, 64), st.integers(0, 4))
NODES = st.lists(st.lists(FREE, min_size=1, max_size=4), min_size=1, max_size=4)
ASKED = st.lists(
    st.tuples(st.integers(1, 8), st.integers(1, 16), st.integers(0, 1)), min_size=1, max_size=3
)
WEIGHTS = st.fixed_dictionaries(
    {}, optional={"cpu": st.integers(1, 5), "memory": st.integers(1, 5)}
)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
@settings(max_examples=examples(40), deadline=None)
@given(nodes=NODES, asked=ASKED, weights=WEIGHTS)
def test_all_nodes_at_once_score_as_one_by_one(
    strategy: str,
    nodes: list[list[tuple[int, int, int]]],
    asked: list[tuple[int, int, int]],
    weights: dict[str, int],
) -> None:
    made = World(CycleConfig(strategy=strategy, weights=weights))
    for number, zones in enumerate(nodes):
        made.node(
            f"n{number}", *(zone(at, amounts(*free), WITH_GPUS) for at, free in enumerate(zones))
        )
    pod = guaranteed("p", *(container(f"c{at}", amounts(*each)) for at, each in enumerate(asked)))
    pod_class = made.cluster.evaluator.pod_class(pod)
    made.cluster.evaluator.evaluate_all_if_new(pod_class)
    scores, sure = (each.copy() for each in made.cluster.evaluator.cache.row(pod_class.row))
    for node_info in made.cluster.nodes():
        if sure[node_info.slot]:
            assert scores[node_info.slot] == made.cluster.evaluator.evaluate(
                pod_class, node_info
            ), node_info.name
        else:
            assert scores[node_info.slot] >= made.cluster.evaluator.evaluate(pod_class, node_info)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
@settings(max_examples=examples(25), deadline=None)
@given(
    nodes=NODES,
    asked=st.lists(ASKED, min_size=1, max_size=3),
    turns=st.lists(st.integers(0, 2), min_size=1, max_size=8),
)
def test_every_pod_goes_where_the_score_is_best_by_now(
    strategy: str,
    nodes: list[list[tuple[int, int, int]]],
    asked: list[list[tuple[int, int, int]]],
    turns: list[int],
) -> None:
    """Own reservations raise or lower the scores of all pod classes, so the table must never keep a
    stale score.
    """
    made = World(CycleConfig(strategy=strategy, steps_node=1024, steps_last_resort=1024))
    for number, zones in enumerate(nodes):
        made.node(
            f"n{number}", *(zone(at, amounts(*free), WITH_GPUS) for at, free in enumerate(zones))
        )
    for number, turn in enumerate(turns):
        parts = asked[turn % len(asked)]
        pod = guaranteed(
            f"p{number}", *(container(f"c{at}", amounts(*each)) for at, each in enumerate(parts))
        )
        pod_class = made.cluster.evaluator.pod_class(pod)
        best = max(
            made.cluster.evaluator.evaluate(pod_class, node_info)
            for node_info in made.cluster.nodes()
        )
        placed = made.cluster.place(pod)
        assert (placed.score if isinstance(placed, Placed) else RULED_OUT) == best
        if isinstance(placed, Placed):
            made.cluster.assume(placed, pod)


def test_a_weight_moves_the_choice() -> None:
    """One node is short of CPUs, the other of memory. The resource with the higher weight
    decides.
    """
    chosen = set()
    for weights in ({"cpu": 9}, {"memory": 9}):
        made = World(CycleConfig(strategy="LeastAllocated", weights=weights))
        made.node("little-cpu", zone(0, amounts(5, 64), WHOLE))
        made.node("little-memory", zone(0, amounts(16, 20), WHOLE))
        placed = made.cluster.place(guaranteed("p", container("c", amounts(4, 16))))
        assert isinstance(placed, Placed)
        chosen.add((*weights, placed.node))
    assert chosen == {("cpu", "little-memory"), ("memory", "little-cpu")}


def test_least_allocated_takes_shares_of_allocatable_not_of_free_amounts() -> None:
    """Both nodes have the same amount free, which is a small share of the large node. Upstream
    cannot distinguish them.
    """
    made = World(CycleConfig(strategy="LeastAllocated"))
    made.node("large", zone(0, amounts(4, 16), amounts(64, 256)))
    made.node("small", zone(0, amounts(4, 16)))
    for number in range(8):
        placed = made.cluster.place(guaranteed(f"p{number}", container("c", amounts(2, 8))))
        assert isinstance(placed, Placed)
        assert (placed.node, placed.score) == ("small", 50)
