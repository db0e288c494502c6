"""Gangs that are bound in part: of two that wait for each other, one is rolled back."""

from __future__ import annotations

from typing import Any

import pytest

from services.binder import core as binder
from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.queue.shard import Shard
from services.scheduler.snapshot.config import GANG_TIMEOUT_S
from services.scheduler.state.cluster_objects import ClusterObjects
from services.scheduler.watch.cluster_objects import event_of
from shared.domain.gang import (
    KOORDINATOR_MIN,
    KOORDINATOR_NAME,
    WAITING_TIME,
    Gang,
    GangRules,
    gang_of,
)
from shared.eventlog.port import Appended, Conflict
from shared.events import streams
from shared.events.binding_events import EvictIntended, EvictRefused, PodEvicted
from shared.events.cluster_events import PodObserved
from shared.events.codec import decode
from shared.events.scheduling_events import GangRolledBack, PodReserved
from shared.events.surroundings_events import PodGroupObserved
from tests.ledger.given import pod, zone
from tests.scheduler.default.story import Story, foreign
from tests.scheduler.default.test_gangs import in_one_commit, member, world


class Halves(Story):
    """Two gangs of three, each with two bound pods and one waiting, on four full nodes."""

    async def begin(self, schedulers: int = 1, **of_old: Any) -> None:
        for number in range(4):
            await self.node(f"n{number}")
            await self.report(zone(0, 4), node=f"n{number}")
        self.old = [member(f"old{n}", gang="old", **of_old) for n in range(3)]
        self.new = [member(f"new{n}", gang="new") for n in range(3)]
        await self.arrives(self.old[2], self.new[2])
        for number, made in enumerate((*self.old[:2], *self.new[:2])):
            await self.seen_bound(made, f"n{number}")

    async def at(self, now_s: float, core: int = 0) -> list[GangRolledBack]:
        """Decide at this time until nothing is left; return all roll-backs so far."""
        for _ in range(5):
            await self.append(self.cores[core], self.cores[core].decide(100, now_s))
        return await self.events(GangRolledBack)

    async def evicted(self, event: GangRolledBack) -> None:
        """The binder evicts, and the kubelets end the pods."""
        for made in (*self.old, *self.new):
            if made.uid in event.uids:
                stream = streams.pod(made.uid)
                await self.tell(stream, EvictIntended(made.uid, "ns", made.name, event.preemptor))
                await self.tell(stream, PodEvicted(made.uid, event.preemptor))
        for made in (*self.old, *self.new):
            if made.uid in event.uids:
                await self.ends(made)


async def halves(**of_old: Any) -> Halves:
    story = Halves()
    await story.begin(**of_old)
    return story


async def test_of_two_gangs_bound_in_part_the_younger_yields_and_the_other_starts() -> None:
    story = await halves()
    assert await story.at(0.0) == []
    assert await story.at(GANG_TIMEOUT_S - 1) == []
    (rolled,) = await story.at(GANG_TIMEOUT_S)
    assert rolled == GangRolledBack("/ns/new", ("uid-new0", "uid-new1"), 3, int(GANG_TIMEOUT_S))
    assert (await story.verdicts(story.new[2]))[-1] == (
        "gang ns/new waits until its evicted pods have ended; only they were bound for too long"
    )
    await story.evicted(rolled)
    assert await story.at(GANG_TIMEOUT_S + 1) == [rolled]
    assert await in_one_commit(story) == [{"old2"}]
    again = [member(f"again{n}", gang="new") for n in range(2)]
    await story.arrives(*again)
    await story.at(GANG_TIMEOUT_S + 2)
    assert "2 of 3 pods fit" not in (await story.verdicts(story.new[2]))[-1]
    assert (await story.verdicts(story.new[2]))[-1].startswith("gang ns/new: 1 of 3 pods fit")
    for made in story.old:
        await story.ends(made)
    await story.at(GANG_TIMEOUT_S + 3)
    assert await in_one_commit(story) == [{"old2"}, {"again0", "again1", "new2"}]


async def test_the_gang_of_the_lower_priority_yields_whatever_its_age() -> None:
    story = await halves(priority=-1)
    await story.at(0.0)
    (rolled,) = await story.at(GANG_TIMEOUT_S)
    assert rolled.gang == "/ns/old"


