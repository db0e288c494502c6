"""The envelope: what the log stores with an event.

The event itself is decoded by `shared.events.codec` only if a reader folds it.
"""

from __future__ import annotations

import msgspec


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """One row of the log.

    `position` is global, and `version` is per `stream`; both are gapless from 1. `time_us` is the
    writer's clock in Unix microseconds, for people and for bounds on waiting (`hold-after`): no
    fold decides by it. `causation` is the position of the event that led to this one, 0 for none,
    and `correlation` is the pod uid or node name that it belongs to, empty if the event or its
    stream says it. `trace` is a W3C traceparent, empty for none, `-` if it is not recorded. `chain`
    is the hash of the history up to and including this row (`shared.eventlog.chain`), empty in rows
    older than chains.
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
