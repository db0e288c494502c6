"""Devices of dynamic resource allocation by zone: how many a driver has, how many are allocatable,
how many are free.

Only devices count that have a zone and are allocated as a whole. The figures are for people and for
NodeResourceTopology objects. They decide nothing, because no pod requests these devices as a
resource. This module does not know where a report came from.
"""

from __future__ import annotations

from shared.domain.idlist import parse_ids
from shared.domain.report import Report, ZoneResource

PREFIX = "resource.k8s.io/"

# (driver, pool, device).
Held = set[tuple[str, str, str]]


def resource_name(driver: str) -> str:
    """Return the resource name for a driver's devices in a zone. No device plugin may use this
    domain.
    """
    return PREFIX + driver


def by_zone(report: Report) -> dict[int, dict[str, ZoneResource]]:
    """Return zone id -> resource -> counts. Raises ValueError if a list of ids is malformed."""
    if not report.dynamic:
        return {}
    allocated = _held(report)
    counts_by_zone: dict[int, dict[str, ZoneResource]] = {}
    for group in report.dynamic:
        ids = parse_ids(group.ids)
        device_count = len(ids) + len(parse_ids(group.withheld))
        free = sum((group.driver, group.pool, device_id) not in allocated for device_id in ids)
        for zone in group.zones if device_count else ():
            amounts = counts_by_zone.setdefault(zone, {})
            name = resource_name(group.driver)
            counted = amounts.get(name, ZoneResource(0, 0, 0))
            amounts[name] = ZoneResource(
                counted.capacity + device_count,
                counted.allocatable + len(ids),
                counted.available + free,
            )
    return counts_by_zone


def _held(report: Report) -> Held:
    return {
        (claim.driver, claim.pool, claim.device)
        for placement in report.placements or ()
        for claim in placement.claims
    }
