"""Answers about pods that Topolog did not place, that ended, and that wait."""

from __future__ import annotations

import msgspec

from services.replay.explain import explain
from services.replay.recomputing import Deciding
from services.replay.why_not import why_not
from services.scheduler.snapshot.config import CycleConfig, Provenance
from shared.events import streams
from shared.events.cluster_events import PodEnded, PodObserved
from tests.ledger.given import container, pod, zone
from tests.scheduler.default.story import Story

DECIDING = Deciding(CycleConfig(), Provenance())


async def rejected_on_n1(story: Story) -> None:
    """The default scheduler sends a pod of 6 CPUs to two zones of 6 CPUs that hold 4 each."""
    await story.node("n1")
    await story.report(zone(0, 6), zone(1, 6), node="n1")
    await story.arrives(pod("first", container("c", 4)), pod("second", container("c", 4)))
    await story.decide()
    foreign = msgspec.structs.replace(
        pod("foreign", container("c", 6)), scheduler_name="default-scheduler"
    )
    await story.tell(streams.pod("uid-foreign"), PodObserved(foreign, node="n1", phase="Pending"))
    ended = PodEnded("uid-foreign", "rejected", "n1", "TopologyAffinityError", "no alignment")
    await story.tell(streams.pod("uid-foreign"), ended)


async def test_a_foreign_pod_that_was_rejected_shows_zones_and_holders_of_that_moment() -> None:
    story = Story()
    await rejected_on_n1(story)
    (story_lines,) = await explain(story.log, "ns/foreign", DECIDING)
    details = [text for line in story_lines.lines for text in line.detail]
    assert any("before it reached n1" in text for text in details)
    assert any("zone 0" in text and "ns/first" in text for text in details), details


async def test_why_not_answers_for_a_pod_that_ended_and_says_for_which_moment() -> None:
    story = Story()
    await rejected_on_n1(story)
    answer = await why_not(story.log, "foreign", "n1", "", CycleConfig())
    assert answer.refusal["reason"]
    assert answer.when == "just before it was placed; the pod has ended"


async def test_a_waiting_pod_shows_what_it_waits_for_now() -> None:
    """An outcome is only appended if it changes, and a node came since."""
    story = Story()
    await story.node("n1")
    await story.report(zone(0, 2), zone(1, 2), node="n1")
    await story.arrives(pod("large", container("c", 6)))
    await story.decide()
    await story.node("n2")
    await story.report(zone(0, 8), zone(1, 8), node="n2")
    (story_lines,) = await explain(story.log, "large", DECIDING)
    assert story_lines.current.startswith("waits since")
    assert "it fits n2" in story_lines.current
