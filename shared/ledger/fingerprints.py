"""Confirming charges by reports that carry no placements, by their fingerprint.

The report's fingerprint is compared with that of the pods expected on the node at every position
since the last match, by the exporter's own method. The earliest match confirms the charges up to
that position and no later one: a later set with the same names may hold another pod of a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from shared.domain.report import Report
from shared.domain.resources import Amounts, add
from shared.events.scheduling_events import NodeReconciled
from shared.kubelet.fingerprint import fingerprint
from shared.ledger.alike import kind_of
from shared.ledger.charge import listed_demand
from shared.ledger.container_zones import listing_of, lists_by_match
from shared.ledger.nodes import forget_ended
from shared.ledger.observed_places import Listing
from shared.ledger.recompute import recompute
from shared.ledger.state import Expectation, Ledger, LedgerNode, LedgerPod
from shared.ledger.view import total


class Match(msgspec.Struct, frozen=True):
    """The report agrees with what was expected from `position` on: `pods`, as (key, uid)."""

    position: int
    pods: tuple[tuple[str, str], ...] = ()


def match(ledger: Ledger, node: LedgerNode) -> Match | None:
    """Return the earliest expectation since the last match with the current report's fingerprint,
    if the report shows at least as much in use as these pods demand exclusively."""
    return _match(ledger, node, node.report) if node.report is not None else None


def _match(ledger: Ledger, node: LedgerNode, report: Report) -> Match | None:
    is_listed = node.listed is not None and not lists_by_match(report)
    if is_listed or not report.fingerprint:
        return None
    for expectation in node.history:
        if expectation.position < node.confirmed_to:
            continue
        demands = _demands(expectation, report, ledger.pods, node.departed)
        if fingerprint(_counted(expectation, report, demands)) == report.fingerprint:
            if not _usage_covers(report, demands.values()):
                return None
            return Match(expectation.position, expectation.pods)
    return None


# uid -> the amounts that the expected pod is listed with once it is admitted; None for a pod that
# left too long ago.
Demands = Mapping[str, Amounts | None]


def _demands(
    expectation: Expectation,
    report: Report,
    pods: Mapping[str, LedgerPod],
    departed: Mapping[str, Amounts],
) -> Demands:
    demands: dict[str, Amounts | None] = {}
    for _, uid in expectation.pods:
        entry = pods.get(uid)
        if entry is None:
            demands[uid] = departed.get(uid)
        else:
            demands[uid] = listed_demand(kind_of(entry.pod).demand_on(report))
    return demands


def _counted(expectation: Expectation, report: Report, demands: Demands) -> list[tuple[str, str]]:
    """Return the (namespace, name) pairs that the exporter's method counts."""
    all_pods = report.fingerprint_method != "with-exclusive-resources"
    pairs = []
    for key, uid in expectation.pods:
        if all_pods or demands[uid] is None or demands[uid]:
            namespace, _, name = key.partition("/")
            pairs.append((namespace, name))
    return pairs


def _usage_covers(report: Report, demands: Iterable[Amounts | None]) -> bool:
    """Pods that left since count, too: while they are listed, their holdings must not pass for
    those of another pod, for which the kubelet has not allocated yet (it lists a pod before it
    allocates)."""
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
    """Return True if a later report may still confirm something: a live pod is unconfirmed, or the
    bounds come from an older report (without placements, only a match makes the newest one count).
    """
    is_older = node.basis != node.report
    return is_older or any(
        not (charge.confirmed or charge.booked) for charge in node.charges.values()
    )


def would_confirm(node: LedgerNode, position: int) -> bool:
    """Return True if a match at `position` changes anything: bounds, a charge, or a dirty mark that
    nothing justifies any more."""
    if not has_unconfirmed(node) or node.basis != node.report:
        return True
    return any(
        not (charge.confirmed or charge.booked) and 0 < charge.charged_at <= position
        for charge in node.charges.values()
    )


def container_listing(ledger: Ledger, node: LedgerNode, report: Report) -> Listing | None:
    """Return the placements of a new report that has the zones of containers; those of the basis
    if nothing follows from it."""
    matched = _match(ledger, node, report)
    listing = listing_of(node, report, matched.pods, ledger.pods) if matched is not None else None
    return listing if listing is not None else node.listed


def confirm_containers(ledger: Ledger, node: LedgerNode) -> bool:
    """List the placements of a current report that has the zones of containers, if it matches;
    False if nothing follows from it."""
    report, matched = node.report, match(ledger, node)
    if report is None or matched is None:
        return False
    listing = listing_of(node, report, matched.pods, ledger.pods)
    if listing is None:
        return False
    node.listed = listing
    _settle(node, matched.position)
    for key in list(node.ended):
        lives = node.ended[key].lives
        is_past = lives is not None and all(life.ended_at <= matched.position for life in lives)
        if key not in listing and is_past:
            forget_ended(node, key)
    return True


def _settle(node: LedgerNode, position: int) -> None:
    """Make the current report the basis: it shows the pods that were expected at `position`."""
    node.basis, node.confirmed_to = node.report, position
    node.freed = [freed for freed in node.freed if freed.position > position]
    node.history = [each for each in node.history if each.position >= position]
    named = {uid for expectation in node.history for _, uid in expectation.pods}
    node.departed = {uid: amounts for uid, amounts in node.departed.items() if uid in named}


def reconciled(ledger: Ledger, node: LedgerNode, event: NodeReconciled) -> None:
    """Fold a reconciliation: a fingerprint match makes the compared report the basis.

    What ended after the matched position stays possibly free. The dirty mark goes if nothing is
    left unconfirmed; charges made after the matched position keep it, so that the next report is
    compared, too. A match of a report that is no longer current confirms nothing."""
    if event.method != "fingerprint":
        node.dirty = ""
        return
    if event.report_version != node.report_version or node.report is None:
        return
    pods = next((each.pods for each in node.history if each.position == event.settled_to), ())
    node.listed = listing_of(node, node.report, pods, ledger.pods)
    _settle(node, event.settled_to)
    for key in list(node.ended):
        if node.listed is None or key not in node.listed:
            forget_ended(node, key)
    recompute(node)
    if not has_unconfirmed(node):
        node.dirty = ""
