"""Telling people is a courtesy: bounded, the newest first to count, and never in the way of
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
from shared.events.scheduling_events import NodeSetAside, PodNominated, PodVerdictChanged
from shared.kube.port import Answer, Lost, Object
from tests.ledger.given import pod
from tests.runtime.helpers import running, until


class Slow:
    """An API server that answers when it is let."""

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
    """The binder's fold with an announcer beside it."""

    def __init__(self) -> None:
        self.kube = Slow()
        self.announcer = Announcer(self.kube, "topolog")  # type: ignore[arg-type]
        self.announcer.enabled = True
        self.state = core.initial()

    def tell(self, stream: str, *events: Event, time_us: int = 0) -> None:
        """Fold these facts as one page."""
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


async def test_of_several_verdicts_only_the_newest_is_told() -> None:
    told = Told()
    for message in ("first", "second", "third"):
        told.verdict("a", message)
    told.kube.go.set()
    async with running(told.announcer.run()):
        await until(lambda: told.kube.said)
        await asyncio.sleep(0.02)
    assert told.kube.said == ["a: third"]


async def test_a_full_queue_drops_the_oldest_and_keeps_the_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pending_announcements, "PENDING_PODS", 3)
    told = Told()
    for number in range(10):
        told.verdict(f"p{number}", "waits")
    told.kube.go.set()
    async with running(told.announcer.run()):
        await until(lambda: len(told.kube.said) == 3)
        await asyncio.sleep(0.02)
    assert sorted(told.kube.said) == ["p7: waits", "p8: waits", "p9: waits"]


@pytest.mark.parametrize("answer", [Lost("cut"), Answer(500), Answer(403)])
async def test_an_api_that_refuses_announcements_stops_nothing(answer: Answer | Lost) -> None:
    told = Told()
    told.kube.answer = answer
    told.kube.go.set()
    async with running(told.announcer.run()) as (task,):
        for name in "abc":
            told.verdict(name, "waits")
        await until(lambda: set(told.kube.said) == {"a: waits", "b: waits", "c: waits"})
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
    """Autoscalers look for it, and a verdict that stays is told once."""
    monkeypatch.setattr(module, "AGAIN_AFTER_S", 0.01)
    told = Told()
    told.kube.go.set()
    told.kube.patched = unjudged
    async with running(told.announcer.run()):
        told.verdict("a", "waits")
        await until(lambda: len(told.kube.patches) > 2)
        told.kube.patched = None
        await until(lambda: not told.announcer.pending and not told.announcer.pending.in_flight)
        written = len(told.kube.patches)
        await asyncio.sleep(0.05)
    assert len(told.kube.patches) == written


async def test_nothing_is_told_again_of_a_pod_that_was_bound_or_where_a_newer_verdict_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "AGAIN_AFTER_S", 0.01)
    told = Told()
    told.kube.patched = BUSY
    async with running(told.announcer.run()):
        for name in "ab":
            told.verdict(name, "old")
        await until(lambda: told.announcer.pending.in_flight == 2)
        told.tell("pod/uid-a", PodBound("uid-a", "n1"))
        told.verdict("b", "new")
        told.kube.patched = None
        told.kube.go.set()
        await until(lambda: not told.announcer.pending and not told.announcer.pending.in_flight)
        await asyncio.sleep(0.05)
    assert [patch["status"]["conditions"][0]["message"] for patch in told.kube.patches] == [
        "old",
        "old",
        "new",
    ]


async def test_what_is_refused_for_good_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_AFTER_S", 0.01)
    monkeypatch.setattr(pending_announcements, "TRIES", 3)
    told = Told()
    told.kube.go.set()
    for answer, tries in ((ENDS, 1), (Answer(422), 1), (BUSY, 3)):
        told.kube.answer, told.kube.said = answer, []
        async with running(told.announcer.run()):
            told.verdict("a", f"waits {answer.status}")
            await until(lambda: not told.announcer.pending and not told.announcer.pending.in_flight)
            await asyncio.sleep(0.05)
        assert len(told.kube.said) == tries


async def test_of_a_pod_that_is_gone_there_is_no_event() -> None:
    """In a storm on a real API server every sixth event was one."""
    told = Told()
    told.kube.go.set()
    told.kube.patched = Answer(404, "NotFound", 'pods "a" not found')
    told.verdict("a", "first")
    async with running(told.announcer.run()):
        await until(lambda: len(told.kube.patches) == 1)
        told.kube.patched = None
        told.verdict("b", "second")
        await until(lambda: told.kube.said)
    assert told.kube.said == ["b: second"]


