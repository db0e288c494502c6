"""The hash chain over facts: what makes a history recognisable. Pure.

    chain(n) = SHA-256( chain(n - 1) + SHA-256(payload) + header )        chain(0) is empty

The header is every other column of the row as text, the lengths of the texts first, so that no two
rows have one header. The payload goes in by its own hash, so that a redacted payload, which keeps
that hash, breaks nothing. Postgres computes the same in `topolog_append` (migration 0003); rows
that are older have an empty `chain`, and the first one with a chain vouches for them.
"""

from __future__ import annotations

import re
from hashlib import sha256

from shared.events.envelope import Envelope

BEGINNING = b""
_HASH = re.compile(r"[0-9a-f]{64}")


def is_hash(text: str) -> bool:
    """Whether this is a SHA-256, in hex."""
    return bool(_HASH.fullmatch(text))


def linked(before: bytes, envelope: Envelope, payload_sha256: bytes | None = None) -> bytes:
    """The chain after `envelope`, whose own `chain` is not looked at. `payload_sha256` stands in
    for a payload that is gone.
    """
    return sha256(
        before + (payload_sha256 or sha256(envelope.payload).digest()) + _header(envelope)
    ).digest()


def _header(row: Envelope) -> bytes:
    """Written out, as it is computed for every fact that is verified: loops over the columns cost
    twice as much.
    """
    stream, kind, role, commit_id, correlation, trace = (
        row.stream,
        row.type,
        row.role,
        row.commit_id,
        row.correlation,
        row.trace,
    )
    return (
        f"{row.position},{row.version},{row.schema},{row.time_us},{row.epoch},{row.causation},{len(stream)},{len(kind)},"
        f"{len(role)},{len(commit_id)},{len(correlation)},{len(trace)}:{stream}{kind}{role}{commit_id}{correlation}{trace}"
    ).encode()
