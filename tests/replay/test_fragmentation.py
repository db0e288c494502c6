"""`replay fragmentation`: the room for pod classes equals what the kubelet model admits one after
another, and is never above what the free amounts would hold at best.
"""

from __future__ import annotations

from itertools import count

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.replay.filters import FilterError
from services.replay.fragmentation import RoomOfNodes, fragmentation
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.state.state import SchedulerState
from shared.domain.pod import Pod
from shared.kubelet.admission import admit, start_containers
from shared.kubelet.machine import KubeletState
from tests.ledger.given import container, pod, zone
from tests.scheduler.default.story import Story
from tests.scheduler.kubelet_worlds import NODE
from tests.scheduler.preemption_scenes import full_node, world_of
from tests.scheduler.test_cycle_soundness import RULES


def admitted_in_a_row(state: KubeletState, wanted: Pod) -> int:
    """Return how many such pods the kubelet model admits one after another."""
    for number in count():
        name = f"more-{number}"
        result = admit(state, msgspec.structs.replace(wanted, uid=name, name=name))
        if not result.admitted:
            return number
        state = start_containers(result.state, msgspec.structs.replace(wanted, uid=name, name=name))
    raise AssertionError


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(RULES))
def test_room_is_what_the_kubelet_admits_one_after_another(
    seed: int, rule: tuple[str, str]
) -> None:
    full = full_node(seed, *rule, inits=False)
    wanted = msgspec.structs.replace(full.pod, qos="Guaranteed")
    if rule[0] not in ("single-numa-node", "restricted") or not wanted.containers[0].requests:
        return
    ledger = world_of(full).ledger
    room = RoomOfNodes(SchedulerState(ledger=ledger), CycleConfig()).of(ledger.nodes[NODE], wanted)
    assert room.fits == sum(room.zones.values())
    print(seed, rule, room, admitted_in_a_row(full.state, wanted))
    assert room.fits == admitted_in_a_row(full.state, wanted)
    assert room.fits <= room.at_best


async def two_split_nodes() -> Story:
    story = Story()
    for node in ("n1", "n2"):
        await story.node(node)
        await story.report(zone(0, 6), zone(1, 6), node=node)
    await story.arrives(pod("a", container("c", 4)), pod("b", container("c", 4)))
    await story.decide()
    return story


async def test_room_is_counted_by_node_and_zone_at_any_position() -> None:
    story = await two_split_nodes()
    at_head = await fragmentation(story.log, "head", CycleConfig(), 10)
    (room,) = at_head.classes
    assert (room.request, room.pods, room.waiting) == ("cpu 4", 2, 0)
    assert room.fits < room.at_best
    assert 0 < room.lost_percent < 100
    assert [node.node for node in room.nodes] == ["n1", "n2"]
    assert (await fragmentation(story.log, "2", CycleConfig(), 10)).classes == ()
    only = await fragmentation(story.log, "head", CycleConfig(), 10, "n2")
    assert [node.node for node in only.classes[0].nodes] == ["n2"]
    with pytest.raises(FilterError, match="no node 'n3'"):
        await fragmentation(story.log, "head", CycleConfig(), 10, "n3")


async def test_a_node_that_never_takes_the_class_loses_nothing() -> None:
    story = await two_split_nodes()
    await story.arrives(pod("wide", container("c", 7)))
    await story.decide()
    wide = next(
        room
        for room in (await fragmentation(story.log, "head", CycleConfig(), 10)).classes
        if room.waiting
    )
    assert (wide.fits, wide.at_best, wide.nodes, wide.lost_percent) == (0, 0, (), 0)
