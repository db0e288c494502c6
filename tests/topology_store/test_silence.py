"""The silence watch: one expiry, by one store that reaches the bus; a bus that is away is no
evidence about nodes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from services.cli.node import release
from services.cli.output import CommandError
from services.topology_store import following
from services.topology_store.handlers import Reports
from services.topology_store.silence import AWAY_AFTER_S, ROLE, Silence
from shared.bus.memory import MemoryBus
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Draft, Outcome
from shared.events import streams
from shared.events.cluster_events import NodeEnded, NodeObserved
from shared.events.codec import decode
from shared.events.report_events import NodeReleased
from shared.ledger.fold import evolve
from shared.ledger.state import Ledger
from shared.runtime.health import Health
from shared.runtime.leadership import Leadership
from tests.runtime.helpers import lent, running, until
from tests.topology_store.words import Hands, load, message, report


class Store:
    """A store's loops on a shared log, with a separate bus and clock."""

    def __init__(self, log: MemoryEventLog, clock: Hands, name: str = "store") -> None:
        self.log, self.clock, self.name = log, clock, name
        self.bus, self.health = MemoryBus(), Health()
        self.reports = Reports(log, lent("topology-store/0"), self.bus, clock)
        self.silence = Silence(self.reports, log, self.bus, 30.0, clock, self.health)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        leadership = Leadership(self.log, ROLE, self.name, ttl_s=1000.0, clock=self.clock)
        async with running(self.silence.watch_bus(), self.silence.run(leadership)):
            yield

    async def pass_time(self, until_s: float) -> None:
        """Let time pass second by second, and run the loops."""
        while self.clock.now_s < until_s:
            self.clock.now_s += 1.0
            await self.turns()

    async def turns(self, count: int = 20) -> None:
        for _ in range(count):
            await self.clock.sleep(0)

    def expired(self, node: str = "n1") -> bool:
        return self.reports.nodes[node].expired


@pytest.fixture
def log() -> MemoryEventLog:
    return MemoryEventLog("silence")


@pytest.fixture
def store(log: MemoryEventLog) -> Store:
    return Store(log, Hands())


async def types(log: MemoryEventLog, node: str = "n1") -> list[str]:
    return [envelope.type for envelope in await log.read_stream(streams.report(node))]


async def test_a_silent_exporter_expires_once_until_its_next_report(
    store: Store, log: MemoryEventLog
) -> None:
    await store.reports.take([message(report(at=1)), message(report(at=1, node="n2"))])
    async with store.watching():
        await store.pass_time(20)
        await store.reports.take([message(report(at=2, node="n2"))])
        await store.pass_time(35)
        assert await types(log) == ["NodeReported", "NodeReportExpired"]
        assert await types(log, "n2") == ["NodeReported"]
    await store.reports.take([message(report(at=2))])
    assert await types(log) == ["NodeReported", "NodeReportExpired", "NodeReported"]


