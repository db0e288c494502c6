"""Entries of nodes in the ledger, and their sums.

Names come and go with machines that an autoscaler rents. An entry holds a whole report, so it must
not outlive its node. If the name comes back, its first report is a full one, and amounts that it
lists for ended pods count as used. Must not know charges.
"""

from __future__ import annotations

from shared.domain.resources import PODS, Amounts
from shared.ledger.state import Ledger, LedgerNode


def node_of(ledger: Ledger, name: str) -> LedgerNode:
    """Return the node's entry, a new one if there is none: a pod may be observed on a node before
    the node itself."""
    node = ledger.nodes.get(name)
    if node is None:
        node = ledger.nodes[name] = LedgerNode(name=name)
    return node


def forget_if_empty(ledger: Ledger, node: LedgerNode) -> None:
    """Forget a node without a Node object, reports, pods and a Device object. A node that reports
    and has no Node object stays, because an operator may look for it."""
    is_silent = node.report is None or (node.is_deleted and node.expired)
    if node.observed is None and is_silent and not (node.charges or node.claims or node.devices):
        del ledger.nodes[node.name]


def count(node: LedgerNode, request: Amounts, sign: int) -> None:
    """Add (1) or remove (-1) one pod's request on the node as a whole."""
    requested = node.requested
    for name, amount in request.items():
        requested[name] = requested.get(name, 0) + sign * amount
    requested[PODS] = requested.get(PODS, 0) + sign


def forget_ended(node: LedgerNode, key: str) -> None:
    """Forget the ended pods of a name."""
    stop_counting(node, key)
    del node.ended[key]


def stop_counting(node: LedgerNode, key: str) -> None:
    """Forget the doubt about the last ended pod of this name, which was only absent from a list: it
    has ended for certain, or it is charged again."""
    ended = node.ended[key]
    if ended.is_counted and ended.absent is not None:
        count(node, ended.absent.request, -1)
    ended.absent, ended.is_counted = None, False