async def test_the_other_gang_gets_its_time_again_and_yields_if_that_helped_nothing() -> None:
    story = await halves()
    await story.at(0.0)
    (rolled,) = await story.at(GANG_TIMEOUT_S)
    await story.evicted(rolled)
    await story.seen_bound(foreign(pod("thief0", cpus=4)), "n2")
    await story.seen_bound(foreign(pod("thief1", cpus=4)), "n3")
    assert len(await story.at(2 * GANG_TIMEOUT_S - 1)) == 1
    (_, second) = await story.at(2 * GANG_TIMEOUT_S)
    assert second.gang == "/ns/old"


async def test_a_gang_that_was_whole_once_keeps_its_pods() -> None:
    story = await world(4, 4)
    gang = Gang("ns/train", api="podgroup.x-k8s.io")
    stream = "podgroup.x-k8s.io/ns/train"
    await story.tell(stream, PodGroupObserved("podgroup.x-k8s.io", "ns/train", 2))
    for number in range(2):
        await story.seen_bound(pod(f"p{number}", cpus=4, gang=gang), f"n{number}")
    await story.arrives(pod("p2", cpus=4, gang=gang))
    await story.tell(stream, PodGroupObserved("podgroup.x-k8s.io", "ns/train", 3))
    for now_s in (0.0, 2 * GANG_TIMEOUT_S):
        await story.append(story.cores[0], story.cores[0].decide(100, now_s))
    assert await story.events(GangRolledBack) == []


async def test_a_gang_whose_minimum_was_lowered_to_its_bound_pods_keeps_them() -> None:
    story = await world(4, 4)
    gang = Gang("ns/train", api="podgroup")
    rules = GangRules("only-waiting")
    await story.tell("podgroup/ns/train", PodGroupObserved("podgroup", "ns/train", 3, rules=rules))
    for number in range(2):
        await story.seen_bound(pod(f"p{number}", cpus=4, gang=gang), f"n{number}")
    await story.arrives(pod("p2", cpus=4, gang=gang))
    await story.tell("podgroup/ns/train", PodGroupObserved("podgroup", "ns/train", 2, rules=rules))
    for now_s in (0.0, 2 * GANG_TIMEOUT_S):
        await story.append(story.cores[0], story.cores[0].decide(100, now_s))
    assert await story.events(GangRolledBack) == []


@pytest.mark.parametrize("kept", ["other scheduler", "static", "setting"])
async def test_pods_that_are_not_ours_or_without_a_timeout_are_not_evicted(kept: str) -> None:
    story = await world(4)
    if kept == "setting":
        story.cores = [SchedulerCore(CoreConfig(gang_timeout_s=0))]
        await story.fold()
    made = member("a", size=2)
    made = foreign(made) if kept == "other scheduler" else made
    await story.seen_bound(made, "n0", **({"static": True} if kept == "static" else {}))
    await story.arrives(member("b", size=2))
    for now_s in (0.0, 2 * GANG_TIMEOUT_S):
        await story.append(story.cores[0], story.cores[0].decide(100, now_s))
    assert await story.events(GangRolledBack) == []


async def test_a_refused_eviction_leaves_the_gang_as_it_was_for_another_time() -> None:
    story = await halves()
    await story.at(0.0)
    (rolled,) = await story.at(GANG_TIMEOUT_S)
    await story.tell(
        "pod/uid-new0", EvictRefused("uid-new0", rolled.preemptor, "disruption budget")
    )
    await story.at(GANG_TIMEOUT_S)
    assert (await story.verdicts(story.new[2]))[-1].startswith("gang ns/new: 2 of 3 pods fit")
    assert len(await story.at(2 * GANG_TIMEOUT_S - 1)) == 1
    assert [event.gang for event in await story.at(2 * GANG_TIMEOUT_S)] == ["/ns/new"] * 2


async def test_a_roll_back_and_a_reservation_of_the_gang_exclude_each_other() -> None:
    story = await halves()
    await story.at(0.0)
    core = story.cores[0]
    proposals = core.decide(100, GANG_TIMEOUT_S)
    assert any(isinstance(d.event, GangRolledBack) for p in proposals for d in p.drafts)
    await story.tell("pod/uid-new2", PodObserved(story.new[2], node="n0"))
    outcomes = await story.append(core, proposals)
    assert Conflict in {type(outcome) for outcome in outcomes}
    assert [event.gang for event in await story.at(GANG_TIMEOUT_S)] == ["/ns/old"]


