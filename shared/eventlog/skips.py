"""Which events operators skip. Needed before a fold begins."""

from __future__ import annotations

from shared.eventlog.port import EventLog
from shared.eventlog.whole_stream import readable_events_of
from shared.events import streams
from shared.events.log_events import FactSkipped


async def skips(log: EventLog) -> dict[int, int]:
    """Return position of each skipped event -> position of the event that says so."""
    skipped: dict[int, int] = {}
    async for envelope, event in readable_events_of(log, streams.LOG):
        if isinstance(event, FactSkipped):
            skipped.setdefault(event.position, envelope.position)
    return skipped
