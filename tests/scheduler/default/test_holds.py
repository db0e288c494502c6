"""A node is held for a pod that waits longer than its `hold-after`."""

from __future__ import annotations

import msgspec
import pytest

from services.replay.deciding_state import placing_at
from services.replay.explain import explain
from services.scheduler import handlers
from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.queue.shard import Shard
from services.scheduler.reserve.holds import SECOND_US
from services.scheduler.snapshot.config import CycleConfig, HoldSettings
from services.scheduler.state.holds import Hold, Holds
from shared.domain.hold_after import HOLD_AFTER
from shared.domain.pod import Pod
from shared.eventlog.port import Appended, Commit, Draft
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import PodObserved
from shared.events.codec import decode
from shared.events.scheduling_events import (
    HoldBegun,
    HoldEnded,
    PodNominated,
    PodVerdictChanged,
)
from tests.ledger.given import pod, zone
from tests.replay.whole_state import whole_state
from tests.scheduler.default.story import Story

AFTER_S = 60


class Held(Story):
    """A story with a clock, which gives the times of the log's envelopes."""

    def __init__(self, schedulers: int = 1, share: int = 50, after_s: float = AFTER_S) -> None:
        super().__init__(schedulers)
        config = CoreConfig(cycle=CycleConfig(), hold=HoldSettings(after_s, share))
        self.cores = [SchedulerCore(config) for _ in range(schedulers)]
        self.now_s = 1_000_000.0

    async def tell(self, stream: str, event: Event) -> int:
        command = f"told/{await self.log.head()}"
        commit = Commit(command, "test", 0, int(self.now_s * SECOND_US), (Draft(stream, event),))
        (outcome,) = await self.log.append([commit])
        assert isinstance(outcome, Appended)
        await self.fold()
        return outcome.last

    async def turns(self, core: int = 0, seconds: float = 0.0) -> None:
        """Advance the clock and let the core decide until it has nothing to do."""
        self.now_s += seconds
        deciding = self.cores[core]
        for _ in range(20):
            now_us = int(self.now_s * SECOND_US)
            proposals = deciding.decide(100, self.now_s, now_us=now_us)
            if not proposals and not deciding.has_work():
                return
            await self.append(deciding, proposals)
            self.now_s += 1.0
        raise AssertionError("the core does not come to rest")

    async def full(self, *names: str, cpus: int = 4, policy: str = "restricted") -> dict[str, Pod]:
        """Nodes of two zones of 8 CPUs, each with one small pod in its first zone."""
        small = {}
        for name in names:
            await self.node(name)
            await self.report(zone(0, 8), zone(1, 8), node=name, policy=policy)
            small[name] = pod(f"small-{name}", cpus=cpus)
            await self.seen_bound(small[name], name)
        return small

    async def begun(self) -> list[tuple[str, str]]:
        return [(event.uid, event.node) for event in await self.events(HoldBegun)]

    async def ended(self) -> list[tuple[str, str, str]]:
        return [(event.uid, event.node, event.cause) for event in await self.events(HoldEnded)]


def large(name: str = "large", **changes: object) -> Pod:
    """A pod that needs both zones of a node."""
    return msgspec.structs.replace(pod(name, cpus=16), **changes)


def annotated(made: Pod, text: str) -> Pod:
    return msgspec.structs.replace(made, annotations={HOLD_AFTER: text})


async def test_an_overdue_pod_gets_the_node_that_lacks_least_and_is_placed_there() -> None:
    story = Held()
    await story.full("n1", cpus=6)
    small = (await story.full("n2", cpus=2))["n2"]
    await story.arrives(large())
    await story.turns(seconds=AFTER_S - 10)
    assert await story.begun() == []
    await story.turns(seconds=20)
    assert await story.begun() == [("uid-large", "n2")]
    newcomer = pod("newcomer", cpus=2)
    await story.arrives(newcomer)
    await story.turns(seconds=10)
    assert (newcomer.uid, "n1") in await story.reservations()
    await story.ends(small)
    await story.report(zone(0, 8), zone(1, 8), node="n2", at=2, policy="restricted")
    await story.turns(seconds=10)
    assert ("uid-large", "n2") in await story.reservations()
    assert await story.ended() == [("uid-large", "n2", "placed")]
    assert story.cores[0].folded.holds.by_node == {}


