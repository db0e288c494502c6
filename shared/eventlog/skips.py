"""Which facts operators have said to skip: read before a fold begins."""

from __future__ import annotations

from shared.eventlog.port import EventLog
from shared.eventlog.whole_stream import readable_events_of
from shared.events import streams
from shared.events.log_events import FactSkipped


async def skips(log: EventLog) -> dict[int, int]:
    """Position of each skipped fact -> position of the fact that says so."""
    found: dict[int, int] = {}
    async for envelope, event in readable_events_of(log, streams.LOG):
        if isinstance(event, FactSkipped):
            found.setdefault(event.position, envelope.position)
    return found
