"""Preemption if CPUs and devices must come from one zone, or one set of zones: single-numa-node and
restricted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from itertools import combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.scheduler.filter.topology.fit import ADMITTED, filter_result
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import PodClass
from shared.domain.pod import Pod
from shared.domain.report import Zone, ZoneResource
from shared.events import streams
from shared.events.cluster_events import PodRunning
from shared.events.scheduling_events import PodNominated
from shared.ledger.what_if import what_if
from tests.fixtures.examples import examples
from tests.ledger.given import container, held, pod
from tests.scheduler.default.story import Story

GPU = "vendor.com/gpu"
HIGH = 1000
BOTH = ["single-numa-node", "restricted"]
Placed = tuple[Pod, int]


def low(name: str, cpus: int, gpus: int = 0, priority: int = 0) -> Pod:
    return pod(name, container("c", cpus, gpus), priority=priority)


def asks(made: Pod, name: str) -> int:
    return made.containers[0].requests.get(name, 0)


def node_zone(number: int, placed: list[Placed], cpus: int, gpus: int) -> Zone:
    """A zone of `cpus` CPUs and `gpus` devices less what the pods in it hold."""
    used = [
        sum(asks(made, name) for made, where in placed if where == number) for name in ("cpu", GPU)
    ]
    resources = {"cpu": ZoneResource(cpus * 1000, cpus * 1000, cpus * 1000 - used[0])}
    if gpus:
        resources[GPU] = ZoneResource(gpus, gpus, gpus - used[1])
    return Zone(number, resources, {})


async def full(
    placed: list[Placed], policy: str, zones: int = 2, cpus: int = 8, gpus: tuple[int, ...] = (2, 2)
) -> Story:
    """Return a world in which these pods run on n1, each confirmed in its zone."""
    story = Story()
    await story.node()
    for made, _ in placed:
        await story.seen_bound(made, phase="Running")
        await story.tell(streams.pod(made.uid), PodRunning(made.uid, "n1"))
    listed = tuple(
        held(made.name, where, asks(made, "cpu") // 1000, asks(made, GPU)) for made, where in placed
    )
    made_zones = [node_zone(number, placed, cpus, gpus[number]) for number in range(zones)]
    await story.report(*made_zones, placements=listed, policy=policy)
    return story


async def victims(story: Story) -> list[tuple[str, ...]]:
    return [
        event.victims
        for event in await story.events(PodNominated)
        if isinstance(event, PodNominated)
    ]


@pytest.mark.parametrize("policy", BOTH)
async def test_only_the_pod_that_holds_the_device_and_enough_cpus_is_evicted(policy: str) -> None:
    """Zone 0 has free CPUs and a held device, zone 1 a free device and held CPUs: one eviction in
    either is enough.
    """
    placed = [
        (low("device", 1, 2), 0),
        (low("cpus", 7, priority=5), 1),
        (low("other", 1, 1, priority=HIGH), 1),
    ]
    story = await full(placed, policy)
    await story.arrives(pod("high", container("c", 4, 1), priority=HIGH))
    await story.decide()
    assert await victims(story) == [("uid-device",)]
    await story.ends(placed[0][0])
    assert await story.decide() == {"uid-high": "n1"}


@pytest.mark.parametrize("policy", BOTH)
async def test_no_pod_is_evicted_for_a_device_of_one_zone_and_cpus_of_the_other(
    policy: str,
) -> None:
    """All possible victims leave the devices in zone 0 and the CPUs in zone 1."""
    placed = [(low("keep", 6, 0, HIGH), 0), (low("device", 2, 2), 0), (low("cpus", 8), 1)]
    story = await full(placed, policy, gpus=(2, 0))
    await story.arrives(pod("high", container("c", 4, 1), priority=HIGH))
    await story.decide()
    assert await victims(story) == []


async def test_restricted_clears_devices_of_two_zones_for_a_pod_that_needs_both() -> None:
    """Three devices are in no zone: both zones are needed, for the CPUs too, and a pod without
    devices may stay.
    """
    placed = [(low("a", 2, 2), 0), (low("b", 2, 2), 1), (low("plain", 2), 0)]
    story = await full(placed, "restricted")
    await story.arrives(pod("high", container("c", 10, 3), priority=HIGH))
    await story.decide()
    assert await victims(story) == [("uid-a", "uid-b")]
    for made in (placed[0][0], placed[1][0]):
        assert await story.decide() == {}
        await story.ends(made)
    assert await story.decide() == {"uid-high": "n1"}


@pytest.mark.parametrize("policy", BOTH)
async def test_the_nominees_device_is_not_taken_by_a_pod_of_lower_priority(policy: str) -> None:
    placed = [(low("device", 1, 2), 0), (low("keep", 8, 2, HIGH), 1)]
    story = await full(placed, policy)
    await story.arrives(pod("high", container("c", 4, 2), priority=HIGH))
    await story.decide()
    assert await victims(story) == [("uid-device",)]
    await story.arrives(low("thief", 1, 1))
    await story.ends(placed[0][0])
    assert await story.decide() == {"uid-high": "n1"}
    assert [uid for uid, _ in await story.reservations()] == ["uid-high"]


PODS = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 2), st.integers(0, 1), st.integers(0, 2)),
    min_size=2,
    max_size=7,
)
WANTS = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 3)), min_size=1, max_size=2)


@pytest.mark.parametrize("policy", BOTH)
def test_every_eviction_helps_none_is_superfluous_and_none_that_would_help_is_missed(
    policy: str,
) -> None:
    """Compared with every set of victims, each judged afresh. In the examples more free amounts are
    worse: a first container could leave the zone that the second one needs.
    """

    @settings(max_examples=examples(100), deadline=None)
    @given(PODS, WANTS)
    @example([(1, 1, 0, 0), (2, 1, 0, 1), (2, 0, 0, 1)], [(1, 2), (5, 1)])
    @example([(1, 1, 0, 0), (1, 1, 1, 0), (2, 0, 0, 2), (2, 0, 0, 2)], [(1, 2), (5, 1)])
    def check(drawn: list[tuple[int, int, int, int]], wants: list[tuple[int, int]]) -> None:
        asyncio.run(played(policy, standing(drawn), wants))

    check()


def standing(drawn: list[tuple[int, int, int, int]]) -> list[Placed]:
    """Return the drawn pods for which their zone has room."""
    placed: list[Placed] = []
    for number, (cpus, gpus, where, priority) in enumerate(drawn):
        used = [
            sum(asks(made, name) for made, at in placed if at == where) for name in ("cpu", GPU)
        ]
        if used[0] + cpus * 1000 <= 8000 and used[1] + gpus <= 2:
            placed.append((low(f"p{number}", cpus, gpus, priority), where))
    return placed


async def played(policy: str, placed: list[Placed], wants: list[tuple[int, int]]) -> None:
    story = await full(placed, policy)
    high = pod("high", *(container(f"c{at}", *each) for at, each in enumerate(wants)), priority=2)
    free_min = {made.uid: made.priority for made, _ in placed if made.priority < 2}
    helping = [set(gone) for gone in subsets(free_min) if helps(story, high, gone)]
    await story.arrives(high)
    reserved = await story.decide()
    assert bool(reserved) is (set() in helping)
    if reserved:
        return
    nominated = await victims(story)
    assert bool(nominated) is bool(helping)
    if nominated:
        assert set(nominated[0]) in helping
        assert not any(
            set(fewer) in helping
            for fewer in subsets(nominated[0])
            if len(fewer) < len(nominated[0])
        )
        cost = min((max(free_min[uid] for uid in each), len(each)) for each in helping)
        assert (max(free_min[uid] for uid in nominated[0]), len(nominated[0])) == cost


def subsets(uids: Collection[str]) -> list[tuple[str, ...]]:
    return [chosen for size in range(len(uids) + 1) for chosen in combinations(sorted(uids), size)]


def helps(story: Story, high: Pod, gone: tuple[str, ...]) -> bool:
    """Would the node surely take the pod without these?"""
    config = CycleConfig()
    core = story.cores[0]
    node = what_if(core.ledger.nodes["n1"], frozenset(gone), core.ledger.pods, high.uid)
    node_info = NodeInfo("n1", 0)
    node_info.update_from(node, config)
    pod_class = PodClass("", high, 0)
    return (
        filter_result(
            node_info,
            pod_class,
            pod_class.plan(node_info.profile),
            config,
            config.steps_last_resort,
        )
        == ADMITTED
    )
