"""The bounds of a node by zone: amounts that are guaranteed free (`free_min`) and amounts that are
free at most (`free_max`).

1. The base is the basis report's availability plus the placements that the newest report lists
   for pods known to have ended, never above the allocatable amount.

2. free_min is the base less what every live pod could hold that the report does not confirm, and
   less the claims of nominated pods.

3. free_max is the base plus what pods that ended since may have freed although no listing shows
   it.

Both are bounds, not states of a kubelet: admission is not monotone in free capacity.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from shared.domain.report import Placement
from shared.domain.resources import Amounts, is_memory
from shared.ledger.confirmation import held_zones
from shared.ledger.state import LedgerNode, ZoneAmounts
from shared.ledger.unhealthy import given_back
from shared.ledger.unlisted_blocks import zones_in_groups


def listed_of(node: LedgerNode, key: str) -> tuple[Placement, ...]:
    """Return the placements that the newest report lists for `namespace/name`."""
    return (node.listed or {}).get(key, ())


def is_contradicted(node: LedgerNode, key: str) -> bool:
    """Return True if the newest report lists a pod that ended by absence from a list alone.

    A list may lack a running pod (a stale or incomplete answer of the API server). The kubelet's
    report is the better evidence: the pod stays charged until a report lacks it."""
    ended = node.ended.get(key)
    if ended is None or ended.absent is None:
        return False
    listed = listed_of(node, key)
    uids = {placement.pod_uid for placement in listed if placement.pod_uid}
    return bool(listed) and (not uids or ended.absent.uid in uids)


def base_bound(node: LedgerNode) -> ZoneAmounts:
    """Return the base of both bounds (paragraph 1 above)."""
    basis = node.basis
    if basis is None:
        return {}
    if basis is node.report and not node.ended:  # nearly always
        return {
            zone.id: {
                name: r.available if r.available < r.allocatable else r.allocatable
                for name, r in zone.resources.items()
            }
            for zone in basis.zones
        }
    bound = {
        zone.id: {name: r.available for name, r in zone.resources.items()} for zone in basis.zones
    }
    live = {charge.key for charge in node.charges.values() if charge.alias is None}
    ended = {key for key in node.ended if key not in live and not is_contradicted(node, key)}
    for key in sorted(ended):
        _restore_listed(bound, node, key)
    _without_shared_blocks(bound, node, ended)
    _without_moved_bytes(bound, node, ended)
    return _capped(bound, node)


def _restore_listed(bound: ZoneAmounts, node: LedgerNode, key: str) -> None:
    restore(bound, held_zones(given_back(listed_of(node, key), node.report)))


def _without_shared_blocks(bound: ZoneAmounts, node: LedgerNode, ended: Collection[str]) -> None:
    """Limit free memory to what the blocks of the other listed pods leave.

    Reports count a block over several zones in full in each of them, and show nothing available if
    the sum exceeds the allocatable amount. Giving one block back must not free bytes of another."""
    full = _full_zones(node, ended)
    if not full:
        return
    listed = node.listed or {}
    staying = held_zones(p for key in listed if key not in ended for p in listed[key])
    for zone, name, allocatable in full:
        rest = max(0, allocatable - staying.get(zone, {}).get(name, 0))
        bound[zone][name] = min(bound[zone][name], rest)


def _without_moved_bytes(bound: ZoneAmounts, node: LedgerNode, ended: Collection[str]) -> None:
    """Leave out what an ended block over several zones may leave taken in one of them.

    The Memory Manager gives a block back in the lowest of its zones that have something taken,
    although another block took it there (kubelet 1.36, releaseMemory): as much stays taken in the
    other zones."""
    blocks = [
        item
        for key in ended
        for placement in listed_of(node, key)
        for item in placement.held
        if len(item.zones) > 1 and is_memory(item.resource)
    ]
    if not blocks:
        return
    listed = node.listed or {}
    staying = [item for key in listed if key not in ended for p in listed[key] for item in p.held]
    for block in blocks:
        others = [
            (set(item.zones), item.amount)
            for item in staying
            if item.resource == block.resource and not set(block.zones).isdisjoint(item.zones)
        ]
        for zone in block.zones:
            elsewhere = sum([amount for zones, amount in others if zone not in zones])
            if elsewhere and zone in bound and block.resource in bound[zone]:
                bound[zone][block.resource] -= min(block.amount, elsewhere)


def _full_zones(node: LedgerNode, ended: Collection[str]) -> list[tuple[int, str, int]]:
    """Return (zone, memory resource, allocatable) without anything available, of which ended pods
    held some: nearly always none."""
    given = set()
    for key in ended:
        for placement in listed_of(node, key):
            given.update([item.resource for item in placement.held if is_memory(item.resource)])
    full = []
    for zone in node.basis.zones if given and node.basis is not None else ():
        for name in given & zone.resources.keys():
            amounts = zone.resources[name]
            if not amounts.available:
                full.append((zone.id, name, amounts.allocatable))
    return full


def _copy(bound: ZoneAmounts) -> ZoneAmounts:
    return {zone: dict(amounts) for zone, amounts in bound.items()}


def compute_free_max(node: LedgerNode, base: ZoneAmounts | None = None) -> ZoneAmounts:
    """Return the amounts free at most in each zone of the basis report. `base` is the node's
    `base_bound`, if the caller has it.

    Reports count a memory block over several zones in full in each of them, and each of these zones
    may have given none of it."""
    bound = _copy(base_bound(node) if base is None else base)
    if node.listed is None:
        _restore_unlisted(bound, node)
    several = [
        item
        for placements in (node.listed or {}).values()
        for placement in placements
        for item in placement.held
        if len(item.zones) > 1 and is_memory(item.resource)
    ]
    for item in several:
        restore(bound, {zone: {item.resource: item.amount} for zone in item.zones})
    for freed in node.freed:
        restore(bound, freed.zones)
    contradicted = [key for key in node.ended if is_contradicted(node, key)]
    for key in contradicted:  # the pod may have ended all the same
        _restore_listed(bound, node, key)
    return _capped(bound, node) if node.freed or several or contradicted else bound


def _restore_unlisted(bound: ZoneAmounts, node: LedgerNode) -> None:
    """Zones that may share memory blocks may each have given none of them."""
    grouped = zones_in_groups(node)
    for zone in node.basis.zones if node.basis is not None and grouped else ():
        if zone.id in grouped:
            for name, amounts in zone.resources.items():
                if is_memory(name):
                    bound[zone.id][name] = amounts.allocatable


def _capped(bound: ZoneAmounts, node: LedgerNode) -> ZoneAmounts:
    """Never more than the newest report calls allocatable: a device that became unhealthy is not
    free."""
    newest = node.report
    if newest is None:
        return bound
    allocatable = {zone.id: zone.resources for zone in newest.zones}
    for zone, amounts in bound.items():
        limits = allocatable.get(zone, {})
        for name, amount in amounts.items():
            limit = limits[name].allocatable if name in limits else 0
            if amount > limit:
                amounts[name] = limit
    return bound


def compute_free_min(node: LedgerNode, base: ZoneAmounts | None = None) -> ZoneAmounts:
    """Return the amounts guaranteed free in each zone of the basis report; negative if charges
    overlap.

    If the Memory Manager's own figure is lower than what the listing leaves, it counts more: init
    containers of a pod that a restarted kubelet admitted again hold memory that they never use."""
    bound = _copy(base_bound(node) if base is None else base)
    basis = node.basis
    if basis is not None and node.listed is None and not basis.counts_blocks_in_full:
        for number in zones_in_groups(node):  # which of them has it free is not known
            bound[number] = {n: 0 if is_memory(n) else a for n, a in bound[number].items()}
    for zone in basis.zones if basis is not None else ():
        amounts = bound[zone.id]
        for name, free in zone.free.items():
            counted = zone.resources.get(name)
            if counted is not None and counted.available > free and name in amounts:
                amounts[name] -= counted.available - free
    for name in basis.unlisted if basis is not None else ():
        reserved = _reserved(node, name)
        for amounts in bound.values():
            if name in amounts:
                amounts[name] -= reserved
    for charge in node.charges.values():
        if charge.zones:
            subtract(bound, charge.zones)
    for claim in node.claims.values():
        subtract(bound, claim)
    return bound


def _reserved(node: LedgerNode, name: str) -> int:
    """Return how much more the zones have of an unlisted resource than the node allocates. The
    kubelet reserves it, and any zone may have all of it."""
    if node.basis is None or node.observed is None:
        return 0
    zones = [zone.resources for zone in node.basis.zones]
    total_in_zones = sum(zone[name].allocatable for zone in zones if name in zone)
    return max(0, total_in_zones - node.observed.allocatable.get(name, total_in_zones))


def subtract(bound: ZoneAmounts, amounts_by_zone: ZoneAmounts) -> None:
    """Take amounts out of a bound in place. Unknown zones and resources are ignored."""
    for zone, amounts in amounts_by_zone.items():
        target = bound.get(zone)
        if target:
            for name, amount in amounts.items():
                if name in target:
                    target[name] -= amount


def restore(bound: ZoneAmounts, amounts_by_zone: ZoneAmounts) -> None:
    """Undo `subtract`."""
    for zone, amounts in amounts_by_zone.items():
        target = bound.get(zone)
        if target:
            for name, amount in amounts.items():
                if name in target:
                    target[name] += amount


def clamped(bound: ZoneAmounts) -> ZoneAmounts:
    """Return the bound for people: without negative amounts."""
    return {
        zone: {name: max(0, amount) for name, amount in amounts.items()}
        for zone, amounts in bound.items()
    }


def total(bounds: Iterable[Amounts]) -> Amounts:
    """Return the sum over zones by resource."""
    sums: Amounts = {}
    for amounts in bounds:
        for name, amount in amounts.items():
            sums[name] = sums.get(name, 0) + amount
    return {name: sums[name] for name in sorted(sums)}
