"""Which payloads were redacted, by the hash that each had: read before a chain is followed."""

from __future__ import annotations

from collections.abc import Iterable

from shared.eventlog.chain import is_hash
from shared.eventlog.file_log import FileLog
from shared.eventlog.port import EventLog
from shared.eventlog.whole_stream import envelopes_of
from shared.events import streams
from shared.events.codec import UndecodableEvent, decode
from shared.events.envelope import Envelope
from shared.events.log_events import FactsRedacted


async def redactions(log: EventLog) -> dict[int, str]:
    """Position -> SHA-256 (hex) of the payload as it was appended. A history in a file may end
    before the fact that says so: then its header does."""
    found = dict(log.redacted) if isinstance(log, FileLog) else {}
    async for envelope in envelopes_of(log, streams.LOG):
        for position, digest in told_by([envelope]).items():
            found.setdefault(position, digest)
    return found


def told_by(envelopes: Iterable[Envelope]) -> dict[int, str]:
    """What these facts say was redacted; of two words on one position the first."""
    found: dict[int, str] = {}
    for envelope in envelopes:
        if envelope.type == FactsRedacted.__name__:
            try:
                event = decode(envelope)
            except UndecodableEvent:
                continue
            if isinstance(event, FactsRedacted):
                for position, digest in event.rows.items():
                    if is_hash(digest):
                        found.setdefault(position, digest)
    return found
