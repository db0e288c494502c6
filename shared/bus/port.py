"""What services may ask of the bus. Both adapters (memory, JetStream) pass one contract suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import msgspec


class Message(msgspec.Struct, frozen=True):
    """One message. `headers` hold trace context and message id. `sequence` and `time_us` are its
    place in its stream and the time at which it was stored (Unix microseconds, 0 if unknown)."""

    subject: str
    data: bytes
    headers: Mapping[str, str] = {}
    sequence: int = 0
    time_us: int = 0


# Room for one report. That of a node with 8 zones, 256 CPUs, 16 kinds of devices and 100 pods has
# 53,043 bytes (`python -m tests.bench exporter`). A report may have 512 KiB, but not each of them.
REPORT_BYTES = 64 << 10


class StreamLimits(msgspec.Struct, frozen=True):
    """Limits of the streams; their content can always be sent again. The report stream has room for
    `nodes`. `duplicate_window_s` is how long a repeated message id is recognised, `replicas` the
    number of copies in a cluster."""

    nodes: int = 2048
    report_age_s: float = 24 * 3600.0
    event_bytes: int = 256 << 20
    event_age_s: float = 24 * 3600.0
    message_bytes: int = 1 << 20
    duplicate_window_s: float = 120.0
    replicas: int = 1

    @property
    def report_bytes(self) -> int:
        return self.nodes * REPORT_BYTES


class Bus(Protocol):
    """Publishing is at-least-once, and an event is stored once per message id. A subscription may
    repeat messages and may miss some.
    """

    async def ensure_streams(self) -> None:
        """Create or update the streams; idempotent."""

    async def publish(self, subject: str, data: bytes, headers: Mapping[str, str]) -> None:
        """Publish and wait until the stream has stored the message. Raises BusUnavailable after
        bounded retries.
        """

    async def publish_many(self, messages: list[Message]) -> None:
        """Publish in order with a bounded window of unconfirmed messages; return when all are
        stored.
        """

    def reports(self) -> AsyncIterator[list[Message]]:
        """Yield batches of reports: first the newest of every node, then each new one. Reconnects
        indefinitely; ends on close.
        """

    def events(self) -> AsyncIterator[int]:
        """Yield positions received on the event stream from now on: a doorbell, not a complete
        list. Ends on close.
        """

    async def connected(self) -> bool:
        """Return whether there is a connection, for readiness."""

    def since_echo_s(self) -> float:
        """Return the seconds since an echo of this process came back through the report stream;
        infinite before the first echo. Since then, missing reports prove nothing about nodes. Only
        meaningful while `reports` is read."""

    async def close(self) -> None:
        """Drain and disconnect; never raises."""


class BusUnavailable(Exception):
    """The bus did not answer in time. Names the server and the subject."""
