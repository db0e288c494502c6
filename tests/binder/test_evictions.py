"""Evictions for nominated pods: a dry run for all victims, an intent before each call, one outcome
for each intent, and none if the nomination is withdrawn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from services.binder import announcements, core, evicting, evictor
from services.binder.core import BinderState
from services.binder.evicting import Eviction
from services.binder.evictor import ROLE, Evictor
from services.binder.settings import BinderSettings
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Draft
from shared.events import streams
from shared.events.binding_events import EvictIntended, EvictRefused, PodEvicted
from shared.events.catalog import Event
from shared.events.cluster_events import ClusterListed, PodEnded, PodObserved
from shared.events.codec import decode
from shared.events.log_events import LogOpened
from shared.events.scheduling_events import (
    GangRolledBack,
    NominationWithdrawn,
    PodNominated,
    PodReserved,
)
from shared.kube.port import Answer, Lost
from shared.runtime.clock import SYSTEM_CLOCK
from shared.runtime.leadership import LeaseLost
from shared.runtime.projector import Fold, Folded, Projector
from tests.ledger.given import pod
from tests.runtime.helpers import QUICK, running, until

SETTINGS = BinderSettings(resend_after_s=0.02, resend_at_most_every_s=0.05, evict_attempts=3)
BUDGET = Answer(
    429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget."
)

BUSY = Answer(429, message="Too many requests, please try again later.")


@pytest.fixture(autouse=True)
def _brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evictor, "IDLE_S", 0.02)


class Api:
    """A Kubernetes API that only evicts. It has an answer for each victim, and records the
    calls.
    """

    def __init__(self) -> None:
        self.answers: dict[str, list[Answer | Lost]] = {}
        self.asked: list[tuple[str, bool]] = []

    async def evict(
        self, namespace: str, name: str, uid: str, dry_run: bool = False
    ) -> Answer | Lost:
        assert uid == f"uid-{name}"
        assert namespace == "ns"
        self.asked.append((name, dry_run))
        waiting = self.answers.get(name, [])
        return (waiting.pop(0) if len(waiting) > 1 else waiting[0]) if waiting else Answer(201)

    @property
    def evicted(self) -> list[str]:
        return [name for name, dry_run in self.asked if not dry_run]


class Scene:
    """A log with victims a and b on n1 and a preemptor, and one evictor that follows it."""

    def __init__(self) -> None:
        self.log = MemoryEventLog("evictions")
        self.api = Api()

    async def tell(self, uid: str, event: Event) -> None:
        await self.say(streams.pod(uid), event)

    async def say(self, stream: str, event: Event) -> None:
        await self.log.append(
            [Commit(f"told/{await self.log.head()}", "test", 0, 0, (Draft(stream, event),))]
        )

    async def nominate(self, *victims: str) -> None:
        for name in victims:
            await self.tell(f"uid-{name}", PodObserved(pod(name, cpus=1), node="n1"))
        await self.tell("uid-p", PodObserved(pod("p", cpus=2)))
        await self.tell(
            "uid-p", PodNominated("uid-p", "n1", tuple(f"uid-{name}" for name in victims))
        )

    async def outcomes(self) -> list[Event]:
        """Return the events that the evictor appended, in order."""
        events = [decode(envelope) for envelope in await self.log.read(0)]
        return [
            event
            for event in events
            if isinstance(event, EvictIntended | PodEvicted | EvictRefused)
        ]

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """Run an evictor during the block. Each is a new process that starts from the log."""
        lease = await self.log.acquire(ROLE, "me", 60)
        assert lease is not None
        hearers: list[Evictor] = []

        def after(state: BinderState, page: Folded) -> None:
            for follower in hearers:
                follower.folded(state, page)

        fold: Fold[BinderState] = Fold(core.initial, core.evolve)
        projector: Projector[BinderState] = Projector(
            "binder", self.log, fold, options=QUICK, after=after
        )
        hearers.append(Evictor(self.log, self.api, projector, SETTINGS, SYSTEM_CLOCK))  # type: ignore[arg-type]
        async with running(projector.run(), hearers[0].lead(lease)):
            yield

    async def until(self, count: int) -> list[Event]:
        """Return the outcomes once there are this many, and check shortly after that no more
        follow.
        """
        async with asyncio.timeout(60):
            while len(await self.outcomes()) < count:
                await self.log.wait(await self.log.head(), 0.02)
        await asyncio.sleep(0.1)
        return await self.outcomes()


async def test_pods_of_a_gang_that_is_rolled_back_are_evicted_all_or_none() -> None:
    scene = Scene()
    await scene.nominate("a", "b")
    await scene.tell("uid-p", NominationWithdrawn("uid-p", "n1", "test"))
    await scene.say(streams.GANGS, GangRolledBack("/ns/train", ("uid-a", "uid-b", "gone"), 3, 600))
    async with scene.leading():
        events = await scene.until(4)
    assert sorted(kinds(events)) == ["EvictIntended"] * 2 + ["PodEvicted"] * 2
    assert {event.preemptor for event in events} == {"gang ns/train"}  # type: ignore[union-attr]
    assert sorted(scene.api.evicted) == ["a", "b"]


async def test_a_budget_that_protects_one_pod_of_a_gang_saves_all() -> None:
    scene = Scene()
    await scene.nominate("a", "b")
    await scene.tell("uid-p", NominationWithdrawn("uid-p", "n1", "test"))
    scene.api.answers["b"] = [BUDGET]
    await scene.say(streams.GANGS, GangRolledBack("/ns/train", ("uid-a", "uid-b"), 3, 600))
    async with scene.leading():
        events = await scene.until(1)
    assert kinds(events) == ["EvictRefused"]
    assert scene.api.evicted == []


def test_the_event_of_an_evicted_pod_names_its_gang() -> None:
    made = announcements.preempted(core.Identity("ns", "a"), "uid-a", "gang ns/train", 0, 1)
    assert made["reason"] == "GangRolledBack"
    assert (
        made["message"] == "Evicted, because too few pods of gang ns/train were bound for too long"
    )


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


async def test_every_victim_is_intended_before_the_first_is_evicted_and_settled_after() -> None:
    scene = Scene()
    await scene.nominate("a", "b")
    async with scene.leading():
        outcomes = await scene.until(4)
    assert kinds(outcomes) == ["EvictIntended", "EvictIntended", "PodEvicted", "PodEvicted"]
    assert scene.api.asked == [("a", True), ("b", True), ("a", False), ("b", False)]
    assert outcomes[0] == EvictIntended("uid-a", "ns", "a", "uid-p")


async def test_in_a_restored_log_no_pod_is_evicted_for_a_pod_that_runs() -> None:
    scene = Scene()
    await scene.nominate("a", "b")
    await scene.say(streams.LOG, LogOpened("evictions", 2))
    async with scene.leading():
        assert await scene.until(0) == []
        await scene.tell("uid-p", PodObserved(pod("p", cpus=2), node="n1"))
        for kind in ("nodes", "pods"):
            await scene.say(streams.listing(kind), ClusterListed(kind, 2))
        assert await scene.until(0) == []
    assert scene.api.asked == []


async def test_in_a_restored_log_evictions_go_on_once_the_cluster_was_listed() -> None:
    scene = Scene()
    await scene.nominate("a")
    await scene.say(streams.LOG, LogOpened("evictions", 2))
    async with scene.leading():
        for kind in ("nodes", "pods"):
            await scene.say(streams.listing(kind), ClusterListed(kind, 2))
        assert kinds(await scene.until(2)) == ["EvictIntended", "PodEvicted"]


async def test_a_budget_that_protects_one_victim_saves_all() -> None:
    scene = Scene()
    scene.api.answers["b"] = [BUDGET]
    await scene.nominate("a", "b")
    async with scene.leading():
        outcomes = await scene.until(1)
    assert outcomes == [EvictRefused("uid-b", "uid-p", BUDGET.message)]
    assert scene.api.evicted == []
    assert scene.api.asked.count(("b", True)) == 1, (
        "other victims may do: nobody waits for this budget"
    )


async def test_a_server_that_is_too_busy_for_a_rehearsal_delays_the_eviction_only() -> None:
    scene = Scene()
    scene.api.answers["a"] = [BUSY, BUSY, Answer(201)]
    await scene.nominate("a")
    async with scene.leading():
        assert kinds(await scene.until(2)) == ["EvictIntended", "PodEvicted"]


async def test_no_victim_is_evicted_before_every_dry_run_succeeded() -> None:
    """Otherwise a pod is evicted in vain if the other victim may not be evicted after all."""
    scene = Scene()
    scene.api.answers["b"] = [BUSY, BUSY, Answer(201)]
    await scene.nominate("a", "b")
    async with scene.leading():
        await scene.until(4)
    first_eviction = next(
        index for index, (_, dry_run) in enumerate(scene.api.asked) if not dry_run
    )
    assert scene.api.asked[:first_eviction].count(("b", True)) == 3


async def test_a_budget_used_up_between_rehearsal_and_call_is_retried_and_then_refused() -> None:
    scene = Scene()
    scene.api.answers["a"] = [Answer(201), BUDGET]
    await scene.nominate("a")
    async with scene.leading():
        assert kinds(await scene.until(2)) == ["EvictIntended", "EvictRefused"]
    assert len(scene.api.evicted) == SETTINGS.evict_attempts


async def test_a_lost_answer_is_asked_for_again_until_it_is_definite() -> None:
    scene = Scene()
    scene.api.answers["a"] = [Answer(201), *[Lost("reset")] * 5, Answer(404)]
    await scene.nominate("a")
    async with scene.leading():
        assert kinds(await scene.until(2)) == ["EvictIntended", "PodEvicted"]
    assert len(scene.api.evicted) == 6


async def test_a_restart_takes_up_intents_without_outcome_and_nothing_else() -> None:
    scene = Scene()
    await scene.nominate("a", "b")
    await scene.tell("uid-a", EvictIntended("uid-a", "ns", "a", "uid-p"))
    await scene.tell("uid-b", EvictIntended("uid-b", "ns", "b", "uid-p"))
    await scene.tell("uid-b", PodEvicted("uid-b", "uid-p"))
    async with scene.leading():
        await scene.until(4)
    async with scene.leading():
        await asyncio.sleep(0.1)
    assert scene.api.asked == [("a", False)]


class Slow(Api):
    """An API whose dry runs are answered on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()

    async def evict(
        self, namespace: str, name: str, uid: str, dry_run: bool = False
    ) -> Answer | Lost:
        answer = await super().evict(namespace, name, uid, dry_run)
        await self.go_on.wait()
        return answer


