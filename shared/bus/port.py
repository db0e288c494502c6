"""What services may ask of the bus. Two adapters (memory, JetStream) pass one contract suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import msgspec


class Message(msgspec.Struct, frozen=True):
    """One message: subject, headers (trace context, message id), body, the bus's own sequence in
    its stream, and when it was stored there (Unix microseconds, 0 where the bus does not say)."""

    subject: str
    data: bytes
    headers: Mapping[str, str] = {}
    sequence: int = 0
    time_us: int = 0


class Bus(Protocol):
    """Publish is at-least-once and idempotent by message id; a subscription may repeat and must not
    be trusted to be complete.
    """

    async def ensure_streams(self) -> None:
        """Create or update the two JetStream streams; idempotent."""

    async def publish(self, subject: str, data: bytes, headers: Mapping[str, str]) -> None:
        """Publish and wait for the stream's acknowledgement. Raises BusUnavailable after its own
        bounded retries.
        """

    async def publish_many(self, messages: list[Message]) -> None:
        """Publish in order with a bounded window of unacknowledged messages; returns when all are
        acknowledged.
        """

    def reports(self) -> AsyncIterator[list[Message]]:
        """Batches of reports: first the newest of every node, then each new one. Reconnects for
        ever; ends on close.
        """

    def events(self) -> AsyncIterator[int]:
        """Positions heard on the fact stream from now on: a doorbell, never a complete list. Ends
        on close.
        """

    async def connected(self) -> bool:
        """For readiness."""

    def unheard_s(self) -> float:
        """How long ago this process surely heard what is reported: what it sent through the stream
        of reports itself came back. Infinite before the first time; asked of a bus whose `reports`
        are read. Silence of nodes since then is no evidence."""

    async def close(self) -> None:
        """Drain and disconnect; never raises."""


class BusUnavailable(Exception):
    """The bus could not be reached in time. Names the server and the subject."""