async def test_the_refusal_of_another_pod_names_the_hold_and_a_remedy() -> None:
    story = Held()
    await story.full("n1")
    await story.arrives(large())
    await story.turns(seconds=AFTER_S + 10)
    newcomer = pod("newcomer", cpus=2)
    await story.arrives(newcomer)
    await story.turns(seconds=10)
    assert await story.verdicts(newcomer) == [
        f"0/1 nodes are available: 1 node(s) were held for the overdue pod {large().key}."
    ]
    (verdict,) = [
        event for event in await story.events(PodVerdictChanged) if event.uid == newcomer.uid
    ]
    assert "wait until that pod is placed" in str(verdict.detail)


async def test_no_pod_is_overdue_without_a_bound() -> None:
    story = Held(after_s=0)
    await story.full("n1")
    await story.arrives(large(), annotated(large("zero"), "0"))
    await story.turns(seconds=10_000)
    assert await story.begun() == []


async def test_the_annotation_goes_before_the_setting() -> None:
    story = Held()
    await story.full("n1", "n2")
    await story.arrives(annotated(large("soon"), "10s"), annotated(large("never"), "0"))
    await story.turns(seconds=15)
    await story.turns(seconds=10 * AFTER_S)
    assert [uid for uid, _ in await story.begun()] == ["uid-soon"]


@pytest.mark.parametrize(("share", "most"), [(0, 0), (1, 1), (50, 2), (100, 3)])
async def test_at_most_a_share_of_the_nodes_is_held_for_the_oldest(share: int, most: int) -> None:
    story = Held(share=share)
    await story.full("n1", "n2", "n3", "n4")
    for number in range(3):
        await story.arrives(large(f"large-{number}"))
        await story.turns(seconds=1)
    for _ in range(5):
        await story.turns(seconds=AFTER_S)
    assert [uid for uid, _ in await story.begun()] == [f"uid-large-{n}" for n in range(most)]


async def test_a_hold_ends_with_its_pod_and_lets_others_in() -> None:
    story = Held()
    await story.full("n1")
    await story.arrives(large())
    await story.turns(seconds=AFTER_S + 10)
    newcomer = pod("newcomer", cpus=2)
    await story.arrives(newcomer)
    await story.turns(seconds=10)
    assert await story.reservations() == []
    await story.ends(large())
    await story.turns(seconds=1)
    assert await story.ended() == [("uid-large", "n1", "ended")]
    assert await story.reservations() == [(newcomer.uid, "n1")]


async def test_a_hold_ends_if_the_node_would_not_take_the_pod_any_more() -> None:
    story = Held()
    await story.full("n1")
    await story.arrives(large())
    await story.turns(seconds=AFTER_S + 10)
    await story.node("n1", unschedulable=True)
    await story.turns(seconds=2)
    assert await story.ended() == [("uid-large", "n1", "hopeless")]
    await story.turns(seconds=10 * AFTER_S)
    assert len(await story.begun()) == 1


async def test_a_hold_ends_if_the_bound_is_taken_back() -> None:
    story = Held(after_s=0)
    await story.full("n1")
    await story.arrives(annotated(large(), "10s"))
    await story.turns(seconds=20)
    assert await story.begun() == [("uid-large", "n1")]
    await story.tell(streams.pod("uid-large"), PodObserved(large()))
    await story.turns(seconds=2)
    assert await story.ended() == [("uid-large", "n1", "unasked")]


async def test_pods_of_higher_priority_and_nominees_use_a_held_node() -> None:
    story = Held()
    await story.full("n1")
    await story.arrives(large())
    await story.turns(seconds=AFTER_S + 10)
    urgent = msgspec.structs.replace(pod("urgent", cpus=2), priority=10)
    await story.arrives(urgent)
    await story.turns(seconds=1)
    assert (urgent.uid, "n1") in await story.reservations()
    nominee = pod("nominee", cpus=2)
    await story.arrives(nominee)
    await story.tell(
        streams.pod(nominee.uid), PodNominated(nominee.uid, "n1", zones={1: {"cpu": 2000}})
    )
    await story.turns(seconds=1)
    assert (nominee.uid, "n1") in await story.reservations()


async def test_no_node_is_held_that_would_not_take_the_pod_empty() -> None:
    story = Held()
    await story.full("n1", policy="single-numa-node")
    await story.full("n2")
    await story.arrives(large())
    await story.turns(seconds=AFTER_S + 10)
    assert await story.begun() == [("uid-large", "n2")]


async def test_the_holder_is_woken_by_its_node_although_a_like_pod_waits_before_it() -> None:
    story = Held(after_s=0)
    small = (await story.full("n1"))["n1"]
    await story.arrives(large("older"))
    await story.turns(seconds=1)
    await story.arrives(annotated(large("holder"), "10s"))
    await story.turns(seconds=20)
    assert await story.begun() == [("uid-holder", "n1")]
    await story.ends(small)
    await story.report(zone(0, 8), zone(1, 8), at=2, policy="restricted")
    await story.turns(seconds=1)
    assert await story.reservations() == [("uid-holder", "n1")]