@pytest.mark.parametrize(
    ("meanwhile", "evicted"),
    [
        (("uid-p", NominationWithdrawn("uid-p", "n1", "changed")), []),
        (("uid-a", PodEnded("uid-a", "deleted")), ["b"]),
        (("uid-p", PodNominated("uid-p", "n1", ("uid-b",))), ["b"]),
    ],
)
async def test_a_victim_that_ends_while_a_rehearsal_is_answered_is_not_intended(
    meanwhile: tuple[str, Event], evicted: list[str]
) -> None:
    """The real server needs 10 s for some answers. The intent for an ended pod would have had no
    namespace and name.
    """
    scene = Scene()
    scene.api = api = Slow()
    await scene.nominate("a", "b")
    async with scene.leading():
        await until(lambda: len(api.asked) == 2)
        await scene.tell(*meanwhile)
        await asyncio.sleep(0.1)
        api.go_on.set()
        outcomes = await scene.until(2 * len(evicted))
    assert outcomes == [
        kind
        for name in evicted
        for kind in (
            EvictIntended(f"uid-{name}", "ns", name, "uid-p"),
            PodEvicted(f"uid-{name}", "uid-p"),
        )
    ]
    assert api.evicted == evicted


async def test_a_withdrawn_nomination_calls_off_what_was_not_called_yet() -> None:
    scene = Scene()
    await scene.nominate("a", "b")
    await scene.tell("uid-a", EvictIntended("uid-a", "ns", "a", "uid-p"))
    await scene.tell("uid-p", NominationWithdrawn("uid-p", "n1", "changed"))
    async with scene.leading():
        outcomes = await scene.until(2)
    assert kinds(outcomes) == ["EvictIntended", "EvictRefused"]
    assert scene.api.asked == []


