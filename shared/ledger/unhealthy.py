"""Devices that became unhealthy in somebody's hands: they stay with their pod, and with its end
nobody gets them.

So the end of a listed pod gives back all that it holds but these, and what is asked for by pods
that hold them is not taken from the healthy ones. Those that nobody holds vanish from the listing;
the kubelet may know of them still, in whatever zone. Must not know bounds or proofs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from shared.domain.idlist import format_ids, parse_ids
from shared.domain.report import DeviceGroup, Placement, Report, ZonedAmount
from shared.domain.resources import Amounts, is_device
from shared.ledger.state import LedgerNode

MOST_UNLISTED, MOST_UNLISTED_RESOURCES = 1024, 64
"""Devices by resource, and resources, that are remembered: no machine loses more in one boot, but a listing may claim it."""

Ids = Mapping[str, frozenset[str]]
"""By resource."""


def given_back(listed: Sequence[Placement], report: Report | None) -> tuple[Placement, ...]:
    """The placements as far as others can have what they hold; all of it where the report names no
    device by id.
    """
    if report is None or report.devices is None:
        return tuple(listed)
    healthy = _healthy(report.devices)
    return tuple([msgspec.structs.replace(each, held=_left(each.held, healthy)) for each in listed])


def offered_by_kubelet(node: LedgerNode, allocatable: Amounts) -> Amounts:
    """What pods may ask for on the node as a whole, those included that hold an unhealthy device:
    the kubelet offers healthy ones only, of which these hold none. By the report, where it says
    less than the node's object yet does."""
    report = node.report if node.report is node.basis else None
    names = doubted(node)
    if not names or report is None or report.devices is None:
        return allocatable
    live = {charge.key for charge in node.charges.values() if charge.alias is None}
    placements = [each for key in live for each in (node.listed or {}).get(key, ())]
    placements += [each for each in report.hidden if each.pod_uid in node.charges]
    kept = [item for each in placements for item in each.held if item.resource in names]
    found, every = dict(allocatable), _healthy(report.devices)
    for name in names & found.keys():
        healthy = every.get(name, frozenset())
        lost = (
            frozenset[str]().union(*[_ids(item.ids) for item in kept if item.resource == name])
            - healthy
        )
        found[name] = min(found[name], len(healthy)) + len(lost)
    return found


def unlisted(before: Report | None, known: Mapping[str, str], report: Report) -> dict[str, str]:
    """What reports of this boot listed, by resource, and this one does not: `known` by those
    `before`. Nothing of what was before the boot."""
    if (
        before is None
        or before.boot_id != report.boot_id
        or before.devices is None
        or report.devices is None
    ):
        return {}
    if before.devices == report.devices:
        return dict(known)
    found: dict[str, str] = {}
    listed, was = _listed(report), _listed(before)
    for name in sorted({*was, *known}):
        lost = (was.get(name, frozenset()) | _ids(known.get(name, ""))) - listed.get(
            name, frozenset()
        )
        if lost and len(found) < MOST_UNLISTED_RESOURCES:
            found[name] = format_ids(sorted(lost)[:MOST_UNLISTED])
    return found


def ever_in_zones(before: Report | None, known: Sequence[str], report: Report) -> tuple[str, ...]:
    """Resources of which reports of this boot listed a device in a zone: `known` by those before."""
    if before is not None and before.boot_id == report.boot_id and before.devices == report.devices:
        return tuple(known)
    kept = known if before is not None and before.boot_id == report.boot_id else ()
    found = {*kept, *(group.resource for group in report.devices or () if group.zones)}
    return tuple(sorted(found)[:MOST_UNLISTED_RESOURCES])


def may_lie_in_zones(node: LedgerNode, resource: str) -> bool:
    """Devices of the resource that are listed lie in no zone; may others that the node's object
    counts lie in one? Not those that this boot's reports listed before, in no zone, nor those that
    are held."""
    groups = [
        each
        for each in (node.report.devices or () if node.report is not None else ())
        if each.resource == resource
    ]
    if not groups or any(each.zones for each in groups):
        return False
    held = sum(len(_ids(each.unhealthy)) for each in groups)
    known = (
        len(_ids(node.unlisted_devices.get(resource, "")))
        if resource not in node.resources_in_zones
        else 0
    )
    counted = node.observed.unhealthy.get(resource, 0) if node.observed is not None else 0
    return counted > held + known


def _listed(report: Report) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for group in report.devices or ():
        found[group.resource] = (
            found.get(group.resource, frozenset()) | _ids(group.ids) | _ids(group.unhealthy)
        )
    return found


def doubted(node: LedgerNode) -> frozenset[str]:
    """Resources of which the kubelet may know of unhealthy devices that nobody lists: some are held
    unhealthy, or were listed, or the node's object counts more than it offers."""
    counted = node.observed.unhealthy if node.observed is not None else ()
    return frozenset({*node.unlisted_devices, *_unhealthy(node.report), *counted})


def _unhealthy(report: Report | None) -> set[str]:
    """Nearly always nothing."""
    return {
        group.resource
        for group in (report.devices or () if report is not None else ())
        if group.unhealthy
    }


@lru_cache(maxsize=1024)
def _healthy(devices: tuple[DeviceGroup, ...]) -> Ids:
    """What may be handed out, held or not. Not to be changed."""
    found: dict[str, frozenset[str]] = {}
    for group in devices:
        found[group.resource] = found.get(group.resource, frozenset()) | _ids(group.ids)
    return found


def _left(held: Sequence[ZonedAmount], healthy: Ids) -> tuple[ZonedAmount, ...]:
    found = []
    for item in held:
        ids = _ids(item.ids) if item.ids and is_device(item.resource) else frozenset()
        lost = ids - healthy.get(item.resource, frozenset())
        if not lost:
            found.append(item)
        elif ids != lost:
            found.append(
                msgspec.structs.replace(
                    item, amount=item.amount - len(lost), ids=format_ids(ids - lost)
                )
            )
    return tuple(found)


@lru_cache(maxsize=4096)
def _ids(text: str) -> frozenset[str]:
    return frozenset(parse_ids(text))
