"""What if: a node of the ledger without some of its pods, by the ledger's own rules. Nobody else subtracts a pod from a node.

The answer is a node as the fold would hold it had these pods ended; the ledger itself stays as it is. Must not know who asks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy

from shared.domain.resources import PODS
from shared.ledger.alike import kind_of
from shared.ledger.settle import settle
from shared.ledger.state import Ended, LedgerNode, LedgerPod


def what_if(node: LedgerNode, gone: Collection[str], pods: Mapping[str, LedgerPod], claimant: str = "") -> LedgerNode:
    """The node once the pods `gone` (uids on it) have ended and the claimant's own claim is given back."""
    left = copy(node)
    left.charges = {uid: copy(charge) for uid, charge in node.charges.items() if uid not in gone}
    left.ended = {key: copy(ended) for key, ended in node.ended.items()}
    left.requested = dict(node.requested)
    left.claims = {uid: zones for uid, zones in node.claims.items() if uid != claimant}
    for uid in sorted(gone):
        charge = node.charges[uid]
        left.requested[PODS] = left.requested.get(PODS, 0) - 1
        for name, amount in kind_of(pods[uid].pod).request.items():
            left.requested[name] = left.requested.get(name, 0) - amount
        if charge.demand:
            left.ended[charge.key] = Ended(complete=charge.proven and charge.alias is None)
    settle(left)
    return left
