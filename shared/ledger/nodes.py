"""A node's entry in the ledger: made when anything is told of the node, and let go when nothing
speaks of it any more.

Names come and go with machines that an autoscaler rents: an entry, which holds a whole report, must
not outlive them. Should the name come back, its first report is a full one, as after any silence,
and what it lists for pods that ended counts as used. Must not know charges.
"""

from __future__ import annotations

from shared.domain.resources import PODS, Amounts
from shared.ledger.state import Ledger, LedgerNode


def node_of(ledger: Ledger, name: str) -> LedgerNode:
    """The node's entry, made when it is new: a pod may be seen bound before its node is."""
    node = ledger.nodes.get(name)
    if node is None:
        node = ledger.nodes[name] = LedgerNode(name=name)
    return node


def let_go(ledger: Ledger, node: LedgerNode) -> None:
    """Forget a node that has no Node object, reports nothing and holds no pod. Who reports and
    never was a node is kept: an operator looks for it."""
    if node.observed is None and _is_empty(node):
        del ledger.nodes[node.name]


def _is_empty(node: LedgerNode) -> bool:
    silent = node.report is None or (node.is_deleted and node.expired)
    return silent and not node.charges and not node.claims


def count(node: LedgerNode, request: Amounts, sign: int) -> None:
    """Add (1) or remove (-1) one pod's request on the node as a whole."""
    requested = node.requested
    for name, amount in request.items():
        requested[name] = requested.get(name, 0) + sign * amount
    requested[PODS] = requested.get(PODS, 0) + sign


def forget_ended(node: LedgerNode, key: str) -> None:
    """Forget the ended pods of a name, and what an absent one still requested."""
    ended = node.ended.pop(key)
    if ended.is_counted and ended.absent is not None:
        count(node, ended.absent.request, -1)
