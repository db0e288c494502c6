"""Allocatable and free amounts of a node by zone: of the reported zones, and of the resources whose
zones Topolog chooses. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from services.scheduler.snapshot.owned_state import holding_of, owned_names, owned_node
from services.scheduler.snapshot.owners import is_owned_resource, owners_of
from services.scheduler.snapshot.topology_policy import Rule
from shared.domain.report import Zone
from shared.ledger.state import LedgerNode
from shared.owned.free import free_of


class ZoneAmount(NamedTuple):
    """One resource of a zone. `free_min` is guaranteed free, `free_max` is free at most."""

    allocatable: int
    free_min: int
    free_max: int


NOTHING = ZoneAmount(0, 0, 0)


def zone_amounts(node: LedgerNode) -> dict[int, dict[str, ZoneAmount]]:
    """Return zone -> resource -> amounts, in order of names; {} without a report."""
    amounts = {
        zone.id: {name: _reported(node, zone, name) for name in zone.resources}
        for zone in _zones(node)
    }
    if is_owned(node):
        for zone, owned in _owned(node).items():
            amounts[zone] |= owned
    return {zone: dict(sorted(in_zone.items())) for zone, in_zone in amounts.items()}


def amounts_of(node: LedgerNode, resource: str) -> dict[int, ZoneAmount]:
    """Return zone -> amounts of one resource, with zones that have none of it."""
    if is_owned(node) and is_owned_resource(resource):
        owned = _owned(node)
        return {zone.id: owned[zone.id].get(resource, NOTHING) for zone in _zones(node)}
    return {zone.id: _reported(node, zone, resource) for zone in _zones(node)}


def resources_in(node: LedgerNode) -> set[str]:
    """Return every resource that a zone of the node has."""
    names = {name for zone in _zones(node) for name in zone.resources}
    if is_owned(node):
        names.update(*owned_names(node.report, node.observed).values())
    return names


def is_owned(node: LedgerNode) -> bool:
    """Return whether Topolog chooses the node's zones."""
    return node.report is not None and owners_of(node.report).is_owned


def _zones(node: LedgerNode) -> tuple[Zone, ...]:
    return node.report.zones if node.report is not None else ()


def _reported(node: LedgerNode, zone: Zone, name: str) -> ZoneAmount:
    size = zone.resources.get(name)
    if size is None:
        return NOTHING
    least, most = (
        max(0, bound.get(zone.id, {}).get(name, 0)) for bound in (node.free_min, node.free_max)
    )
    return ZoneAmount(size.allocatable, least, most)


def _owned(node: LedgerNode) -> dict[int, dict[str, ZoneAmount]]:
    """A pod without an allocation may be in every zone, so it counts for `free_min` only."""
    machine = owned_node(node.name, (node.report, node.observed, Rule()))
    zones = [zone.zone for zone in machine.zones]
    holdings = [
        holding
        for charge in node.charges.values()
        if (holding := holding_of(charge, zones)) is not None
    ]
    least = free_of(machine, holdings)
    most = free_of(machine, [holding for holding in holdings if holding.is_chosen])
    return {
        zone: {
            name: ZoneAmount(size, least.amounts[zone][name], most.amounts[zone][name])
            for name, size in sizes.items()
        }
        for zone, sizes in least.capacity.items()
    }
