"""The store follows the log: its own events, those of another store, another history, and rows that
cannot be read.
"""

from __future__ import annotations

import asyncio
import contextlib

from services.topology_store.handlers import Reports
from services.topology_store.service import follow
from services.upkeep.skipping import skip
from shared.bus.memory import MemoryBus
from shared.domain.report import Report
from shared.eventlog.port import Commit, Draft
from shared.events import streams
from shared.events.cluster_events import NodeEnded, NodeObserved
from shared.events.codec import decode
from shared.events.log_events import LogOpened
from shared.events.report_events import NodeReportExpired
from shared.runtime.clock import SYSTEM_CLOCK
from shared.runtime.health import Health
from shared.runtime.leadership import LeaseLost
from tests.runtime.helpers import FaultyLog, lent, running, undecodable, until
from tests.topology_store.words import message, report

ROLE = "topology-store/0"


class Following:
    """A store, and the fold that keeps it up to date."""

    def __init__(self, log: FaultyLog) -> None:
        self.log, self.health, self.held = log, Health(), lent(ROLE)
        self.reports = Reports(log, self.held, MemoryBus(), SYSTEM_CLOCK)
        self.projector = follow(log, self.reports, self.health)

    async def lead(self) -> None:
        """Lead. A new timeline ends the lease, and the next lease is acquired at once."""
        while True:
            lease = await self.log.acquire(ROLE, "test", 60)
            assert lease is not None
            with contextlib.suppress(LeaseLost):
                await self.held.keep(lease)

    def free(self, node: str) -> int:
        state = self.reports.nodes.get(node)
        return state.report.zones[0].resources["cpu"].available if state and state.report else -1


def free(value: int) -> int:
    """Return zone 0's free amount in `report(free=...)`."""
    return report(free=value).zones[0].resources["cpu"].available


async def test_what_another_store_appended_is_known_without_a_lost_race() -> None:
    log = FaultyLog()
    mine, theirs = Following(log), Following(log)
    async with running(mine.projector.run(), theirs.projector.run()):
        await theirs.reports.take([message(report(at=1, free=3))])
        await until(lambda: mine.free("n1") == free(3))


async def test_a_history_that_lost_events_and_outgrew_the_store_resets_it() -> None:
    log = FaultyLog()
    store, second_store = Following(log), Following(log)
    async with running(
        store.projector.run(), second_store.projector.run(), store.lead(), second_store.lead()
    ):
        await store.reports.take([message(report(at=1, free=1))])
        await store.reports.take(
            [message(report(at=2, free=2)), message(report(node="lost", at=1))]
        )
        await until(lambda: store.projector.position == second_store.projector.position == 3)
        log.restore(1)
        await second_store.reports.take([message(report(at=4, free=7))])
        assert len(log._events) == 1, "what is judged by the history that is gone is not appended"
        await until(lambda: store.projector.position == second_store.projector.position == 2)
        assert isinstance(decode(log._events[-1]), LogOpened), "who had read more began a timeline"
        for time_ms in range(5, 9):
            await second_store.reports.take([message(report(at=time_ms, free=time_ms - 4))])
            await until(
                lambda: (
                    store.projector.position == second_store.projector.position == len(log._events)
                )
            )
        await until(lambda: store.free("n1") == free(4))
        assert store.free("lost") == -1
        await store.reports.take([message(report(node="lost", at=2, free=6))])
        assert store.free("lost") == free(6), "what the log has lost is news again"


async def test_a_report_that_was_appended_and_lost_before_the_fold_read_it_is_not_believed() -> (
    None
):
    """Another store's report made the version that the lost one had, and would pass for it."""
    log = FaultyLog()
    store, second_store = Following(log), Following(log)
    async with running(store.projector.run()):
        await store.projector.wait_live()
    await store.reports.take([message(report(at=1, free=1))])
    assert store.projector.position == 0
    log.restore(0)
    async with running(second_store.projector.run()):
        await second_store.reports.take([message(report(at=2, free=7))])
    async with running(store.projector.run()):
        await until(lambda: store.free("n1") == free(7))


