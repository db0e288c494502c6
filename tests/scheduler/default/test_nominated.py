"""Amounts that another scheduler evicts pods for: from a pending pod, as the observer reads it, to
the nodes that our pods avoid.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from services.scheduler.watch.kinds import Kinds, absent
from services.scheduler.watch.seen_specs import SeenSpecs
from shared.domain.manifest import pod_from_manifest
from shared.domain.pod import Pod
from shared.events import streams
from shared.events.binding_events import PodBound
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.scheduling_events import NodeCharged, PodReserved
from shared.events.surroundings_events import NominationObserved, SurroundingEnded, stream_of
from shared.kube.port import WatchEvent
from tests.scheduler.default.story import Story
from tests.scheduler.default.test_constraints import placed, seen, world

Json = dict[str, Any]


def nominee(
    node: str = "n1", cpu: str = "63", priority: int = 0, bound: str = "", **more: Any
) -> Json:
    spec: Json = {
        "priority": priority,
        "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}],
    }
    spec |= {"nodeName": bound} if bound else {}
    metadata = {"name": "other", "namespace": "ns", "uid": "uid-other", "resourceVersion": "7"}
    return {
        "metadata": metadata,
        "spec": {**spec, **more},
        "status": {"phase": "Pending", "nominatedNodeName": node},
    }


async def shown(
    story: Story, obj: Json, kind: str = "MODIFIED", scheduler_name: str = "topolog"
) -> list[object]:
    """The observer sees a pod; return its events."""
    core = story.cores[0]
    kinds = Kinds(("topolog",), SeenSpecs())
    events = kinds.events(core.folded, scheduler_name, "pods", WatchEvent(kind, obj))
    for event in events:
        address = (
            streams.pod(event.about.pod)
            if isinstance(event, PodObserved | PodEnded)
            else stream_of(event)  # type: ignore[arg-type]
        )
        await story.tell(address, event)
    return list(events)


async def test_our_pods_leave_the_room_that_others_evict_for() -> None:
    story = await world("n1", "n2")
    (events,) = await shown(story, nominee())
    assert isinstance(events, NominationObserved)
    assert (events.key, events.node, events.requests["cpu"]) == ("ns/other", "n1", 63_000)
    assert {await placed(story, seen(f"p{number}")) for number in range(3)} == {"n1", "n2"}, (
        "n1 has one CPU more"
    )
    full = seen("late", nodeSelector={"kubernetes.io/hostname": "n1"})
    assert (
        "1 node(s) were kept free for the nominated pod ns/other of another scheduler"
        in await placed(story, full)
    )
    assert await shown(story, nominee()) == [], "told once"


async def test_a_pod_of_higher_priority_does_not_wait_for_a_nominee() -> None:
    story = await world("n1")
    await shown(story, nominee(cpu="64", priority=5))
    assert "kept free" in await placed(story, seen("equal", priority=5))
    assert await placed(story, seen("above", priority=6)) == "n1"


async def test_the_room_is_free_when_the_nomination_ends_however_it_ends() -> None:
    for obj, kind in (
        (nominee(node=""), "MODIFIED"),
        (nominee(), "DELETED"),
        (nominee() | {"status": {"phase": "Failed", "nominatedNodeName": "n1"}}, "MODIFIED"),
    ):
        story = await world("n1")
        await shown(story, nominee(cpu="64"))
        assert "kept free" in await placed(story, seen("p"))
        (ended,) = await shown(story, obj, kind)
        assert isinstance(ended, SurroundingEnded)
        assert await story.decide() == {"uid-p": "n1"}


async def test_a_nominee_that_is_bound_counts_once() -> None:
    story = await world("n1")
    await shown(story, nominee(cpu="60"))
    (events,) = await shown(story, nominee(cpu="60", bound="n1"))
    assert isinstance(events, PodObserved)
    assert not story.cores[0].folded.cluster_objects.nominations
    assert [await placed(story, seen(f"p{number}")) for number in range(4)] == ["n1"] * 4
    assert "Insufficient cpu" in await placed(story, seen("late"))


@pytest.mark.parametrize("heard_late", [False, True])
async def test_a_nominee_that_its_scheduler_has_topolog_bind_counts_once(heard_late: bool) -> None:
    """kube-scheduler 1.36 nominates a pod that waits for claims before it asks for the binding; the
    observer may see the nomination after the reservation, and no further event says that the pod is
    bound by then.
    """
    story = await world("n1")
    await story.tell("pod/uid-other", PodObserved(cast(Pod, pod_from_manifest(nominee(cpu="60")))))
    if not heard_late:
        await shown(story, nominee(cpu="60"))
    await story.tell(
        "pod/uid-other", PodReserved("uid-other", "n1", 1, 1, 1, 50, 1, {}, False, "", "")
    )
    await story.tell("node/n1", NodeCharged("n1", "uid-other"))
    if heard_late:
        await shown(story, nominee(cpu="60"))
    await story.tell("pod/uid-other", PodBound("uid-other", "n1"))
    assert [await placed(story, seen(f"p{number}")) for number in range(4)] == ["n1"] * 4
    assert "Insufficient cpu" in await placed(story, seen("late"))


async def test_our_own_nominees_hold_room_in_the_ledger_and_not_here() -> None:
    story = await world("n1")
    events = await shown(story, nominee(schedulerName="topolog"))
    assert [type(event) for event in events] == [PodObserved]


async def test_a_nominee_that_was_bound_and_ended_unseen_keeps_nothing() -> None:
    """The object of the nominee stays, as a Job's pod does, but no event mentions the pod."""
    story = await world("n1")
    await shown(story, nominee(cpu="64"))
    ended = nominee(cpu="64", bound="n1")
    events = await shown(story, {**ended, "status": {**ended["status"], "phase": "Succeeded"}})
    assert events == [SurroundingEnded("nomination", "uid-other", "unbound", "7")]
    assert await placed(story, seen("p")) == "n1"


async def test_a_nominee_that_a_list_lacks_is_gone() -> None:
    story = await world("n1")
    await shown(story, nominee())
    folded = story.cores[0].folded
    assert absent(folded, "pods", {"uid-other"}, "9") == []
    assert absent(folded, "pods", set(), "9") == [
        SurroundingEnded("nomination", "uid-other", "absent_from_list", "9")
    ]
