"""Which payloads were redacted, by their original hash. Needed before a chain is verified."""

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
    """Return position -> SHA-256 (hex) of the payload as it was appended. A history file may end
    before the event that says so; then its header does."""
    digests = dict(log.redacted) if isinstance(log, FileLog) else {}
    async for envelope in envelopes_of(log, streams.LOG):
        for position, digest in redactions_in([envelope]).items():
            digests.setdefault(position, digest)
    return digests


def redactions_in(envelopes: Iterable[Envelope]) -> dict[int, str]:
    """Return the redactions that these events record; the first event about a position counts."""
    digests: dict[int, str] = {}
    for envelope in envelopes:
        if envelope.type == FactsRedacted.__name__:
            try:
                event = decode(envelope)
            except UndecodableEvent:
                continue
            if isinstance(event, FactsRedacted):
                for position, digest in event.rows.items():
                    if is_hash(digest):
                        digests.setdefault(position, digest)
    return digests
