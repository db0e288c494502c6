"""An event wakes exactly the waiting pods that it may help: no more, so that a freed zone does not
wake thousands of pods, and no fewer.
"""

from __future__ import annotations

import pytest

from shared.events import streams
from shared.events.binding_events import BindRefused
from shared.events.scheduling_events import ReservationWithdrawn
from tests.ledger.given import container, held, pod, zone
from tests.scheduler.default.story import Story

SMALL, LARGE = pod("small", cpus=2), pod("large", cpus=6)
WITH_GPU = pod("gpu", container("c", 1, gpus=1))


@pytest.fixture
async def full() -> Story:
    """One zone of 8 CPUs and 1 GPU, all held by four confirmed pods; pods of three classes wait."""
    story = Story()
    await story.node()
    holders = [pod(f"h{i}", cpus=2) for i in range(3)] + [pod("hg", container("c", 2, gpus=1))]
    for holder in holders:
        await story.seen_bound(holder)
    placements = (*(held(f"h{i}", 0, 2) for i in range(3)), held("hg", 0, 2, 1))
    await story.report(zone(0, 8, 0, 1, 0), placements=placements)
    await story.arrives(SMALL, LARGE, WITH_GPU)
    assert await story.decide() == {}
    assert story.ready() == []
    return story


async def test_an_end_wakes_the_shape_that_now_fits_and_no_other(full: Story) -> None:
    await full.ends(pod("h0", cpus=2))
    assert full.ready() == ["uid-small"]


async def test_an_end_that_frees_a_device_wakes_pods_that_wait_for_it(full: Story) -> None:
    await full.ends(pod("hg"))
    assert full.ready() == ["uid-small", "uid-gpu"]


async def test_enough_ends_wake_the_large_one_too(full: Story) -> None:
    for number in range(3):
        await full.ends(pod(f"h{number}"))
    assert full.ready() == ["uid-small", "uid-large"]


async def test_an_unchanged_report_wakes_no_pod(full: Story) -> None:
    placements = (*(held(f"h{i}", 0, 2) for i in range(3)), held("hg", 0, 2, 1))
    await full.report(zone(0, 8, 0, 1, 0), at=2, placements=placements)
    assert full.ready() == []


async def test_a_new_node_wakes_only_the_shapes_that_it_could_hold(full: Story) -> None:
    await full.node("n2")
    await full.report(zone(0, 4), node="n2")
    assert full.ready() == ["uid-small"]


async def test_a_node_without_a_report_wakes_no_pod_that_needs_alignment(full: Story) -> None:
    await full.node("n2")
    assert full.ready() == []


async def test_the_end_of_a_waiting_pod_wakes_no_other(full: Story) -> None:
    await full.ends(SMALL)
    assert full.ready() == []


async def test_one_pod_of_a_shape_is_woken_and_the_next_when_that_one_was_placed(
    full: Story,
) -> None:
    twins = [pod(f"twin{number}", cpus=2) for number in range(3)]
    await full.arrives(*twins)
    assert await full.decide() == {}
    await full.ends(pod("h0"))
    await full.ends(pod("h1"))
    assert full.ready() == ["uid-small"]
    assert await full.decide() == {"uid-small": "n1", "uid-twin0": "n1"}


async def test_a_confirmation_wakes_pods_that_wait_for_the_other_zones_of_a_charge() -> None:
    story = Story()
    await story.node()
    await story.report(zone(0, 8), zone(1, 8))
    await story.seen_bound(pod("a", cpus=6))
    await story.arrives(pod("b", cpus=6), pod("c", cpus=6))
    assert await story.decide() == {"uid-b": "n1"}
    await story.report(zone(0, 8, 2), zone(1, 8), at=2, placements=(held("a", 0, 6),))
    assert story.ready() == []
    await story.ends(pod("b"))
    assert story.ready() == ["uid-c"]


@pytest.mark.parametrize("cause", ["withdrawn", "gone", "terminating"])
async def test_a_reservation_that_falls_through_wakes_its_successor(cause: str) -> None:
    story = Story()
    await story.node()
    await story.report(zone(0, 8))
    first = pod("a", cpus=6)
    await story.arrives(first, pod("b", cpus=6))
    assert await story.decide() == {"uid-a": "n1"}
    event = (
        ReservationWithdrawn(first.uid, "n1", "node_ended")
        if cause == "withdrawn"
        else BindRefused(first.uid, "n1", cause, 'pods "a" not found')
    )
    await story.tell(streams.pod(first.uid), event)
    expected = ["uid-a", "uid-b"] if cause == "withdrawn" else ["uid-b"]
    assert story.ready() == expected


async def test_a_repeated_verdict_is_counted_and_not_a_event() -> None:
    story = Story()
    await story.node()
    await story.report(zone(0, 4))
    await story.arrives(LARGE)
    await story.decide()
    await story.node(labels={"changed": "yes"})
    await story.report(zone(0, 4), at=2)
    core = story.cores[0]
    core.queue.wake_all()
    await story.decide()
    assert core.counters.repeated_verdicts == 1
    assert len(await story.verdicts(LARGE)) == 1
