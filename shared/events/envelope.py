"""The envelope: what the log adds to a fact. Position, stream, version, who wrote it, why, and in
which trace.

The fact itself is decoded lazily by `shared.events.codec`, so that a reader may skip what it does
not fold.
"""

from __future__ import annotations

import msgspec


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """One row of the log.

    `position` is global and gapless from 1; `version` is per `stream`, gapless from 1. `time_us` is
    Unix microseconds as the writer saw them (for people; no fold decides by it). `causation` is the
    position of the fact that led to this one, 0 for none. `correlation` is the pod uid or node name
    that the story is about. `trace` is a W3C traceparent, empty for none. `chain` is the hash of
    the history up to and with this row (`shared.eventlog.chain`), empty in rows older than chains.
    """

    position: int
    stream: str
    version: int
    type: str
    schema: int
    payload: bytes
    time_us: int
    role: str
    epoch: int
    commit_id: str
    correlation: str = ""
    causation: int = 0
    trace: str = ""
    chain: bytes = b""