async def test_a_fold_that_begins_again_during_an_append_ends_no_store(
    store: Store, log: MemoryEventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log was restored after the event was judged: the stream is read again."""
    append = log.append

    async def append_while_the_fold_begins_anew(commits: Sequence[Commit]) -> list[Outcome]:
        outcomes = await append(commits)
        store.reports.reset({})
        return outcomes

    await store.reports.take([message(report(at=1))])
    monkeypatch.setattr(log, "append", append_while_the_fold_begins_anew)
    await store.reports.take([message(report(at=2, free=7))])
    assert store.reports.nodes["n1"].version == 2
    async with store.watching():
        await store.pass_time(35)
        assert store.expired()
    assert store.reports.nodes["n1"].version == 3


async def test_a_restart_gives_every_node_its_time_to_report_again(log: MemoryEventLog) -> None:
    await Store(log, Hands()).reports.take([message(report(at=1))])
    clock = Hands()
    clock.now_s = 1_000_000.0
    again = Store(log, clock)
    await load(again.reports, again.log)
    async with again.watching():
        await again.turns()
        assert not again.expired()


async def test_a_store_without_the_bus_expires_no_node_and_gives_up_the_role(
    log: MemoryEventLog,
) -> None:
    clock = Hands()
    deaf, hears = Store(log, clock, "deaf"), Store(log, clock, "hears")
    for store in (deaf, hears):
        await store.reports.take([message(report(at=1)), message(report(at=1, node="n2"))])
    async with deaf.watching():
        await until(lambda: log._leases.get(ROLE) is not None)
        async with hears.watching():
            deaf.bus.down = True
            for second in range(1, 100):
                clock.now_s = float(second)
                await hears.reports.take([message(report(at=1000 * second))])
                await hears.turns()
            assert await types(log) == ["NodeReported"], (
                "n1 reports all the time, to the store that hears"
            )
            assert await types(log, "n2") == ["NodeReported", "NodeReportExpired"], (
                "told by the store that hears"
            )
            assert "does not come back" in deaf.silence.waits_for()


async def fold(store: Store, seen: int) -> int:
    """Fold the events after a position as the projector does, and return the position of the
    last.
    """
    page = await store.log.read(seen, 10_000)
    folded = [(envelope, decode(envelope)) for envelope in page]
    for envelope, event in folded:
        following.evolve(store.reports.nodes, envelope, event)
    store.reports.folded(store.reports.nodes, folded)
    return page[-1].position if page else seen


async def test_a_node_whose_reports_another_store_takes_in_first_is_not_silent(
    log: MemoryEventLog,
) -> None:
    clock = Hands()
    watches, first = Store(log, clock, "watches"), Store(log, clock, "first")
    seen = 0
    async with watches.watching():
        for second in range(0, 100, 10):
            await watches.pass_time(second)
            heard = message(report(at=1000 * second + 1, free=second // 10 % 2))
            await first.reports.take([heard])
            seen = await fold(watches, seen)
            await watches.reports.take([heard])
    assert set(await types(log)) == {"NodeReported", "NodeReportChanged"}


async def test_after_the_bus_was_away_every_node_gets_its_time_again(
    store: Store, log: MemoryEventLog
) -> None:
    await store.reports.take([message(report(at=1))])
    async with store.watching():
        await store.pass_time(10)
        store.bus.down = True
        await store.pass_time(500)
        store.bus.down = False
        await store.pass_time(510)
        assert await types(log) == ["NodeReported"]
        await store.pass_time(500 + 31 + AWAY_AFTER_S)
        assert await types(log) == ["NodeReported", "NodeReportExpired"]


async def named(store: Store, *events: NodeObserved | NodeEnded) -> None:
    """Return the events of the Node object, as the fold delivers them."""
    for number, event in enumerate(events):
        drafts = (Draft(streams.node("n1"), event),)
        await store.log.append(
            [Commit(f"named/{type(event).__name__}/{number}", "test", 0, 0, drafts)]
        )
    await load(store.reports, store.log)


async def test_only_a_node_of_the_cluster_counts_as_silent(store: Store) -> None:
    """An alert about a node that was removed, or never existed, would never end."""
    await store.reports.take([message(report(at=1))])
    async with store.watching():
        await store.pass_time(35)
        assert store.expired()
        assert not store.reports.nodes["n1"].is_silent, "no Node object has the name"
        await named(store, NodeObserved("n1", "uid-1"))
        assert store.reports.nodes["n1"].is_silent
        await named(store, NodeEnded("n1", "uid-1", "deleted"))
        assert not store.reports.nodes["n1"].is_silent


async def test_a_node_that_has_left_the_cluster_is_red_no_more(store: Store) -> None:
    await load(store.reports, store.log)
    async with store.watching():
        await locked_out(store)
        await named(store, NodeObserved("n1", "uid-1"))
        await store.turns()
        assert "node n1" in store.health.status().red
        await named(store, NodeEnded("n1", "uid-1", "deleted"))
        await store.pass_time(10_060)
        assert store.health.status().red == {}


async def locked_out(store: Store) -> None:
    """Report a forged boot that then falls silent, so that the node's own reports are refused."""
    store.clock.now_s = 10_000.0
    await store.reports.take([message(report(at=9_000_000))])
    await store.reports.take([message(report(at=1, boot="forged"))])
    for second in range(10_001, 10_050):
        store.clock.now_s = float(second)
        await store.reports.take([message(report(at=second * 1000 - 1_000_000))])
        await store.turns()


async def test_a_lockout_is_red_in_health_and_in_the_ledger_until_it_is_released(
    store: Store, log: MemoryEventLog
) -> None:
    await load(store.reports, store.log)
    async with store.watching():
        await locked_out(store)
        assert store.expired(), "refused reports are no sign of life"
        assert "topolog node release n1" in store.health.status().red["node n1"]
        assert "superseded" in (await folded(log)).nodes["n1"].locked
        await release(log, NodeReleased("n1", "somebody"), 0)
        await store.pass_time(10_055)
        assert store.health.status().red == {}
        await store.reports.take([message(report(at=9_060_000))])
        assert not store.expired()
        ledger = await folded(log)
        assert (
            ledger.nodes["n1"].locked,
            ledger.nodes["n1"].expired,
            ledger.nodes["n1"].released,
        ) == ("", False, False)


async def folded(log: MemoryEventLog) -> Ledger:
    ledger = Ledger()
    for envelope in await log.read(0):
        evolve(ledger, envelope, decode(envelope))
    return ledger


async def test_a_node_that_never_reported_cannot_be_released(log: MemoryEventLog) -> None:
    with pytest.raises(CommandError, match="'ghost' has never reported"):
        await release(log, NodeReleased("ghost"), 0)
