"""One stream from its first version to its last, page by page. What a fact means is the reader's
matter.
"""

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
    """Every envelope of the stream after a version, in order of version, at most so many."""
    version, end = after, after + most
    while version < end and (
        page := await log.read_stream(stream, version, min(PAGE, end - version))
    ):
        for envelope in page:
            yield envelope
        version = page[-1].version


async def readable_events_of(log: EventLog, stream: str) -> AsyncIterator[tuple[Envelope, Event]]:
    """The stream's facts that this release can read; the others are passed over."""
    async for envelope in envelopes_of(log, stream):
        try:
            event = decode(envelope)
        except UndecodableEvent:
            continue
        yield envelope, event
