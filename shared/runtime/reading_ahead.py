"""Read pages of the log ahead: the next page is requested while the current one is handled.

A page that is no longer needed, because the reader began again, is dropped.
"""

from __future__ import annotations

import asyncio

from shared.eventlog.port import EventLog
from shared.events.envelope import Envelope


class ReadingAhead:
    """At most one page is requested early."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._asked: tuple[int, int] = (0, 0)
        self._early: asyncio.Task[list[Envelope]] | None = None

    async def ask(self, after: int, limit: int) -> None:
        """Request a page that the log is known to have; return when the request is sent."""
        self.drop()
        self._asked, self._early = (after, limit), asyncio.create_task(self._log.read(after, limit))
        self._early.add_done_callback(_retrieve_error)
        # One turn sends; loops that batch writes send at the end of that turn.
        for _ in range(2):
            await asyncio.sleep(0)

    async def read(self, after: int, limit: int) -> list[Envelope]:
        """Return the page. Raises what the log raises; a repeated call reads again."""
        early = self._early
        if early is None or self._asked != (after, limit):
            self.drop()
            return await self._log.read(after, limit)
        self._early = None
        return await early

    def drop(self) -> None:
        if self._early is not None:
            self._early.cancel()
            self._early = None


def _retrieve_error(early: asyncio.Task[list[Envelope]]) -> None:
    # The error of a dropped page does not matter; retrieving it silences asyncio.
    if not early.cancelled():
        early.exception()
