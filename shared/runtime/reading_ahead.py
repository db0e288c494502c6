"""Pages of the log, of which the next can be asked for while this one is handled: who is far behind
need not wait for each.

What was asked for early and is not wanted after all (the reader began anew) is dropped. Must not
know what pages are for.
"""

from __future__ import annotations

import asyncio

from shared.eventlog.port import EventLog
from shared.events.envelope import Envelope


class ReadingAhead:
    """At most one page is asked for early."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._asked: tuple[int, int] = (0, 0)
        self._early: asyncio.Task[list[Envelope]] | None = None

    async def ask(self, after: int, limit: int) -> None:
        """Ask for a page that the log is known to have; returns when the question is on its way."""
        self.drop()
        self._asked, self._early = (after, limit), asyncio.create_task(self._log.read(after, limit))
        self._early.add_done_callback(_look_at)
        # One turn asks; loops that gather what is written send it at the end of that turn.
        for _ in range(2):
            await asyncio.sleep(0)

    async def read(self, after: int, limit: int) -> list[Envelope]:
        """The page, whenever it was asked for. Raises what the log raises; asked again, it is read
        again.
        """
        early = self._early
        if early is None or self._asked != (after, limit):
            self.drop()
            return await self._log.read(after, limit)
        self._early = None
        return await early

    def drop(self) -> None:
        """What was asked for is not wanted any more."""
        if self._early is not None:
            self._early.cancel()
            self._early = None


def _look_at(early: asyncio.Task[list[Envelope]]) -> None:
    """An error of a page that nobody wants is nobody's."""
    if not early.cancelled():
        early.exception()