async def test_one_of_several_schedulers_holds_for_all() -> None:
    story = Held(schedulers=2)
    await story.full("n1", "n2")
    members = ("scheduler/topolog/0", "scheduler/topolog/1")
    for core, member in zip(story.cores, members, strict=True):
        core.take_shard(Shard(members, member))
    await story.arrives(*(large(f"large-{number}") for number in range(4)))
    for number in (0, 1, 0, 1):
        await story.turns(number)
    await story.turns(1, seconds=AFTER_S + 10)
    assert await story.begun() == []
    await story.turns(0)
    assert [uid for uid, _ in await story.begun()] == ["uid-large-0"]
    newcomer = pod("newcomer", cpus=2)
    await story.arrives(newcomer)
    for number in (0, 1):
        await story.turns(number)
    held_nodes = story.cores[1].folded.holds.by_node
    assert [node for _, node in await story.reservations()] == [
        name for name in ("n1", "n2") if name not in held_nodes
    ]


async def test_a_killed_and_a_replayed_scheduler_hold_and_wait_as_the_one_before() -> None:
    """The log alone brings back what is held, and since when pods wait."""
    story = Held()
    await story.full("n1", "n2", "n3", "n4")
    await story.arrives(large("first"))
    await story.turns(seconds=AFTER_S - 20)
    await story.arrives(large("second"))
    await story.turns(seconds=30)
    running = story.cores[0]
    replayed = SchedulerCore(running.config)
    for envelope in await story.log.read(0):
        replayed.evolve(envelope, decode(envelope))
    restored = handlers.load(running.config, handlers.dump(running))
    assert list(running.folded.holds.by_node.values()) == [Hold("uid-first", large("first").key)]
    assert replayed.folded.holds == running.folded.holds == restored.folded.holds
    story.cores = [replayed]
    await story.turns(seconds=30)
    assert [uid for uid, _ in await story.begun()] == ["uid-first", "uid-second"]
    placing = placing_at(replayed.folded, CycleConfig())
    held_nodes = replayed.folded.holds.by_node
    newcomer = pod("newcomer", cpus=2)
    refused = {name for name in ("n1", "n2", "n3", "n4") if placing.verdict(newcomer, name)}
    assert refused == set(held_nodes)


async def test_a_pod_with_scheduling_gates_does_not_wait_yet() -> None:
    story = Held()
    await story.full("n1")
    gated = msgspec.structs.replace(
        large(), constraints=msgspec.structs.replace(large().constraints, gates=("g",))
    )
    await story.arrives(gated)
    await story.turns(seconds=10 * AFTER_S)
    await story.arrives(large())
    await story.turns(seconds=AFTER_S - 10)
    assert await story.begun() == []
    await story.turns(seconds=20)
    assert await story.begun() == [("uid-large", "n1")]


async def test_replay_shows_the_hold_of_the_pod_and_of_the_node() -> None:
    story = Held()
    await story.full("n1")
    await story.arrives(large())
    await story.turns(seconds=AFTER_S + 10)
    (node,) = (await whole_state(story.log, "head", "n1"))["nodes"]
    assert node["held_for"] == large().key
    await story.ends(large())
    await story.turns(seconds=1)
    (node,) = (await whole_state(story.log, "head", "n1"))["nodes"]
    assert node["held_for"] == ""
    (story_lines,) = await explain(story.log, large().key)
    titles = [line.title for line in story_lines.lines]
    assert titles[-1] == "n1 is no longer held: the pod has ended"
    assert any("s: n1 takes no other pod until it is placed" in title for title in titles)


async def test_nothing_is_remembered_of_a_pod_that_ended_with_its_hold() -> None:
    story = Held()
    await story.full("n1")
    await story.arrives(large())
    await story.turns(seconds=AFTER_S + 10)
    await story.ends(large())
    await story.turns(seconds=1)
    folded = story.cores[0].folded
    assert folded.holds == Holds()
    assert not [stream for stream in folded.versions if stream.startswith("hold/")]


async def test_a_hold_that_began_as_its_pod_ended_still_ends() -> None:
    story = Held()
    await story.full("n1")
    await story.arrives(large())
    await story.ends(large())
    await story.tell(streams.hold("uid-large"), HoldBegun("uid-large", "n1", "ns/large"))
    await story.turns(seconds=10)
    assert await story.ended() == [("uid-large", "n1", "ended")]
    assert story.cores[0].folded.holds.by_node == {}
    assert streams.hold("uid-large") not in story.cores[0].folded.versions
