"""Upstream's score defects in the default mode, tested by its decisions: by the cycle, with
LeastAllocated. `defects/test_scores.py` shows each defect in the original and the strategies one by
one; here they follow the filter.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed, Unplaceable
from shared.domain.pod import Pod
from shared.domain.report import Zone
from shared.domain.resources import Amounts
from tests.fixtures.examples import examples
from tests.scheduler.cycle_worlds import GIB, World, amounts, container, guaranteed, report, zone

WHOLE = amounts(8, 16)
WITH_GPU = amounts(8, 16, 4)
ZONAL = ["LeastAllocated", "MostAllocated", "BalancedAllocation"]


def score(
    pod: Pod, *zones: Zone, strategy: str = "LeastAllocated", policy: str = "single-numa-node"
) -> int:
    """Return the pod's score on a node of these zones, which must take the pod."""
    made = World(CycleConfig(strategy=strategy))
    made.node("n", *zones, policy=policy)
    placed = made.cluster.place(pod)
    assert isinstance(placed, Placed), placed
    node_info = made.cluster.node("n")
    assert node_info is not None
    assert placed.score == made.cluster.evaluator.evaluate(
        made.cluster.evaluator.pod_class(pod), node_info
    )
    return placed.score


def one(requests: Amounts) -> Pod:
    return guaranteed("p", container("c", requests))


def test_fractions_of_a_cpu_are_distinguished() -> None:
    """Fractions are not pinned to a zone, so the node as a whole is scored."""
    small = World(CycleConfig(strategy="LeastAllocated"))
    small.observe("n", allocatable=amounts(8, 16, pods=10))
    small.report(report("n", (zone(0, WHOLE),), tracked=("cpu",)))
    placed = [small.cluster.place(one({"cpu": cpu, "memory": GIB})) for cpu in (1100, 1500, 1900)]
    scores = [each.score for each in placed if isinstance(each, Placed)]
    assert len(set(scores)) == 3
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("strategy", ZONAL)
def test_what_no_zone_lists_dilutes_nothing(strategy: str) -> None:
    with_disk = World(CycleConfig(strategy=strategy))
    with_disk.node(
        "n", zone(0, WHOLE), allocatable={**amounts(8, 16, pods=10), "ephemeral-storage": 100 * GIB}
    )
    placed = with_disk.cluster.place(one({**amounts(2, 4), "ephemeral-storage": 50 * GIB}))
    assert isinstance(placed, Placed)
    assert placed.score == score(one(amounts(2, 4)), zone(0, WHOLE), strategy=strategy)


@pytest.mark.parametrize("strategy", ZONAL)
def test_a_zone_without_the_device_has_no_say(strategy: str) -> None:
    pod = one(amounts(2, 4, 1))
    assert score(pod, zone(0, WHOLE), zone(1, WITH_GPU), strategy=strategy) == score(
        pod, zone(1, WITH_GPU), strategy=strategy
    )


@pytest.mark.parametrize("strategy", ZONAL)
def test_sparse_ids_score_as_dense_ones(strategy: str) -> None:
    pod = one(amounts(2, 4))
    dense = score(pod, zone(0, WHOLE), zone(1, amounts(4, 8), WHOLE), strategy=strategy)
    assert dense == score(pod, zone(2, WHOLE), zone(63, amounts(4, 8), WHOLE), strategy=strategy)


@pytest.mark.parametrize("strategy", ZONAL)
def test_one_resource_and_none_at_all_stay_within_bounds(strategy: str) -> None:
    assert 0 <= score(one(amounts(4)), zone(0, WHOLE), strategy=strategy) <= 100
    assert 0 <= score(one({}), zone(0, WHOLE), strategy=strategy) <= 100


@pytest.mark.parametrize("strategy", ZONAL)
def test_containers_that_cannot_be_there_together_have_no_score(strategy: str) -> None:
    made = World(CycleConfig(strategy=strategy))
    made.node("n", zone(0, WHOLE))
    pod = guaranteed("p", container("a", amounts(6, 1)), container("b", amounts(6, 1)))
    assert isinstance(made.cluster.place(pod), Unplaceable)


def test_a_burstable_pod_is_scored_by_its_device() -> None:
    pod = Pod(
        uid="p",
        namespace="ns",
        name="p",
        qos="Burstable",
        containers=(container("c", amounts(1, 0, 1)),),
    )
    few, most = (score(pod, zone(0, amounts(8, 16, free), WITH_GPU)) for free in (1, 4))
    assert (few, most) == (0, 75)


def test_least_allocated_judges_a_node_by_the_zone_that_suits_best() -> None:
    """Full zones do not count: nodes with equal room in their best zone have equal scores. The
    other strategies take the worst zone that fits, because the kubelet chooses among those."""
    pod = one(amounts(4, 8))
    tight, roomy = ((zone(0, amounts(*free), WHOLE), zone(1, WHOLE)) for free in ((4, 8), (6, 12)))
    assert score(pod, *tight) == score(pod, *roomy) == score(pod, zone(1, WHOLE)) == 50
    assert (
        score(pod, *tight, strategy="MostAllocated")
        == score(pod, zone(1, WHOLE), strategy="MostAllocated")
        == 50
    )


AMOUNTS = st.tuples(st.integers(1, 8), st.integers(1, 16))


@settings(max_examples=examples(200), deadline=None)
@example([(4, 8), (8, 16)], (4, 8), [(1, 1)])
@given(
    st.lists(AMOUNTS, min_size=1, max_size=4), AMOUNTS, st.lists(AMOUNTS, min_size=1, max_size=6)
)
def test_least_allocated_never_rises_while_a_node_fills(
    free: list[tuple[int, int]], asked: tuple[int, int], others: list[tuple[int, int]]
) -> None:
    """Therefore a score cached before a reservation is an upper bound of the current score."""
    made = World(CycleConfig(strategy="LeastAllocated"))
    made.node("n", *(zone(at, amounts(*each), WHOLE) for at, each in enumerate(free)))
    node_info = made.cluster.node("n")
    assert node_info is not None
    pod_class = made.cluster.evaluator.pod_class(one(amounts(*asked)))
    last = made.cluster.evaluator.evaluate(pod_class, node_info)
    for number, fill in enumerate(others):
        other_pod = guaranteed(f"q{number}", container("c", amounts(*fill)))
        if isinstance(placed := made.cluster.place(other_pod), Placed):
            made.cluster.assume(placed, other_pod)
        score_now = made.cluster.evaluator.evaluate(pod_class, node_info)
        assert score_now <= last
        last = score_now
