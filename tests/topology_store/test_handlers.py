"""The report loop on a log and a bus: conflicts refold, hostile messages stop nothing, silence is
logged, a restart is harmless.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from services.topology_store import following
from services.topology_store.handlers import Reports
from services.topology_store.service import follow
from shared.bus import subjects
from shared.bus.jetstream import JetStreamBus
from shared.bus.memory import MemoryBus
from shared.bus.port import Bus, Message
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Appended, Commit, Draft, Outcome
from shared.events import streams
from shared.events.codec import decode
from shared.events.report_events import NodeReported
from shared.runtime.health import Health
from shared.runtime.lent_lease import LentLease
from shared.runtime.membership import Membership
from tests.runtime.helpers import lent, running, until
from tests.topology_store.words import Hands, load, message, report


async def types(log: MemoryEventLog, node: str = "n1") -> list[str]:
    return [envelope.type for envelope in await log.read_stream(streams.report(node))]


@pytest.fixture
def log() -> MemoryEventLog:
    return MemoryEventLog("store")


@pytest.fixture
def store(log: MemoryEventLog) -> Reports:
    return Reports(log, lent("topology-store/0"), MemoryBus(), Hands())


async def test_several_reports_of_one_node_in_a_batch_are_judged_in_order(
    store: Reports, log: MemoryEventLog
) -> None:
    await store.take(
        [
            message(report(at=time_ms, free=free))
            for time_ms, free in ((1, 8), (2, 7), (3, 7), (2, 1), (4, 6))
        ]
    )
    assert await types(log) == ["NodeReported", "NodeReportChanged", "NodeReportChanged"]
    assert store.nodes["n1"].report == report(at=4, free=6)


async def test_a_stream_that_another_store_moved_is_folded_again(
    store: Reports, log: MemoryEventLog
) -> None:
    await store.take([message(report(at=1))])
    theirs = Draft(streams.report("n1"), NodeReported(report(at=5, free=1)), 1)
    assert isinstance((await log.append([Commit("theirs", "other", 0, 0, (theirs,))]))[0], Appended)
    await store.take([message(report(at=3, free=3))])
    assert await types(log) == ["NodeReported", "NodeReported"], (
        "a report older than the other store's is no fact"
    )
    await store.take([message(report(at=6, free=2))])
    assert await types(log) == ["NodeReported", "NodeReported", "NodeReportChanged"]
    assert store.nodes["n1"].report == report(at=6, free=2)


async def test_a_event_that_the_fold_shows_before_its_append_is_answered_is_folded_once(
    log: MemoryEventLog,
) -> None:
    class Shown(MemoryEventLog):
        """The answer comes after all stores have read the event."""

        async def append(self, commits: Sequence[Commit]) -> list[Outcome]:
            outcomes = await super().append(commits)
            for envelope in self._events[-len(commits) :]:
                following.evolve(reports.nodes, envelope, decode(envelope))
            return outcomes

    shown = Shown("store")
    reports = Reports(shown, lent("topology-store/0"), MemoryBus(), Hands())
    for time_ms in (1, 2, 3):
        await reports.take([message(report(at=time_ms, free=time_ms))])
    fresh = Reports(shown, lent("topology-store/0"), MemoryBus(), Hands())
    await load(fresh, shown)
    assert following.digests(reports.nodes) == following.digests(fresh.nodes)
    assert reports.nodes["n1"].deltas == 2


async def test_two_stores_at_one_stream_agree_with_the_log_in_the_end(log: MemoryEventLog) -> None:
    stores = [Reports(log, lent("topology-store/0"), MemoryBus(), Hands()) for _ in range(2)]
    for time_ms in range(1, 20):
        await stores[time_ms % 2].take([message(report(at=time_ms, free=time_ms % 8))])
    fresh = Reports(log, lent("topology-store/0"), MemoryBus(), Hands())
    await load(fresh, log)
    assert fresh.nodes["n1"].report == report(at=19, free=3)


async def test_a_report_kept_for_long_does_not_shut_out_the_boot_that_another_store_saw_since(
    log: MemoryEventLog,
) -> None:
    """A boot that was superseded never returns. If the late report of the earlier boot were
    accepted, all later reports of the node would be refused.
    """
    paused, second_store = (
        Reports(log, lent("topology-store/0"), MemoryBus(), Hands()) for _ in range(2)
    )
    for store in (paused, second_store):
        await store.take([message(report(at=1, boot="first"))])
    await second_store.take([message(report(at=1, boot="third"))])
    late = [message(report(at=time_ms, boot="second")) for time_ms in (5, 6)]
    await paused.take(late)
    await second_store.take([message(report(at=2, free=3, boot="third"))])
    assert await types(log) == ["NodeReported", "NodeReported", "NodeReportChanged"]
    assert second_store.nodes["n1"].report == report(at=2, free=3, boot="third")


async def test_a_malformed_report_is_refused_and_the_others_of_its_batch_go_on(
    store: Reports, log: MemoryEventLog
) -> None:
    bad = Message(subjects.report("n2"), b'{"node": "n2", "zones": "many"}')
    await store.take([bad, message(report(at=1)), bad])
    assert await types(log) == ["NodeReported"]
    assert "n2" not in store.nodes


async def test_an_old_report_that_arrives_last_changes_nothing(
    store: Reports, log: MemoryEventLog
) -> None:
    for time_ms in (10, 30, 20):
        await store.take([message(report(at=time_ms, free=time_ms // 10))])
    assert store.nodes["n1"].report == report(at=30, free=3)
    assert await types(log) == ["NodeReported", "NodeReportChanged"]


async def test_a_late_report_is_old_even_when_the_newest_one_was_no_news(
    store: Reports, log: MemoryEventLog
) -> None:
    for time_ms, free in ((10, 4), (30, 4), (20, 7)):
        await store.take([message(report(at=time_ms, free=free))])
    assert await types(log) == ["NodeReported"]


async def test_a_restart_knows_what_the_process_before_knew(
    store: Reports, log: MemoryEventLog
) -> None:
    await store.take([message(report(at=1, boot="boot-1"))])
    await store.take([message(report(at=1, boot="boot-2"))])
    again = Reports(log, lent("topology-store/0"), MemoryBus(), Hands())
    await load(again, log)
    await again.take([message(report(at=2, boot="boot-2")), message(report(at=9, boot="boot-1"))])
    assert await types(log) == ["NodeReported", "NodeReported", "NodeReportRefused"]


@pytest.fixture
async def jetstream(private_nats_url: str) -> AsyncIterator[Bus]:
    bus = JetStreamBus(private_nats_url)
    await bus.ensure_streams()
    yield bus
    await bus.close()


async def test_reports_travel_a_real_jetstream_into_the_log(
    jetstream: Bus, log: MemoryEventLog
) -> None:
    await jetstream.publish(subjects.report("early"), message(report(node="early")).data, {})
    store = Reports(log, lent("topology-store/0"), jetstream, Hands())
    projector = follow(log, store, Health())
    async with running(projector.run(), store.run()):
        await until(lambda: "early" in store.nodes)
        for time_ms in (1, 3):
            await jetstream.publish(
                subjects.report("n1"), message(report(at=time_ms, free=time_ms)).data, {}
            )
        await jetstream.publish(subjects.report("n3"), b"rubbish", {})
        await until(
            lambda: "n1" in store.nodes and store.nodes["n1"].report == report(at=3, free=3)
        )
        # The stream keeps one report a node: the late one is sent only when the newest was read, or
        # it takes its place unread.
        await jetstream.publish(subjects.report("n1"), message(report(at=2, free=2)).data, {})
        await jetstream.publish(subjects.report("last"), message(report(node="last")).data, {})
        await until(lambda: "last" in store.nodes)
        assert store.nodes["n1"].report == report(at=3, free=3)
    events = [decode(envelope) for envelope in await log.read(0)]
    assert {type(event).__name__ for event in events} <= {"NodeReported", "NodeReportChanged"}
    assert "n3" not in store.nodes


async def test_a_store_that_was_counted_out_appends_its_report_under_a_new_epoch_only() -> None:
    log = MemoryEventLog("paused", lambda: now_s)
    now_s, lent_lease = 0.0, LentLease()
    store = Reports(log, lent_lease, MemoryBus(), Hands())
    member = Membership(log, "topology-store", "paused", ttl_s=0.5)
    async with running(member.run(lent_lease.keep)):
        old = await lent_lease.lease()
        await store.take([message(report(at=1))])
        now_s = 0.6
        assert await log.members("topology-store") == [], "another store looked"
        await store.take([message(report(at=2, free=3))])
    envelopes = await log.read_stream(streams.report("n1"))
    assert [(envelope.version, envelope.role) for envelope in envelopes] == [
        (1, old.role),
        (2, old.role),
    ]
    assert envelopes[0].epoch == old.epoch < envelopes[1].epoch


async def test_reports_that_come_in_the_pause_after_an_append_share_the_next_one(
    log: MemoryEventLog,
) -> None:
    class Clock(Hands):
        async def sleep(self, delay_s: float) -> None:
            if len(appends) == 1:
                for node in ("n2", "n3"):
                    made = message(report(node=node))
                    await bus.publish(made.subject, made.data, {})
            await super().sleep(delay_s)

    class Counting(Reports):
        async def append(self, commits: Sequence[Commit]) -> list[Outcome]:
            appends.append(len(commits))
            return await super().append(commits)

    appends: list[int] = []
    bus = MemoryBus()
    store = Counting(log, lent("topology-store/0"), bus, Clock())
    first = message(report())
    await bus.publish(first.subject, first.data, {})
    async with running(store.run()):
        await until(lambda: sum(appends) == 3)
    assert appends == [1, 2]
