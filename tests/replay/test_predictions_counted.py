"""The reservations that a comparison of predictions counts, and their groups."""

from __future__ import annotations

import pytest

from services.replay.filters import FilterError
from services.replay.predictions import predictions
from services.scheduler.snapshot.config import CycleConfig
from shared.events import streams
from shared.events.scheduling_events import NodeCharged, PodReserved, ReservationWithdrawn
from tests.ledger.given import held, pod, zone
from tests.scheduler.default.story import Story

A = pod("a", cpus=4)


async def reserve(story: Story, node: str) -> None:
    await story.tell(streams.pod(A.uid), PodReserved(A.uid, node, 1, predicted={"c": (0,)}))
    await story.tell(streams.node(node), NodeCharged(node, A.uid))


async def two_nodes() -> Story:
    story = Story()
    for name in ("n1", "n2"):
        await story.node(name)
        await story.report(zone(0, 8), zone(1, 8), node=name)
    await story.arrives(A)
    return story


async def test_a_pod_that_ended_before_its_proof_is_counted_as_unproven() -> None:
    story = await two_nodes()
    await reserve(story, "n1")
    await story.ends(A)
    counted = await predictions(story.log, "policy", 10, CycleConfig())
    assert (counted.groups, counted.misses, counted.unproven) == ([], [], 1)


async def test_a_withdrawn_reservation_counts_nowhere_and_the_next_one_once() -> None:
    story = await two_nodes()
    await reserve(story, "n1")
    await story.tell(streams.pod(A.uid), ReservationWithdrawn(A.uid, "n1", "node_ended"))
    await reserve(story, "n2")
    await story.report(zone(0, 8, 4), zone(1, 8), node="n2", at=2, placements=(held("a", 0, 4),))
    counted = await predictions(story.log, "node", 10, CycleConfig())
    assert [(group.name, group.predicted, group.hit) for group in counted.groups] == [("n2", 1, 1)]
    assert counted.unproven == 0


async def test_another_grouping_is_refused_with_the_choice() -> None:
    with pytest.raises(FilterError, match="--by 'zone': write one of policy, node"):
        await predictions(Story().log, "zone", 10, CycleConfig())
