"""Reports on their way to the bus: at most one a node, the newest; sent in batches; kept and
retried while the bus is away.

Bounded by the number of nodes. Must not know what a report says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shared.bus.port import Bus, BusUnavailable, Message

MAX_BATCH = 256
RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)


class Outbox:
    """Hands messages to the bus in the background; `on_reconnect` is called after the bus was away.
    `taken` says whether the last try succeeded, None before the first."""

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
        self.taken: bool | None = None

    def put(self, node: str, message: Message) -> None:
        """Queue the newest report of a node; an unsent older one is dropped."""
        self._waiting[node] = message
        self._filled.set()

    async def run(self) -> None:
        """Send for ever; ends by cancellation."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._waiting:
                await self._send_batch()

    async def drain(self, timeout_s: float) -> bool:
        """Try once to send what waits; whether that succeeded. The next start reports everything
        anyway.
        """
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
            self.taken = False
            self._on_failure(str(error))
            return False
        self.published += len(batch)
        self.taken = True
        return True


class Unpublished(Outbox):
    """Takes reports and sends none: `no_publish`."""

    def put(self, node: str, message: Message) -> None:
        """Let the report go."""
