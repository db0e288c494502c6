"""What the ledger promises to pods, as bytes that every release computes alike.

Two folds of one log may keep different state, but they must agree which pod holds what on which
node and zone, or one of them gives away what the other has given. Releases compare these bytes
(`shared.runtime.marks`), so names and form stay.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from shared.domain.resources import PODS, Amounts
from shared.ledger.state import Charge, Ledger, LedgerNode

_encoder = msgspec.json.Encoder(order="sorted")


def promises(ledger: Ledger) -> Iterator[bytes]:
    """Yield a piece for each node with charges, by name, and one for the nodes of all pods."""
    for name in sorted(ledger.nodes):
        if ledger.nodes[name].charges:
            yield _encoder.encode([name, _node(ledger.nodes[name])])
    yield _encoder.encode(
        sorted((uid, entry.node) for uid, entry in ledger.pods.items() if entry.node)
    )


def weight(ledger: Ledger) -> int:
    """Return the number of pods, from which the pieces are made."""
    return len(ledger.pods)


def _node(node: LedgerNode) -> dict[str, object]:
    return {
        "charges": {uid: _charge(charge) for uid, charge in node.charges.items()},
        "requested": _requested_by_live_pods(node),
    }


def _requested_by_live_pods(node: LedgerNode) -> Amounts:
    """Pods that are only absent from a list are promised nothing, and 0.1.0 does not count them."""
    counted = [ended.absent for ended in node.ended.values() if ended.is_counted]
    if not counted:
        return node.requested
    requested = dict(node.requested)
    for absent in counted:
        for name, amount in {**absent.request, PODS: 1}.items() if absent is not None else ():
            requested[name] -= amount
    return requested


def _charge(charge: Charge) -> dict[str, object]:
    zones = charge.confirmed_zones if charge.confirmed else charge.zones
    return {
        "proven": charge.confirmed,
        "zones": {str(zone): amounts for zone, amounts in zones.items()},
    }
