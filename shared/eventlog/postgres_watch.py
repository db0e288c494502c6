"""Wait for the head to move: LISTEN on one connection, plus polling, because a notification may be
lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from typing import Any

from shared.eventlog.errors import LogUnavailable
from shared.eventlog.postgres_connection import LOST_CONNECTION

CHANNEL = "topolog_head"
# Longer than the interval at which each consumer asks for the head.
_POLL_S = 1.25
_POLL_DEAF_S = 0.2
# Nothing is read for so long after a notification, because each costs a process 0.1 ms. Consumers
# pause longer than this between two pages, so they see no event later.
_PAUSE_S = 0.02


class HeadWatch:
    """Tracks the highest known head (0 for none), and wakes waiters below it."""

    def __init__(
        self, connect: Callable[[], Awaitable[Any]], head: Callable[[], Awaitable[int]]
    ) -> None:
        self._connect = connect
        self._head = head
        self.known = 0
        self._polled_s = -math.inf
        self._waiters: set[asyncio.Future[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._listening = False

    def hinted(self, position: int) -> None:
        if position <= self.known:
            return
        self.known = position
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, after: int, timeout_s: float) -> bool:
        """Return True once the head is known to be beyond `after`, False on timeout."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._listen(), name="log listener")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while self.known <= after:
            now_s = loop.time()
            due_s = self._polled_s + (_POLL_S if self._listening else _POLL_DEAF_S)
            if now_s >= due_s:
                await self._poll()
            elif now_s >= deadline:
                return False
            else:
                await self._pause(min(due_s, deadline) - now_s)
        return True

    async def _pause(self, pause_s: float) -> None:
        if pause_s <= 0:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await waiter
        finally:
            self._waiters.discard(waiter)

    async def _poll(self) -> None:
        self._polled_s = asyncio.get_running_loop().time()
        with contextlib.suppress(LogUnavailable, *LOST_CONNECTION):
            await self.ask()

    async def ask(self) -> int:
        """Return the head. A restored backup may have set it back, so the answer counts, unless a
        later position was notified meanwhile."""
        known_before = self.known
        position = await self._head()
        self._polled_s = asyncio.get_running_loop().time()
        if self.known == known_before:
            self.known = min(known_before, position)
        self.hinted(position)
        return position

    async def _listen(self) -> None:
        while True:
            connection: Any = None
            try:
                connection = await self._connect()
                await self._hear(connection)
            except LOST_CONNECTION:
                pass
            finally:
                self._listening = False
                self.known = 0  # the next answer may come from another database with fewer events
                if connection is not None:
                    connection.terminate()
            await asyncio.sleep(0.5)

    async def _hear(self, connection: Any) -> None:
        ended = asyncio.Event()
        connection.add_termination_listener(lambda *_: ended.set())
        await connection.add_listener(CHANNEL, self._notified)
        self._listening = True
        self._polled_s = -math.inf  # appends before LISTEN were not notified
        self._wake()
        await ended.wait()

    def _notified(self, connection: Any, _pid: int, _channel: str, payload: str) -> None:
        self.hinted(int(payload))
        connection.pause_reading(_PAUSE_S)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
