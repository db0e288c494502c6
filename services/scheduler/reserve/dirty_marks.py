"""Dirty marks and reconciliations: when a node's report is compared with the expected pods, and the
result.

Counts of rejections are volatile; crossing the threshold is an event. Commit ids of marks come from
the node's report and its newest charge, those of reconciliations from the report and the version of
the node's stream. So several schedulers append each once, and a further reconciliation (a pod
ended, and now everything is confirmed) is no duplicate of the previous one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from services.scheduler.reserve.proposals import Proposal
from shared.eventlog.port import Draft
from shared.events import streams
from shared.events.scheduling_events import NodeMarkedDirty, NodeReconciled, ReconcileMethod
from shared.ledger import fingerprints
from shared.ledger.container_zones import lists_placements
from shared.ledger.state import Ledger, LedgerNode


class DirtyMarks:
    """Volatile counts of consecutive rejections, by node. For metrics, `dirty` are the marked
    nodes, and `comparisons` counts compared reports by method or `mismatch`; the reader clears it.
    """

    def __init__(self, dirty_after: int) -> None:
        self._dirty_after = dirty_after
        self._rejections: dict[str, int] = {}
        self._crossed: set[str] = set()
        self._compared: dict[str, int] = {}
        self.dirty: set[str] = set()
        self.comparisons: Counter[str] = Counter()

    def rejected(self, ledger: Ledger, nodes: Iterable[str]) -> None:
        """Count a failed filter for these nodes, which have unconfirmed charges."""
        for name in nodes:
            count = self._rejections.get(name, 0) + 1
            self._rejections[name] = count
            node = ledger.nodes.get(name)
            if count >= self._dirty_after and node is not None and not node.dirty:
                self._crossed.add(name)

    def accepted(self, name: str) -> None:
        """Reset the node's count of rejections, because it took a pod."""
        self._rejections.pop(name, None)

    def proposals(
        self, ledger: Ledger, changed: Collection[str], versions: Mapping[str, int]
    ) -> list[Proposal]:
        """Return dirty marks for nodes that crossed the threshold, and reconciliations for dirty
        nodes that changed.
        """
        proposals = []
        for name in sorted(self._crossed):
            node = ledger.nodes.get(name)
            if node is not None and not node.dirty and fingerprints.has_unconfirmed(node):
                proposals.append(self._mark(node, ledger.position, versions))
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
                proposals.append(proposal)
        return proposals

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
        result = _compared(ledger, node)
        if self._compared.get(node.name) != node.report_version or result is not None:
            self._compared[node.name] = node.report_version
            self.comparisons[result[0] if result is not None else "mismatch"] += 1
        if result is None:
            return None
        method, settled_to = result
        fingerprint = node.report.fingerprint if node.report is not None else ""
        event = NodeReconciled(node.name, method, node.report_version, settled_to, fingerprint)
        stream = streams.node(node.name)
        version = versions.get(stream, 0)
        draft = Draft(stream, event, version)
        commit_id = f"reconciled/{node.name}/{node.report_version}/{version}"
        return Proposal(commit_id, (draft,), node.name, ledger.position, node=node.name)


def _compared(ledger: Ledger, node: LedgerNode) -> tuple[ReconcileMethod, int] | None:
    """Return the method by which the dirty node's report agrees with the expected pods, and up to
    which position; None if it does not agree.
    """
    if node.report is None:
        return None
    if node.listed is not None:
        if not node.charges:
            return "empty", node.report_position
        if all(charge.confirmed or charge.booked for charge in node.charges.values()):
            return "proof", node.report_position
        if lists_placements(node):
            return None
    matched = fingerprints.match(ledger, node)
    useful = matched is not None and fingerprints.would_confirm(node, matched.position)
    return ("fingerprint", matched.position) if matched is not None and useful else None