async def test_an_unreadable_row_quarantines_one_node_only() -> None:
    log = FaultyLog()
    first_store = Following(log)
    async with running(first_store.projector.run()):
        await first_store.reports.take(
            [message(report(at=1, free=1)), message(report(node="n2", at=1, free=1))]
        )
        await first_store.reports.take([message(report(at=2, free=2))])
    log.damage = undecodable(3)
    store = Following(log)
    async with running(store.projector.run()):
        await store.projector.wait_live()
        assert "event 3" in str(store.health.status().red)
        await store.reports.take(
            [message(report(at=3, free=3)), message(report(node="n2", at=2, free=2))]
        )
        assert (store.free("n1"), store.free("n2")) == (-1, free(2))
        await skip(log, 3, "me", "damaged", 1, force=True)
        await until(lambda: store.free("n1") == free(1))
        assert store.health.status().healthy
        await store.reports.take([message(report(at=4, free=4))])
        assert store.free("n1") == free(4)


async def test_a_start_from_a_snapshot_reads_on_from_where_it_was_made() -> None:
    log, read = FaultyLog(), list[int]()
    first = Following(log)
    async with running(first.projector.run()):
        for time_ms in range(1, 5):
            await first.reports.take([message(report(at=time_ms, free=time_ms))])
        assert await first.projector.wait_for(4, 60)
        await first.projector.save()
        await first.reports.take([message(report(at=5, free=5))])
        log.damage = lambda page: (read.extend(event.position for event in page), page)[1]  # type: ignore[func-returns-value]
    again = Following(log)
    read.clear()
    async with running(again.projector.run()):
        assert await again.projector.wait_for(5, 60)
        assert again.free("n1") == free(5)
    assert read[:2] == [4, 5], "the fact where the snapshot stands, and what came after"


async def test_of_a_node_that_has_left_only_what_its_next_report_is_judged_by_is_kept() -> None:
    log = FaultyLog()
    store = Following(log)

    async def tell(*drafts: Draft) -> None:
        await log.append([Commit(f"told/{store.projector.position}", "test", 0, 0, drafts)])
        await until(lambda: store.projector.position == len(log._events))

    async with running(store.projector.run()):
        await tell(Draft(streams.node("n1"), NodeObserved("n1", "uid-1")))
        await store.reports.take([message(report(at=1, free=3))])
        await tell(Draft(streams.report("n1"), NodeReportExpired("n1", 60)))
        assert store.free("n1") == free(3), "silent, and of the cluster still"
        await tell(Draft(streams.node("n1"), NodeEnded("n1", "uid-1", "deleted")))
        state = store.reports.nodes["n1"]
        assert state.report == Report("n1", "boot-1", 1, "exporter-1", policy="unknown")
        await store.reports.take([message(report(at=1, free=5)), message(report(at=2, free=6))])
        assert store.free("n1") == free(6), "an older report is old still, the next one is news"
        assert sum(event.type == "NodeReported" for event in log._events) == 2


async def test_a_report_that_waited_for_the_fold_does_not_shut_out_a_newer_boot() -> None:
    """A boot once superseded never returns: the machine started twice while this store had yet to
    read the log.
    """
    log = FaultyLog()
    slow, second_store = Following(log), Following(log)
    async with running(second_store.projector.run()):
        await second_store.reports.take([message(report(at=1, boot="first"))])
        late = asyncio.create_task(slow.reports.take([message(report(at=5, boot="second"))]))
        await asyncio.sleep(0)
        await second_store.reports.take([message(report(at=1, boot="third"))])
        async with running(slow.projector.run()):
            await late
        await second_store.reports.take([message(report(at=2, free=3, boot="third"))])
    assert [envelope.type for envelope in log._events] == [
        "NodeReported",
        "NodeReported",
        "NodeReportChanged",
    ]
