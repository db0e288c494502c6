"""Which facts operators have said to skip: read before a fold begins."""

from __future__ import annotations

from shared.eventlog.port import EventLog
from shared.events import streams
from shared.events.codec import UndecodableFact, decode
from shared.events.log_facts import FactSkipped

PAGE = 1000


async def skips(log: EventLog) -> dict[int, int]:
    """Position of each skipped fact -> position of the fact that says so."""
    found: dict[int, int] = {}
    version = 0
    while page := await log.read_stream(streams.LOG, version, PAGE):
        for envelope in page:
            try:
                fact = decode(envelope)
            except UndecodableFact:
                continue
            if isinstance(fact, FactSkipped):
                found.setdefault(fact.position, envelope.position)
        version = page[-1].version
    return found
