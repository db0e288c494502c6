"""Bulk scores of a pod class equal those of each node evaluated alone. A node that is sure in bulk
is decided by bounds alone: a search could end undecided, so that earlier questions would change the
answer.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from services.scheduler.score.ranks import RULED_OUT
from services.scheduler.select.evaluate import evaluate_node
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.pod_class import PodClass
from shared.domain.pod import Constraints, ContainerKind
from shared.events.cluster_events import Taint
from shared.events.scheduling_events import Wanted
from tests.fixtures.examples import examples
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, zone

WHOLE = amounts(16, 64, 4)
FREE = st.tuples(st.integers(0, 16), st.integers(0, 64), st.integers(0, 4))
PART = st.tuples(
    st.integers(1, 20),
    st.integers(1, 16),
    st.integers(0, 1),
    st.sampled_from(("app", "app", "app", "init")),
    st.sampled_from((0, 0, 0, 1)),
)
KINDS: dict[str, ContainerKind] = {"app": "app", "init": "init"}
WANTED = (
    Wanted(amounts(8, 16, 1), 4096),
    Wanted(amounts(3, 8), 256),
    Wanted(amounts(1, 1, 3), 512),
)


@pytest.mark.parametrize("strategy", ["KeepRoom", "BestFit"])
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.lists(PART, min_size=1, max_size=3), st.booleans()), min_size=1, max_size=5
    ),
    st.lists(
        st.tuples(
            st.lists(FREE, min_size=1, max_size=4),
            st.sampled_from(("single-numa-node", "restricted", "best-effort", "none")),
            st.booleans(),
        ),
        min_size=1,
        max_size=5,
    ),
)
@example(
    [([(1, 1, 0, "app", 0)] * 2, False)], [([(1, 1, 0), (1, 1, 0)], "single-numa-node", False)]
)
def test_bulk_scores_are_those_of_each_node_alone(
    strategy: str,
    asked: list[tuple[list[tuple[int, int, int, str, int]], bool]],
    nodes: list[tuple[list[tuple[int, int, int]], str, bool]],
) -> None:
    world = World(CycleConfig(strategy=strategy))
    world.cluster.rank_by(WANTED)
    for number, (zones, policy, tainted) in enumerate(nodes):
        taints = (Taint("dedicated", "", "NoSchedule"),) if tainted else ()
        zones_seen = [zone(at, amounts(*free), WHOLE) for at, free in enumerate(zones)]
        world.node(f"n{number}", *zones_seen, policy=policy, taints=taints)
    shapes = []
    for number, (parts, chosen) in enumerate(asked):
        made = [
            container(
                f"c{at}",
                amounts(cpu, memory, gpu, **({"example.com/none": other} if other else {})),
                KINDS[kind],
            )
            for at, (cpu, memory, gpu, kind, other) in enumerate(parts)
        ]
        constraints = (
            Constraints(node_selector={"no": "node"}) if chosen and number % 2 else Constraints()
        )
        shapes.append(
            world.cluster.evaluator.pod_class(
                guaranteed(f"p{number}", *made, constraints=constraints)
            )
        )
    cluster = world.cluster
    cluster.places([])  # the columns are written
    bulk = cluster.evaluator._bulk
    every = np.arange(len(nodes))
    for pod_class in shapes:
        for where, selected in bulk.parted(pod_class, every):
            scores, sure = bulk.run(pod_class, selected)
            for slot, score, certain in zip(
                every[where].tolist(), scores.tolist(), sure.tolist(), strict=True
            ):
                if certain:
                    assert plainly(world, pod_class, slot, steps=0) == score
                true = plainly(world, pod_class, slot)
                assert true == score if certain else true <= score


def plainly(world: World, pod_class: PodClass, slot: int, steps: int = 1024) -> int:
    """Return the filter result of the node without any cache."""
    cluster, events = world.cluster, world.cluster.evaluator.node_at(slot)
    plan, barred = cluster.evaluator.plan(pod_class, events)
    return (
        RULED_OUT
        if barred
        else evaluate_node(
            pod_class, plan, events, cluster.config, cluster.evaluator.strategy, steps
        )
    )


@pytest.mark.parametrize(("parts", "passes"), [(2, True), (3, False)])
def test_more_parts_side_by_side_than_zones_have_room_for_need_no_search(
    parts: int, passes: bool
) -> None:
    """Each part fits either zone, but two parts never fit one zone."""
    world = World(CycleConfig())
    world.node(
        "n0", *(zone(at, amounts(9, 20), WHOLE) for at in range(2)), policy="single-numa-node"
    )
    asked = [container(f"c{at}", amounts(5 + at, 4)) for at in range(parts)]
    pod_class = world.cluster.evaluator.pod_class(guaranteed("p", *asked))
    world.cluster.evaluator.evaluate_all_if_new(pod_class)
    table = world.cluster.evaluator.cache
    assert table.sure[pod_class.row, 0]
    assert (
        (table.scores[pod_class.row, 0] > RULED_OUT)
        == (plainly(world, pod_class, 0, steps=0) > RULED_OUT)
        == passes
    )
