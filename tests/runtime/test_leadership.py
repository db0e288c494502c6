"""A role has one leader. Its work stops before another process can get the lease, and an old leader
writes nothing.
"""

from __future__ import annotations

import asyncio
import gc

import pytest
import structlog

from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Fenced, Lease
from shared.runtime.health import Health
from shared.runtime.leadership import Leadership, LeaseLost
from shared.runtime.membership import Membership
from shared.telemetry import names
from tests.eventlog.words import commit
from tests.runtime.helpers import FaultyLog, running, until


class LeasedLog(FaultyLog):
    """A log whose leases and members become unavailable with it. It counts their queries."""

    asked = 0

    async def acquire(self, role: str, holder: str, ttl_s: float) -> Lease | None:
        self.asked += 1
        await self._here()
        return await super().acquire(role, holder, ttl_s)

    async def members(self, role: str) -> list[Lease]:
        self.asked += 1
        await self._here()
        return await super().members(role)


class Work:
    """Work that records the process which runs it."""

    def __init__(self) -> None:
        self.now: list[str] = []
        self.epochs: list[int] = []

    def of(self, holder: str):  # type: ignore[no-untyped-def]
        async def work(lease: Lease) -> None:
            self.now.append(holder)
            self.epochs.append(lease.epoch)
            try:
                await asyncio.Event().wait()
            finally:
                self.now.remove(holder)

        return work


async def test_one_of_many_leads_and_another_follows_when_it_stops() -> None:
    log, work = LeasedLog(), Work()
    leaders = {name: Leadership(log, "role", name, ttl_s=1.0) for name in "abc"}
    async with running(*(leader.run(work.of(name)) for name, leader in leaders.items())) as tasks:
        await until(lambda: len(work.now) == 1)
        first = work.now[0]
        tasks["abc".index(first)].cancel()
        await until(lambda: work.now and work.now[0] != first)
        assert len(work.now) == 1
    assert work.epochs == sorted(set(work.epochs))


async def test_a_leader_that_cannot_renew_stops_before_another_may_begin() -> None:
    log, work = LeasedLog(), Work()
    leader = Leadership(log, "role", "a", ttl_s=1.0)
    async with running(leader.run(work.of("a"))):
        await until(lambda: work.now == ["a"])
        log.away = True
        await until(lambda: work.now == [] and leader.lease is None)
        log.away = False
        await until(lambda: work.now == ["a"])


async def test_a_leader_whose_lease_was_taken_stops_and_its_epoch_is_fenced() -> None:
    log, work = LeasedLog(), Work()
    leader = Leadership(log, "role", "a", ttl_s=1.0)
    async with running(leader.run(work.of("a"))):
        await until(lambda: leader.lease is not None)
        old = leader.lease
        assert old is not None
        await log.release(old)
        new = await log.acquire("role", "b", 30)
        assert new is not None
        assert await log.append([commit("late", role="role", epoch=old.epoch)]) == [
            Fenced("role", old.epoch, new.epoch)
        ]
        await until(lambda: work.now == [])


async def test_fenced_work_gives_up_the_lease_and_campaigns_again() -> None:
    log, runs = LeasedLog(), []

    async def work(lease: Lease) -> None:
        runs.append(lease.epoch)
        if len(runs) == 1:
            raise LeaseLost("fenced")

    await asyncio.wait_for(Leadership(log, "role", "a", ttl_s=0.2).run(work), 60)
    assert len(runs) == 2
    assert runs[1] > runs[0]


async def test_an_error_of_the_work_ends_the_leadership_and_frees_the_role() -> None:
    log = LeasedLog()

    async def work(_lease: Lease) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await Leadership(log, "role", "a", ttl_s=30).run(work)
    assert await log.acquire("role", "b", 30) is not None


async def test_a_process_is_ready_while_it_leads_or_another_is_known_to() -> None:
    log, work, health = LeasedLog(), Work(), {name: Health() for name in "ab"}
    leaders = {name: Leadership(log, "role", name, ttl_s=0.4, health=health[name]) for name in "ab"}
    assert health["a"].status().waiting == {"role role": "no process is known to lead"}
    async with running(*(leader.run(work.of(name)) for name, leader in leaders.items())):
        await until(
            lambda: len(work.now) == 1 and all(item.status().ready for item in health.values())
        )
        log.away = True
        await until(
            lambda: work.now == [] and not any(item.status().ready for item in health.values())
        )
        log.away = False
        await until(
            lambda: len(work.now) == 1 and all(item.status().ready for item in health.values())
        )


async def test_a_clock_that_was_set_back_leaves_a_dead_holder_its_ttl_and_no_more() -> None:
    hour_s, offset_s = 3600.0, 0.0
    log = MemoryEventLog("clock", lambda: hour_s + offset_s)
    assert await log.acquire("role", "dead", 10) is not None
    offset_s = -hour_s
    assert await log.acquire("role", "alive", 5) is None
    offset_s += 10.5
    assert await log.acquire("role", "alive", 5) is not None


async def test_work_that_ends_while_its_lease_is_renewed_leaves_no_error_behind() -> None:
    """The renewal reports that another process leads, at the moment when the work ends."""
    log, received, ended = LeasedLog(), list[object](), asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: received.append(context))
    leader = Leadership(log, "role", "a", ttl_s=0.3)

    async def work(lease: Lease) -> None:
        await ended.wait()
        raise LeaseLost("another leads")

    async def taken(role: str, holder: str, ttl_s: float) -> Lease | None:
        if leader.lease is not None and not ended.is_set():
            ended.set()
            await asyncio.sleep(0.01)
            return None
        return await LeasedLog.acquire(log, role, holder, ttl_s)

    log.acquire = taken  # type: ignore[method-assign]
    async with running(leader.run(work)):
        await until(lambda: ended.is_set() and leader.lease is None)
        await asyncio.sleep(0.05)
        gc.collect()
    assert received == []


async def test_a_log_that_is_away_is_logged_once_per_outage() -> None:
    log, work = LeasedLog(), Work()
    leader = Leadership(log, "role", "a", ttl_s=0.4)

    async def outage() -> int:
        await until(lambda: bool(work.now))
        asked, log.away = log.asked, True
        await until(lambda: log.asked > asked + 5)
        log.away = False
        return sum(line["event"] == names.LOG_UNAVAILABLE for line in lines)

    with structlog.testing.capture_logs() as lines:
        async with running(leader.run(work.of("a"))):
            assert [await outage(), await outage()] == [1, 2]


async def test_a_member_logs_once_that_the_log_is_away() -> None:
    log, work = LeasedLog(), Work()
    member = Membership(log, "role", "a", ttl_s=600.0)
    with structlog.testing.capture_logs() as lines:
        async with running(member.run(work.of("a"))):
            await until(lambda: bool(work.now))
            asked, log.away = log.asked, True
            await until(lambda: log.asked > asked + 3)
    assert sum(line["event"] == names.LOG_UNAVAILABLE for line in lines) == 1
