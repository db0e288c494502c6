"""Withdrawals of reservations whose node has ended, before they are bound, so that the pod is
decided again. A node that comes back under the name is another machine, with other labels, taints
and zones.

A withdrawal competes with the binder's intent by the version of the pod's stream: one of the two is
appended. After the intent only the API server's answer counts. Must not know why the node ended.
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
    """Return the withdrawals on changed nodes that ended, whether or not another node came in their
    place.
    """
    proposals = []
    for name in changed:
        node = ledger.nodes.get(name)
        if node is None:
            continue
        uids = [uid for uid in _charged_before(node) if ledger.pods[uid].stage == "reserved"]
        proposals += [
            withdrawal(uid, name, ledger.position, versions, "node_ended") for uid in sorted(uids)
        ]
    return proposals


def _charged_before(node: LedgerNode) -> list[str]:
    # Pods charged before this machine was observed. On a node that stays none of them is reserved.
    since = node.observed_at if node.observed is not None else sys.maxsize
    return [uid for uid, charge in node.charges.items() if charge.charged_at < since]


def withdrawal(
    uid: str, node: str, position: int, versions: Mapping[str, int], cause: WithdrawCause
) -> Proposal:
    """Return the withdrawal of one reservation."""
    stream = streams.pod(uid)
    version = versions.get(stream, 0)
    draft = Draft(stream, ReservationWithdrawn(uid, node, cause), version)
    return Proposal(f"withdraw/{uid}/{version}", (draft,), uid, position, node=node)
