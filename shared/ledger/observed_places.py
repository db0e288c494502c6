"""Placements by annotations of the pods that a report's fingerprint matches (`Charge.observed`).

1. Every pod that holds something exclusive must have an annotation, and it must cover the pod's
   whole demand.

2. Together they must be all that the report counts as used, so that nothing else holds anything. A
   zone with nothing available may count less than it holds, because a block over several zones is
   counted in each of them.

3. An annotation has the sums of a pod. Containers have names if there is one of them, or if the pod
   holds what they request in one zone.

Must not know who wrote the annotations, or how reports are matched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shared.domain.demand import ContainerDemand
from shared.domain.report import POD_LEVEL, Placement, Report, ZonedAmount
from shared.ledger.confirmation import covers
from shared.ledger.state import Charge

Listing = dict[str, tuple[Placement, ...]]


def observed_listing(
    report: Report,
    demands: Mapping[tuple[str, str], Sequence[ContainerDemand]],
    charges: Mapping[str, Charge],
) -> Listing | None:
    """Return the placements of the pods with these demands, by (key, uid); None if the annotations
    lack something. Pods without placements alone are no evidence either."""
    listing: Listing = {}
    for (key, uid), demand in sorted(demands.items()):
        parts = [part for part in demand if part.kind != "init" and part.amounts]
        if not parts:
            continue
        charge = charges.get(uid)
        if charge is None or not charge.observed:
            return None
        namespace, _, name = key.partition("/")
        tracked = tuple([item for item in charge.observed if item.resource in report.tracked])
        whole = Placement(namespace, name, POD_LEVEL, tracked, uid)
        if not covers(demand, [whole]):
            return None
        listing[key] = tuple(_by_container(whole, parts))
    placements = [placement for listed in listing.values() for placement in listed]
    return listing if placements and _is_all_in_use(report, placements) else None


def _by_container(whole: Placement, parts: Sequence[ContainerDemand]) -> list[Placement]:
    if len(parts) == 1:
        return [msgspec.structs.replace(whole, container=parts[0].name)]
    totals: dict[str, int] = {}
    for part in parts:
        for name, amount in part.amounts.items():
            totals[name] = totals.get(name, 0) + amount
    zones = {item.zones for item in whole.held}
    if len(zones) != 1 or totals != {item.resource: item.amount for item in whole.held}:
        return [whole]
    (zone,) = zones
    return [
        msgspec.structs.replace(
            whole,
            container=part.name,
            held=tuple([ZonedAmount(name, zone, part.amounts[name]) for name in part.amounts]),
        )
        for part in parts
    ]


def _is_all_in_use(report: Report, placements: Iterable[Placement]) -> bool:
    shown: dict[tuple[int, str], int] = {}
    for placement in placements:
        for item in placement.held:
            for zone_id in item.zones:
                place = zone_id, item.resource
                shown[place] = shown.get(place, 0) + item.amount
    for zone in report.zones:
        for name, amounts in zone.resources.items():
            used = amounts.allocatable - amounts.available
            amount = shown.pop((zone.id, name), 0)
            if used != amount and (amounts.available or used > amount):
                return False
    return not shown
