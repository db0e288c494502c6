"""What a kubelet was about to give a pod when the report was read.

1. A kubelet admits one pod at a time, and its managers allocate one after another under the merged
   hint. A report that is read meanwhile lists devices and not yet CPUs, or CPUs and not yet memory.

2. Under single-numa-node the hint is one zone. So a pod of one container gets the rest in the zone
   in which the report lists the beginning, and the next moment of the node is known.

3. Not known are the ids of the rest. That matters for devices, and for CPUs if whole cores are
   given or init containers leave some. Then, and for pods of several containers, the state stays
   open until the next report (`PARTIALLY_LISTED`).

4. To predict, the admission is played again from the moment before it (`as_before`). That proves
   nothing, because other pods may have ended meanwhile.

Must not know other pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from shared.domain.demand import ContainerDemand
from shared.domain.policies import SINGLE_NUMA_NODE
from shared.domain.report import Placement, Report, Zone, ZoneResource
from shared.domain.resources import Amounts, is_device, is_memory
from shared.ledger.state import Charge, LedgerNode, ZoneAmounts


class Before(NamedTuple):
    """A node as it was before the admissions that its report shows half done; these `begun` ones
    are the first of the charges.
    """

    node: LedgerNode
    report: Report
    charges: tuple[Charge, ...]
    begun: int


def is_partial(charge: Charge, listed: Sequence[Placement]) -> bool:
    """Return True if the report was read while the kubelet admitted this pod: it shows devices of a
    container and not yet CPUs, or one container and not yet the next. What the pod is being given
    is in the zones of its merged hint, which the rest does not show."""
    if charge.confirmed or charge.alias is not None or charge.confirmed_zones:
        return False
    return bool(charge.demand) and any(placement.held for placement in listed)


def as_before(node: LedgerNode, report: Report, charges: Sequence[Charge]) -> Before | None:
    """Return None if the report does not show in which zones the half admitted pods hold what it
    lists."""
    listed = dict(node.listed or {})
    begun = [charge for charge in charges if is_partial(charge, listed.get(charge.key, ()))]
    given_back: list[ZoneAmounts] = []
    for charge in begun:
        for placement in listed.pop(charge.key, ()):
            for item in placement.held:
                if len(item.zones) > 1:
                    return None
                given_back += [{zone: {item.resource: -item.amount}} for zone in item.zones]
    earlier = report_without(report, given_back)
    if earlier is None:
        return None
    ordered = (*begun, *[charge for charge in charges if charge not in begun])
    return Before(msgspec.structs.replace(node, listed=listed), earlier, ordered, len(begun))


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
