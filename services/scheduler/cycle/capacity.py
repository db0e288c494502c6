"""How large a node's zones are when they are empty: what decides how many zones the kubelet prefers."""

from __future__ import annotations

from shared.domain.report import Report
from shared.domain.resources import Amounts


def capacities(report: Report) -> Amounts:
    """The largest zone by resource: what decides how many zones a preferred hint has (CPUs count whole, also when used;
    memory by what is allocatable)."""
    largest: Amounts = {}
    for zone in report.zones:
        for name, held in zone.resources.items():
            size = held.capacity if name == "cpu" or "/" in name else held.allocatable
            largest[name] = max(largest.get(name, 0), size)
    return largest
