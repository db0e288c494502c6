"""`replay predict` decides as the scheduler would at the head of the log."""

from __future__ import annotations

import msgspec
import pytest

from services.replay.filters import UnknownPod
from services.replay.predicting import predict
from services.replay.recomputing import Deciding
from services.scheduler.snapshot.config import CycleConfig, Provenance
from shared.events import streams
from shared.events.cluster_events import PodEnded, PodObserved
from tests.ledger.given import container, pod, zone
from tests.scheduler.default.story import Story

DECIDING = Deciding(CycleConfig(), Provenance())


async def two_zones_of_six(story: Story) -> None:
    await story.node("n1")
    await story.report(zone(0, 6), zone(1, 6), node="n1")


async def test_a_waiting_pod_gets_the_node_and_zones_that_the_next_decision_takes() -> None:
    story = Story()
    await two_zones_of_six(story)
    await story.arrives(pod("a", container("c", 4)))
    answer = await predict(story.log, "ns/a", DECIDING)
    assert (answer.node, answer.zones, answer.certain) == ("n1", {"c": (0,)}, True)
    assert answer.answer == "would go to n1, predicted on zone 0 (for certain)"
    await story.decide()
    placed = await predict(story.log, "ns/a", DECIDING)
    assert (placed.node, placed.zones) == (answer.node, answer.zones)
    assert placed.answer.startswith("is on n1 already (reserved), predicted on zone 0")


async def test_a_pod_that_fits_nowhere_would_wait_and_says_why() -> None:
    story = Story()
    await two_zones_of_six(story)
    await story.arrives(pod("large", container("c", 7)))
    answer = await predict(story.log, "large", DECIDING)
    assert answer.node == ""
    assert answer.answer.startswith("would wait: 0/1 nodes are available: ")


async def test_pods_that_are_not_decided_here_have_no_prediction() -> None:
    story = Story()
    await two_zones_of_six(story)
    foreign = msgspec.structs.replace(pod("foreign", container("c", 4)), scheduler_name="other")
    await story.tell(streams.pod("uid-foreign"), PodObserved(foreign))
    assert (await predict(story.log, "foreign", DECIDING)).answer == (
        "is not Topolog's: its scheduler is other"
    )
    await story.tell(streams.pod("uid-foreign"), PodEnded("uid-foreign", "deleted"))
    assert (await predict(story.log, "foreign", DECIDING)).answer.startswith("has ended")
    with pytest.raises(UnknownPod):
        await predict(story.log, "nobody", DECIDING)
