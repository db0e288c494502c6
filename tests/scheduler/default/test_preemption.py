"""Preemption through the core: its victims, its refusals to name any, and the course of a
nomination.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.replay.near_miss import near_miss
from services.scheduler.handlers import dump, load
from services.scheduler.snapshot.result import Unplaceable
from shared.domain.pod import Pod
from shared.events import streams
from shared.events.binding_events import EvictRefused
from shared.events.cluster_events import PodRunning
from shared.events.scheduling_events import (
    NodeClaimed,
    NominationWithdrawn,
    PodNominated,
    PodReserved,
    PodVerdictChanged,
)
from tests.fixtures.examples import examples
from tests.ledger.given import container, held, pod, zone
from tests.scheduler.default.story import ROOMY, Story

HIGH = 1000


async def running(
    story: Story,
    *placed: tuple[Pod, int],
    sizes: tuple[int, ...] = (8, 8),
    gpus: int = 0,
    policy: str = "single-numa-node",
) -> None:
    """Confirmed pods of one container on n1, in zones of `sizes` CPUs (and `gpus` devices in zone
    0).
    """
    for made, _ in placed:
        await story.seen_bound(made, phase="Running")
    used = {
        index: [
            sum(asks(made, name) for made, where in placed if where == index) for name in RESOURCES
        ]
        for index in (0, 1)
    }
    zones = [
        zone(
            index,
            size,
            size - used[index][0] // 1000,
            gpus if not index else 0,
            gpus - used[0][1] if not index else None,
        )
        for index, size in enumerate(sizes)
    ]
    placements = tuple(
        held(made.name, where, asks(made, "cpu") // 1000, asks(made, GPU)) for made, where in placed
    )
    await story.report(*zones, placements=placements, policy=policy)


GPU = "vendor.com/gpu"
RESOURCES = ("cpu", GPU)


def asks(made: Pod, name: str) -> int:
    return made.containers[0].requests.get(name, 0)


async def nominations(story: Story) -> list[tuple[str, str, tuple[str, ...]]]:
    nominated = await story.events(PodNominated)
    return [
        (event.uid, event.node, event.victims)
        for event in nominated
        if isinstance(event, PodNominated)
    ]


async def near_misses(story: Story) -> str:
    """Return the nearest nodes of the last scheduling outcome, as `replay explain` shows them."""
    last = (await story.events(PodVerdictChanged))[-1]
    assert isinstance(last, PodVerdictChanged)
    return "\n".join(line for refusal in last.detail for line in near_miss(refusal, {}))


async def withdrawals(story: Story) -> list[str]:
    return [
        event.cause
        for event in await story.events(NominationWithdrawn)
        if isinstance(event, NominationWithdrawn)
    ]


def low(name: str, cpus: int = 4, gpus: int = 0, priority: int = 0) -> Pod:
    return pod(name, container("c", cpus, gpus), priority=priority)


async def full(*placed: tuple[Pod, int], **fields: object) -> Story:
    story = Story()
    await story.node()
    await running(story, *placed, **fields)  # type: ignore[arg-type]
    return story


async def test_the_fewest_of_the_lowest_priority_in_one_zone_are_named() -> None:
    story = await full((low("a"), 0), (low("b"), 0), (low("c", 8), 1))
    await story.arrives(pod("high", cpus=8, priority=HIGH))
    assert await story.decide() == {}
    assert await nominations(story) == [("uid-high", "n1", ("uid-c",))]
    (claimed,) = await story.events(NodeClaimed)
    assert claimed == NodeClaimed("n1", "uid-high")


async def test_victims_that_can_be_spared_are() -> None:
    story = await full(
        (low("a", 2), 0), (low("b", 2), 0), (low("c", 4), 0), (low("keep", 8, priority=HIGH), 1)
    )
    await story.arrives(pod("high", cpus=4, priority=HIGH))
    await story.decide()
    assert await nominations(story) == [("uid-high", "n1", ("uid-c",))]


async def test_of_two_zones_the_one_with_the_lower_priorities_is_cleared() -> None:
    story = await full(
        (low("a", 8, priority=10), 0), (low("b", 4, priority=5), 1), (low("c", 4, priority=5), 1)
    )
    await story.arrives(pod("high", cpus=8, priority=HIGH))
    await story.decide()
    assert await nominations(story) == [("uid-high", "n1", ("uid-b", "uid-c"))]


async def test_no_victims_are_named_that_would_only_free_room_in_two_zones() -> None:
    """Evictions could free 4 CPUs in each zone, but no zone is large enough for 8."""
    story = await full(
        (low("a"), 0),
        (low("keep0", 4, priority=HIGH), 0),
        (low("b"), 1),
        (low("keep1", 4, priority=HIGH), 1),
    )
    await story.arrives(pod("high", cpus=8, priority=HIGH))
    await story.decide()
    assert await nominations(story) == []


@pytest.mark.parametrize(("priority", "preempts"), [(0, "PreemptLowerPriority"), (HIGH, "Never")])
async def test_equal_priority_and_the_policy_never_preempt_no_pod(
    priority: int, preempts: str
) -> None:
    story = await full((low("a", 8), 0), (low("b", 8), 1))
    await story.arrives(pod("high", cpus=8, priority=priority, preemption_policy=preempts))
    await story.decide()
    assert await nominations(story) == []


async def test_a_device_decides_which_zone_is_cleared() -> None:
    story = await full((low("a", 8, gpus=1), 0), (low("b", 1), 1), gpus=1)
    await story.arrives(pod("high", container("c", 2, gpus=1), priority=HIGH))
    await story.decide()
    assert await nominations(story) == [("uid-high", "n1", ("uid-a",))]


async def test_restricted_over_two_zones_clears_what_the_set_needs() -> None:
    story = await full((low("a", 6), 0), (low("b", 6), 1), policy="restricted")
    await story.arrives(pod("high", cpus=10, priority=HIGH))
    await story.decide()
    nominated = await nominations(story)
    assert len(nominated) == 1
    assert 1 <= len(nominated[0][2]) <= 2


async def test_no_other_pod_takes_what_was_evicted_for_the_nominee() -> None:
    story = await full((low("a", 6), 0), (low("b", 8), 1))
    await story.arrives(pod("high", cpus=8, priority=HIGH))
    await story.decide()
    assert await nominations(story) == [("uid-high", "n1", ("uid-a",))]
    await story.arrives(pod("thief", cpus=2))
    assert await story.decide() == {}
    await story.ends(low("a", 6))
    assert await story.decide() == {"uid-high": "n1"}
    (reserved,) = await story.events(PodReserved)
    assert isinstance(reserved, PodReserved)
    assert reserved.nominated
    assert story.ledger_node().claims == {}


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
async def test_a_nominee_is_placed_under_every_policy_once_its_victims_are_gone(
    policy: str,
) -> None:
    story = await full((low("a", 6), 0), (low("b", 8, priority=1), 1), policy=policy)
    await story.arrives(pod("high", cpus=8, priority=HIGH))
    await story.decide()
    assert await nominations(story) == [("uid-high", "n1", ("uid-a",))]
    await story.ends(low("a", 6))
    assert await story.decide() == {"uid-high": "n1"}


async def test_no_other_pod_takes_the_nodes_amounts_for_the_nominee_either() -> None:
    """A Burstable pod needs no zone, only the CPUs of the node."""
    story = Story()
    await story.node(allocatable={**ROOMY, "cpu": 16_000})
    await running(story, (low("a", 8), 0), (low("b", 8), 1))
    await story.arrives(pod("high", cpus=8, priority=HIGH))
    await story.decide()
    await story.ends(low("a", 8))
    thief = msgspec.structs.replace(pod("thief", cpus=4), qos="Burstable")
    core = story.cores[0]
    core.decide(0)
    columns = core.cluster.columns
    assert columns is not None
    assert isinstance(columns.place(thief), Unplaceable)
    assert await story.decide() == {"uid-high": "n1"}


async def test_a_nominee_that_fits_elsewhere_meanwhile_goes_there_and_its_claim_ends() -> None:
    story = await full((low("a", 8), 0), (low("b", 8), 1))
    await story.arrives(pod("high", cpus=8, priority=HIGH))
    await story.decide()
    await story.node("n2")
    await story.report(zone(0, 8), node="n2")
    story.cores[0].queue.wake_all()
    assert await story.decide() == {"uid-high": "n2"}
    assert story.ledger_node("n1").claims == {}


async def test_a_refused_eviction_ends_the_nomination_and_spares_the_victim() -> None:
    story = await full((low("a", 8), 0), (low("b", 8, priority=1), 1))
    await story.arrives(pod("high", cpus=8, priority=HIGH))
    await story.decide()
    await story.tell(streams.pod("uid-a"), EvictRefused("uid-a", "uid-high", "budget"))
    await story.decide()
    assert await withdrawals(story) == ["an eviction was refused"]
    assert [victims for _, _, victims in await nominations(story)] == [("uid-a",), ("uid-b",)]


async def test_a_victim_spared_once_may_be_asked_again_after_a_pod_of_its_namespace_started() -> (
    None
):
    story = await full((low("a", 8), 0), (low("keep", 8, priority=HIGH), 1))
    await story.arrives(pod("high", cpus=8, priority=HIGH))
    await story.decide()
    await story.tell(streams.pod("uid-a"), EvictRefused("uid-a", "uid-high", "budget"))
    await story.decide()
    assert len(await nominations(story)) == 1
    await story.tell(streams.pod("uid-keep"), PodRunning("uid-keep", "n1"))
    await story.decide()
    assert len(await nominations(story)) == 2


async def test_a_nomination_that_no_longer_helps_is_withdrawn() -> None:
    """A foreign pod takes the zone before any pod was evicted."""
    story = await full((low("a", 4), 0), (low("keep", 8, priority=HIGH), 1))
    await story.arrives(pod("high", cpus=8, priority=HIGH))
    await story.decide()
    assert len(await nominations(story)) == 1
    await story.seen_bound(low("foreign", 4, priority=HIGH))
    await story.decide()
    assert await withdrawals(story) == ["the evictions no longer make room"]
    assert len(await nominations(story)) == 1


async def test_room_that_is_coming_anyway_is_waited_for() -> None:
    story = await full((low("a", 8), 0), (low("b", 8), 1))
    await story.seen_bound(low("a", 8), phase="Running", terminating=True)
    await story.arrives(pod("high", cpus=8, priority=HIGH))
    await story.decide()
    assert await nominations(story) == []


async def test_room_that_is_coming_on_any_node_is_waited_for() -> None:
    """Whichever node the search begins at: that depends on the pod's uid."""
    story = await full((low("a", 8), 0), (low("b", 8), 1))
    await story.node("n2")
    await story.seen_bound(low("c", 8), "n2", phase="Running")
    await story.report(zone(0, 8, 0), node="n2", placements=(held("c", 0, 8),))
    await story.seen_bound(low("c", 8), "n2", phase="Running", terminating=True)
    for number in range(6):
        await story.arrives(pod(f"high-{number}", cpus=8, priority=HIGH))
        await story.decide()
    assert await nominations(story) == []


