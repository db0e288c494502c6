"""Which payloads were redacted, by the hash that each had: read before a chain is followed."""

from __future__ import annotations

from shared.eventlog.port import EventLog
from shared.eventlog.whole_stream import readable_facts_of
from shared.events import streams
from shared.events.log_facts import FactsRedacted


async def redactions(log: EventLog) -> dict[int, str]:
    """Position -> SHA-256 (hex) of the payload as it was appended."""
    found: dict[int, str] = {}
    async for _, fact in readable_facts_of(log, streams.LOG):
        if isinstance(fact, FactsRedacted):
            found = fact.rows | found
    return found
