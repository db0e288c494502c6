"""Shapes that are weighed together are answered for as each is by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.scheduler.deciding.config import CycleConfig
from services.scheduler.deciding.judge import judge
from services.scheduler.deciding.shape import Shape
from services.scheduler.deciding.verdicts.table import RULED_OUT, VerdictTable
from shared.domain.pod import Constraints, ContainerKind
from shared.events.cluster_facts import Taint
from shared.events.scheduling_facts import Wanted
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
WANTED = (Wanted(amounts(8, 16, 1), 4096), Wanted(amounts(3, 8), 256), Wanted(amounts(1, 1, 3), 512))


@pytest.mark.parametrize("strategy", ["KeepRoom", "BestFit"])
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.lists(PART, min_size=1, max_size=3), st.booleans()), min_size=1, max_size=5),
    st.lists(
        st.tuples(st.lists(FREE, min_size=1, max_size=4), st.sampled_from(("single-numa-node", "restricted")), st.booleans()),
        min_size=1,
        max_size=5,
    ),
)
def test_shapes_together_are_answered_for_like_each_by_itself(
    strategy: str,
    asked: list[tuple[list[tuple[int, int, int, str, int]], bool]],
    nodes: list[tuple[list[tuple[int, int, int]], str, bool]],
) -> None:
    world = World(CycleConfig(strategy=strategy))
    world.cluster.want(WANTED)
    for number, (zones, policy, tainted) in enumerate(nodes):
        taints = (Taint("dedicated", "", "NoSchedule"),) if tainted else ()
        found = [zone(at, amounts(*free), WHOLE) for at, free in enumerate(zones)]
        world.node(f"n{number}", *found, policy=policy, taints=taints)
    shapes = []
    for number, (parts, chosen) in enumerate(asked):
        made = [
            container(f"c{at}", amounts(cpu, memory, gpu, **({"example.com/none": other} if other else {})), KINDS[kind])
            for at, (cpu, memory, gpu, kind, other) in enumerate(parts)
        ]
        constraints = Constraints(node_selector={"no": "node"}) if chosen and number % 2 else Constraints()
        shapes.append(world.cluster.shape(guaranteed(f"p{number}", *made, constraints=constraints)))
    cluster = world.cluster
    cluster.room([])  # the columns are written
    sweeping, slots = cluster._sweeping, cluster._slots
    for _, group in cluster._columns.among(np.arange(len(nodes))):
        together = sweeping.together(shapes, group)
        by_row = {shape.row: shape for shape in shapes}
        if together.sweep is None:
            continue
        scores, sure = sweeping.run_together(together, group, slots)
        for at, row in enumerate(together.rows.tolist()):
            alone, alone_sure = sweeping.run(by_row[row], group, slots)
            assert (scores[at].tolist(), sure[at].tolist()) == (alone.tolist(), alone_sure.tolist())
            for slot, score, certain in zip(group.slots.tolist(), scores[at].tolist(), sure[at].tolist(), strict=True):
                true = plainly(world, by_row[row], slot)
                assert true == score if certain else true <= score


def plainly(world: World, shape: Shape, slot: int) -> int:
    """The node judged with nothing remembered."""
    cluster, facts = world.cluster, world.cluster.at(slot)
    plan, barred = cluster.plan(shape, facts)
    return RULED_OUT if barred else judge(shape, plan, facts, cluster.config, cluster.strategy, steps=1024)


def test_what_was_judged_since_it_changed_stays() -> None:
    table = VerdictTable()
    for slot in range(3):
        table.reserve(slot, f"n{slot}")
    table.start(0)
    table.judged(0, 1, 40)
    rows, slots = np.array([0]), np.array([0, 1, 2])
    table.ranked_together(rows, slots, np.array([[50, 60, RULED_OUT]]), np.array([[False, False, True]]))
    assert table.scores[0, :3].tolist() == [50, 40, RULED_OUT]
    assert table.sure[0, :3].tolist() == [False, True, True]
    assert table.candidates(0) == 2


def test_what_changed_is_weighed_for_every_shape_that_is_asked_for_in_turn() -> None:
    world = World(CycleConfig(strategy="KeepRoom"))
    world.cluster.want(WANTED)
    for number in range(6):
        world.node(f"n{number}", zone(0, amounts(16 - number, 64, 4), WHOLE), zone(1, amounts(16, 64 - number, 4), WHOLE))
    pods = [guaranteed(f"p{at}", container("c", amounts(1 + at, 2 + at))) for at in range(3)]
    for _ in range(3):
        for pod in pods:
            world.cluster.place(pod)
    for number in (1, 3):
        world.node(f"n{number}", zone(0, amounts(2, 64, 4), WHOLE), zone(1, amounts(16, 9, 4), WHOLE))
    world.cluster.place(pods[0])
    weighed = [len(world.cluster.verdicts.news(world.cluster.shape(pod).row)) for pod in pods]
    assert weighed == [0, 0, 0]