async def test_of_two_schedulers_one_rolls_one_gang_back() -> None:
    story = Halves(schedulers=2)
    await story.begin()
    roles = "scheduler/topolog/0", "scheduler/topolog/1"
    for core, role in zip(story.cores, roles, strict=True):
        core.take_shard(Shard(roles, role))
    for now_s in (0.0, GANG_TIMEOUT_S):
        await story.at(now_s, core=0)
        rolled = await story.at(now_s, core=1)
    assert [event.gang for event in rolled] == ["/ns/new"]


async def test_while_a_gang_yields_none_of_its_pods_is_placed() -> None:
    story = await halves()
    await story.at(0.0)
    (rolled,) = await story.at(GANG_TIMEOUT_S)
    await story.node("n9")
    await story.report(zone(0, 4), node="n9")
    await story.at(GANG_TIMEOUT_S)
    assert await in_one_commit(story) == [{"old2"}]
    await story.evicted(rolled)
    await story.at(GANG_TIMEOUT_S)
    assert await in_one_commit(story) == [{"old2"}]  # The third pod of three stays without others.


async def test_a_restarted_scheduler_gives_the_gangs_their_time_again() -> None:
    story = await halves()
    await story.at(0.0)
    restarted = SchedulerCore(CoreConfig())
    for envelope in await story.log.read(0):
        restarted.evolve(envelope, decode(envelope))
    story.cores = [restarted]
    assert await story.at(GANG_TIMEOUT_S) == []
    assert len(await story.at(2 * GANG_TIMEOUT_S)) == 1


@pytest.mark.parametrize("crash_at", range(12))
async def test_one_of_two_gangs_starts_whenever_scheduler_and_binder_crash(crash_at: int) -> None:
    """L7: one step is a turn of the scheduler, of the binder or of the kubelets."""
    story, evictions = await halves(), binder.initial()
    begun = 0
    for step in range(40):
        if step == crash_at:
            story.cores, evictions = [SchedulerCore(CoreConfig())], binder.initial()
            await story.fold()
        for envelope in await story.log.read(evictions.position):
            binder.evolve(evictions, envelope, decode(envelope))
        if step % 3 == 0:
            begun += 1
            await story.append(story.cores[0], story.cores[0].decide(100, begun * 100.0))
        elif step % 3 == 1:
            for victim in list(evictions.evictions.values()):
                kind = PodEvicted(victim.uid, victim.preemptor)
                intent = EvictIntended(victim.uid, "ns", victim.uid[4:], victim.preemptor)
                await story.tell(streams.pod(victim.uid), kind if victim.intended else intent)
        else:
            evicted = {event.uid for event in await story.events(PodEvicted)}
            for made in story.new:
                if made.uid in evicted & story.cores[0].ledger.pods.keys():
                    await story.ends(made)
    rolled = await story.events(GangRolledBack)
    assert [event.gang for event in rolled] == ["/ns/new"]
    assert await in_one_commit(story) == [{"old2"}]
    assert set(story.cores[0].ledger.pods) == {"uid-old0", "uid-old1", "uid-old2", "uid-new2"}


async def test_the_time_comes_from_the_gang() -> None:
    story = await world(4)
    words = {KOORDINATOR_NAME: "train", KOORDINATOR_MIN: "2", WAITING_TIME: "1m30s"}
    gang = gang_of("ns", {}, words)
    assert gang is not None
    assert gang.rules.timeout_s == 90
    await story.seen_bound(pod("a", cpus=4, gang=gang), "n0")
    await story.arrives(pod("b", cpus=4, gang=gang))
    outcomes: list[int] = []
    for now_s in (0.0, 89.0, 90.0):
        made = await story.append(story.cores[0], story.cores[0].decide(100, now_s))
        assert all(isinstance(outcome, Appended) for outcome in made)
        outcomes.append(len(await story.events(GangRolledBack)))
    assert outcomes == [0, 0, 1]
    assert await story.events(PodReserved) == []


def test_the_pod_group_says_how_long_it_waits() -> None:
    def rules(annotations: dict[str, str], **spec: Any) -> Any:
        obj = {
            "metadata": {"name": "g", "namespace": "ns", "annotations": annotations},
            "spec": {"minMember": 2, **spec},
        }
        event = event_of(ClusterObjects(), "podgroup.x-k8s.io", obj)
        assert isinstance(event, PodGroupObserved)
        return event.rules.timeout_s

    assert rules({}, scheduleTimeoutSeconds=70) == 70
    assert rules({WAITING_TIME: "5m"}, scheduleTimeoutSeconds=70) == 300
    assert rules({WAITING_TIME: "soon"}) == 0
    assert rules({}, scheduleTimeoutSeconds=-1) == 0
