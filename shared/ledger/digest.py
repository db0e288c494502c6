"""The state hash: equal positions, equal hashes (S6). A canonical JSON form, so that every process
computes the same.
"""

from __future__ import annotations

import msgspec

from shared.domain.state_hash import canonical, state_hash
from shared.ledger.state import Ledger

_decoder = msgspec.json.Decoder(Ledger)


def digest(ledger: Ledger) -> str:
    """The first 16 hex digits of SHA-256 over the canonical state."""
    return state_hash(ledger)


def to_snapshot(ledger: Ledger) -> bytes:
    """The state as bytes for the snapshot cache."""
    return canonical(ledger)


def from_snapshot(data: bytes) -> Ledger:
    """The inverse. Raises msgspec.MsgspecError on anything that is not a ledger of this shape."""
    return _decoder.decode(data)
