"""Devices that became unhealthy while a pod held them.

1. They stay with their pod, and after its end no pod gets them. So the end of a listed pod gives
   back all that it holds except these.

2. Unhealthy devices that no pod holds vanish from the listing. The kubelet may still count them,
   in whatever zone.

Must not know bounds or confirmations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from shared.domain.idlist import format_ids, parse_ids
from shared.domain.report import DeviceGroup, Placement, Report, ZonedAmount
from shared.domain.resources import Amounts, is_device
from shared.ledger.state import LedgerNode

# Devices by resource, and resources, that are remembered. No machine loses more in one boot, but a
# listing may claim so.
MOST_UNLISTED, MOST_UNLISTED_RESOURCES = 1024, 64

# Device ids by resource.
Ids = Mapping[str, frozenset[str]]


def given_back(listed: Sequence[Placement], report: Report | None) -> tuple[Placement, ...]:
    """Return the placements without devices that no other pod can have; all of them if the report
    has no device ids."""
    if report is None or report.devices is None:
        return tuple(listed)
    healthy = _healthy(report.devices)
    return tuple(
        [
            msgspec.structs.replace(placement, held=_healthy_part(placement.held, healthy))
            for placement in listed
        ]
    )


def _healthy_part(held: Sequence[ZonedAmount], healthy: Ids) -> tuple[ZonedAmount, ...]:
    items = []
    for item in held:
        ids = _ids(item.ids) if item.ids and is_device(item.resource) else frozenset()
        lost = ids - healthy.get(item.resource, frozenset())
        if not lost:
            items.append(item)
        elif ids != lost:
            rest = format_ids(ids - lost)
            items.append(msgspec.structs.replace(item, amount=item.amount - len(lost), ids=rest))
    return tuple(items)


def offered_by_kubelet(node: LedgerNode, allocatable: Amounts) -> Amounts:
    """Return what pods may request on the node as a whole, including pods that hold an unhealthy
    device: the kubelet offers only healthy devices, and these pods hold none of them.

    The report counts if it has less than the node's object shows yet."""
    report = node.report if node.report is node.basis else None
    names = doubted(node)
    if not names or report is None or report.devices is None:
        return allocatable
    live = {charge.key for charge in node.charges.values() if charge.alias is None}
    placements = [placement for key in live for placement in (node.listed or {}).get(key, ())]
    placements += [hidden for hidden in report.hidden if hidden.pod_uid in node.charges]
    held_ids: dict[str, set[str]] = {}
    for placement in placements:
        for item in placement.held:
            held_ids.setdefault(item.resource, set()).update(_ids(item.ids))
    offered, healthy = dict(allocatable), _healthy(report.devices)
    for name in names & offered.keys():
        healthy_ids = healthy.get(name, frozenset())
        lost = held_ids.get(name, set()) - healthy_ids
        offered[name] = min(offered[name], len(healthy_ids)) + len(lost)
    return offered


def unlisted(before: Report | None, known_ids: Mapping[str, str], report: Report) -> dict[str, str]:
    """Return by resource the ids that reports of this boot listed and this one does not.
    `known_ids` is the answer for `before`, the report before it."""
    if before is None or before.boot_id != report.boot_id:
        return {}
    if before.devices is None or report.devices is None:
        return {}
    if before.devices == report.devices:
        return dict(known_ids)
    by_resource: dict[str, str] = {}
    listed, listed_before = _listed(report), _listed(before)
    for name in sorted({*listed_before, *known_ids}):
        earlier = listed_before.get(name, frozenset()) | _ids(known_ids.get(name, ""))
        lost = earlier - listed.get(name, frozenset())
        if lost and len(by_resource) < MOST_UNLISTED_RESOURCES:
            by_resource[name] = format_ids(sorted(lost)[:MOST_UNLISTED])
    return by_resource


def ever_in_zones(
    before: Report | None, known_resources: Sequence[str], report: Report
) -> tuple[str, ...]:
    """Return the resources of which reports of this boot listed a device in a zone.
    `known_resources` is the answer for `before`, the report before it."""
    same_boot = before is not None and before.boot_id == report.boot_id
    if same_boot and before is not None and before.devices == report.devices:
        return tuple(known_resources)
    now_in_zones = [group.resource for group in report.devices or () if group.zones]
    resources = {*(known_resources if same_boot else ()), *now_in_zones}
    return tuple(sorted(resources)[:MOST_UNLISTED_RESOURCES])


def may_lie_in_zones(node: LedgerNode, resource: str) -> bool:
    """Return True if the resource's listed devices are in no zone, but others that the node's
    object counts may be in one. Devices that reports of this boot listed in no zone, and held ones,
    are not counted."""
    devices = node.report.devices or () if node.report is not None else ()
    groups = [group for group in devices if group.resource == resource]
    if not groups or any(group.zones for group in groups):
        return False
    unhealthy = sum(len(_ids(group.unhealthy)) for group in groups)
    if resource not in node.resources_in_zones:
        unhealthy += len(_ids(node.unlisted_devices.get(resource, "")))
    counted = node.observed.unhealthy.get(resource, 0) if node.observed is not None else 0
    return counted > unhealthy


def _listed(report: Report) -> dict[str, frozenset[str]]:
    by_resource: dict[str, frozenset[str]] = {}
    for group in report.devices or ():
        ids = by_resource.get(group.resource, frozenset())
        by_resource[group.resource] = ids | _ids(group.ids) | _ids(group.unhealthy)
    return by_resource


def doubted(node: LedgerNode) -> frozenset[str]:
    """Return the resources of which the kubelet may count unhealthy devices that no report lists:
    some are held unhealthy, or were listed, or the node's object counts more than it offers."""
    counted = node.observed.unhealthy if node.observed is not None else ()
    return frozenset({*node.unlisted_devices, *_unhealthy(node.report), *counted})


def _unhealthy(report: Report | None) -> set[str]:
    groups = (report.devices or ()) if report is not None else ()
    return {group.resource for group in groups if group.unhealthy}


@lru_cache(maxsize=1024)
def _healthy(devices: tuple[DeviceGroup, ...]) -> Ids:
    """Return the ids that may be handed out, held or not. Read only."""
    by_resource: dict[str, frozenset[str]] = {}
    for group in devices:
        ids = by_resource.get(group.resource, frozenset())
        by_resource[group.resource] = ids | _ids(group.ids)
    return by_resource


@lru_cache(maxsize=4096)
def _ids(text: str) -> frozenset[str]:
    return frozenset(parse_ids(text))
