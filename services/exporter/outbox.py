"""The queue of reports for the bus: at most one report for each node, the newest.

Sent in batches, kept and retried while the bus is away. Bounded by the number of nodes. Must not
know the content of a report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shared.bus.port import Bus, BusUnavailable, Message

MAX_BATCH = 256
RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)


class Outbox:
    """Sends messages to the bus in the background.

    Calls `on_reconnect` when the bus is back. `accepted` is True if the last try succeeded, None
    before the first.
    """

    def __init__(
        self, bus: Bus, on_reconnect: Callable[[], None], on_failure: Callable[[str], None]
    ) -> None:
        self._bus = bus
        self._on_reconnect = on_reconnect
        self._on_failure = on_failure
        self._waiting: dict[str, Message] = {}
        self._filled = asyncio.Event()
        self.published = 0
        self.failures = 0
        self.accepted: bool | None = None

    def put(self, node: str, message: Message) -> None:
        """Queue the newest report of a node; an unsent older report is dropped."""
        self._waiting[node] = message
        self._filled.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._waiting:
                await self._send_batch()

    async def drain(self, timeout_s: float) -> bool:
        """Try once to send the queue; return True on success. The next start reports it anyway."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._bus.publish_many(list(self._waiting.values()))
        except (BusUnavailable, TimeoutError):
            return False
        self._waiting.clear()
        return True

    async def _send_batch(self) -> None:
        batch = dict(list(self._waiting.items())[:MAX_BATCH])
        failed = 0
        while not await self._sent(batch):
            await asyncio.sleep(RETRY_S[min(failed, len(RETRY_S) - 1)])
            failed += 1
            batch = {node: self._waiting[node] for node in batch}
        for node, message in batch.items():
            if self._waiting[node] is message:
                del self._waiting[node]
        if failed:
            self._on_reconnect()

    async def _sent(self, batch: dict[str, Message]) -> bool:
        try:
            await self._bus.publish_many(list(batch.values()))
        except BusUnavailable as error:
            self.failures += 1
            self.accepted = False
            self._on_failure(str(error))
            return False
        self.published += len(batch)
        self.accepted = True
        return True


class Unpublished(Outbox):
    """An outbox that sends nothing: `no_publish`."""

    def put(self, node: str, message: Message) -> None:
        """Drop the report."""
