"""Reservations whose node is gone: taken back before they are bound, so that the pod is decided
again. What came back under the name is another machine, with other labels, taints and zones.

A withdrawal competes with the binder's intent by the version of the pod's stream: one of the two is
appended. Once intended, only the API server's answer counts. Must not know why the node went.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from services.scheduler.reserve.proposals import Proposal
from shared.eventlog.port import Draft
from shared.events import streams
from shared.events.scheduling_events import ReservationWithdrawn, WithdrawCause
from shared.ledger.state import Ledger, LedgerNode


def withdrawals(
    ledger: Ledger, changed: Iterable[str], versions: Mapping[str, int]
) -> list[Proposal]:
    """What to take back on those of the changed nodes that ended, whether or not another came in
    their place.
    """
    found = []
    for name in changed:
        node = ledger.nodes.get(name)
        if node is None:
            continue
        uids = [uid for uid in _before(node) if ledger.pods[uid].stage == "reserved"]
        found += [
            withdrawal(uid, name, ledger.position, versions, "node_ended") for uid in sorted(uids)
        ]
    return found


def _before(node: LedgerNode) -> list[str]:
    """Who was charged before this machine was seen: of a node that stays, nobody that is on the
    way. Asked at each change.
    """
    since = node.observed_at if node.observed is not None else sys.maxsize
    return [uid for uid, charge in node.charges.items() if charge.charged_at < since]


def withdrawal(
    uid: str, node: str, position: int, versions: Mapping[str, int], cause: WithdrawCause
) -> Proposal:
    """Take one reservation back."""
    stream = streams.pod(uid)
    version = versions.get(stream, 0)
    draft = Draft(stream, ReservationWithdrawn(uid, node, cause), version)
    return Proposal(f"withdraw/{uid}/{version}", (draft,), uid, position, node=node)
