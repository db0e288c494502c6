"""How large a node's zones are when they are empty: what decides how many zones the kubelet prefers."""

from __future__ import annotations

from collections.abc import Iterable

from shared.domain.device_zones import between_zones
from shared.domain.report import Report, Zone
from shared.domain.resources import Amounts, is_memory


def size_in(zone: Zone, name: str) -> int:
    """What the kubelet counts for the size of preferred hints: CPUs and devices whole, also reserved or unhealthy ones;
    memory by what is allocatable (kubelet 1.36)."""
    held = zone.resources.get(name)
    if held is None:
        return 0
    return held.allocatable if is_memory(name) else held.capacity


def is_plain(report: Report) -> bool:
    """No options, nothing hidden, no groups of zones, no device between zones: what is free in a zone is free there alone."""
    if report.options or report.hidden or any(zone.group for zone in report.zones):
        return False
    return not between_zones(report) and all(group.zones for group in report.devices or ())


_latest: tuple[Report | None, Amounts] = (None, {})
"""One node is asked about many times in a row; reports are values, so that the answer stays."""


def capacities(report: Report) -> Amounts:
    """The largest zone by resource; read only."""
    global _latest
    if _latest[0] is not report:
        _latest = report, _largest(report)
    return _latest[1]


def _largest(report: Report) -> Amounts:
    largest: Amounts = {}
    for zone in report.zones:
        for name in zone.resources:
            largest[name] = max(largest.get(name, 0), size_in(zone, name))
    return largest


def fits_one_zone(parts: Iterable[Amounts], report: Report | None) -> bool:
    """True when each part's amounts fit the largest zone, resource by resource: the preferred hints are then single zones."""
    if report is None:
        return True
    largest = capacities(report)
    return all(largest.get(name, 0) >= held for part in parts for name, held in part.items())