async def test_no_pod_is_evicted_for_a_pod_that_may_fit_already_and_the_verdict_says_so() -> None:
    """No checkpoint shows whether the init container's two CPUs were reused: pessimism is no reason
    to evict.
    """
    story = Story()
    await story.node()
    first = pod("a", container("setup", cpus=2, kind="init"), container("c", cpus=4))
    await story.seen_bound(first, phase="Running")
    await story.report(zone(0, 8, 4), placements=(held("a", 0, 4),))
    await story.arrives(pod("high", cpus=3, priority=HIGH))
    await story.decide()
    assert await nominations(story) == []
    assert (
        "preemption skipped until the node's next report, because the pod may fit already"
        in await near_misses(story)
    )
    await story.arrives(pod("higher", cpus=5, priority=HIGH))
    await story.decide()
    assert await nominations(story) == [("uid-higher", "n1", ("uid-a",))]


async def test_where_no_zones_are_asked_for_eviction_needs_no_placements() -> None:
    """The node's own sums are known whatever its reports carry."""
    story = Story()
    await story.node(allocatable={"cpu": 4000, "pods": 110})
    await story.report(
        zone(0, 8), placements=None, fingerprint="pfp0v001x", fingerprint_method="all"
    )
    await story.seen_bound(shared(pod("a", cpus=3)), phase="Running")
    await story.arrives(shared(pod("high", cpus=3, priority=HIGH)))
    await story.decide()
    assert await nominations(story) == [("uid-high", "n1", ("uid-a",))]


