"""What waits between the bus and a reader: only the newest matters, so the buffers are bounded by
what they hold, not by time.

Reports: one message a subject. Doorbell: one number. Both end for their reader at `close`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from shared.bus.port import Message

MAX_SUBJECTS = 50_000
MAX_BATCH = 1000


class LatestReports:
    """The newest message of each subject that its reader has not taken yet, in the order of first
    arrival.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Message] = {}
        self._filled = asyncio.Event()
        self._closed = False
        self.refused = 0

    def put(self, message: Message) -> None:
        """Keep a message; an older one of its subject is forgotten. Beyond MAX_SUBJECTS, new
        subjects are counted and dropped: every node reports again within its interval."""
        if message.subject not in self._waiting and len(self._waiting) >= MAX_SUBJECTS:
            self.refused += 1
            return
        self._waiting[message.subject] = message
        self._filled.set()

    def close(self) -> None:
        """The reader gets what is left and ends."""
        self._closed = True
        self._filled.set()

    async def batches(self) -> AsyncIterator[list[Message]]:
        """Whatever waits, at most MAX_BATCH at a time."""
        while True:
            await self._filled.wait()
            subjects = list(self._waiting)[:MAX_BATCH]
            if subjects:
                yield [self._waiting.pop(subject) for subject in subjects]
            elif self._closed:
                return
            else:
                self._filled.clear()


class Doorbell:
    """The highest position heard that its reader has not taken yet."""

    def __init__(self) -> None:
        self._highest = 0
        self._rung = asyncio.Event()
        self._closed = False

    def ring(self, position: int) -> None:
        """`position` exists."""
        self._highest = max(self._highest, position)
        self._rung.set()

    def close(self) -> None:
        """The reader ends."""
        self._closed = True
        self._rung.set()

    async def positions(self) -> AsyncIterator[int]:
        """Positions heard; those heard while the reader was busy are told as the highest of them."""
        while True:
            await self._rung.wait()
            if self._closed:
                return
            self._rung.clear()
            highest, self._highest = self._highest, 0
            yield highest


def position_in(header: str) -> int:
    """The position that a fact's header names, 0 for one that is damaged."""
    return int(header) if header.isascii() and header.isdigit() and len(header) < 19 else 0