# -- the fold and the judgement
# --------------------------------------------------------------------------------------------------


def folded(*events: Event) -> dict[str, Eviction]:
    evictions: dict[str, Eviction] = {}
    for event in events:
        evicting.evolve(evictions, event, {"uid-a", "uid-b"})
    return evictions


NOMINATED = PodNominated("uid-p", "n1", ("uid-a", "uid-b", "uid-gone"))


def test_victims_that_are_gone_are_not_asked_for() -> None:
    assert sorted(folded(NOMINATED)) == ["uid-a", "uid-b"]


@pytest.mark.parametrize(
    "end",
    [
        NominationWithdrawn("uid-p", "n1", "changed"),
        PodReserved("uid-p", "n2"),
        PodEnded("uid-p", "deleted"),
        PodObserved(pod("p", cpus=2), node="n2"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_whatever_ends_a_nomination_ends_what_it_asked_for(end: Event) -> None:
    assert folded(NOMINATED, end) == {}


def test_a_later_nomination_takes_over_a_victim() -> None:
    state = folded(
        NOMINATED,
        NominationWithdrawn("uid-p", "n1", "changed"),
        PodNominated("uid-q", "n1", ("uid-a",)),
    )
    assert state == {"uid-a": Eviction("uid-a", "uid-q")}


@pytest.mark.parametrize(
    ("status", "attempts", "kind"),
    [
        (201, 1, PodEvicted),
        (404, 1, PodEvicted),
        (409, 1, PodEvicted),
        (429, 3, EvictRefused),
        (500, 3, EvictRefused),
        (403, 1, EvictRefused),
        (429, 2, str),
        (503, 1, str),
        (0, 99, str),
        (401, 1, str),
        (401, 3, EvictRefused),
    ],
)
def test_answers_mean_what_they_mean(status: int, attempts: int, kind: type) -> None:
    assert isinstance(evicting.judge(Eviction("uid-a", "uid-p"), status, "m", attempts, 3), kind)


@pytest.mark.parametrize(("attempts", "kind"), [(1, str), (3, EvictRefused)])
def test_a_right_that_is_missing_may_be_that_of_a_server_which_has_just_started(
    attempts: int, kind: type
) -> None:
    message = (
        'pods "a" is forbidden: User "u" cannot create resource "pods/eviction" in API '
        'group "" in the namespace "n"'
    )
    assert isinstance(evicting.judge(Eviction("uid-a", "uid-p"), 403, message, attempts, 3), kind)


async def test_an_evictor_that_was_overtaken_writes_nothing_and_gives_up_the_lease() -> None:
    scene = Scene()
    lease = await scene.log.acquire(ROLE, "paused", 60)
    assert lease is not None
    await scene.log.release(lease)
    assert await scene.log.acquire(ROLE, "new", 60) is not None
    await scene.nominate("a")
    fold: Fold[BinderState] = Fold(core.initial, core.evolve)
    projector: Projector[BinderState] = Projector("binder", scene.log, fold, options=QUICK)
    paused = Evictor(scene.log, scene.api, projector, SETTINGS, SYSTEM_CLOCK)  # type: ignore[arg-type]
    async with running(projector.run()):
        with pytest.raises(LeaseLost):
            await asyncio.wait_for(paused.lead(lease), 60)
    assert await scene.outcomes() == []
    assert scene.api.evicted == []
