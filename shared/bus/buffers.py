"""Buffers between the bus and a reader. Only the newest message matters, so they are bounded by
size, not by time.

Reports: one message per subject. Doorbell: one number. Both end for their reader at `close`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from shared.bus.port import Message

MAX_SUBJECTS = 50_000
MAX_BATCH = 1000


class LatestReports:
    """The newest unread message of each subject, in order of first arrival."""

    def __init__(self) -> None:
        self._waiting: dict[str, Message] = {}
        self._filled = asyncio.Event()
        self._closed = False
        self.refused = 0

    def put(self, message: Message) -> None:
        """Keep a message; it replaces an older one of its subject. Beyond MAX_SUBJECTS, new
        subjects are counted and dropped: every node reports again within its interval."""
        if message.subject not in self._waiting and len(self._waiting) >= MAX_SUBJECTS:
            self.refused += 1
            return
        self._waiting[message.subject] = message
        self._filled.set()

    def close(self) -> None:
        """End the reader after the remaining messages."""
        self._closed = True
        self._filled.set()

    async def batches(self) -> AsyncIterator[list[Message]]:
        """Yield the waiting messages, at most MAX_BATCH at a time."""
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
    """The highest unread position."""

    def __init__(self) -> None:
        self._highest = 0
        self._rung = asyncio.Event()
        self._closed = False

    def ring(self, position: int) -> None:
        self._highest = max(self._highest, position)
        self._rung.set()

    def close(self) -> None:
        self._closed = True
        self._rung.set()

    async def positions(self) -> AsyncIterator[int]:
        """Yield positions; of several that arrive while the reader is busy only the highest."""
        while True:
            await self._rung.wait()
            if self._closed:
                return
            self._rung.clear()
            highest, self._highest = self._highest, 0
            yield highest


def position_in(header: str) -> int:
    """Return the position in an event's header, 0 if the header is damaged."""
    return int(header) if header.isascii() and header.isdigit() and len(header) < 19 else 0