async def test_a_standby_tells_what_still_holds_when_it_leads() -> None:
    """The leader may have died between the fact and the call."""
    told = Told()
    told.kube.go.set()
    told.announcer.enabled = False
    async with running(told.announcer.run()):
        for name in "abc":
            told.verdict(name, "waits")
        told.tell("pod/uid-a", PodBound("uid-a", "n1"))
        told.tell("pod/uid-b", PodEnded("uid-b", cause="deleted"))
        await asyncio.sleep(0.05)
        assert told.kube.said == []
        told.announcer.enabled = True
        await until(lambda: told.kube.said)
        await asyncio.sleep(0.05)
    assert told.kube.said == ["c: waits"]


async def test_a_leader_that_starts_tells_nothing_that_was_so_before_it_had_read_the_log() -> None:
    """Thousands of bindings were told once more, and verdicts of pods that were bound a page
    later.
    """
    told, caught_up = Told(), asyncio.Event()
    told.kube.go.set()
    told.announcer.enabled = False
    async with running(told.announcer.run(), told.announcer.lead(Reading(caught_up))):  # type: ignore[arg-type]
        for name in "ab":
            told.verdict(name, "waits")
            await asyncio.sleep(0.02)
        told.tell("pod/uid-a", PodBound("uid-a", "n1"))
        await asyncio.sleep(0.02)
        assert (told.kube.said, told.kube.patches) == ([], [])
        caught_up.set()
        await until(lambda: told.kube.said)
        told.tell("pod/uid-b", PodBound("uid-b", "n2"))
        await until(lambda: len(told.kube.said) > 1)
    assert told.kube.said == ["b: waits", "b: Successfully assigned ns/b to n2"]
    assert not told.announcer.enabled, "the lease is lost"


class Reading:
    """A fold on its way to the end of the log."""

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
    told = Told()
    told.kube.go.set()
    told.tell("pod/uid-v", PodObserved(pod("v"), node="n1"))
    told.tell("pod/uid-p", PodNominated("uid-p", "n1", ("uid-v",)))
    for page in pages:
        told.tell("pod/uid-v", *page)
    async with running(told.announcer.run()):
        await until(lambda: told.kube.events)
        await asyncio.sleep(0.02)
    (event,) = told.kube.events
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
    told = Told()
    told.kube.go.set()
    told.tell("pod/uid-v", PodObserved(pod("v"), node="n1"))
    told.tell("pod/uid-v", INTENDED, EvictRefused("uid-v", "uid-p", "a budget"))
    told.verdict("other", "waits")
    async with running(told.announcer.run()):
        await until(lambda: told.kube.said)
        await asyncio.sleep(0.02)
    assert told.kube.said == ["other: waits"]


async def test_a_binding_is_told_for_own_pods_and_left_to_the_schedulers_of_others() -> None:
    told = Told()
    told.kube.go.set()
    theirs = msgspec.structs.replace(pod("theirs"), scheduler_name="default-scheduler")
    for each in (theirs, pod("own")):
        told.tell(f"pod/{each.uid}", PodObserved(each), PodBound(each.uid, "n1"))
    async with running(told.announcer.run()):
        await until(lambda: told.kube.said)
        await asyncio.sleep(0.02)
    assert told.kube.said == ["own: Successfully assigned ns/own to n1"]


async def test_an_excluded_node_gets_an_event_with_pod_and_cause() -> None:
    told = Told()
    told.kube.go.set()
    told.tell("pod/uid-a", PodObserved(pod("a")))
    told.tell(
        "node/n1", NodeSetAside("n1", "shape", "rejected", "TopologyAffinityError", "uid-a", 3)
    )
    told.tell("node/n2", NodeSetAside("n2", "shape", "denied", "a policy", "uid-gone", 4))
    async with running(told.announcer.run()):
        await until(lambda: len(told.kube.events) == 2)
    first, second = told.kube.events
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
    told = Told()
    told.kube.go.set()
    async with running(told.announcer.run()):
        for second, message in ((60, "too little cpu"), (120, "too little memory")):
            told.verdict("a", message, second * 1_000_000)
            await until(partial(is_last, told.kube.said, f"a: {message}"))
    said = [patch["status"]["conditions"][0] for patch in told.kube.patches]
    assert [one["message"] for one in said] == ["too little cpu", "too little memory"]
    assert [one["lastTransitionTime"] for one in said] == ["1970-01-01T00:01:00Z"] * 2


async def test_the_condition_names_the_generation_of_the_spec_that_was_seen_last() -> None:
    """And none where the API server told none: of a server before Kubernetes 1.33."""
    told = Told()
    told.kube.go.set()
    async with running(told.announcer.run()):
        for generation in (0, 1, 2):
            told.tell("pod/uid-a", PodObserved(pod("a"), generation=generation))
            told.verdict("a", f"waits {generation}")
            await until(partial(is_last, told.kube.said, f"a: waits {generation}"))
    said = [patch["status"]["conditions"][0] for patch in told.kube.patches]
    assert [one.get("observedGeneration") for one in said] == [None, 1, 2]
