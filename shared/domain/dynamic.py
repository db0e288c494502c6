"""Devices of dynamic resource allocation by zone: how many a driver has there, how many may be
given away, how many are free.

Only devices whose zone somebody names count, and only those that are given away whole. No pod asks
for them as a resource: these figures are for people and for NodeResourceTopology objects, and
decide nothing. Must not know where a report came from.
"""

from __future__ import annotations

from shared.domain.idlist import parse_ids
from shared.domain.report import Report, ZoneResource

PREFIX = "resource.k8s.io/"

Held = set[tuple[str, str, str]]
"""(driver, pool, device)."""


def resource_name(driver: str) -> str:
    """What a driver's devices are called among a zone's resources; no device plugin may use this
    domain.
    """
    return PREFIX + driver


def by_zone(report: Report) -> dict[int, dict[str, ZoneResource]]:
    """Zone id -> resource -> counts. Raises ValueError for a list of ids that is none."""
    if not report.dynamic:
        return {}
    held = _held(report)
    found: dict[int, dict[str, ZoneResource]] = {}
    for group in report.dynamic:
        ids = parse_ids(group.ids)
        every = len(ids) + len(parse_ids(group.withheld))
        free = sum((group.driver, group.pool, each) not in held for each in ids)
        for zone in group.zones if every else ():
            amounts = found.setdefault(zone, {})
            name = resource_name(group.driver)
            before = amounts.get(name, ZoneResource(0, 0, 0))
            amounts[name] = ZoneResource(
                before.capacity + every, before.allocatable + len(ids), before.available + free
            )
    return found


def _held(report: Report) -> Held:
    return {
        (each.driver, each.pool, each.device)
        for placement in report.placements or ()
        for each in placement.claims
    }
