"""One endless subscription to a stream, renewed at a gap, after silence, and after every reconnect.

The client's ordered consumer hangs if its consumer disappears silently (nats.py issue 510), so this
subscription watches the consumer's sequence and heartbeats itself. It uses the client through
narrow calls and imports no driver.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from shared.cancellation import pass_on_cancellation
from shared.telemetry import names
from shared.telemetry.instruments import count

HEARTBEAT_S = 2.0
_STATUS = "Status"
_LAST_CONSUMER = "Nats-Last-Consumer"


class Source(Protocol):
    """Opens a subscription: `cb` receives every message, heartbeats included. Returns a function
    that ends the subscription.
    """

    async def __call__(
        self, cb: Callable[[Any], Awaitable[None]], again: bool
    ) -> Callable[[], Awaitable[None]]: ...


class Subscription:
    """Runs until cancelled. `deliver(message)` receives every message except heartbeats and must
    not block.
    """

    def __init__(
        self,
        stream: str,
        source: Source,
        deliver: Callable[[Any], None],
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._stream = stream
        self._source = source
        self._deliver = deliver
        self._heartbeat_s = heartbeat_s
        self._sequence = 0
        self._received_s = 0.0
        self._broken = asyncio.Event()
        self._cause = ""

    def break_off(self, cause: str) -> None:
        """Renew the subscription, because a message may be missing."""
        self._cause = self._cause or cause
        self._broken.set()

    async def run(self) -> None:
        """Subscribe, and again whenever a message may be missing."""
        again = False
        while True:
            self._sequence, self._cause = 0, ""
            self._broken.clear()
            end: Callable[[], Awaitable[None]] | None = None
            try:
                end = await self._source(self._receive, again)
                await self._until_broken()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self._cause = type(error).__name__
                await asyncio.sleep(0.5)
            finally:
                if end is not None:
                    with contextlib.suppress(Exception):
                        async with asyncio.timeout(1.0):
                            await end()
            pass_on_cancellation()
            count(names.BUS_RESUBSCRIBED, stream=self._stream, cause=self._cause)
            again = True

    async def _until_broken(self) -> None:
        # Wakes only when the silence could be too long, not at each message.
        loop = asyncio.get_running_loop()
        self._received_s = loop.time()
        while not self._broken.is_set():
            silent_at_s = self._received_s + 3 * self._heartbeat_s
            if loop.time() >= silent_at_s:
                self.break_off("silence")
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(silent_at_s):
                    await self._broken.wait()

    async def _receive(self, message: Any) -> None:
        self._received_s = asyncio.get_running_loop().time()
        headers = message.headers or {}
        if headers.get(_STATUS):
            last = headers.get(_LAST_CONSUMER, "")
            if last.isdigit() and int(last) > self._sequence:
                self.break_off("gap")
            return
        sequence = consumer_sequence(message.reply)
        if sequence != self._sequence + 1:
            self.break_off("gap")
            return
        self._sequence = sequence
        self._deliver(message)


def consumer_sequence(reply: str) -> int:
    """Return how many messages the consumer has delivered, including this one, from the
    acknowledgement subject; 0 if unreadable.
    """
    tokens = reply.split(".")
    # $JS.ACK.stream.consumer.delivered.stream-seq.consumer-seq..., or with domain and account first
    index = 6 if len(tokens) == 9 else 8
    return int(tokens[index]) if len(tokens) > index and tokens[index].isdigit() else 0


def stored_at(reply: str) -> tuple[int, int]:
    """Return the message's sequence in its stream and the time at which it was stored (Unix
    microseconds), from the acknowledgement subject; 0 if unreadable."""
    tokens = reply.split(".")
    index = 5 if len(tokens) == 9 else 7
    sequence, time_ns = (tokens[index], tokens[index + 2]) if len(tokens) > index + 2 else ("", "")
    return (
        int(sequence) if sequence.isdigit() else 0,
        int(time_ns) // 1000 if time_ns.isdigit() else 0,
    )
