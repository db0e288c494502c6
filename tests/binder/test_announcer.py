"""Announcements are a courtesy: bounded, only the newest of a pod, and never in the way of
binding.
"""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest

from services.binder import announcer as module
from services.binder import core, pending_announcements
from services.binder.announcer import Announcer
from shared.events.binding_events import EvictIntended, EvictRefused, PodBound, PodEvicted
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.codec import encode, type_of
from shared.events.envelope import Envelope
from shared.events.scheduling_events import (
    NodeSetAside,
    PodNominated,
    PodReserved,
    PodVerdictChanged,
)
from shared.kube.port import Answer, Lost, Object
from tests.ledger.given import pod
from tests.runtime.helpers import running, until


class Slow:
    """An API server that answers on demand."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.patched: Answer | Lost | None = None
        self.said: list[str] = []
        self.patches: list[Object] = []
        self.events: list[Object] = []
        self.answer: Answer | Lost = Answer(201)

    async def patch_pod_status(self, _namespace: str, _name: str, patch: Object) -> Answer | Lost:
        self.patches.append(patch)
        return self.patched or self.answer

    async def create_event(self, namespace: str, event: Object) -> Answer | Lost:
        await self.go.wait()
        if event["metadata"]["namespace"] != namespace:
            return Answer(
                400,
                "BadRequest",
                "the namespace of the provided object does not match that of the request",
            )
        self.said.append(f"{event['involvedObject']['name']}: {event['message']}")
        self.events.append(event)
        return self.answer


def is_last(said: list[str], text: str) -> bool:
    return said[-1:] == [text]


class Told:
    """The binder's fold with an announcer."""

    def __init__(self) -> None:
        self.kube = Slow()
        self.announcer = Announcer(self.kube, "topolog")  # type: ignore[arg-type]
        self.announcer.enabled = True
        self.state = core.initial()

    def tell(self, stream: str, *events: Event, time_us: int = 0) -> None:
        """Fold these events as one page."""
        page = []
        for event in events:
            position = self.state.position + 1
            envelope = Envelope(
                position,
                stream,
                position,
                type_of(event),
                1,
                encode(event),
                time_us,
                "t",
                0,
                str(position),
            )
            core.evolve(self.state, envelope, event)
            page.append((envelope, event))
        self.announcer.folded(self.state, page)

    def verdict(self, name: str, message: str, time_us: int = 0) -> None:
        if f"uid-{name}" not in self.state.pods:
            self.tell(f"pod/uid-{name}", PodObserved(pod(name)))
        self.tell(f"pod/uid-{name}", PodVerdictChanged(f"uid-{name}", message), time_us=time_us)


async def test_of_several_verdicts_only_the_newest_is_announced() -> None:
    scene = Told()
    for message in ("first", "second", "third"):
        scene.verdict("a", message)
    scene.kube.go.set()
    async with running(scene.announcer.run()):
        await until(lambda: scene.kube.said)
        await asyncio.sleep(0.02)
    assert scene.kube.said == ["a: third"]


async def test_a_full_queue_drops_the_oldest_and_keeps_the_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pending_announcements, "PENDING_PODS", 3)
    scene = Told()
    for number in range(10):
        scene.verdict(f"p{number}", "waits")
    scene.kube.go.set()
    async with running(scene.announcer.run()):
        await until(lambda: len(scene.kube.said) == 3)
        await asyncio.sleep(0.02)
    assert sorted(scene.kube.said) == ["p7: waits", "p8: waits", "p9: waits"]


@pytest.mark.parametrize("answer", [Lost("cut"), Answer(500), Answer(403)])
async def test_an_api_that_refuses_announcements_stops_nothing(answer: Answer | Lost) -> None:
    scene = Told()
    scene.kube.answer = answer
    scene.kube.go.set()
    async with running(scene.announcer.run()) as (task,):
        for name in "abc":
            scene.verdict(name, "waits")
        await until(lambda: set(scene.kube.said) == {"a: waits", "b: waits", "c: waits"})
        assert not task.done()


BUSY = Answer(429, message="Too many requests, please try again later.", retry_after_s=0.01)
STARTING = Answer(
    403,
    "Forbidden",
    'pods "a" is forbidden: User "u" cannot patch resource "pods/status" in API group ""',
)
ENDS = Answer(
    403, "Forbidden", "unable to create new content in namespace ns because it is being terminated"
)


