"""What a kubelet was about to give a pod when the report was read.

1. A kubelet admits one pod at a time, and its managers allocate one after another under the merged
   hint. A report that is read meanwhile lists devices and not yet CPUs, or CPUs and not yet memory.

2. Under single-numa-node the hint is one zone. So a pod of one container gets the rest in the zone
   in which the report lists the beginning, and the next moment of the node is known.

3. Not known are the ids of the rest. That matters for devices, and for CPUs if whole cores are
   given or init containers leave some. Then, and for pods of several containers, the state stays
   open until the next report (`PARTIALLY_LISTED`).

Must not know other pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from shared.domain.demand import ContainerDemand
from shared.domain.policies import SINGLE_NUMA_NODE
from shared.domain.report import Placement, Report, Zone, ZoneResource
from shared.domain.resources import Amounts, is_device, is_memory
from shared.ledger.state import ZoneAmounts


def rest_of(
    demand: Sequence[ContainerDemand], placements: Sequence[Placement], policy: str
) -> ZoneAmounts | None:
    """Return by zone what the listing lacks of a pod of one container; None if that is not
    known."""
    if policy != SINGLE_NUMA_NODE:
        return None
    if len(demand) != 1 or demand[0].kind != "app" or demand[0].zeros:
        return None
    items = [item for placement in placements for item in placement.held]
    zones = {zone for item in items for zone in item.zones}
    if len(zones) != 1:
        return None
    rest: Amounts = dict(demand[0].amounts)
    for item in items:
        rest[item.resource] = rest.get(item.resource, 0) - item.amount
    if min(rest.values()) < 0 or any(is_device(name) and rest[name] for name in rest):
        return None
    return {zones.pop(): {name: amount for name, amount in rest.items() if amount}}


def report_without(report: Report, taken: Iterable[ZoneAmounts]) -> Report | None:
    """Return the report with these amounts less in each zone; None if the figures of a zone differ,
    or are too small for a kubelet to have admitted the pods."""
    for zone_amounts in taken:
        zones = []
        for zone in report.zones:
            reduced = _zone_without(zone, zone_amounts.get(zone.id, {}))
            if reduced is None:
                return None
            zones.append(reduced)
        report = msgspec.structs.replace(report, zones=tuple(zones))
    return report


def _zone_without(zone: Zone, taken: Amounts) -> Zone | None:
    resources, free = dict(zone.resources), dict(zone.free)
    for name, amount in taken.items():
        whole = resources.get(name)
        if whole is None or whole.available < amount:
            return None
        if is_memory(name) and free.get(name, whole.available) != whole.available:
            return None
        resources[name] = ZoneResource(whole.capacity, whole.allocatable, whole.available - amount)
        if name in free:
            free[name] -= amount
    return msgspec.structs.replace(zone, resources=resources, free=free)
