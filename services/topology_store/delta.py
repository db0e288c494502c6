"""What changed between two reports of one boot, and whether a delta can say it at all."""

from __future__ import annotations

from shared.domain.report import Placement, Report, Zone
from shared.events.report_facts import NodeReportChanged
from shared.ledger.reports import by_key


def resembles(before: Report, after: Report) -> bool:
    """True when only availability, placements and the fingerprint may differ: what a delta can carry."""
    return _frame(before) == _frame(after)


def _frame(report: Report) -> tuple[object, ...]:
    zones = tuple(
        (
            zone.id,
            tuple(sorted(zone.costs.items())),
            tuple(sorted((n, r.capacity, r.allocatable) for n, r in zone.resources.items())),
        )
        for zone in report.zones
    )
    settings = (report.policy, report.scope, tuple(sorted(report.options.items())), report.max_numa_nodes, report.tracked)
    return (*settings, zones, report.fingerprint_method, report.placements is None)


def changes(before: Report, after: Report) -> NodeReportChanged | None:
    """The delta from `before` to `after`, or None when their content is equal."""
    available = _availability(before.zones, after.zones)
    old, new = by_key(before.placements or ()), by_key(after.placements or ())
    listed = tuple(p for key in new if new[key] != old.get(key) for p in new[key])
    unlisted = tuple(key for key in old if key not in new)
    if not (available or listed or unlisted) and before.fingerprint == after.fingerprint:
        return None
    return _delta(after, available, listed, unlisted)


def _availability(before: tuple[Zone, ...], after: tuple[Zone, ...]) -> dict[int, dict[str, int]]:
    found = {}
    for old, new in zip(before, after, strict=True):
        changed = {n: r.available for n, r in new.resources.items() if r.available != old.resources[n].available}
        if changed:
            found[new.id] = changed
    return found


def _delta(
    after: Report, available: dict[int, dict[str, int]], listed: tuple[Placement, ...], unlisted: tuple[str, ...]
) -> NodeReportChanged:
    return NodeReportChanged(
        node=after.node,
        boot_id=after.boot_id,
        boot_time_ms=after.boot_time_ms,
        exporter=after.exporter,
        available=available,
        listed=listed,
        unlisted=unlisted,
        fingerprint=after.fingerprint,
    )
