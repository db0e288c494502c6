"""Which payloads were redacted, by the hash that each had: read before a chain is followed."""

from __future__ import annotations

from shared.eventlog.port import EventLog
from shared.events import streams
from shared.events.codec import UndecodableFact, decode
from shared.events.log_facts import FactsRedacted

PAGE = 1000


async def redactions(log: EventLog) -> dict[int, str]:
    """Position -> SHA-256 (hex) of the payload as it was appended."""
    found: dict[int, str] = {}
    version = 0
    while page := await log.read_stream(streams.LOG, version, PAGE):
        for envelope in page:
            if envelope.type == FactsRedacted.__name__:
                try:
                    fact = decode(envelope)
                except UndecodableFact:
                    continue
                if isinstance(fact, FactsRedacted):
                    found |= {position: digest for position, digest in fact.rows.items() if position not in found}
        version = page[-1].version
    return found
