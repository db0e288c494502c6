"""The hash chain over events: it identifies a history. Pure.

    chain(n) = SHA-256( chain(n - 1) + SHA-256(payload) + header )        chain(0) is empty

The header is every other column of the row as text, preceded by the lengths of the texts, so that
no two rows have the same header. The payload enters by its hash. A redacted payload keeps that
hash, so redaction does not break the chain. Postgres computes the same in `topolog_append`
(migration 0003). Older rows have an empty `chain`; the first row with a chain covers them.
"""

from __future__ import annotations

import re
from hashlib import sha256

from shared.events.envelope import Envelope

BEGINNING = b""
_HASH = re.compile(r"[0-9a-f]{64}")


def is_hash(text: str) -> bool:
    return bool(_HASH.fullmatch(text))


def linked(previous: bytes, envelope: Envelope, payload_sha256: bytes | None = None) -> bytes:
    """Return the chain after `envelope`; the envelope's `chain` field is ignored. `payload_sha256`
    replaces the hash of a payload that was redacted.
    """
    return sha256(
        previous + (payload_sha256 or sha256(envelope.payload).digest()) + header_of(envelope)
    ).digest()


def header_of(row: Envelope) -> bytes:
    # Written out because it runs for every verified event: a loop over the columns costs twice as
    # much.
    stream, kind, role, commit_id, correlation, trace = (
        row.stream,
        row.type,
        row.role,
        row.commit_id,
        row.correlation,
        row.trace,
    )
    return (
        f"{row.position},{row.version},{row.schema},{row.time_us},{row.epoch},{row.causation},"
        f"{len(stream)},{len(kind)},{len(role)},{len(commit_id)},{len(correlation)},{len(trace)}:"
        f"{stream}{kind}{role}{commit_id}{correlation}{trace}"
    ).encode()
