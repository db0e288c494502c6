"""Read one stream from its first to its last version, page by page."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

from shared.eventlog.port import EventLog
from shared.events.catalog import Event
from shared.events.codec import UndecodableEvent, decode
from shared.events.envelope import Envelope

PAGE = 1000


async def envelopes_of(
    log: EventLog, stream: str, after: int = 0, most: int = sys.maxsize
) -> AsyncIterator[Envelope]:
    """Yield the stream's envelopes after a version in order, at most `most`."""
    version, end = after, after + most
    while version < end and (
        page := await log.read_stream(stream, version, min(PAGE, end - version))
    ):
        for envelope in page:
            yield envelope
        version = page[-1].version


async def readable_events_of(log: EventLog, stream: str) -> AsyncIterator[tuple[Envelope, Event]]:
    """Yield the stream's events that this release can decode; the others are skipped."""
    async for envelope in envelopes_of(log, stream):
        try:
            event = decode(envelope)
        except UndecodableEvent:
            continue
        yield envelope, event