def shared(made: Pod) -> Pod:
    """Return the pod as Burstable, so that its kubelet pins no CPUs."""
    return msgspec.structs.replace(made, qos="Burstable")


async def test_a_pod_that_cannot_be_evicted_yet_is_asked_for_once_it_is_bound() -> None:
    story = Story()
    await story.node()
    await story.report(zone(0, 8))
    await story.arrives(low("a", 8))
    assert await story.decide() == {"uid-a": "n1"}
    await story.arrives(pod("high", cpus=8, priority=HIGH))
    await story.decide()
    assert await nominations(story) == []
    await story.seen_bound(low("a", 8))
    await story.decide()
    assert await nominations(story) == [("uid-high", "n1", ("uid-a",))]


async def test_a_node_that_moved_since_the_search_is_not_claimed() -> None:
    story = Story(schedulers=2)
    await story.node()
    await running(story, (low("a", 6), 0), (low("keep", 6, priority=HIGH), 1))
    await story.arrives(pod("high", cpus=8, priority=HIGH), pod("small", cpus=2))
    first, second = story.cores
    behind = first.decide(1)
    assert any(each.counts_once_folded for each in behind)
    ahead = [each for each in second.decide(5) if each.uid == "uid-small" and each.node]
    await story.append(second, ahead)
    await story.append(first, [each for each in behind if each.counts_once_folded])
    assert await nominations(story) == []


