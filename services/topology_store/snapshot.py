"""The snapshot of what is known of all nodes: a disposable cache that shortens a start. Pure."""

from __future__ import annotations

import msgspec

from services.topology_store import core
from services.topology_store.core import Known
from shared.eventlog.snapshots import fingerprint, seal, unseal

PROJECTION = "topology-store"
FINGERPRINT = fingerprint(core, PROJECTION)

_decoder = msgspec.json.Decoder(dict[str, Known])


def dump(known: dict[str, Known]) -> bytes:
    """The sealed state."""
    return seal(msgspec.json.encode(known))


def load(sealed: bytes) -> dict[str, Known] | None:
    """The state, or None when it is damaged or of another shape."""
    data = unseal(sealed)
    try:
        return None if data is None else _decoder.decode(data)
    except msgspec.MsgspecError:
        return None