@pytest.mark.parametrize("unjudged", [Lost("cut"), Answer(500), BUSY, STARTING])
async def test_a_condition_that_was_not_judged_is_written_again(
    unjudged: Answer | Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Autoscalers read the condition, and an unchanged outcome is announced only once."""
    monkeypatch.setattr(module, "AGAIN_AFTER_S", 0.01)
    scene = Told()
    scene.kube.go.set()
    scene.kube.patched = unjudged
    async with running(scene.announcer.run()):
        scene.verdict("a", "waits")
        await until(lambda: len(scene.kube.patches) > 2)
        scene.kube.patched = None
        await until(lambda: not scene.announcer.pending and not scene.announcer.pending.in_flight)
        written = len(scene.kube.patches)
        await asyncio.sleep(0.05)
    assert len(scene.kube.patches) == written


async def test_an_announcement_is_not_repeated_after_the_binding_or_a_newer_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "AGAIN_AFTER_S", 0.01)
    scene = Told()
    scene.kube.patched = BUSY
    async with running(scene.announcer.run()):
        for name in "ab":
            scene.verdict(name, "old")
        await until(lambda: scene.announcer.pending.in_flight == 2)
        scene.tell("pod/uid-a", PodBound("uid-a", "n1"))
        scene.verdict("b", "new")
        scene.kube.patched = None
        scene.kube.go.set()
        await until(lambda: not scene.announcer.pending and not scene.announcer.pending.in_flight)
        await asyncio.sleep(0.05)
    assert [patch["status"]["conditions"][0]["message"] for patch in scene.kube.patches] == [
        "old",
        "old",
        "new",
    ]


async def test_a_final_refusal_is_announced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_AFTER_S", 0.01)
    monkeypatch.setattr(pending_announcements, "TRIES", 3)
    scene = Told()
    scene.kube.go.set()
    for answer, tries in ((ENDS, 1), (Answer(422), 1), (BUSY, 3)):
        scene.kube.answer, scene.kube.said = answer, []
        async with running(scene.announcer.run()):
            scene.verdict("a", f"waits {answer.status}")
            await until(
                lambda: not scene.announcer.pending and not scene.announcer.pending.in_flight
            )
            await asyncio.sleep(0.05)
        assert len(scene.kube.said) == tries


async def test_of_a_pod_that_is_gone_there_is_no_event() -> None:
    """Under load on a real API server every sixth Event was about an ended pod."""
    scene = Told()
    scene.kube.go.set()
    scene.kube.patched = Answer(404, "NotFound", 'pods "a" not found')
    scene.verdict("a", "first")
    async with running(scene.announcer.run()):
        await until(lambda: len(scene.kube.patches) == 1)
        scene.kube.patched = None
        scene.verdict("b", "second")
        await until(lambda: scene.kube.said)
    assert scene.kube.said == ["b: second"]


async def test_a_standby_announces_lasting_messages_once_it_leads() -> None:
    """The previous leader may have been killed between the event and the call."""
    scene = Told()
    scene.kube.go.set()
    scene.announcer.enabled = False
    async with running(scene.announcer.run()):
        for name in "abc":
            scene.verdict(name, "waits")
        scene.tell("pod/uid-a", PodBound("uid-a", "n1"))
        scene.tell("pod/uid-b", PodEnded("uid-b", cause="deleted"))
        await asyncio.sleep(0.05)
        assert scene.kube.said == []
        scene.announcer.enabled = True
        await until(lambda: scene.kube.said)
        await asyncio.sleep(0.05)
    assert scene.kube.said == ["c: waits"]


async def test_a_leader_that_starts_announces_nothing_older_than_its_reading_of_the_log() -> None:
    """Thousands of bindings were announced twice, and verdicts of pods that were bound a page
    later.
    """
    scene, caught_up = Told(), asyncio.Event()
    scene.kube.go.set()
    scene.announcer.enabled = False
    async with running(scene.announcer.run(), scene.announcer.lead(Reading(caught_up))):  # type: ignore[arg-type]
        for name in "ab":
            scene.verdict(name, "waits")
            await asyncio.sleep(0.02)
        scene.tell("pod/uid-a", PodBound("uid-a", "n1"))
        await asyncio.sleep(0.02)
        assert (scene.kube.said, scene.kube.patches) == ([], [])
        caught_up.set()
        await until(lambda: scene.kube.said)
        scene.tell("pod/uid-b", PodBound("uid-b", "n2"))
        await until(lambda: len(scene.kube.said) > 1)
    assert scene.kube.said == ["b: waits", "b: Successfully assigned ns/b to n2"]
    assert not scene.announcer.enabled, "the lease is lost"


class Reading:
    """A fold that has not reached the end of the log yet."""

    def __init__(self, caught_up: asyncio.Event) -> None:
        self.wait_live = caught_up.wait


INTENDED = EvictIntended("uid-v", "ns", "v", "uid-p")
EVICTED = PodEvicted("uid-v", "uid-p")
ENDED = PodEnded("uid-v", cause="deleted")


@pytest.mark.parametrize(
    "pages",
    [
        [[INTENDED], [EVICTED]],
        [[INTENDED], [ENDED], [EVICTED]],
        [[INTENDED, EVICTED, ENDED]],
        [[INTENDED, ENDED, EVICTED]],
    ],
    ids=["alive", "ended before it is settled", "all at once", "all at once, ended first"],
)
async def test_a_victim_gets_the_event_that_kube_scheduler_writes(pages: list[list[Event]]) -> None:
    scene = Told()
    scene.kube.go.set()
    scene.tell("pod/uid-v", PodObserved(pod("v"), node="n1"))
    scene.tell("pod/uid-p", PodNominated("uid-p", "n1", ("uid-v",)))
    for page in pages:
        scene.tell("pod/uid-v", *page)
    async with running(scene.announcer.run()):
        await until(lambda: scene.kube.events)
        await asyncio.sleep(0.02)
    (event,) = scene.kube.events
    assert (event["type"], event["reason"]) == ("Normal", "Preempted")
    assert event["message"] == "Preempted by pod uid-p on node n1"
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "ns",
        "name": "v",
        "uid": "uid-v",
    }


async def test_a_victim_that_may_not_go_gets_no_event() -> None:
    scene = Told()
    scene.kube.go.set()
    scene.tell("pod/uid-v", PodObserved(pod("v"), node="n1"))
    scene.tell("pod/uid-v", INTENDED, EvictRefused("uid-v", "uid-p", "a budget"))
    scene.verdict("other", "waits")
    async with running(scene.announcer.run()):
        await until(lambda: scene.kube.said)
        await asyncio.sleep(0.02)
    assert scene.kube.said == ["other: waits"]


async def test_a_binding_is_announced_for_own_pods_only() -> None:
    scene = Told()
    scene.kube.go.set()
    theirs = msgspec.structs.replace(pod("theirs"), scheduler_name="default-scheduler")
    for bound_pod in (theirs, pod("own")):
        scene.tell(f"pod/{bound_pod.uid}", PodObserved(bound_pod), PodBound(bound_pod.uid, "n1"))
    async with running(scene.announcer.run()):
        await until(lambda: scene.kube.said)
        await asyncio.sleep(0.02)
    assert scene.kube.said == ["own: Successfully assigned ns/own to n1"]


async def test_an_excluded_node_gets_an_event_with_pod_and_cause() -> None:
    scene = Told()
    scene.kube.go.set()
    scene.tell("pod/uid-a", PodObserved(pod("a")))
    scene.tell(
        "node/n1", NodeSetAside("n1", "shape", "rejected", "TopologyAffinityError", "uid-a", 3)
    )
    scene.tell("node/n2", NodeSetAside("n2", "shape", "denied", "a policy", "uid-gone", 4))
    async with running(scene.announcer.run()):
        await until(lambda: len(scene.kube.events) == 2)
    first, second = scene.kube.events
    assert first["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "n1",
        "uid": "n1",
    }
    assert (first["metadata"]["namespace"], first["reason"]) == ("default", "NodeExcluded")
    assert first["message"] == (
        "Node excluded for pods like ns/a: its kubelet rejected a pod (TopologyAffinityError). "
        "The exclusion ends by itself. Override: topolog node readmit n1"
    )
    assert second["message"].startswith(
        "Node excluded for a class of pods: an admission policy denied a binding (a policy)."
    )


async def test_another_reason_to_wait_is_no_transition_of_the_condition() -> None:
    scene = Told()
    scene.kube.go.set()
    async with running(scene.announcer.run()):
        for second, message in ((60, "too little cpu"), (120, "too little memory")):
            scene.verdict("a", message, second * 1_000_000)
            await until(partial(is_last, scene.kube.said, f"a: {message}"))
    said = [patch["status"]["conditions"][0] for patch in scene.kube.patches]
    assert [condition_patch["message"] for condition_patch in said] == [
        "too little cpu",
        "too little memory",
    ]
    assert [condition_patch["lastTransitionTime"] for condition_patch in said] == [
        "1970-01-01T00:01:00Z"
    ] * 2


async def test_the_condition_names_the_generation_of_the_spec_that_was_seen_last() -> None:
    """No generation without one from the API server, as before Kubernetes 1.33."""
    scene = Told()
    scene.kube.go.set()
    async with running(scene.announcer.run()):
        for generation in (0, 1, 2):
            scene.tell("pod/uid-a", PodObserved(pod("a"), generation=generation))
            scene.verdict("a", f"waits {generation}")
            await until(partial(is_last, scene.kube.said, f"a: waits {generation}"))
    said = [patch["status"]["conditions"][0] for patch in scene.kube.patches]
    assert [condition_patch.get("observedGeneration") for condition_patch in said] == [None, 1, 2]


async def test_preferences_without_effect_become_a_condition_once_the_pod_is_bound() -> None:
    scene = Told()
    scene.kube.go.set()
    stream = "pod/uid-a"
    scene.tell(
        stream,
        PodObserved(pod("a")),
        PodReserved("uid-a", "n1", without_effect=("kai.scheduler/queue",)),
    )
    scene.tell(stream, PodObserved(pod("b")), PodReserved("uid-b", "n1"), PodBound("uid-b", "n1"))
    assert scene.kube.patches == []
    scene.tell(stream, PodBound("uid-a", "n1"), time_us=5_000_000)
    async with running(scene.announcer.run()):
        await until(lambda: scene.kube.patches)
        await asyncio.sleep(0.02)
    (patch,) = scene.kube.patches
    (entry,) = patch["status"]["conditions"]
    assert entry == {
        "type": "topolog.io/PreferencesKept",
        "status": "False",
        "reason": "NoEffect",
        "message": "pod label kai.scheduler/queue (KAI-Scheduler) had no effect: "
        "Topolog has no queues; use ResourceQuota or Kueue",
        "lastTransitionTime": "1970-01-01T00:00:05Z",
    }


async def test_a_reservation_elsewhere_replaces_what_had_no_effect() -> None:
    scene = Told()
    scene.kube.go.set()
    scene.tell(
        "pod/uid-a",
        PodObserved(pod("a")),
        PodReserved("uid-a", "n1", without_effect=("kai.scheduler/queue",)),
        PodReserved("uid-a", "n2"),
        PodBound("uid-a", "n2"),
    )
    async with running(scene.announcer.run()):
        await until(lambda: scene.kube.said)
        await asyncio.sleep(0.02)
    assert scene.kube.patches == []


ZONE_DETAIL = ({"node": "n1", "reason": "no single zone", "resource": "cpu", "asked": 8000},)


async def test_a_pod_that_waits_for_a_zone_has_a_condition_until_it_is_bound() -> None:
    scene = Told()
    scene.kube.go.set()
    scene.tell(
        "pod/uid-a",
        PodObserved(pod("a")),
        PodVerdictChanged("uid-a", "waits", detail=ZONE_DETAIL),
    )
    async with running(scene.announcer.run()):
        await until(lambda: scene.kube.patches)
        scene.tell("pod/uid-a", PodReserved("uid-a", "n1"), PodBound("uid-a", "n1"))
        await until(lambda: len(scene.kube.patches) == 2)
    waiting, bound = [patch["status"]["conditions"] for patch in scene.kube.patches]
    assert [(entry["type"], entry["status"], entry["message"]) for entry in waiting] == [
        ("PodScheduled", "False", "waits"),
        (
            "topolog.io/ZoneAvailable",
            "False",
            "The pod waits for a zone, not for a node: it requests 8 cpu together.",
        ),
    ]
    assert [(entry["type"], entry["status"], entry["reason"]) for entry in bound] == [
        ("topolog.io/ZoneAvailable", "True", "NotWaiting")
    ]


async def test_a_pod_that_waits_for_a_node_has_no_condition_of_zones() -> None:
    scene = Told()
    scene.kube.go.set()
    scene.verdict("a", "0/1 nodes are available: 1 Insufficient cpu.")
    async with running(scene.announcer.run()):
        await until(lambda: scene.kube.patches)
        await asyncio.sleep(0.02)
    (patch,) = scene.kube.patches
    assert [entry["type"] for entry in patch["status"]["conditions"]] == ["PodScheduled"]
