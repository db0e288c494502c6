"""Placements of pods that a report's fingerprint matches: from the zone of each container
(`Report.container_zones`, numaplacement), or from annotations (`observed_places`).

1. The containers are those of the pods that the report's fingerprint matches, in the order of their
   hashes. If there are more or fewer of them than the report counts, nothing follows.

2. A container's zone holds everything that it requests exclusively. In each zone the report must
   count at least the sum of this as used, or nothing follows.

3. Such a node lists placements for its basis, the last report that was matched. A later report
   without a match changes neither.

Must not know how reports are matched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shared.domain.demand import ContainerDemand
from shared.domain.report import KOORDLET, OBJECT, Placement, Report, ZonedAmount
from shared.kubelet.fingerprint import container_hash
from shared.ledger.alike import kind_of
from shared.ledger.observed_places import Listing, observed_listing
from shared.ledger.state import LedgerNode, LedgerPod


def lists_placements(node: LedgerNode) -> bool:
    """Return True if every report of the node lists placements itself."""
    report = node.report
    return node.listed is not None and report is not None and not lists_by_match(report)


def lists_by_match(report: Report) -> bool:
    """Return True if only a match can say which pods' placements the report shows."""
    is_object = report.source == OBJECT and report.exporter != KOORDLET
    return report.container_zones is not None or is_object


def may_list(node: LedgerNode, report: Report) -> bool:
    """Return True if a match of the report may give placements."""
    if report.container_zones is not None:
        return True
    return lists_by_match(report) and (
        node.listed is not None or any(charge.observed for charge in node.charges.values())
    )


def listing_of(
    node: LedgerNode,
    report: Report,
    expected: Sequence[tuple[str, str]],
    pods: Mapping[str, LedgerPod],
) -> Listing | None:
    """Return what the report lists if these pods (key, uid) are on the node, by key."""
    if not may_list(node, report):
        return None
    demands: dict[tuple[str, str], Sequence[ContainerDemand]] = {}
    for key, uid in expected:
        demand = _demand(node, report, key, uid, pods)
        if demand is None:
            return None
        demands[key, uid] = demand
    if report.container_zones is None:
        return observed_listing(report, demands, node.charges)
    containers: dict[int, tuple[str, str, ContainerDemand]] = {}
    for (key, uid), demand in demands.items():
        namespace, _, name = key.partition("/")
        for part in demand:
            if part.kind != "init" and part.amounts:
                containers[container_hash(namespace, name, part.name)] = key, uid, part
    if len(containers) != len(report.container_zones):
        return None
    listing: dict[str, list[Placement]] = {}
    for number, zone in zip(sorted(containers), report.container_zones, strict=True):
        key, uid, part = containers[number]
        namespace, _, name = key.partition("/")
        amounts = tuple([ZonedAmount(item, (zone,), part.amounts[item]) for item in part.amounts])
        placement = Placement(namespace, name, part.name, amounts, uid)
        listing.setdefault(key, []).append(placement)
    if not _is_counted(report, listing):
        return None
    return {key: tuple(listing[key]) for key in sorted(listing)}


def _demand(
    node: LedgerNode, report: Report, key: str, uid: str, pods: Mapping[str, LedgerPod]
) -> Sequence[ContainerDemand] | None:
    """Return the demand of a live pod, or of the only pod of its name that ended."""
    entry = pods.get(uid)
    if entry is not None:
        return kind_of(entry.pod).demand_on(report)
    ended = node.ended.get(key)
    if ended is None or ended.lives is None or len(ended.lives) != 1:
        return None
    return ended.lives[0].demand


def _is_counted(report: Report, listing: Mapping[str, Sequence[Placement]]) -> bool:
    used = {
        (zone.id, name): amounts.allocatable - amounts.available
        for zone in report.zones
        for name, amounts in zone.resources.items()
    }
    for placements in listing.values():
        for placement in placements:
            for item in placement.held:
                counted = item.zones[0], item.resource
                used[counted] = used.get(counted, 0) - item.amount
    return min(used.values(), default=0) >= 0
