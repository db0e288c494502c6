"""Dirty marks and reconciliations: when a node is compared, and what the comparison says.

Counting rejections is volatile; only crossing the threshold is a fact. The commit ids of marks are
made from the node's report and its newest charge, those of reconciliations from the report and the
version of the node's stream, so that several schedulers append each once, and one that is needed
again (a pod ended, and now nothing is unsettled) is not taken for its predecessor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from services.scheduler.reserve.proposals import Proposal
from shared.eventlog.port import Draft
from shared.events import streams
from shared.events.scheduling_events import NodeMarkedDirty, NodeReconciled, ReconcileMethod
from shared.ledger import fingerprints
from shared.ledger.state import Ledger, LedgerNode


class DirtyMarks:
    """Volatile counts of consecutive rejections, by node. For metrics: `dirty` names the nodes that
    are marked, `comparisons` counts reports of dirty nodes that were compared, by method or
    `mismatch`; who reads it clears it."""

    def __init__(self, dirty_after: int) -> None:
        self._dirty_after = dirty_after
        self._rejections: dict[str, int] = {}
        self._crossed: set[str] = set()
        self._compared: dict[str, int] = {}
        self.dirty: set[str] = set()
        self.comparisons: Counter[str] = Counter()

    def rejected(self, ledger: Ledger, nodes: Iterable[str]) -> None:
        """These nodes, of which not everything is settled, refused a pod."""
        for name in nodes:
            count = self._rejections.get(name, 0) + 1
            self._rejections[name] = count
            node = ledger.nodes.get(name)
            if count >= self._dirty_after and node is not None and not node.dirty:
                self._crossed.add(name)

    def accepted(self, name: str) -> None:
        """The node took a pod: the run of rejections is over."""
        self._rejections.pop(name, None)

    def proposals(
        self, ledger: Ledger, changed: Collection[str], versions: Mapping[str, int]
    ) -> list[Proposal]:
        """DirtyMarks for nodes that crossed the threshold, reconciliations for dirty nodes that changed."""
        found = []
        for name in sorted(self._crossed):
            node = ledger.nodes.get(name)
            if node is not None and not node.dirty and fingerprints.has_unconfirmed(node):
                found.append(self._mark(node, ledger.position, versions))
        self._crossed.clear()
        for name in sorted(changed):
            node = ledger.nodes.get(name)
            if node is None or not node.dirty:
                self.dirty.discard(name)
                self._compared.pop(name, None)
                continue
            self.dirty.add(name)
            proposal = self._reconcile(ledger, node, versions)
            if proposal is not None:
                found.append(proposal)
        return found

    def _mark(self, node: LedgerNode, position: int, versions: Mapping[str, int]) -> Proposal:
        newest = max((charge.charged_at for charge in node.charges.values()), default=0)
        rejections = self._rejections.pop(node.name, 0)
        event = NodeMarkedDirty(node.name, "rejections", rejections)
        stream = streams.node(node.name)
        draft = Draft(stream, event, versions.get(stream, 0))
        return Proposal(
            f"dirty/{node.name}/{node.report_version}/{newest}",
            (draft,),
            node.name,
            position,
            node=node.name,
        )

    def _reconcile(
        self, ledger: Ledger, node: LedgerNode, versions: Mapping[str, int]
    ) -> Proposal | None:
        found = _compared(ledger, node)
        if self._compared.get(node.name) != node.report_version or found is not None:
            self._compared[node.name] = node.report_version
            self.comparisons[found[0] if found is not None else "mismatch"] += 1
        if found is None:
            return None
        method, settled_to = found
        fingerprint = node.report.fingerprint if node.report is not None else ""
        event = NodeReconciled(node.name, method, node.report_version, settled_to, fingerprint)
        stream = streams.node(node.name)
        version = versions.get(stream, 0)
        draft = Draft(stream, event, version)
        commit_id = f"reconciled/{node.name}/{node.report_version}/{version}"
        return Proposal(commit_id, (draft,), node.name, ledger.position, node=node.name)


def _compared(ledger: Ledger, node: LedgerNode) -> tuple[ReconcileMethod, int] | None:
    """How the dirty node's report agrees with what is expected, and up to which position; None when
    it does not.
    """
    if node.report is None:
        return None
    if node.listed is not None:
        if not node.charges:
            return "empty", node.report_position
        proven = all(charge.confirmed for charge in node.charges.values())
        return ("proof", node.report_position) if proven else None
    matched = fingerprints.match(ledger, node)
    useful = matched is not None and fingerprints.would_confirm(node, matched.position)
    return ("fingerprint", matched.position) if matched is not None and useful else None