async def test_nodes_whose_reports_carry_no_placements_evict_no_pod() -> None:
    story = Story()
    await story.node()
    await story.seen_bound(low("a", 8), phase="Running")
    await story.report(zone(0, 8, 0), placements=None)
    await story.arrives(pod("high", cpus=8, priority=HIGH))
    await story.decide()
    assert await nominations(story) == []
    assert "preemption skipped: its reports carry no placements" in await near_misses(story)


@pytest.mark.parametrize(("unconfirmed", "cpus"), [(False, 8), (True, 9)])
async def test_evictions_are_not_mentioned_if_a_victim_exists_or_none_could_help(
    unconfirmed: bool, cpus: int
) -> None:
    """8 CPUs are held by pods of equal priority; no zone will ever have 9, whichever pod ends."""
    story = await full((low("a", 7, priority=HIGH), 0), (low("b", 7, priority=HIGH), 1))
    if unconfirmed:
        await story.seen_bound(low("c", 1), phase="Running")
    await story.arrives(pod("equal", cpus=cpus, priority=HIGH))
    await story.decide()
    assert "near miss n1" in await near_misses(story)
    assert "evicted" not in await near_misses(story)


async def test_a_restart_from_a_snapshot_still_knows_the_victims() -> None:
    story = await full((low("a", 4), 0), (low("keep", 8, priority=HIGH), 1))
    await story.arrives(pod("high", cpus=8, priority=HIGH))
    await story.decide()
    old = story.cores[0]
    story.cores = [load(old.config, dump(old))]
    assert story.cores[0].nominations.open == old.nominations.open
    await story.decide()
    assert await withdrawals(story) == []
    await story.ends(low("a", 4))
    assert await story.decide() == {"uid-high": "n1"}


SIZES = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 1), st.integers(0, 2)), min_size=3, max_size=8
)


@settings(max_examples=examples(100), deadline=None)
@given(
    SIZES,
    st.lists(st.integers(1, 6), min_size=1, max_size=2),
    st.sampled_from(["single-numa-node", "restricted"]),
)
def test_every_eviction_helps_and_none_is_superfluous(
    sizes: list[tuple[int, int, int]], wants: list[int], policy: str
) -> None:
    """Once the victims have ended the nominee is placed; with one of them left it would not have
    been.
    """

    async def played() -> None:
        placed, room = [], {0: 8, 1: 8}
        for index, (cpus, where, priority) in enumerate(sizes):
            if room[where] >= cpus:
                room[where] -= cpus
                placed.append((low(f"p{index}", cpus, priority=priority), where))
        story = await full(*placed, policy=policy)
        high = pod(
            "high", *(container(f"c{index}", cpus) for index, cpus in enumerate(wants)), priority=2
        )
        await story.arrives(high)
        if await story.decide():
            return
        nominated = await nominations(story)
        if not nominated:
            return
        victims = [made for made, _ in placed if made.uid in nominated[0][2]]
        assert victims
        assert all(made.priority < 2 for made in victims)
        for made in victims:
            assert await story.decide() == {}
            await story.ends(made)
        assert await story.decide() == {"uid-high": "n1"}

    asyncio.run(played())


async def test_a_pod_of_unknown_zone_is_not_evicted_on_suspicion() -> None:
    """Until a report confirms the zone of b, b and one of a and c would have to be evicted.
    Afterwards one of them is enough.
    """
    story = Story()
    await story.node()
    await running(story, (low("a", 7), 0), (low("c", 7), 1), sizes=(14, 14))
    await story.seen_bound(low("b", 7), phase="Running")
    await story.arrives(pod("high", cpus=8, priority=HIGH))
    await story.decide()
    assert await nominations(story) == []
    assert "preemption skipped: no report shows the zone of ns/b yet" in await near_misses(story)
    zones = (zone(0, 14, 7), zone(1, 14, 0))
    await story.report(*zones, at=2, placements=(held("a", 0, 7), held("b", 1, 7), held("c", 1, 7)))
    await story.decide()
    assert await nominations(story) == [("uid-high", "n1", ("uid-a",))]
