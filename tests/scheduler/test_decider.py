"""The deciding loop at one log: lost races, lost answers, a log that is away; every pod is reserved
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest

from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.handlers import Decider
from services.scheduler.queue.queue import EVERY_S
from services.scheduler.reserve.exclusions import CONTESTED_AFTER
from services.scheduler.snapshot.result import Placed, Unplaceable
from shared.domain.pod import Pod
from shared.eventlog.errors import LogUnavailable
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Draft, Lease, Outcome
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import ClusterListed, NodeObserved, PodEnded, PodObserved
from shared.events.codec import decode
from shared.events.log_events import LogOpened
from shared.events.report_events import NodeReported, NodeReportExpired
from shared.events.scheduling_events import (
    NodeCharged,
    NodeSetAside,
    PodReserved,
    PodVerdictChanged,
)
from shared.runtime.clock import SYSTEM_CLOCK
from shared.runtime.lent_lease import LentLease
from shared.runtime.membership import Membership
from shared.runtime.projector import Fold, Projector
from tests.ledger.given import held, pod, report, zone
from tests.runtime.helpers import QUICK, running, until
from tests.scheduler.default.story import ROOMY


class RoughLog(MemoryEventLog):
    """A log whose appends by the scheduler fail before the commit or lose their answer after it, as
    `troubles` says.
    """

    def __init__(self) -> None:
        super().__init__("decider")
        self.troubles: list[str] = []

    async def append(self, commits: Sequence[Commit]) -> list[Outcome]:
        trouble = (
            self.troubles.pop(0)
            if self.troubles and commits[0].role.startswith("scheduler/")
            else "none"
        )
        if trouble == "before":
            raise LogUnavailable("not sent")
        outcomes = await super().append(commits)
        if trouble == "after":
            raise LogUnavailable("the answer was lost")
        return outcomes


class Scene:
    """Nodes of 8 CPUs in two zones, a log, and any number of schedulers."""

    def __init__(self) -> None:
        self.log = RoughLog()

    async def tell(self, stream: str, event: Event) -> None:
        await self.log.append(
            [Commit(f"told/{await self.log.head()}", "test", 0, 0, (Draft(stream, event),))]
        )

    async def node(self, name: str) -> None:
        await self.tell(streams.node(name), NodeObserved(name, f"uid-{name}", allocatable=ROOMY))
        made = msgspec.structs.replace(report(zone(0, 4), zone(1, 4)), node=name)
        await self.tell(streams.report(name), NodeReported(made))

    async def pods(self, count: int, cpus: int = 1) -> None:
        for number in range(count):
            made = pod(f"p{number}", cpus=cpus)
            await self.tell(streams.pod(made.uid), PodObserved(made))

    @asynccontextmanager
    async def schedulers(self, count: int = 1) -> AsyncIterator[list[Decider]]:
        deciders: list[Decider] = []
        async with AsyncExitStack() as stack:
            for number in range(count):
                lease = LentLease()
                member = Membership(self.log, "scheduler/topolog", f"s{number}")
                decider = Decider(self.log, lease, SYSTEM_CLOCK)
                deciders.append(decider)
                fold: Fold[SchedulerCore] = Fold(
                    lambda: SchedulerCore(CoreConfig()),
                    lambda core, envelope, event: core.evolve(envelope, event),
                )
                projector = Projector(
                    "s", self.log, fold, after=decider.folded, on_reset=decider.reset, options=QUICK
                )
                await stack.enter_async_context(
                    running(projector.run(), decider.run(projector), member.run(lease.keep))
                )
            yield deciders

    async def reservations(self, count: int) -> list[PodReserved]:
        """Wait for this many reservations, and a little longer to notice further ones."""
        async with asyncio.timeout(20):
            while len(await self._reserved()) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        return await self._reserved()

    async def _reserved(self) -> list[PodReserved]:
        return [
            event
            for envelope in await self.log.read(0, 10_000)
            if isinstance(event := decode(envelope), PodReserved)
        ]


@pytest.fixture
def scene() -> Scene:
    return Scene()


class Slow(SchedulerCore):
    """A scheduler whose clock advances only by deciding (1 ms a pod), explaining (20 ms) and waking
    (1 ms a pod class).
    """

    now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    def now_us(self) -> int:
        return 0

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(0)

    def _select(self, pod: Pod) -> Placed | Unplaceable | None:
        self.now_s += 0.001
        return super()._select(pod)

    def _explain(self, pod: Pod, last_message: str = "") -> Unplaceable:
        self.now_s += 0.02
        return super()._explain(pod, last_message)

    def _may_be_helped(self, pod: Pod) -> bool:
        self.now_s += 0.001
        return super()._may_be_helped(pod)


async def test_a_wait_for_the_first_turn_ends_when_the_log_has_its_decisions(
    scene: Scene,
) -> None:
    await scene.node("n1")
    await scene.pods(1)
    async with scene.schedulers() as (decider,):
        assert not decider.looked.is_set()
        async with asyncio.timeout(20):
            await decider.looked.wait()
        assert len(await scene.reservations(1)) == 1


@pytest.mark.parametrize("schedulers", [1, 3])
async def test_each_pod_is_reserved_once_and_no_zone_beyond_its_cpus(
    scene: Scene, schedulers: int
) -> None:
    for name in ("n1", "n2", "n3"):
        await scene.node(name)
    await scene.pods(12, cpus=2)
    async with scene.schedulers(schedulers):
        made = await scene.reservations(6)
    assert len({one.uid for one in made}) == len(made)
    assert 6 <= len(made) <= 12
    assert all(sum(one.node == name for one in made) <= 4 for name in ("n1", "n2", "n3"))


@pytest.mark.parametrize("troubles", [["after"], ["before", "after"]])
async def test_an_answer_that_was_lost_reserves_nothing_twice(
    scene: Scene, troubles: list[str]
) -> None:
    await scene.node("n1")
    await scene.pods(3)
    scene.log.troubles = list(troubles)
    async with scene.schedulers():
        await until(lambda: not scene.log.troubles)
        made = await scene.reservations(3)
    assert sorted(one.uid for one in made) == ["uid-p0", "uid-p1", "uid-p2"]


async def test_a_full_queue_is_decided_in_order_of_arrival_batch_by_batch(scene: Scene) -> None:
    for number in range(40):
        await scene.node(f"n{number:02}")
    await scene.pods(230)
    async with scene.schedulers():
        made = await scene.reservations(200)
    decided = sorted(made[:200], key=lambda one: (one.based_on, one.order))
    assert [one.uid for one in decided] == [f"uid-p{number}" for number in range(200)]


async def test_what_was_decided_with_a_lost_reservation_in_mind_is_decided_again(
    scene: Scene,
) -> None:
    """Another scheduler took the node's next version with a larger pod than this decision counted
    on: the version that the second reservation expects exists, but not for the expected reason.
    """
    await scene.node("n1")
    await scene.pods(2, cpus=1)
    core = SchedulerCore(CoreConfig())
    await fold_all(scene, core)
    large = pod("large", cpus=4)
    for stream, event in (
        (streams.pod(large.uid), PodReserved(large.uid, "n1")),
        (streams.node("n1"), NodeCharged("n1", large.uid)),
    ):
        await scene.tell(stream, event)
    decider, lease = (
        Decider(scene.log, LentLease(), SYSTEM_CLOCK),
        Lease("scheduler/topolog/0", "s", 1),
    )
    assert await decider._decide(core, lease)
    assert [one.uid for one in await scene._reserved()] == [large.uid]
    await fold_all(scene, core)
    await decider._decide(core, lease)
    assert len(await scene._reserved()) == 3


@pytest.mark.parametrize(("moved", "contested"), [("pod", False), ("node", True)])
async def test_a_race_that_was_lost_for_the_pod_is_not_held_against_its_node(
    scene: Scene, moved: str, contested: bool
) -> None:
    """A pod that is deleted while it is decided loses five races within milliseconds: no other
    writer contests the node.
    """
    await scene.node("n1")
    await scene.pods(1)
    core, decider = SchedulerCore(CoreConfig()), Decider(scene.log, LentLease(), SYSTEM_CLOCK)
    await fold_all(scene, core)
    if moved == "pod":
        await scene.tell(streams.pod("uid-p0"), PodEnded("uid-p0", "deleted"))
    else:
        await scene.tell(streams.node("n1"), NodeCharged("n1", "nobody"))
    for _ in range(CONTESTED_AFTER):
        await decider._decide(core, Lease("scheduler/topolog/0", "s", 1))
    assert core.counters.conflicts == CONTESTED_AFTER
    asides = [
        draft.event
        for each in core.decide(10)
        for draft in each.drafts
        if isinstance(draft.event, NodeSetAside)
    ]
    assert [event.cause for event in asides] == ["contested"] * contested


async def test_after_a_lost_race_it_reads_on_before_it_decides_again(scene: Scene) -> None:
    """If the scheduler decided at once on its old state, the pod would lose to the same event again
    and again, and the node would be excluded for it.
    """
    await scene.node("n1")
    await scene.pods(1)
    core, decider = SchedulerCore(CoreConfig()), Decider(scene.log, LentLease(), SYSTEM_CLOCK)
    await fold_all(scene, core)
    await scene.tell(streams.node("n1"), NodeCharged("n1", "nobody"))
    await decider._decide(core, Lease("scheduler/topolog/0", "s", 1))
    assert core.counters.conflicts == 1
    assert decider._must_reach == await scene.log.head()


async def test_a_nomination_is_not_sent_where_the_verdict_before_it_was_lost(scene: Scene) -> None:
    """The pod ended meanwhile: its end made the version that the nomination expects of the
    verdict.
    """
    await scene.node("n1")
    high = msgspec.structs.replace(pod("high", cpus=4), priority=100)
    for name in ("low-0", "low-1"):
        low = pod(name, cpus=4)
        await scene.tell(streams.pod(low.uid), PodObserved(low, node="n1", phase="Running"))
    full = report(
        zone(0, 4, 0), zone(1, 4, 0), at=2, placements=(held("low-0", 0, 4), held("low-1", 1, 4))
    )
    await scene.tell(streams.report("n1"), NodeReported(msgspec.structs.replace(full, node="n1")))
    await scene.tell(streams.pod(high.uid), PodObserved(high))
    core = SchedulerCore(CoreConfig())
    await fold_all(scene, core)
    await scene.tell(streams.pod(high.uid), PodEnded(high.uid, "deleted"))
    await Decider(scene.log, LentLease(), SYSTEM_CLOCK)._decide(
        core, Lease("scheduler/topolog/0", "s", 1)
    )
    assert core.counters.conflicts
    assert not [one for one in await scene.log.read(0) if one.type == "PodNominated"]


async def test_the_explanation_of_a_waiting_pod_is_renewed_after_some_minutes(
    scene: Scene,
) -> None:
    """A node that changes for the worse wakes no pod."""
    await scene.node("n1")
    await scene.pods(1, cpus=8)
    core = Slow(CoreConfig())
    decider, lease = Decider(scene.log, LentLease(), core), Lease("scheduler/topolog/0", "s", 1)

    async def turn(now_s: float) -> list[str]:
        core.now_s = now_s
        await fold_all(scene, core)
        decider._tick(core)
        await decider._decide(core, lease)
        return [
            event.message
            for each in await scene.log.read(0)
            if isinstance(event := decode(each), PodVerdictChanged)
        ]

    assert len(await turn(0.0)) == 1
    await scene.tell(
        streams.node("n1"), NodeObserved("n1", "uid-n1", allocatable=ROOMY, unschedulable=True)
    )
    assert len(await turn(EVERY_S - 10)) == 1
    first, second = await turn(EVERY_S + 10)
    assert "no NUMA zone as large" in first
    assert "node(s) were unschedulable" in second
    assert len(await turn(2 * EVERY_S + 20)) == 2, "nothing new to say"


async def test_a_name_that_no_node_object_has_is_counted_apart_until_it_is_silent(
    scene: Scene,
) -> None:
    await scene.node("n1")
    await scene.tell(
        streams.report("ghost"),
        NodeReported(msgspec.structs.replace(report(zone(0, 4), zone(1, 4)), node="ghost")),
    )
    core = SchedulerCore(CoreConfig())
    await fold_all(scene, core)
    stats = core.stats()
    assert (stats["nodes"], stats["nodes_reporting"], stats["nodes_unnamed"], stats["zones"]) == (
        1,
        1,
        1,
        2,
    )
    await scene.tell(streams.report("ghost"), NodeReportExpired("ghost", 30))
    await fold_all(scene, core)
    assert core.stats()["nodes_unnamed"] == 0


async def fold_all(scene: Scene, core: SchedulerCore) -> None:
    for envelope in await scene.log.read(core.ledger.position):
        core.evolve(envelope, decode(envelope))


@pytest.mark.parametrize("stream", ["node/n1", "report/n1"])
async def test_a_node_whose_stream_is_quarantined_takes_no_pod_and_the_others_go_on(
    scene: Scene, stream: str
) -> None:
    for name in ("n1", "n2"):
        await scene.node(name)
    await scene.pods(3)
    core = SchedulerCore(CoreConfig())
    await fold_all(scene, core)
    core.set_aside(stream)
    made = [
        event.node
        for proposal in core.decide(10)
        for draft in proposal.drafts
        if isinstance(event := draft.event, PodReserved)
    ]
    assert made == ["n2", "n2", "n2"]


async def test_a_pod_whose_stream_is_quarantined_is_not_decided_and_the_others_are(
    scene: Scene,
) -> None:
    await scene.node("n1")
    await scene.pods(3)
    core = SchedulerCore(CoreConfig())
    await fold_all(scene, core)
    core.set_aside("pod/uid-p1")
    made = [
        event.uid
        for proposal in core.decide(10)
        for draft in proposal.drafts
        if isinstance(event := draft.event, PodReserved)
    ]
    assert made == ["uid-p0", "uid-p2"]


async def test_a_skipped_event_moves_its_streams_version_so_that_the_stream_can_be_written(
    scene: Scene,
) -> None:
    await scene.node("n1")
    await scene.pods(1)
    core = SchedulerCore(CoreConfig())
    for envelope in await scene.log.read(0):
        core.evolve(envelope, decode(envelope))
    await scene.tell(streams.node("n1"), NodeCharged("n1", "nobody"))
    core.pass_over((await scene.log.read(core.ledger.position))[0])
    assert await Decider(scene.log, LentLease(), SYSTEM_CLOCK)._decide(
        core, Lease("scheduler/topolog/0", "s", 1)
    )
    assert len(await scene._reserved()) == 1


async def test_a_scheduler_that_was_counted_out_reserves_nothing_under_its_old_epoch(
    scene: Scene,
) -> None:
    """The scheduler was paused for longer than its lease. It sends its earlier decision when it
    continues, and once more under its next epoch.
    """
    await scene.node("n1")
    await scene.pods(2)
    core = SchedulerCore(CoreConfig())
    await fold_all(scene, core)
    old = await scene.log.acquire("scheduler/topolog/0", "paused", 0.01)
    assert old is not None
    await asyncio.sleep(0.02)
    assert await scene.log.members("scheduler/topolog") == []
    lease = LentLease(old)
    decider = Decider(scene.log, lease, SYSTEM_CLOCK)
    await decider._decide(core, old)
    assert await scene._reserved() == []
    assert lease._lease is None, "it asks for another lease"
    new = await scene.log.acquire("scheduler/topolog/0", "paused", 30)
    assert new is not None
    await decider._decide(core, new)
    made = [envelope for envelope in await scene.log.read(0) if envelope.type == "PodReserved"]
    assert {(envelope.role, envelope.epoch) for envelope in made} == {(new.role, new.epoch)}
    assert sorted(event.uid for event in await scene._reserved()) == ["uid-p0", "uid-p1"]


async def one_reserved(scene: Scene) -> tuple[SchedulerCore, Decider, Lease]:
    """Return one node with a reservation of this scheduler, which marks a node dirty after one
    rejection.
    """
    await scene.node("n1")
    await scene.pods(1)
    core = SchedulerCore(CoreConfig(dirty_after_rejections=1))
    decider, lease = (
        Decider(scene.log, LentLease(), SYSTEM_CLOCK),
        Lease("scheduler/topolog/0", "s", 1),
    )
    await fold_all(scene, core)
    await decider._decide(core, lease)
    return core, decider, lease


async def test_a_dirty_mark_costs_the_reservations_of_its_batch_nothing(scene: Scene) -> None:
    """Both append to the node's stream, so the reservations expect the mark's version and follow
    it."""
    core, decider, lease = await one_reserved(scene)
    for arriving in (pod("large", cpus=9), pod("small-1", cpus=1), pod("small-2", cpus=1)):
        await scene.tell(streams.pod(arriving.uid), PodObserved(arriving))
        await fold_all(scene, core)
        if arriving.name == "large":
            core.decide(10)
    await decider._decide(core, lease)
    appended = [
        (one.type, one.stream)
        for one in await scene.log.read(0)
        if one.type in ("NodeMarkedDirty", "NodeCharged")
    ]
    assert appended == [
        ("NodeCharged", "node/n1"),
        ("NodeMarkedDirty", "node/n1"),
        *[("NodeCharged", "node/n1")] * 2,
    ]
    assert core.counters.conflicts == 0


async def test_what_follows_a_dirty_mark_that_was_lost_is_decided_again(scene: Scene) -> None:
    """Another scheduler's charge made the version that the mark was to make: the next decision has
    not seen that charge.
    """
    core, decider, lease = await one_reserved(scene)
    large, small = pod("large", cpus=9), pod("small", cpus=3)
    await scene.tell(streams.pod(large.uid), PodObserved(large))
    await fold_all(scene, core)
    core.decide(10)
    await scene.tell(streams.pod(small.uid), PodObserved(small))
    await fold_all(scene, core)
    await scene.tell(streams.node("n1"), NodeCharged("n1", "uid-of-another"))
    await decider._decide(core, lease)
    assert [one.uid for one in await scene._reserved()] == ["uid-p0"]
    assert core.counters.conflicts == 2


@pytest.mark.parametrize("late", ["nodes", "pods"])
async def test_of_a_restored_log_nothing_is_decided_until_the_cluster_was_listed(
    scene: Scene, late: str
) -> None:
    """Pods that were bound since the backup hold zones, and the restored log lacks them."""
    early = "pods" if late == "nodes" else "nodes"
    await scene.node("n1")
    await scene.pods(3)
    await scene.tell(streams.listing(late), ClusterListed(late, 1))
    await scene.tell(streams.LOG, LogOpened("log", 2))
    async with scene.schedulers(2):
        await scene.tell(streams.listing(early), ClusterListed(early, 2))
        assert await scene.reservations(0) == []
        await scene.tell(streams.listing(late), ClusterListed(late, 2))
        assert len(await scene.reservations(3)) == 3


async def test_where_a_release_before_this_one_has_decided_since_nothing_is_waited_for(
    scene: Scene,
) -> None:
    """The older release appends no lists, and its observer may lead until its last process has
    ended.
    """
    await scene.node("n1")
    await scene.tell(streams.LOG, LogOpened("log", 2))
    await scene.pods(3)
    await scene.tell(streams.pod("uid-p0"), PodReserved("uid-p0", "n1", 1, 1))
    async with scene.schedulers():
        assert {event.uid for event in await scene.reservations(3)} == {
            "uid-p0",
            "uid-p1",
            "uid-p2",
        }
