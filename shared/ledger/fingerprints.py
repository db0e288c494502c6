"""The fingerprint path: settling charges by reports that carry no placements.

The report's fingerprint is compared with that of the pods expected on the node at every position
since the last match, by the exporter's own predicate (its method and its active managers). The
earliest match settles the charges up to that position and no later one: a later set with the same
names may hold another pod of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from shared.domain.demand import zonal_demand
from shared.domain.report import Report
from shared.domain.resources import Amounts, add
from shared.events.scheduling_events import NodeReconciled
from shared.kubelet.fingerprint import fingerprint
from shared.ledger.charge import listed_demand
from shared.ledger.nodes import forget_ended
from shared.ledger.recompute import recompute
from shared.ledger.state import Expectation, Ledger, LedgerNode, LedgerPod
from shared.ledger.view import total


class Match(msgspec.Struct, frozen=True):
    """The report agrees with what was expected from `position` on."""

    position: int


def match(ledger: Ledger, node: LedgerNode) -> Match | None:
    """The earliest expectation since the last match that the current report's fingerprint agrees
    with, if any, and if the report shows at least as much in use as those pods demand exclusively.
    """
    report = node.report
    if report is None or node.listed is not None or not report.fingerprint:
        return None
    for expectation in node.history:
        if expectation.position < node.confirmed_to:
            continue
        demands = _demands(expectation, report, ledger.pods, node.departed)
        if fingerprint(_counted(expectation, report, demands)) == report.fingerprint:
            return Match(expectation.position) if _usage_covers(report, demands.values()) else None
    return None


Demands = Mapping[str, Amounts | None]


def _demands(
    expectation: Expectation,
    report: Report,
    pods: Mapping[str, LedgerPod],
    departed: Mapping[str, Amounts],
) -> Demands:
    """Uid -> what the expected pod is listed with once it is admitted; None for one that left too
    long ago to be known.
    """
    found: dict[str, Amounts | None] = {}
    for _, uid in expectation.pods:
        entry = pods.get(uid)
        found[uid] = (
            listed_demand(zonal_demand(entry.pod, report.tracked))
            if entry is not None
            else departed.get(uid)
        )
    return found


def _counted(expectation: Expectation, report: Report, demands: Demands) -> list[tuple[str, str]]:
    """The (namespace, name) pairs that the exporter's method counts."""
    everyone = report.fingerprint_method != "with-exclusive-resources"
    keys = [
        key.partition("/")
        for key, uid in expectation.pods
        if everyone or demands[uid] is None or demands[uid]
    ]
    return [(namespace, name) for namespace, _, name in keys]


def _usage_covers(report: Report, demands: Iterable[Amounts | None]) -> bool:
    """Pods that left since are counted, too: while they are listed, what they hold must not pass
    for what another pod has yet to get (a kubelet lists a pod before it allocates for it)."""
    used = total(
        {name: r.allocatable - r.available for name, r in zone.resources.items()}
        for zone in report.zones
    )
    demanded: Amounts = {}
    for amounts in demands:
        if amounts is None:
            return False
        demanded = add(demanded, amounts)
    return all(used.get(name, 0) >= amount for name, amount in demanded.items())


def has_unconfirmed(node: LedgerNode) -> bool:
    """True where a later report may still settle something: a live pod is unproven, or the bounds
    stand on an older report (where reports carry no placements, a match alone makes the newest one
    count)."""
    return node.basis != node.report or any(
        not charge.confirmed for charge in node.charges.values()
    )


def would_confirm(node: LedgerNode, position: int) -> bool:
    """True when a match at `position` changes anything: bounds, a charge, or a mark that nothing is
    left to justify.
    """
    charges = node.charges.values()
    return (
        not has_unconfirmed(node)
        or node.basis != node.report
        or any(not charge.confirmed and 0 < charge.charged_at <= position for charge in charges)
    )


def reconciled(node: LedgerNode, event: NodeReconciled) -> None:
    """Fold a reconciliation: a fingerprint match makes the compared report the basis.

    What ended after the matched position stays possibly free. The dirty mark goes when nothing is
    left unsettled; charges made after the matched position keep it, so that the next report is
    compared too. A match of a report that is no longer current settles nothing."""
    if event.method != "fingerprint":
        node.dirty = ""
        return
    if event.report_version != node.report_version or node.report is None:
        return
    node.basis = node.report
    node.freed = [freed for freed in node.freed if freed.position > event.settled_to]
    node.confirmed_to = event.settled_to
    kept = [expectation for expectation in node.history if expectation.position >= event.settled_to]
    node.history = kept
    named = {uid for expectation in kept for _, uid in expectation.pods}
    node.departed = {uid: amounts for uid, amounts in node.departed.items() if uid in named}
    for key in list(node.ended):
        forget_ended(node, key)
    recompute(node)
    if not has_unconfirmed(node):
        node.dirty = ""
