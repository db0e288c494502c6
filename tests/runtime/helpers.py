"""Logs that misbehave, tasks that end with their test, and waiting for a condition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from shared.eventlog.errors import LogUnavailable
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Lease, LogIdentity
from shared.events.envelope import Envelope
from shared.runtime.consumer import ConsumerOptions
from shared.runtime.lent_lease import LentLease

QUICK = ConsumerOptions(page_events=3, poll_s=0.03, pause_s=0.01)


class FaultyLog(MemoryEventLog):
    """A log that may be unavailable, send no notifications, be damaged, or be replaced by an older
    copy of itself.
    """

    def __init__(self) -> None:
        super().__init__("faulty")
        self.away = False
        self.deaf = False
        self.damage: Callable[[list[Envelope]], list[Envelope]] = lambda page: page

    def restore(self, head: int) -> None:
        """Replace the log by a backup as of `head`, without a new timeline."""
        self._events = self._events[:head]
        self._heads.clear()
        self._heads.update({event.stream: event.version for event in self._events})
        self._seen = {id: places for id, places in self._seen.items() if places[1] <= head}

    async def _here(self) -> None:
        await asyncio.sleep(0)
        if self.away:
            raise LogUnavailable("away")

    async def identity(self) -> LogIdentity:
        await self._here()
        return await super().identity()

    async def head(self) -> int:
        await self._here()
        return await super().head()

    async def read(self, later: int, limit: int = 1000) -> list[Envelope]:
        await self._here()
        return self.damage(await super().read(later, limit))

    async def wait(self, later: int, timeout_s: float) -> bool:
        await self._here()
        if self.deaf:
            await asyncio.sleep(timeout_s)
            return False
        return await super().wait(later, timeout_s)

    async def save_checkpoint(self, consumer: str, position: int, expected: int) -> bool:
        await self._here()
        return await super().save_checkpoint(consumer, position, expected)


def undecodable(index_at: int) -> Callable[[list[Envelope]], list[Envelope]]:
    """Damage the event at a position: its type becomes unknown."""
    return lambda page: [
        msgspec.structs.replace(event, type="FromTheFuture")
        if event.position == index_at
        else event
        for event in page
    ]


def hole(index_at: int) -> Callable[[list[Envelope]], list[Envelope]]:
    """Damage the log: remove the event at a position."""
    return lambda page: [event for event in page if event.position != index_at]


def lent(role: str = "test/0", epoch: int = 1) -> LentLease:
    """Return a lease that does not end."""
    return LentLease(Lease(role, "test", epoch))


@asynccontextmanager
async def running(*works: Coroutine[Any, Any, Any]) -> AsyncIterator[Sequence[asyncio.Task[Any]]]:
    """Run the works as tasks while the block runs."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Callable[[], object], limit_s: float = 60.0) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - any condition, not an event
            await asyncio.sleep(0.005)
