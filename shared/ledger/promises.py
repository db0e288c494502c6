"""What the ledger promises, as bytes that every release computes alike: who holds what on which
node and zone.

Two folds of one log may keep different things; what is promised to pods they must see alike, or one
of them would give away what the other has given. The form is part of what releases compare
(`shared.runtime.marks`): it says nothing of how the state is kept.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from shared.ledger.state import Charge, Ledger, LedgerNode

_encoder = msgspec.json.Encoder(order="sorted")


def promises(ledger: Ledger) -> Iterator[bytes]:
    """A piece for each node with charges, by name, and one for who stands on nodes without."""
    for name in sorted(ledger.nodes):
        if ledger.nodes[name].charges:
            yield _encoder.encode([name, _node(ledger.nodes[name])])
    yield _encoder.encode(
        sorted((uid, entry.node) for uid, entry in ledger.pods.items() if entry.node)
    )


def weight(ledger: Ledger) -> int:
    """Pods, which is what the pieces are made of."""
    return len(ledger.pods)


def _node(node: LedgerNode) -> dict[str, object]:
    return {
        "charges": {uid: _charge(charge) for uid, charge in node.charges.items()},
        "requested": node.requested,
    }


def _charge(charge: Charge) -> dict[str, object]:
    """What is subtracted now, or what was proven."""
    zones = charge.confirmed_zones if charge.confirmed else charge.zones
    return {
        "proven": charge.confirmed,
        "zones": {str(zone): amounts for zone, amounts in zones.items()},
    }
