"""A node as a later report shows it: after some of its pods were evicted, or without any pod.
`what_if` alone leaves open when the kubelet gives resources back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from shared.domain.report import Report, Zone, ZoneResource
from shared.ledger.confirmation import held_zones
from shared.ledger.recompute import recompute
from shared.ledger.state import LedgerNode, LedgerPod, ZoneAmounts
from shared.ledger.view import listed_of
from shared.ledger.what_if import what_if


def reported_without(
    node: LedgerNode, uids: Collection[str], pods: Mapping[str, LedgerPod]
) -> LedgerNode:
    """Return the node without these pods: as reported if the newest report lists all that they
    hold, else by the ledger's bounds alone.
    """
    changed, report = what_if(node, uids, pods), node.report
    keys = {node.charges[uid].key for uid in uids}
    if report is None or not _lists_all(node, report, uids):
        return changed
    given_back = [held_zones(listed_of(node, key)) for key in keys]
    changed.listed = {key: each for key, each in (node.listed or {}).items() if key not in keys}
    zones = tuple(_with(zone, given_back) for zone in report.zones)
    changed.report = changed.basis = msgspec.structs.replace(report, zones=zones)
    changed.ended = {key: ended for key, ended in changed.ended.items() if key not in keys}
    recompute(changed)
    return changed


def emptied(node: LedgerNode) -> LedgerNode:
    """Return a new node of the same kind: nothing is held there, and nothing is charged."""
    empty = LedgerNode(node.name, node.observed, expired=node.expired, devices=node.devices)
    if node.basis is not None:
        zones = tuple(map(_empty_zone, node.basis.zones))
        empty.report = empty.basis = msgspec.structs.replace(node.basis, zones=zones, hidden=())
        empty.report_version, empty.listed = node.report_version, {}
    recompute(empty)
    return empty


def _lists_all(node: LedgerNode, report: Report, uids: Collection[str]) -> bool:
    """Return whether listings show in which zone each pod holds what: no memory over several zones,
    nothing hidden, no earlier pod of the name."""
    if node.listed is None or node.basis is not report or report.hidden or report.unlisted:
        return False
    if any(zone.group for zone in report.zones):
        return False
    charges = [node.charges[uid] for uid in uids]
    return all(
        charge.confirmed and charge.alias is None and charge.key not in node.ended
        for charge in charges
    )


def _with(zone: Zone, given_back: list[ZoneAmounts]) -> Zone:
    resources, free = dict(zone.resources), dict(zone.free)
    for zones in given_back:
        for name, amount in zones.get(zone.id, {}).items():
            if name in resources:
                resource = resources[name]
                resources[name] = ZoneResource(
                    resource.capacity, resource.allocatable, resource.available + amount
                )
            if name in free:
                free[name] += amount
    return msgspec.structs.replace(zone, resources=resources, free=free)


def _empty_zone(zone: Zone) -> Zone:
    resources = {
        name: ZoneResource(each.capacity, each.allocatable, each.allocatable)
        for name, each in zone.resources.items()
    }
    free = {name: resources[name].allocatable for name in zone.free if name in resources}
    return msgspec.structs.replace(zone, resources=resources, free=free, group=())
